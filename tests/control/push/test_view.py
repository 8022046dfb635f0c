"""What viewpoints and groups see of hosts, and which problems are reported while they do."""

import pytest

from control.push.test_push import CART, ORDERS, Rig, routes
from model.builders import group, service
from weft.control.push import contribute, view
from weft.model.sidecar import EgressListener, Sidecar
from weft.translate.service import contribute as translate
from weft.xds.types import CLUSTER


@pytest.fixture
async def rig():
    rig = Rig()
    yield rig
    rig.push.close()


async def test_findings_are_reported_in_any_order_of_objects_and_proxies(rig):
    rig.put(service("orders"), routes("orders", ORDERS, to="absent.shop.svc.cluster.local"))
    rig.push.join(group("web"))
    assert "absent.shop.svc.cluster.local" in rig.problems.all()[0].what
    rig.put(service("absent"))
    assert rig.problems.all() == ()


async def test_a_host_that_cannot_be_translated_does_not_affect_others(rig, monkeypatch):
    def choke(view, settings):
        if view.host == ORDERS:
            raise ValueError("a defect")
        return translate(view, settings)

    rig.put(service("orders"), service("cart"))
    rig.push.join(group("web"))
    monkeypatch.setattr(contribute, "contribute", choke)
    changed = rig.put(service("orders", port=81), service("cart", port=82))[group("web")]
    assert (CLUSTER, f"outbound|82||{CART}") in changed
    assert f"outbound|80||{ORDERS}" in rig.snapshots.resources(group("web"), CLUSTER)


async def test_translation_problems_are_cleared_with_the_last_group_that_sees_the_host(rig):
    rig.put(service("orders"), routes("orders", ORDERS, to="absent.shop.svc.cluster.local"))
    rig.push.join(group("web"))
    rig.push.join(group("web", "other"))
    assert len(rig.problems.all()) == 1
    rig.put(Sidecar("default", "shop", egress=(EgressListener((f"./{CART}",)),)))
    assert len(rig.problems.all()) == 1
    rig.push.leave(group("web", "other"))
    assert rig.problems.all() == ()


async def test_groups_of_a_namespace_share_one_view_of_a_host(rig, monkeypatch):
    looked = []
    look = view.service_view
    monkeypatch.setattr(view, "service_view", lambda *asked, **more: looked.append(asked[3]) or look(*asked, **more))
    rig.put(service("orders"), service("cart"))
    for name in ("a", "b", "c"):
        rig.push.join(group(name))
    assert sorted(looked) == [CART, ORDERS]
    looked.clear()
    changed = rig.put(service("orders", port=81))
    assert looked == [ORDERS]
    assert set(changed) == {group("a"), group("b"), group("c")}


async def test_a_host_is_translated_for_a_group_alone_or_for_its_viewpoint(rig):
    web, seen = group("web"), rig.push._translated
    rig.put(service("orders"))
    rig.push.join(web)
    viewpoint = rig.push._viewpoints.of(web)
    assert seen.viewers(ORDERS).keys() == {viewpoint} and seen.seen_by(web, viewpoint, ORDERS).view.host == ORDERS
    assert seen.seen_by(web, viewpoint, CART) is None
    rig.push.leave(web)
    assert not seen.viewers(ORDERS)
