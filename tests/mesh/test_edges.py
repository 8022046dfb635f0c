from msgspec.structs import replace

from mesh.test_gateways import gateway, routing, server
from model.builders import put
from weft.mesh import edges as module
from weft.mesh.edges import Edges
from weft.mesh.mesh import Mesh
from weft.mesh.virtual_services import Routings
from weft.model.group import Group, ProxyKind
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.virtual_service import Delegate, HttpRoute

EDGE = Group(ProxyKind.GATEWAY, "edge")


def destinations(mesh):
    return set(mesh.edge(mesh.scope(EDGE)).destinations)


def test_an_edge_is_cached_until_a_route_changes():
    mesh = Mesh()
    put(mesh, gateway(server("a.com")), routing("a.com", to="web"))
    scope = mesh.scope(EDGE)
    assert mesh.edge(scope) is mesh.edge(scope)
    assert destinations(mesh) == {"web"}
    put(mesh, routing("a.com", to="other"))
    assert destinations(mesh) == {"other"}
    put(mesh, gateway(server("b.com")))
    assert destinations(mesh) == set()


def test_a_route_leads_to_the_destinations_of_its_delegate():
    mesh = Mesh()
    outer = replace(routing("a.com"), http=(HttpRoute(delegate=Delegate("inner", "shop")),))
    put(mesh, gateway(server("a.com")), outer, routing(name="inner", to="far"))
    assert destinations(mesh) == {"far"}


def test_the_number_of_cached_edges_is_limited(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 2)
    edges = Edges(Routings(), lambda namespace, name: None)
    for name in "abc":
        edges.of(Scope(name), Settings())
    assert len(edges._known) == 1
