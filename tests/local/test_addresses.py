from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network

import pytest

from weft.local.addresses import POD_RANGES, SERVICE_RANGES, Addresses, Pool
from weft.local.error import LocalError
from weft.model.service import Resolution, Service, ServicePort


def service(name: str, **fields: object) -> Service:
    values = {"host": f"{name}.shop.svc.cluster.local", "name": name, "namespace": "shop", "ports": (ServicePort(80),)}
    return Service(**{**values, **fields})


def test_a_name_gets_the_same_address_in_the_next_mesh():
    first, second = Addresses(), Addresses()
    names = [f"shop/payments-{number}" for number in range(50)]
    before = {name: first.pods.take(name) for name in names}
    assert {name: second.pods.take(name) for name in reversed(names)} == before


def test_every_pod_has_an_address_of_its_own_in_both_families():
    addresses = Addresses()
    pairs = [addresses.pods.take(f"shop/pod-{number}") for number in range(2000)]
    assert len({pair.ipv4 for pair in pairs}) == len({pair.ipv6 for pair in pairs}) == 2000
    assert all(pair.ipv4 in POD_RANGES[0] and pair.ipv6 in POD_RANGES[1] for pair in pairs)
    bridge = addresses.bridge[0].ip
    assert bridge == IPv4Address("10.244.0.1") and all(pair.ipv4 != bridge for pair in pairs)


def test_without_ipv6_there_are_only_ipv4_addresses():
    addresses = Addresses(ipv6=False)
    assert addresses.pods.take("shop/a").texts == (str(addresses.pods.take("shop/a").ipv4),)
    assert addresses.bridge[1] is None


def test_a_full_range_is_an_error_and_a_released_address_is_reused():
    pool = Pool((IPv4Network("10.9.0.0/29"), IPv6Network("fd00:9::/64")), first=2, what="pod")
    for number in range(5):
        pool.take(f"p{number}")
    with pytest.raises(LocalError, match="pod late: error: no address is free: all 5 of"):
        pool.take("late")
    pool.release("p3")
    pool.take("late")


def test_a_service_without_an_address_gets_one_of_each_family():
    admitted = Addresses().admit(service("payments"))
    assert isinstance(admitted, Service)
    ipv4, ipv6 = admitted.addresses
    assert IPv4Address(ipv4) in SERVICE_RANGES[0]
    assert ipv6.startswith("fd00:10:96:")


def test_an_address_set_by_the_user_is_kept_and_not_given_out_again():
    addresses = Addresses()
    wanted = addresses.admit(service("payments")).addresses[0]
    fresh = Addresses()
    assert fresh.admit(service("mine", addresses=(wanted,))).addresses == (wanted,)
    assert fresh.admit(service("payments")).addresses[0] != wanted
    assert fresh.services.reserve(wanted, "other") == "shop/mine.shop.svc.cluster.local"


@pytest.mark.parametrize(
    "fields",
    [{"headless": True}, {"resolution": Resolution.NONE, "external": True}, {"host": "*.example.com"}],
    ids=["headless", "no resolution", "wildcard"],
)
def test_external_and_headless_services_get_no_address(fields):
    assert Addresses().admit(service("x", **fields)).addresses == ()


def test_a_service_entry_without_addresses_gets_a_virtual_one():
    entry = service("x", host="api.example.com", external=True, resolution=Resolution.DNS)
    assert Addresses().admit(entry).addresses


def test_forgets_services_that_are_gone():
    addresses = Addresses()
    first = addresses.admit(service("a")).addresses
    addresses.services.keep_only(set())
    assert addresses.services.reserve(first[0], "someone") == ""


def test_two_services_with_one_written_address_are_a_problem_until_one_is_gone():
    addresses = Addresses()
    first, second = service("first", addresses=("10.96.0.10",)), service("second", addresses=("10.96.0.10",))
    addresses.admit(first)
    addresses.admit(second)
    (problem,) = addresses.keep_services([first, second])
    assert "second" in str(problem) and "10.96.0.10 is already used by shop/first" in str(problem)
    assert addresses.keep_services([first]) == ()
    addresses.admit(second)
    addresses.admit(service("second", addresses=("10.96.0.11",)))
    assert addresses.keep_services([first, second]) == ()
