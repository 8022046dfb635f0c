from model.builders import instance, put, service
from translate.views import HOST, route, routing, to, view
from weft.base.problem import Severity
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, TrafficPolicy
from weft.model.group import ProxyKind
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Protocol, Resolution
from weft.model.virtual_service import Delegate, HeaderChanges, Headers, HttpRoute, VirtualService
from weft.translate.findings import problems_of
from weft.translate.view import RouteTarget


def _said(*http, mesh=None, **more):
    return [str(problem) for problem in problems_of(view(*http, **more), mesh or Mesh())]


def test_a_valid_mesh_has_no_findings():
    assert _said(route()) == []


def test_a_destination_that_does_not_exist_is_named_with_its_line_and_a_guess():
    mesh = Mesh()
    put(mesh, service("orders"))
    missing = "order.shop.svc.cluster.local"
    (said,) = _said(route(to(missing), line=12), mesh=mesh, targets=(RouteTarget(missing, known=False),))
    assert said.startswith("mesh.yaml:12: VirtualService shop/orders: warning [WFT0104]:")
    assert missing in said and f"did you mean `{HOST}`?" in said


def test_a_hidden_host_is_distinguished_from_an_unknown_one():
    mesh = Mesh()
    put(mesh, service("stock", export_to=(".",)))
    hidden = "stock.shop.svc.cluster.local"
    (said,) = _said(route(to(hidden)), mesh=mesh, targets=(RouteTarget(hidden, known=False),))
    assert "hidden from namespace shop" in said


def test_missing_ports_and_subsets_are_reported():
    assert "no port 81" in _said(route(to(port=81)))[0]
    assert "no subset 'v9'" in _said(route(to(subset="v9")))[0]
    target = RouteTarget("stock", ports=(80,), subsets=("v1",))
    assert "its DestinationRule has v1" in _said(route(to("stock", subset="v9")), targets=(target,))[0]


def test_unused_routes_are_reported():
    assert "does not exist" in _said(HttpRoute(name="gone", delegate=Delegate("leaf", "shop")))[0]
    (said,) = _said(route(), routes=(routing(route(), name="second"),))
    assert "VirtualService shop/second" in said and "shop/orders already has http routes for this host" in said


def test_private_routes_that_override_public_ones_are_not_reported():
    private = routing(route(), name="private", export_to=(".",))
    assert _said(routes=(private, routing(route(), name="public"))) == []
    assert len(_said(routes=(private, routing(route(), name="other", export_to=("shop",))))) == 1


def test_reports_why_an_existing_virtual_service_cannot_be_a_delegate():
    root = HttpRoute(delegate=Delegate("leaf", "far"))
    for leaf, why in (
        (VirtualService("leaf", "far", (), export_to=(".",)), "is not exported to namespace shop"),
        (VirtualService("leaf", "far", (HOST,)), "has `hosts`"),
    ):
        mesh = Mesh()
        put(mesh, leaf)
        (said,) = _said(root, mesh=mesh)
        assert f"far/leaf {why}" in said


def test_each_finding_is_a_warning():
    found = problems_of(view(like={"port": 15001}), Mesh())
    assert [problem.severity for problem in found] == [Severity.WARNING]


def test_a_command_unknown_to_envoy_is_reported():
    headers = Headers(response=HeaderChanges(add=(("x-a", "%FOO%"),)))
    assert (
        "header x-a has the value '%FOO%' with a command that Envoy does not know" in _said(route(headers=headers))[0]
    )


def test_a_tcp_host_that_takes_its_whole_port_is_reported():
    like = {"port": 5672, "protocol": Protocol.TCP, "resolution": Resolution.DNS}
    assert "gets every connection to port 5672" in _said(like=like)[0]
    assert _said(like=like | {"addresses": ("240.0.0.1",)}) == []
    assert _said(like=like | {"resolution": Resolution.STATIC}) == []
    assert _said(like=like | {"protocol": Protocol.TLS}) == []


def test_grpc_clients_that_a_service_would_reject_are_reported():
    mesh = Mesh()
    put(mesh, service("orders"), instance("orders-0", "orders", meshed=True))
    assert _said(kind=ProxyKind.GRPC, mesh=mesh) == []
    put(mesh, PeerAuthentication("default", "shop", mode=TlsMode.STRICT))
    (said,) = _said(kind=ProxyKind.GRPC, mesh=mesh)
    assert f"port 80 of {HOST} in plaintext, but it requires mutual TLS" in said
    assert _said(mesh=mesh) == []
    rule = DestinationRule("r", "shop", HOST, TrafficPolicy(tls=ClientTls(ClientTlsMode.ISTIO_MUTUAL)))
    (said,) = _said(kind=ProxyKind.GRPC, rule=rule)
    assert "its DestinationRule requires TLS" in said
