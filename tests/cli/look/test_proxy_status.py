import json

import pytest

from weft.cli.look.proxy_status import _proxies, _tell_refusals
from weft.control.sync_status import STALE, ProxySync, TypeSync
from weft.xds.types import CLUSTER

pytestmark = pytest.mark.root


def test_lists_every_proxy_with_its_types(weft, mesh):
    done = weft("proxy-status", "--mesh", mesh)
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header == ["NAME", "CLUSTER", "CDS", "LDS", "EDS", "RDS", "ECDS", "ISTIOD", "VERSION"]
    assert [row[0] for row in rows] == ["talker-0.shop", "talker-1.shop"]  # the job is done, and its proxy with it
    assert all(row[2:4] == ["SYNCED", "SYNCED"] for row in rows)
    assert weft("x", "proxy-status", "--mesh", mesh).stdout == done.stdout


def test_one_proxy_is_compared_with_what_it_was_sent(weft, mesh):
    done = weft("proxy-status", "talker-0.shop", "--mesh", mesh)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Clusters Match")


def test_a_dump_from_a_file_is_compared_too(weft, mesh, tmp_path):
    dump = weft("proxy-config", "all", "talker-0", "-o", "json", "--mesh", mesh).stdout
    (tmp_path / "dump.json").write_text(dump.replace("PassthroughCluster", "ThroughCluster"))
    done = weft("proxy-status", "talker-0", "--mesh", mesh, "--file", tmp_path / "dump.json")
    assert done.returncode == 1
    assert done.stdout.startswith("Clusters Don't Match\n")
    assert "  PassthroughCluster: Envoy does not have it\n" in done.stdout
    assert "  ThroughCluster: Envoy has it, but the control plane did not send it\n" in done.stdout
    done = weft("proxy-status", "talker-0", "--mesh", mesh, "--file", tmp_path / "dump.json", "-o", "json")
    assert {"PassthroughCluster", "ThroughCluster"} <= {each["name"] for each in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nobody",), 1, "no workload or pod `nobody`"),
        (("job",), 1, "`job` has no proxy"),
        (("--file", "dump.json"), 2, "--file needs a pod"),
        (("talker-0", "--file", "/nonexistent"), 1, "/nonexistent: No such file"),
        (("talker-0", "--file", __file__), 1, "the dump is not JSON"),
    ],
)
def test_invalid_arguments_are_errors(weft, mesh, arguments, code, said):
    done = weft("proxy-status", *arguments, "--mesh", mesh)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr


@pytest.mark.parametrize("said", ["[]", "{}", '{"cluster_statuses": []}'])
def test_another_file_is_not_taken_for_an_envoy_that_has_nothing(weft, mesh, tmp_path, said):
    (tmp_path / "dump.json").write_text(said)
    done = weft("proxy-status", "talker-0", "--mesh", mesh, "--file", tmp_path / "dump.json")
    assert (done.returncode, done.stdout) == (1, "") and "hint: " in done.stderr and "config_dump" in done.stderr


def test_a_namespace_without_proxies_is_reported(weft, mesh):
    done = weft("proxy-status", "-n", "other", "--mesh", mesh)
    assert (done.returncode, done.stdout) == (0, "") and "no proxy is connected\nhint: " in done.stderr


def test_a_proxy_that_moved_between_replicas_is_listed_once():
    class Reached:
        def ask_all(self, page, query):
            old = ProxySync("web-0.shop", istiod="one", connected_at="2026-01-01T10:00:00.000Z")
            new = ProxySync("web-0.shop", istiod="two", connected_at="2026-01-01T10:00:05.000Z")
            other = ProxySync("api-0.shop", istiod="one")
            return {"two": _encoded(new), "one": _encoded(old, other)}

    assert [(each.proxy, each.istiod) for each in _proxies(Reached(), "")] == [
        ("api-0.shop", "one"),
        ("web-0.shop", "two"),
    ]


def _encoded(*proxies):
    import msgspec

    return msgspec.json.encode(proxies)


@pytest.mark.parametrize(("runs_pods", "command"), [(True, "weft status"), (False, "weft describe pod web-0.shop")])
def test_the_command_that_names_the_object_at_fault_fits_the_mesh(runs_pods, command, capsys):
    class Reach:
        pass

    reach = Reach()
    reach.runs_pods = runs_pods
    rejected = TypeSync(STALE, last_error="bad regex")
    _tell_refusals(reach, [ProxySync("web-0.shop", resources={CLUSTER: rejected})])
    assert capsys.readouterr().err == (
        f"web-0.shop rejected CDS bad regex\nhint: the object at fault is shown by: {command}\n"
    )
