import pytest

from analyze.meshes import WEB, facts
from analyze.test_policies import DATABASE
from weft.analyze.ports import Ports


def looked_at(text):
    known = facts(text)
    return Ports(known), known.chosen("shop", ())


def test_a_services_port_number_is_mapped_to_the_workloads_own():
    ports, everybody = looked_at(WEB)
    assert ports.meant(80, everybody) == 8080
    assert ports.meant(8080, everybody) == 0
    assert ports.meant(9999, everybody) == 0


def test_a_port_number_that_a_workload_has_is_not_mapped():
    ports, everybody = looked_at(WEB.replace("name: http, port: 8080}]}\n---", "name: http, port: 80}]}\n---"))
    assert ports.meant(80, everybody) == 0


def test_protocols_come_from_services_and_else_from_the_workload():
    own = WEB.replace(
        "ports: [{name: http, port: 8080}]", "ports: [{port: 8080, protocol: tcp}, {port: 9000, protocol: tcp}]"
    )
    ports, _ = looked_at(own + DATABASE)
    assert ports.tcp[("shop", "web-v1")] == {3307, 9000}
    assert ports.http[("shop", "web-v1")] == {8080}


def test_declared_ports_are_known_only_if_all_runners_declare_some():
    ports, everybody = looked_at(WEB + DATABASE)
    assert ports.declared(everybody) == (3307, 8080)
    ports, everybody = looked_at(WEB.replace(", ports: [{name: http, port: 8080}]", "", 1))
    assert ports.declared(everybody) == ()


@pytest.mark.parametrize(("first", "then"), [("http", "https"), ("https", "http")])
def test_a_port_that_services_declare_as_http_and_tcp_is_of_both_kinds(first, then):
    service = "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {0}, namespace: shop}}\n"
    service += "spec: {{selector: {{app: web}}, ports: [{{name: {1}, port: 90, targetPort: 9000}}]}}\n"
    text = WEB + service.format("api-b", then) + service.format("api-a", first)
    ports, everybody = looked_at(text)
    place = ("shop", "web-v1")
    assert 9000 in ports.http[place] and 9000 in ports.tcp[place]
    assert [ports.disguising(*each) for each in everybody] == [(9000,)] * 2
