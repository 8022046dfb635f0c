from __future__ import annotations

import pytest
from msgspec import structs

from weft.local.lookups import Lookups
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.service import Service, ServicePort
from weft.translate.lookup import Found, NoSuchName

KEY = ObjectKey("Service", "shop", "web")
WEB = Service(
    host="web.shop.svc.cluster.local",
    name="web",
    namespace="shop",
    ports=(ServicePort(80, "http"),),
    addresses=("10.96.1.1",),
)


@pytest.fixture
def mesh():
    made = Mesh()
    made.apply(KEY, (WEB,))
    return made


@pytest.fixture
def lookups(mesh):
    made = Lookups(mesh, "cluster.local")
    made.add(("10.244.0.2",), "shop")
    made.add(("10.244.0.3",), "elsewhere")
    return made


def for_pod(lookups, name, asker):
    return lookups.index().look_up(name, lookups.namespace_of(asker))


def for_proxy(lookups, name, asker):
    return lookups.index().look_up_for_proxy(name, lookups.namespace_of(asker))


def test_what_is_not_exported_is_found_in_its_own_namespace_only(mesh, lookups):
    mesh.apply(KEY, (structs.replace(WEB, export_to=(".",)),))
    assert for_pod(lookups, WEB.host, "10.244.0.2") == for_proxy(lookups, WEB.host, "10.244.0.2")
    assert for_pod(lookups, WEB.host, "10.244.0.2") == Found(("10.96.1.1",))
    assert for_pod(lookups, WEB.host, "10.244.0.3") == NoSuchName()


def test_what_was_found_is_kept_until_something_changes(mesh, lookups):
    asked = WEB.host, "10.244.0.2"
    assert for_pod(lookups, *asked).addresses == ("10.96.1.1",)
    mesh.apply(KEY, (structs.replace(WEB, addresses=("10.96.1.2",)),))
    assert for_pod(lookups, *asked).addresses == ("10.96.1.1",)
    lookups.forget()
    assert lookups.fresh is None
    assert for_pod(lookups, *asked).addresses == ("10.96.1.2",)


def test_the_address_of_a_pod_that_is_gone_is_of_no_namespace(mesh, lookups):
    mesh.apply(KEY, (structs.replace(WEB, export_to=(".",)),))
    lookups.remove(("10.244.0.2",))
    assert for_pod(lookups, WEB.host, "10.244.0.2") == NoSuchName()
