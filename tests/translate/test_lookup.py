from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from weft.model.instance import Instance
from weft.model.service import Service, ServicePort
from weft.translate.lookup import Found, NameLookup, NoSuchName, NotOurs

DOMAIN = "cluster.local"
RANGES = (
    ip_network("10.244.0.0/16"),
    ip_network("10.96.0.0/16"),
    ip_network("fd00:10:244::/64"),
    ip_network("fd00:10:96::/64"),
)


def service(name: str, namespace: str = "shop", **fields: object) -> Service:
    host = fields.pop("host", f"{name}.{namespace}.svc.{DOMAIN}")
    return Service(host=host, name=name, namespace=namespace, ports=(ServicePort(80),), **fields)


PAYMENTS = service("payments", addresses=("10.96.1.1", "fd00:10:96::1"))
PODS = [
    Instance("db-0", "shop", ("10.244.0.9",), labels=(("app", "db"),)),
    Instance("db-1", "shop", ("10.244.0.10",), labels=(("app", "db"),), ready=False),
    Instance("db-0", "other", ("10.244.0.11",), labels=(("app", "db"),)),
]
DB = service("db", headless=True, selector=(("app", "db"),))


@pytest.mark.parametrize("name", ["payments", "payments.shop", "payments.shop.svc", "payments.shop.svc.cluster.local"])
def test_a_service_has_its_short_and_long_names(name):
    assert NameLookup([PAYMENTS], [], DOMAIN, RANGES).look_up(name, "shop") == Found(PAYMENTS.addresses)


def test_a_bare_name_is_a_service_of_the_callers_own_namespace():
    names = NameLookup([PAYMENTS], [], DOMAIN, RANGES)
    assert names.look_up("payments", "other") == NotOurs()
    assert names.look_up("payments.shop", "other") == Found(PAYMENTS.addresses)


def test_an_unknown_name_of_the_mesh_does_not_exist_but_one_above_others_does():
    names = NameLookup([PAYMENTS], [], DOMAIN, RANGES)
    assert names.look_up("nobody.shop.svc.cluster.local", "shop") == NoSuchName()
    assert names.look_up("example.com.shop.svc.cluster.local", "shop") == NoSuchName()
    assert names.look_up("shop.svc.cluster.local", "shop") == Found()
    assert names.look_up("empty.svc.cluster.local", "shop") == NoSuchName()


def test_a_headless_service_is_its_ready_pods_and_each_has_a_name():
    names = NameLookup([DB], PODS, DOMAIN, RANGES)
    assert names.look_up("db", "shop") == Found(("10.244.0.9",))
    assert names.look_up("db-0.db.shop.svc.cluster.local", "shop") == Found(("10.244.0.9",))
    assert names.look_up("db-1.db.shop.svc.cluster.local", "shop") == NoSuchName()
    lenient = NameLookup(
        [service("db", headless=True, selector=(("app", "db"),), publish_not_ready=True)], PODS, DOMAIN, RANGES
    )
    assert lenient.look_up("db", "shop") == Found(("10.244.0.9", "10.244.0.10"))


def test_outside_hosts_are_resolved_only_with_a_virtual_address():
    entries = [
        service("a", host="api.example.com", addresses=("10.96.9.9",)),
        service("b", host="plain.example.com"),
        service("c", host="*.wild.example", addresses=("10.96.9.10", "10.1.0.0/16")),
    ]
    names = NameLookup(entries, [], DOMAIN, RANGES)
    assert names.look_up("api.example.com", "x") == Found(("10.96.9.9",))
    assert names.look_up("plain.example.com", "x") == NotOurs()
    assert names.look_up("deep.er.wild.example", "x") == Found(("10.96.9.10",))
    assert names.look_up("wild.example", "x") == NotOurs()


def test_a_host_exported_to_its_own_namespace_is_not_seen_elsewhere():
    own = service("a", host="api.example.com", addresses=("10.96.9.9",), export_to=(".",))
    names = NameLookup([own], [], DOMAIN, RANGES)
    assert names.look_up("api.example.com", "shop") == Found(("10.96.9.9",))
    assert names.look_up("api.example.com", "other") == NotOurs()


def test_a_result_may_lack_an_ip_family():
    assert Found(("10.96.1.1",)).of_version(6) == ()


def reverse(address: str) -> str:
    return ip_address(address).reverse_pointer


@pytest.mark.parametrize("address", PAYMENTS.addresses)
def test_a_reverse_lookup_of_a_service_address_returns_its_name(address):
    names = NameLookup([PAYMENTS], [], DOMAIN, RANGES)
    assert names.look_up(reverse(address), "shop") == Found(names=(PAYMENTS.host,))


def test_a_reverse_lookup_of_a_headless_pod_returns_its_own_name():
    assert NameLookup([DB], PODS, DOMAIN, RANGES).look_up(reverse("10.244.0.9"), "shop") == Found(
        names=(f"db-0.{DB.host}",)
    )


@pytest.mark.parametrize("address", ["10.96.9.9", "10.244.9.9", "fd00:10:96::99", "fd00:10:244::99"])
def test_a_reverse_lookup_of_an_unused_mesh_address_is_not_forwarded(address):
    assert NameLookup([PAYMENTS], PODS, DOMAIN, RANGES).look_up(reverse(address), "shop") == NoSuchName()


def test_a_reverse_lookup_of_a_hidden_services_address_finds_no_name():
    hidden = service("hidden", addresses=("10.96.1.5",), export_to=(".",))
    assert NameLookup([hidden], [], DOMAIN, RANGES).look_up(reverse("10.96.1.5"), "other") == NoSuchName()


@pytest.mark.parametrize("name", ["96.10.in-addr.arpa", "1.96.10.in-addr.arpa", "x.y.96.10.in-addr.arpa"])
def test_reverse_zones_above_mesh_addresses_exist_and_are_empty(name):
    assert NameLookup([PAYMENTS], [], DOMAIN, RANGES).look_up(name, "shop") == Found()


@pytest.mark.parametrize(
    "name", [reverse("192.0.2.1"), reverse("2001:db8::1"), "10.in-addr.arpa", "96.10.in-addr.arpa.x"]
)
def test_reverse_lookups_of_other_addresses_are_forwarded(name):
    assert NameLookup([PAYMENTS], [], DOMAIN, RANGES).look_up(name, "shop") == NotOurs()


def test_a_service_has_only_addresses_of_its_pods_ip_families():
    both = service("web", addresses=("10.96.1.2", "fd00:10:96::2"), selector=(("app", "web"),))
    four = Instance("web-0", "shop", ("10.244.0.7",), labels=(("app", "web"),))
    six = Instance("web-1", "shop", ("10.244.0.8", "fd00::8"), labels=(("app", "web"),))
    starting = Instance("web-2", "shop", ("10.244.0.9", "fd00::9"), labels=(("app", "web"),), ready=False)
    assert NameLookup([both], [four, starting], DOMAIN, RANGES).look_up("web", "shop") == Found(("10.96.1.2",))
    assert NameLookup([both], [four, six], DOMAIN, RANGES).look_up("web", "shop") == Found(both.addresses)
    assert NameLookup([both], [], DOMAIN, RANGES).look_up("web", "shop") == Found(both.addresses)


def test_a_proxy_gets_no_virtual_address_of_an_outside_host():
    names = NameLookup([PAYMENTS, service("api", host="api.example.com", addresses=("10.96.1.9",))], [], DOMAIN)
    assert names.look_up("api.example.com", "shop") == Found(("10.96.1.9",))
    assert names.look_up_for_proxy("api.example.com", "shop") == NotOurs()
    assert names.look_up_for_proxy(PAYMENTS.host, "shop") == names.look_up(PAYMENTS.host, "shop")
