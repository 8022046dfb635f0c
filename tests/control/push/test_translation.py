from control.push.test_push import CART, ORDERS
from model.builders import group, instance, put, service
from weft.control.push.translation import Translation
from weft.mesh.mesh import Mesh
from weft.model.on_demand import OnDemand
from weft.model.settings import Settings
from weft.model.virtual_service import Destination, HttpRoute, VirtualService, WeightedDestination
from weft.translate.view import service_view


def made(mesh, translation, host=ORDERS, settings=None):
    view = service_view(mesh, group("web"), mesh.scope(group("web")), host)
    return translation.make(view, settings or Settings())


def test_equal_views_are_made_once_and_other_settings_are_another_view():
    mesh = Mesh()
    put(mesh, service("orders"))
    translation = Translation(mesh)
    first = made(mesh, translation)
    assert made(mesh, translation) is first
    assert made(mesh, translation, settings=Settings(on_demand=OnDemand.ON)) is not first
    assert translation.fresh == {ORDERS}


def test_what_may_be_another_is_made_anew_with_those_whose_routes_name_it():
    mesh = Mesh()
    route = HttpRoute(route=(WeightedDestination(Destination(ORDERS)),))
    put(mesh, service("orders"), service("cart"), VirtualService("cart", "shop", hosts=(CART,), http=(route,)))
    translation = Translation(mesh)
    orders, cart = made(mesh, translation), made(mesh, translation, CART)
    assert translation.forget(frozenset({ORDERS})) == {ORDERS, CART}
    assert made(mesh, translation) is not orders
    assert made(mesh, translation, CART) is not cart


def test_who_answers_is_looked_up_once_until_that_is_forgotten():
    mesh = Mesh()
    put(mesh, service("orders"))
    translation = Translation(mesh)
    orders = made(mesh, translation)
    before = translation.assignments(orders)
    put(mesh, instance("orders-0", "orders"))
    assert translation.assignments(orders) is before
    translation.forget_assignments(ORDERS)
    assert translation.assignments(orders)[0].version != before[0].version
    assert translation.assignments(None) == ()


def test_what_nobody_sees_is_not_kept():
    mesh = Mesh()
    put(mesh, service("orders"))
    translation = Translation(mesh)
    orders = made(mesh, translation)
    translation.keep(ORDERS, [])
    assert made(mesh, translation) is not orders
