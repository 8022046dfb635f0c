"""Tests of the audit's sections on plaintext and certificates."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from analyze.meshes import WEB, facts
from weft.api.parse import parse
from weft.base.problem import Problem, Severity, Where
from weft.ca.authority import Terms
from weft.files.documents import read_documents
from weft.inspect.audit.report import (
    BACKDATED,
    AuditReport,
    Certificate,
    Section,
    certificates,
    certificates_of,
    errors,
    of_codes,
    plaintext,
    policies,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def policy(mode, *, namespace="shop", selector="", ports="", name="default"):
    chosen = f"selector: {{matchLabels: {{{selector}}}}}, " if selector else ""
    levels = f", portLevelMtls: {{{ports}}}" if ports else ""
    return (
        f"---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\n"
        f"metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{chosen}mtls: {{mode: {mode}}}{levels}}}\n"
    )


def said(text, namespace=""):
    return plaintext(facts(text), namespace)


def test_without_a_policy_plaintext_is_accepted_by_default_and_the_workloads_are_named():
    (found,) = said(WEB).findings
    assert found.where.object == "Namespace shop" and found.severity is Severity.WARNING
    assert found.what.startswith("web-v1, web-v2 accept plaintext beside mutual TLS: PERMISSIVE is the default")
    assert "STRICT PeerAuthentication for namespace shop" in found.hint


@pytest.mark.parametrize(
    ("policies", "workloads", "by"),
    [
        (policy("PERMISSIVE"), "web-v1, web-v2 ", "PeerAuthentication shop/default"),
        (policy("STRICT") + policy("DISABLE", selector="version: v2", name="v2"), "web-v2 ", "PeerAuthentication shop/v2"),
        (policy("PERMISSIVE", namespace="istio-system"), "web-v1, web-v2 ", "PeerAuthentication istio-system/default"),
        # A PeerAuthentication whose mode is UNSET decides nothing.
        (
            policy("DISABLE") + policy("UNSET", selector="version: v2", name="v2"),
            "web-v1, web-v2 ",
            "PeerAuthentication shop/default",
        ),
    ],
)  # fmt: skip
def test_the_deciding_policy_has_its_line(policies, workloads, by):
    (found,) = said(WEB + policies).findings
    assert found.where.object == by and found.what.startswith(workloads)
    assert found.where.file == "mesh.yaml" and found.where.line > 0
    assert "decided by this PeerAuthentication" in found.what


def test_a_port_with_another_mode_is_found():
    text = (
        WEB + policy("STRICT", selector="version: v1", ports="8080: {mode: PERMISSIVE}", name="v1") + policy("STRICT")
    )
    (found,) = said(text).findings
    assert found.what == "port 8080 of shop/web-v1 accepts plaintext: PERMISSIVE, by portLevelMtls"
    assert found.where.object == "PeerAuthentication shop/v1"


def test_a_mesh_that_accepts_only_mutual_tls_is_reported_as_such():
    section = said(WEB + policy("STRICT", namespace="istio-system"))
    assert section.findings == () and section.told == ("every workload accepts only mutual TLS",)


def test_workloads_without_a_proxy_and_other_namespaces_are_left_out():
    assert said(WEB, "other").findings == ()
    text = WEB.replace("labels: {app", 'labels: {sidecar.istio.io/inject: "false", app')
    assert said(text).findings == ()


def certificate(left, life=timedelta(hours=24)):
    return Certificate("web-0.shop", NOW + left - life, NOW + left)


@pytest.mark.parametrize(
    ("left", "severity", "words"),
    [
        (timedelta(hours=23), None, ""),
        (timedelta(hours=4), None, ""),  # renewed when a fifth is left, a little earlier or later
        (timedelta(hours=3), Severity.WARNING, "in 3 hours, and should have been renewed"),
        (timedelta(seconds=-1), Severity.ERROR, "expired at 2025-12-31 23:59:59 UTC"),
    ],
)
def test_a_certificate_that_was_not_renewed_in_time_is_found(left, severity, words):
    section = certificates([certificate(left)], (), NOW)
    assert [each.severity for each in section.findings] == ([severity] if severity else [])
    assert all(words in each.what and "web-0.shop" in each.where.object for each in section.findings)
    assert section.told[0].startswith("1 certificate of proxies, the first expires at ")


def test_certificates_that_live_for_seconds_are_not_reported_while_they_are_renewed_in_time():
    life = timedelta(seconds=10)
    assert Terms().skew == BACKDATED
    for left, count in ((2.0, 0), (1.0, 1)):
        left = timedelta(seconds=left)
        short = Certificate("web-0.shop", NOW + left - life - Terms().skew, NOW + left)  # it begins before it is issued
        assert len(certificates([short], (), NOW).findings) == count


def test_an_expiring_certificate_that_weft_does_not_renew_is_reported_with_its_names_and_source():
    held = certificate(timedelta(minutes=30))
    theirs = msgspec.structs.replace(held, names=("shop.example.com",))
    (found,) = certificates([theirs], (), NOW).findings
    assert found.what.startswith("its certificate for shop.example.com expires at ")
    assert "weft proxy-config secret web-0.shop --why" in found.hint and "agent" not in found.hint


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ([{"uri": "spiffe://cluster.local/ns/shop/sa/web"}], ()),
        ([{"dns": "shop.example.com"}, {"ip_address": "192.0.2.1"}], ("shop.example.com", "192.0.2.1")),
        ([{"uri": "https://shop.example.com"}], ("https://shop.example.com",)),
        ([], ()),
    ],
)
def test_certificate_names_come_from_envoys_subject_alt_names(said, names):
    own = {"valid_from": "2026-01-01T00:00:00Z", "expiration_time": "2026-01-02T00:00:00Z", "subject_alt_names": said}
    answer = {"certificates": [{"cert_chain": [own]}]}
    (found,) = certificates_of("web-0.shop", json.dumps(answer).encode())
    assert found.names == names


def test_problems_of_the_ca_are_in_the_section_on_certificates():
    problem = Problem(Where(object="CA"), "ends soon")
    assert certificates([], [problem], NOW).findings == (problem,)


def test_each_certificate_chain_counts_once_by_its_first_certificate():
    own = {"serial_number": "a", "valid_from": "2026-01-01T00:00:00Z", "expiration_time": "2026-01-02T00:00:00Z"}
    authority = {**own, "serial_number": "b", "expiration_time": "2036-01-01T00:00:00Z"}
    answer = {"certificates": [{"ca_cert": [authority], "cert_chain": [own, authority]}] * 3 + [{"ca_cert": []}]}
    (found,) = certificates_of("web-0.shop", json.dumps(answer).encode())
    assert (found.serial, found.expires) == ("a", NOW + timedelta(days=1))


def test_only_warnings_and_errors_need_action():
    def report(severity):
        return AuditReport("mesh x", (Section("a", "A", (), (Problem(Where(), "x", severity=severity),)),))

    assert [report(each).must_act for each in Severity] == [True, True, False]


def test_problems_are_selected_by_code():
    problems = [Problem(Where(), "x", code="WFT0503"), Problem(Where(), "y", code="WFT0301")]
    assert of_codes(problems, ("WFT0503",)) == (problems[0],)


def test_a_rejected_object_is_in_the_section_on_errors():
    refused = Problem(Where(object="VirtualService shop/web"), "unknown field", code="WFT0001")
    ended = Problem(Where(object="CA"), "it has ended")
    slight = Problem(Where(object="Service shop/web"), "x", severity=Severity.WARNING)
    assert errors([refused, slight, ended, refused]).findings == (refused,)
    assert errors([slight]).told == ("no object is rejected",)


def test_a_principal_that_matches_no_account_is_in_the_section_on_policies_once():
    text = WEB + (
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x, namespace: shop}\n"
        "spec: {rules: [{from: [{source: {principals: ['spiffe://cluster.local/ns/shop/sa/web']}}]}]}\n"
    )
    (document,) = [
        each for each in read_documents(text.encode(), "x").documents if each.key.kind == "AuthorizationPolicy"
    ]
    problems = parse(document).problems
    (found,) = policies([*problems, *problems]).findings
    assert found.what == "a principal has no `spiffe://` prefix: this value matches no caller"
