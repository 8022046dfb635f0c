"""The output of an audit, and its exit codes."""

import json

import pytest

from weft.cli.look.audit.command import _bytes, _lines, _share
from weft.inspect.audit.proxy_memory import AMBIENT, PodMemory, costs
from weft.inspect.audit.report import AuditReport, Section

pytestmark = pytest.mark.root


def test_accepted_plaintext_exits_with_1_and_has_a_hint(weft, mesh):
    done = weft("audit", "--mesh", mesh)
    assert done.returncode == 1, done.stderr
    assert (
        "warning: Namespace shop: job, talker accept plaintext beside mutual TLS: PERMISSIVE is the default"
        in done.stdout
    )
    assert (
        "next: once there are no plaintext calls, create a STRICT PeerAuthentication for namespace shop" in done.stdout
    )
    assert "2 certificates of proxies, the first expires at " in done.stdout
    assert done.stderr == f"mesh {mesh}: 0 errors, 1 warning, 1 info\n"


def test_json_holds_the_same_and_what_was_measured(weft, mesh):
    done = weft("audit", "--mesh", mesh, "-o", "json")
    said = json.loads(done.stdout)
    assert done.returncode == 1 and [each["name"] for each in said["sections"]] == [
        *("errors", "namespaces", "without-proxy", "plaintext", "certificates", "policies", "memory")
    ]
    (row,) = said["memory"]
    assert (row["workload"], row["pods"], row["sharing"]) == ("talker", 2, 2)
    assert row["proxy"] > 1_000_000 and row["application"] > 100_000 and row["proxy_from"] == "measured"


def test_a_namespace_with_nothing_in_it_needs_nothing(weft, mesh):
    done = weft("audit", "--mesh", mesh, "-n", "other")
    assert (done.returncode, done.stdout.count("nothing found")) == (0, 6)


def test_a_mesh_and_a_cluster_at_once_are_a_usage_error(weft, mesh):
    assert weft("audit", "--mesh", mesh, "--kubernetes").returncode == 2


def test_the_table_of_memory_has_the_source_of_each_figure():
    rows = costs([PodMemory("web", "shop", "a", 40_000_000, "request", None, "no limit")])
    text = "\n".join(_lines(AuditReport("x", (Section("memory", "Memory", (AMBIENT,)),), rows)))
    assert "40.0 MB (request)" in text and "no limit" in text and "not measured" in text
    assert _bytes(None, "") == "-"


def test_a_large_share_is_shown_as_a_factor():
    assert [_share(each) for each in (None, 0.2, 1.5, 172.15)] == ["-", "20%", "150%", "172 ×"]
