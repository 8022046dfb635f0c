from itertools import permutations

import pytest

from api.reading import document
from weft.api.parse import parse
from weft.mesh.gateway_api.attached import all_derived
from weft.mesh.mesh import Mesh
from weft.model.scope import Scope

GROUP = "gateway.networking.k8s.io"
HOST = "web.shop.svc.cluster.local"
SERVICE = """
    apiVersion: v1
    kind: Service
    metadata: {name: web, namespace: shop}
    spec: {selector: {app: web}, clusterIP: 10.96.0.1, ports: [{name: http, port: 80}, {name: http-b, port: 81}]}
    """


def route(name, path, namespace="shop", kind="HTTPRoute", port="", created=""):
    match = f"{{path: {{value: {path}}}}}" if kind == "HTTPRoute" else f"{{method: {{service: {path}}}}}"
    born = f', creationTimestamp: "{created}"' if created else ""
    return f"""
    apiVersion: {GROUP}/v1
    kind: {kind}
    metadata: {{name: {name}, namespace: {namespace}{born}}}
    spec:
      parentRefs: [{{group: "", kind: Service, name: web, namespace: shop{port}}}]
      rules: [{{matches: [{match}], backendRefs: [{{name: web, namespace: shop, port: 80}}]}}]
    """


def put(mesh, *texts):
    return [mesh.apply(read.key, parse(read).values) for read in map(document, texts)]


def mesh_of(*texts):
    mesh = Mesh()
    put(mesh, *texts)
    return mesh


def paths(mesh, namespace="shop", port=None):
    """By the routing that decides, for callers of a namespace; perhaps at one port."""
    routings = mesh.virtual_services(HOST, Scope(namespace))
    if not routings:
        return None
    here = [each for each in routings[0].http if not port or any(match.port in (0, port) for match in each.match)]
    return [each.match[0].uri.value for each in here]


def outcomes(mesh):
    return {each.route.name: each.conditions[0].reason for derived in mesh.derived() for each in derived.routes}


def test_routes_of_one_audience_are_one_virtual_service_in_the_standards_order():
    mesh = mesh_of(SERVICE, route("a", "/"), route("b", "/long"), route("c", "/l"))
    assert paths(mesh) == ["/long", "/l", "/"]
    assert paths(mesh, "office") == ["/long", "/l", "/"]
    (routing,) = mesh.virtual_services(HOST, Scope("shop"))
    assert {origin.key.name for origin in routing.origins} == {"a", "b", "c"}


def test_the_result_does_not_depend_on_the_order_of_events():
    texts = (
        SERVICE,
        route("a", "/x", created="2026-01-02T00:00:00Z"),
        route("b", "/x", created="2026-01-01T00:00:00Z"),
        route("c", "/y", "office"),
    )
    found = [list(mesh_of(*order).derived()) for order in permutations(texts)]
    assert all(each == found[0] for each in found)
    routing = found[0][0].routings[1]
    assert [each.origin.key.name for each in routing.http] == ["b", "a"]


def test_a_consumer_route_applies_only_to_its_own_namespace():
    mesh = mesh_of(SERVICE, route("a", "/producer"), route("b", "/consumer", "office"))
    assert (paths(mesh), paths(mesh, "office"), paths(mesh, "far")) == (["/producer"], ["/consumer"], ["/producer"])


def test_a_virtual_service_precedes_attached_routes():
    written = """
    apiVersion: networking.istio.io/v1
    kind: VirtualService
    metadata: {name: z, namespace: shop}
    spec: {hosts: [web], http: [{match: [{uri: {prefix: /written}}], route: [{destination: {host: web}}]}]}
    """
    assert paths(mesh_of(SERVICE, route("a", "/producer", created="2020-01-01T00:00:00Z"), written)) == ["/written"]


def test_a_change_returns_what_it_touched():
    mesh = mesh_of(SERVICE)
    (touched,) = put(mesh, route("a", "/a"))
    assert touched.hosts == {HOST}
    (again,) = put(mesh, route("a", "/a"))
    assert not again
    service = document(SERVICE)
    gone = mesh.apply(service.key, ())
    assert HOST in gone.hosts
    assert paths(mesh) is None
    assert outcomes(mesh) == {"a": "NoMatchingParent"}
    put(mesh, SERVICE)
    assert paths(mesh) == ["/a"]
    mesh.apply(document(route("a", "/a")).key, ())
    assert list(mesh.derived()) == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((route("a", "/a"),), {"a": "NoMatchingParent"}),
        ((SERVICE, route("a", "/a", port=", port: 82")), {"a": "NoMatchingParent"}),
        ((SERVICE, route("a", "/a"), route("g", "a.B", kind="GRPCRoute")), {"a": "Conflicted", "g": "Accepted"}),
        (
            (SERVICE, route("a", "/a", port=", port: 80"), route("g", "a.B", kind="GRPCRoute", port=", port: 81")),
            {"a": "Accepted", "g": "Accepted"},
        ),
        (
            (SERVICE, route("a", "/a"), route("g", "a.B", "office", kind="GRPCRoute")),
            {"a": "Accepted", "g": "Accepted"},
        ),
    ],
)
def test_a_route_that_is_not_accepted_has_the_reason(texts, expected):
    assert outcomes(mesh_of(*texts)) == expected


def test_a_grpc_route_has_its_ports_and_leaves_the_others():
    mesh = mesh_of(SERVICE, route("a", "/a"), route("g", "a.B", kind="GRPCRoute", port=", port: 81"))
    assert outcomes(mesh) == {"a": "Accepted", "g": "Accepted"}
    assert (paths(mesh, port=80), paths(mesh, port=81)) == (["/a"], ["/a.B"])


def test_a_consumers_grpc_route_does_not_take_a_port_from_producer_routes():
    mesh = mesh_of(SERVICE, route("a", "/a"), route("g", "a.B", "office", kind="GRPCRoute"))
    assert (paths(mesh), paths(mesh, "office")) == (["/a"], ["/a.B"])


def test_a_consumer_route_for_one_port_keeps_producer_routes_at_other_ports():
    mesh = mesh_of(SERVICE, route("a", "/producer"), route("b", "/consumer", "office", port=", port: 81"))
    assert (paths(mesh, "office", 80), paths(mesh, "office", 81)) == (["/producer"], ["/consumer"])
    assert paths(mesh, port=81) == ["/producer"]


def test_a_port_of_a_parent_is_a_condition_of_every_match():
    (routing,) = mesh_of(SERVICE, route("a", "/a", port=", port: 81")).virtual_services(HOST, Scope("shop"))
    assert [match.port for each in routing.http for match in each.match] == [81]


def test_all_derived_equals_what_the_mesh_derived():
    texts = (SERVICE, route("a", "/a"), route("b", "/b", "office"))
    values = [value for text in texts for value in parse(document(text)).values]
    assert list(all_derived(values)) == list(mesh_of(*texts).derived())


ENTRY = """
    apiVersion: networking.istio.io/v1
    kind: ServiceEntry
    metadata: {name: partner, namespace: shop}
    spec:
      hosts: [a.partner.test, b.partner.test]
      resolution: DNS
      ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]
    """


def to_entry(kind, name, rules, namespace="shop", hostnames=""):
    return f"""
    apiVersion: {GROUP}/v1
    kind: {kind}
    metadata: {{name: {name}, namespace: {namespace}}}
    spec:
      parentRefs: [{{group: networking.istio.io, kind: ServiceEntry, name: partner, namespace: shop}}]
      {hostnames}
      rules: {rules}
    """


def test_routes_of_a_service_entry_apply_to_each_of_its_hosts():
    http = to_entry("HTTPRoute", "a", "[{backendRefs: [{name: web, port: 80}]}]")
    tls = to_entry("TLSRoute", "b", "[{backendRefs: [{name: web, port: 81}]}]", hostnames="hostnames: [a.partner.test]")
    for order in permutations((SERVICE, ENTRY, http, tls)):
        mesh = mesh_of(*order)
        for host in ("a.partner.test", "b.partner.test"):
            (routing,) = mesh.virtual_services(host, Scope("office"))
            assert [each.destination.host for each in routing.http[0].route] == [HOST]
            assert [(match.sni_hosts, match.port) for match in routing.tls[0].match] == [
                (("a.partner.test",), 80),
                (("a.partner.test",), 443),
            ]
        assert outcomes(mesh) == {"a": "Accepted", "b": "Accepted"}
    mesh.apply(document(ENTRY).key, ())
    assert outcomes(mesh) == {"a": "NoMatchingParent", "b": "NoMatchingParent"}


def test_a_hostname_is_a_backend_if_a_visible_service_has_it():
    backend = "{group: networking.istio.io, kind: Hostname, name: a.partner.test, port: 80}"
    sending = route("a", "/").replace("{name: web, namespace: shop, port: 80}", backend)
    mesh = mesh_of(SERVICE, sending)
    assert flaws(mesh) == ["the host a.partner.test does not exist"]
    put(mesh, ENTRY)
    assert flaws(mesh) == []
    (routing,) = mesh.virtual_services(HOST, Scope("shop"))
    assert routing.http[0].route[0].destination.host == "a.partner.test"
    put(mesh, ENTRY.replace("namespace: shop}", "namespace: far}"))
    mesh.apply(document(ENTRY).key, ())
    assert flaws(mesh) == []
    put(
        mesh,
        ENTRY.replace("namespace: shop}", "namespace: far}").replace("resolution", 'exportTo: ["."]\n      resolution'),
    )
    assert flaws(mesh) == ["the host a.partner.test does not exist"]


def flaws(mesh):
    return [flaw.message for derived in mesh.derived() for each in derived.routes for flaw in each.flaws]


def test_a_backend_tls_policy_for_a_service_entry_is_for_each_of_its_hosts():
    policy = f"""
    apiVersion: {GROUP}/v1
    kind: BackendTLSPolicy
    metadata: {{name: partner, namespace: shop}}
    spec:
      targetRefs: [{{group: networking.istio.io, kind: ServiceEntry, name: partner, sectionName: tls}}]
      validation: {{hostname: a.partner.test, wellKnownCACertificates: System}}
    """
    for order in ((ENTRY, policy), (policy, ENTRY)):
        mesh = mesh_of(*order)
        rules = [rule for derived in mesh.derived() for rule in derived.rules]
        assert [(rule.host, rule.policy.ports[0][0]) for rule in rules] == [
            ("a.partner.test", 443),
            ("b.partner.test", 443),
        ]
    mesh.apply(document(ENTRY).key, ())
    (derived,) = mesh.derived()
    assert derived.rules == () and derived.policies[0].conditions[0].reason == "TargetNotFound"
