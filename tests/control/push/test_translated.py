from control.push.test_push import CART, ORDERS, routes
from model.builders import group, put, service
from weft.control.push.translated import Translated, TranslatedHosts
from weft.control.push.viewpoints import Viewpoints, viewpoint_key
from weft.mesh.mesh import Mesh
from weft.model.settings import Settings
from weft.translate.contribution import Contribution
from weft.translate.view import group_view, service_view

WEB, OTHER = group("web"), group("other")


class Rig:
    def __init__(self):
        self.mesh = Mesh()
        put(self.mesh, service("orders"), service("cart"), routes("cart", CART, to=ORDERS))
        self.hosts = TranslatedHosts()
        viewpoints = Viewpoints(self.mesh)
        key = viewpoint_key(WEB, self.mesh.scope(WEB), group_view(self.mesh, WEB))
        self.viewpoint = viewpoints.at(key)
        viewpoints.put(dict.fromkeys((WEB, OTHER), self.viewpoint))

    def translated(self, host, settings=None):
        view = service_view(self.mesh, WEB, self.mesh.scope(WEB), host)
        translated = Translated(view, settings or Settings(), Contribution())
        self.hosts.add(translated)
        return translated


def test_a_translation_is_found_by_an_equal_view_until_the_host_changes():
    rig = Rig()
    cart = rig.translated(CART)
    assert rig.hosts.find(cart.view, Settings()) is cart
    assert rig.hosts.readers({ORDERS}) == {CART}
    rig.hosts.outdate(CART)
    assert rig.hosts.find(cart.view, Settings()) is None and rig.hosts.readers({ORDERS}) == set()


def test_a_host_is_seen_by_a_group_itself_or_by_its_viewpoint():
    rig = Rig()
    common, own = rig.translated(ORDERS), rig.translated(CART)
    assert not rig.hosts.show(rig.viewpoint, ORDERS, common)
    assert not rig.hosts.show(WEB, CART, own)
    assert rig.hosts.seen_by(WEB, rig.viewpoint, ORDERS) is common and rig.hosts.seen_by(WEB, None, ORDERS) is None
    assert rig.hosts.seen_by(WEB, rig.viewpoint, CART) is own
    assert rig.hosts.seen_by(OTHER, rig.viewpoint, CART) is None
    assert rig.hosts.hosts(rig.viewpoint) == {ORDERS} and rig.hosts.hosts(WEB) == {CART}
    assert rig.hosts.show(WEB, CART, None), "it was seen before"
    assert not rig.hosts.hosts(WEB) and not rig.hosts.viewers(CART)


def test_hosts_that_depend_on_labels_are_each_groups_own():
    rig = Rig()
    rig.hosts.show(rig.viewpoint, ORDERS, None, per_group=True)
    rig.hosts.show(WEB, CART, rig.translated(CART))
    assert rig.hosts.per_group(rig.viewpoint) == {ORDERS} == rig.hosts.all_hosts(rig.viewpoint)
    assert rig.hosts.own_hosts(rig.viewpoint, {ORDERS, CART}) == {WEB: {ORDERS, CART}, OTHER: {ORDERS}}
    assert rig.hosts.own_hosts(rig.viewpoint, {CART}) == {WEB: {CART}}
    rig.hosts.show(rig.viewpoint, ORDERS, rig.translated(ORDERS))
    assert not rig.hosts.per_group(rig.viewpoint)


def test_only_translations_that_a_viewer_sees_are_kept():
    rig = Rig()
    seen, unseen = rig.translated(CART), rig.translated(CART, Settings(trust_domain="other"))
    rig.hosts.show(WEB, CART, seen)
    assert list(rig.hosts.prune(CART)) == [seen]
    assert rig.hosts.find(unseen.view, unseen.settings) is None and rig.hosts.find(seen.view, Settings()) is seen
    assert rig.hosts.forget(WEB) == {CART}
    assert not rig.hosts.prune(CART) and rig.hosts.readers({ORDERS}) == set()


def test_the_view_of_a_group_is_dropped_with_it():
    rig = Rig()
    rig.hosts.show_group(WEB, group_view(rig.mesh, WEB))
    assert rig.hosts.group_view(WEB) is not None
    rig.hosts.forget(WEB)
    assert rig.hosts.group_view(WEB) is None
