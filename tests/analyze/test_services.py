import pytest

from analyze.meshes import WEB, istio, said


def test_a_service_with_workloads_has_no_findings():
    assert said(WEB) == []


def test_a_selector_that_matches_no_workload_is_reported_with_a_guess():
    (line,) = said(WEB.replace("selector: {app: web}", "selector: {app: wbe}"))
    assert line == (
        "Service shop/web: spec.selector: warning: no workload of namespace shop has the labels app=wbe: "
        "calls to the service fail (hint: app: did you mean `web`?)"
    )


def test_the_hint_names_another_namespace_with_such_workloads():
    (line,) = said(WEB.replace("{name: web, namespace: shop}", "{name: web, namespace: other}"))
    assert "namespace shop has such workloads, but a selector matches only workloads of its own namespace" in line


def test_without_workloads_service_selectors_are_not_checked():
    assert said(WEB.partition("---")[0]) == []


def test_a_service_entry_with_a_selector_is_reported_once_for_all_its_hosts():
    spec = "{hosts: [a.b, c.d], resolution: STATIC, workloadSelector: {labels: {app: vm}}, ports: [%s]}"
    (line,) = said(WEB + istio("ServiceEntry", spec % "{number: 80, name: http, protocol: HTTP}"))
    assert "ServiceEntry shop/x: spec.workloadSelector: " in line


@pytest.mark.parametrize("target", ["8080", "http"])
def test_a_port_that_one_of_the_workloads_declares_has_no_findings(target):
    assert said(WEB.replace("targetPort: 8080", f"targetPort: {target}")) == []


def test_a_named_port_that_no_workload_has_is_reported_with_a_guess():
    (line,) = said(WEB.replace("targetPort: 8080", "targetPort: htpp"))
    assert (
        "spec.ports[0].targetPort: warning: no workload of this service (web-v1, web-v2) has a port named `htpp`"
        in line
    )
    assert line.endswith("(hint: did you mean `http`?)")


def test_a_port_that_no_workload_declares_is_reported_with_the_declared_ports():
    (line,) = said(WEB.replace("targetPort: 8080", "targetPort: 9999"))
    assert "(web-v1, web-v2) declares port 9999 (hint: declared: 8080; correct `targetPort`" in line
    (line,) = said(WEB.replace(", targetPort: 8080", "").replace("name: http, port: 80}", "name: web, port: 80}"))
    assert "declares port 80 (without `targetPort`, the target is the Service's own port)" in line


def test_a_port_of_the_same_name_needs_no_target():
    assert said(WEB.replace(", targetPort: 8080", "")) == []


def test_a_workload_that_declares_nothing_may_listen_anywhere():
    assert said(WEB.replace(", ports: [{name: http, port: 8080}]", "").replace("8080", "9999")) == []


def test_two_services_with_one_address_and_port_are_reported_and_with_different_ports_are_not():
    one = WEB.replace("spec: {selector: {app: web}", "spec: {clusterIP: 10.96.0.9, selector: {app: web}")
    two = one.partition("---")[0].replace("name: web,", "name: two,")
    (line,) = said(f"{one}---{two}")
    assert line.startswith(
        "Service shop/web: spec.clusterIP: warning: Service shop/two has the address 10.96.0.9:80 too"
    )
    assert said(f"{one}---{two.replace('port: 80,', 'port: 81,')}") == []
