import pytest

from analyze.meshes import WEB, istio, said


def egress(host):
    return said(WEB + istio("Sidecar", f"{{egress: [{{hosts: ['{host}']}}]}}"))


@pytest.mark.parametrize(
    "host",
    ["./*", "*/*", "~/*", "istio-system/*", "./web.shop.svc.cluster.local", "*/*.svc.cluster.local", "shop/*"],
)
def test_hosts_that_import_something_or_may_later_have_no_findings(host):
    assert egress(host) == []


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        ("./wbe.shop.svc.cluster.local", "did you mean `web.shop.svc.cluster.local`?"),
        ("./web", "a Sidecar needs fully qualified names: write ./web.shop.svc.cluster.local"),
        (
            "istio-system/web.shop.svc.cluster.local",
            "the host is in namespace shop: write shop/web.shop.svc.cluster.local",
        ),
        ("shpo/*", "did you mean `shop`?"),
    ],
)
def test_a_host_that_imports_nothing_is_reported_with_a_hint(host, hint):
    (line,) = egress(host)
    assert "Sidecar shop/x: spec.egress[0].hosts[0]: warning: " in line
    assert hint in line


def test_a_host_that_only_virtual_services_have_imports_their_routes():
    routes = istio("VirtualService", "{hosts: [a.example.com], http: [{directResponse: {status: 204}}]}", name="r")
    lines = said(WEB + routes + istio("Sidecar", "{egress: [{hosts: ['./a.example.com']}]}"))
    assert not any("Sidecar" in line for line in lines)


def test_a_sidecar_that_selects_no_workload_is_reported():
    spec = "{workloadSelector: {labels: {app: wbe}}, egress: [{hosts: ['./*']}]}"
    (line,) = said(WEB + istio("Sidecar", spec))
    assert "the Sidecar has no effect (hint: app: did you mean `web`?)" in line


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", "is for the whole namespace too and {}: this Sidecar is not used"),
        ("workloadSelector: {labels: {version: v1}}, ", "selects web-v1 too and {}: this Sidecar is not used for it"),
    ],
)
def test_the_second_of_two_sidecars_for_one_workload_is_reported_with_the_reason(selector, found):
    spec = f"{{{selector}egress: [{{hosts: ['./*']}}]}}"
    (line,) = said(WEB + istio("Sidecar", spec, "b") + istio("Sidecar", spec, "a"))
    assert "Sidecar shop/b: " in line
    assert f"Sidecar a {found.format('comes first by its name')}" in line
    young = istio("Sidecar", spec, "a, creationTimestamp: 2026-01-02T00:00:00Z")
    (line,) = said(WEB + young + istio("Sidecar", spec, "b, creationTimestamp: 2026-01-01T00:00:00Z"))
    assert "Sidecar shop/a: " in line
    assert f"Sidecar b {found.format('is older')}" in line
