from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from tests.inspect.reasons.told import mesh_of, rule

from model.builders import group
from weft.model.group import Group, ProxyKind
from weft.model.names import ObjectKey, labels_of
from weft.translate.clusters import outbound
from weft.translate.suspects import TRIAL, Suspect, of_cluster, of_guards, of_routes
from weft.translate.view import group_view, service_view

HOST = "payments.shop.svc.cluster.local"
ROUTES = """
hosts: [payments]
http:
- {match: [{uri: {prefix: /a}}, {uri: {prefix: /b}}], route: [{destination: {host: payments}}]}
- {delegate: {name: leaf}}
"""


def seen(mesh):
    orders = group("orders")
    return service_view(mesh, orders, mesh.scope(orders), HOST)


def listener(built):
    found = Listener.FromString(built.body)
    assert (built.name, found.name) == (TRIAL, TRIAL)
    # No connection can reach the trial listener: it has no socket, and its address is never intercepted.
    assert not found.bind_to_port.value and found.address.socket_address.address.startswith("127.")
    return found


def policy(name, *methods):
    rules = "\n".join(f"- to: [{{operation: {{methods: [{method}]}}}}]" for method in methods)
    return rule(f"action: DENY\nrules:\n{rules}", name=name, kind="AuthorizationPolicy", group="security")


def test_each_rule_of_each_policy_is_tried_without_the_others():
    mesh = mesh_of(one=policy("one", "ALPHA", "BETA"), two=policy("two", "GAMMA"))
    lineup = of_guards(group_view(mesh, group("payments")))
    one, two = (ObjectKey("AuthorizationPolicy", "shop", name) for name in ("one", "two"))
    assert lineup.suspects == (Suspect(one, 7), Suspect(one, 8), Suspect(two, 7))
    for positions, there, absent in (((1,), b"BETA", (b"ALPHA", b"GAMMA")), ((0, 2), b"GAMMA", (b"BETA",))):
        body = listener(lineup.trial(positions)).SerializeToString()
        assert there in body and not any(each in body for each in absent)
    assert b"policy[" not in listener(lineup.trial(())).SerializeToString()


def test_each_route_is_tried_with_the_line_in_its_own_object():
    leaf = "http: [{match: [{uri: {prefix: /c}}], route: [{destination: {host: payments}}]}]"
    mesh = mesh_of(
        root=rule(ROUTES, name="root", kind="VirtualService"), leaf=rule(leaf, name="leaf", kind="VirtualService")
    )
    lineup = of_routes(seen(mesh), 80)
    root, delegate = (ObjectKey("VirtualService", "shop", name) for name in ("root", "leaf"))
    assert [(each.key, each.line) for each in lineup.suspects] == [(root, 7), (root, 7), (delegate, 5)]
    (chain,) = listener(lineup.trial((1, 2))).filter_chains
    manager = HttpConnectionManager.FromString(chain.filters[0].typed_config.value)
    tried = manager.route_config.virtual_hosts[0].routes
    assert [route.match.prefix for route in tried] == ["/b", "/c"]
    assert not any(route.HasField("metadata") for route in tried)


def test_a_cluster_is_tried_without_its_rule():
    mesh = mesh_of(rule=rule("host: payments\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}"))
    view = seen(mesh)
    (refused,) = outbound(view, view.ports[0], mesh.settings)
    lineup = of_cluster(view, refused, mesh.settings)
    assert [each.key.kind for each in lineup.suspects] == ["Service", "DestinationRule"]
    without, itself = (Cluster.FromString(lineup.trial((position,)).body) for position in (0, 1))
    limits = [each.circuit_breakers.thresholds[0].max_connections.value for each in (without, itself)]
    assert limits == [2**32 - 1, 7]
    assert {each.name for each in (without, itself)} == {TRIAL}
    assert all(each.type == Cluster.STATIC for each in (without, itself))  # no endpoints are requested


LEVELS = """
host: payments
trafficPolicy:
  connectionPool: {tcp: {maxConnections: 7}}
subsets:
- name: v1
  trafficPolicy:
    outlierDetection: {interval: 7s}
- name: v2
  trafficPolicy:
    outlierDetection: {interval: 8s}
    portLevelSettings:
    - {port: {number: 81}, loadBalancer: {simple: RANDOM}}
    - port: {number: 80}
      loadBalancer: {simple: ROUND_ROBIN}
"""


def test_each_level_of_a_rule_is_tried_by_its_own_line():
    mesh = mesh_of(rule=rule(LEVELS))
    view = seen(mesh)
    _, first, second = outbound(view, view.ports[0], mesh.settings)
    lineup = of_cluster(view, first, mesh.settings)
    assert [each.line for each in lineup.suspects] == [0, 6, 10]
    outer, inner = (Cluster.FromString(lineup.trial((position,)).body) for position in (1, 2))
    assert [each.circuit_breakers.thresholds[0].max_connections.value for each in (outer, inner)] == [7, 2**32 - 1]
    assert [each.outlier_detection.interval.seconds for each in (outer, inner)] == [0, 7]
    (_, at_port) = of_cluster(view, second, mesh.settings).suspects  # which silences the rest of the rule
    assert at_port == Suspect(ObjectKey("DestinationRule", "shop", "payments"), 17)


def test_there_are_no_suspects_where_only_the_service_can_be_at_fault():
    mesh = mesh_of()
    view = seen(mesh)
    (refused,) = outbound(view, view.ports[0], mesh.settings)
    assert of_cluster(view, refused, mesh.settings).suspects == ()


def test_a_gateways_suspects_are_tried_in_the_rejected_listener_with_its_own_routes():
    edge = Group(ProxyKind.GATEWAY, "shop", labels_of({"istio": "ingress"}))
    server = "{port: {number: %d, name: p%d, protocol: HTTP}, hosts: ['*']}"
    gateway = f"selector: {{istio: ingress}}\nservers: [{server % (80, 80)}, {server % (81, 81)}]"
    routed = "hosts: [a.com]\ngateways: [edge]\nhttp:\n- {match: [{gateways: [edge]}], route: [{destination: {host: payments}}]}"
    mesh = mesh_of(
        edge=rule(gateway, name="edge", kind="Gateway"),
        one=policy("one", "ALPHA"),
        a=rule(routed, name="a", kind="VirtualService"),
    )
    found = listener(of_guards(group_view(mesh, edge), "0.0.0.0_81").trial((0,)))
    assert b"ALPHA" in found.SerializeToString() and b"http.81" in found.SerializeToString()
    lineup = of_routes(service_view(mesh, edge, mesh.scope(edge), "a.com"), 81)
    assert lineup.suspects == (Suspect(ObjectKey("VirtualService", "shop", "a"), 8),)
    assert b"outbound|80||payments" in lineup.trial((0,)).body


def test_suspects_are_not_routes_of_a_misdirected_name():
    server = "{port: {number: 443, name: %s, protocol: HTTPS}, hosts: ['%s'], tls: {mode: SIMPLE, credentialName: c}}"
    gateway = f"selector: {{istio: ingress}}\nservers: [{server % ('b', 'b.com')}, {server % ('a', 'a.com')}]"
    mesh = mesh_of(
        edge=rule(gateway, name="edge", kind="Gateway"),
        a=rule(
            "hosts: [a.com]\ngateways: [edge]\nhttp: [{route: [{destination: {host: payments}}]}]",
            name="a",
            kind="VirtualService",
        ),
    )
    edge = Group(ProxyKind.GATEWAY, "shop", labels_of({"istio": "ingress"}))
    view = service_view(mesh, edge, mesh.scope(edge), "a.com")
    assert [door.misdirected for door in view.doors] == [True, False]
    assert [each.key.name for each in of_routes(view, 443).suspects] == ["a"]
