from control.push.test_push import CART, ORDERS
from model.builders import group, instance, put, service
from weft.control.push.contribute import NOTHING, ContributeStep
from weft.control.push.translated import TranslatedHosts
from weft.control.push.view import Views
from weft.mesh.mesh import Mesh
from weft.model.on_demand import OnDemand
from weft.model.settings import Settings
from weft.model.virtual_service import Destination, HttpRoute, VirtualService, WeightedDestination
from weft.translate.view import group_view, service_view

WEB = group("web")


class Rig:
    """Translates for one viewer."""

    def __init__(self, *values):
        self.mesh = Mesh()
        put(self.mesh, *values)
        self.translated = TranslatedHosts()
        self.step = ContributeStep(self.mesh, self.translated)

    def pieces(self, host=ORDERS, settings=None, viewer=WEB):
        view = service_view(self.mesh, WEB, self.mesh.scope(WEB), host)
        (pieces,) = self.step.translate([Views(viewer, settings or Settings(), frozenset(), {host: view})])
        return pieces

    def contribution(self, *asked, **more):
        (contribution,) = self.pieces(*asked, **more).contributions.values()
        return contribution

    def assignments(self):
        (assignments,) = self.pieces().assignments.values()
        return assignments


def test_equal_views_are_translated_once_and_other_settings_are_another_view():
    rig = Rig(service("orders"))
    first = rig.contribution()
    assert rig.contribution(viewer=group("cart")) is first
    assert rig.contribution(settings=Settings(on_demand=OnDemand.ON)) is not first
    assert rig.step.settle().keys() == {ORDERS}
    assert not rig.step.settle(), "there is nothing new to report"


def test_changed_hosts_and_hosts_whose_routes_name_them_are_translated_again():
    route = HttpRoute(route=(WeightedDestination(Destination(ORDERS)),))
    rig = Rig(service("orders"), service("cart"), VirtualService("cart", "shop", hosts=(CART,), http=(route,)))
    orders, cart = rig.contribution(), rig.contribution(CART)
    assert {ORDERS} | rig.translated.readers({ORDERS}) == {ORDERS, CART}
    rig.step.outdate({ORDERS, CART})
    assert rig.contribution() is not orders
    assert rig.contribution(CART) is not cart
    assert rig.translated.readers({ORDERS}) == {CART}


def test_endpoints_are_looked_up_once_until_they_change():
    rig = Rig(service("orders"))
    before = rig.assignments()
    put(rig.mesh, instance("orders-0", "orders"))
    assert rig.assignments() is before
    changed = rig.step.reassign({ORDERS})
    assert changed.keys() == {WEB} and changed[WEB][ORDERS][0].version != before[0].version
    gone = rig.step.translate([Views(WEB, Settings(), frozenset(), {ORDERS: None})])[0]
    assert gone.assignments == {ORDERS: ()} and gone.contributions == {ORDERS: NOTHING}


def test_translations_without_a_viewer_are_dropped():
    rig = Rig(service("orders"))
    orders = rig.contribution()
    rig.step.forget(WEB)
    assert rig.step.settle() == {ORDERS: []}
    assert rig.contribution() is not orders


def test_a_group_contributes_anew_only_if_its_view_has_changed():
    rig, failed = Rig(service("orders")), {}
    views = {WEB: group_view(rig.mesh, WEB)}
    assert rig.step.translate_groups(views, failed)[WEB].view == views[WEB]
    assert rig.step.translate_groups(views, failed) == {} == failed
    rig.step.forget(WEB)
    assert rig.step.translate_groups(views, failed).keys() == {WEB}


def test_a_group_that_cannot_be_translated_is_named_and_tried_again(monkeypatch):
    rig, failed = Rig(service("orders")), {}
    views = {WEB: group_view(rig.mesh, WEB)}
    with monkeypatch.context() as patched:
        patched.setattr("weft.control.push.contribute.base", lambda _view: 1 / 0)
        assert rig.step.translate_groups(views, failed) == {}
    assert isinstance(failed[WEB], ZeroDivisionError)
    assert rig.step.translate_groups(views, {}).keys() == {WEB}
