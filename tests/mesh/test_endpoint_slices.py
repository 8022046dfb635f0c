"""Who answers, where Kubernetes itself has found it out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.builders import group, instance, put, service
from weft.mesh.endpoint_slices import Slices
from weft.mesh.mesh import Mesh
from weft.mesh.service_members import Standing
from weft.model.endpoint import Endpoint
from weft.model.endpoint_slice import EndpointSlice, SliceEndpoint
from weft.model.instance import Instance
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.service import Protocol, Service, ServicePort

ORDERS = "orders.shop.svc.cluster.local"
HTTP = (("http", 8080),)


def orders(**more):
    return service("orders", sliced=True, **more)


def pod(number, *addresses, **more):
    more = {"meshed": True, "service_account": "orders", "by_slice": True, **more}
    labels = labels_of({"app": more.pop("app", "orders"), **more.pop("labels", {})})
    return Instance(f"orders-{number}", "shop", addresses or (f"10.244.0.{number}",), labels, **more)


def at(number, address="", **more):
    return SliceEndpoint(address or f"10.244.0.{number}", pod=f"orders-{number}", **more)


def sliced(*endpoints, name="orders-x", ports=HTTP, managed=True, **more):
    return EndpointSlice(name, "shop", more.pop("service", "orders"), ports, endpoints, managed=managed, **more)


def mesh_of(*values):
    mesh = Mesh()
    put(mesh, *values)
    return mesh


def answering(mesh, port=None):
    found = next(each for each in mesh.services() if each.name == "orders")
    return mesh.endpoints(found, port or found.ports[0])


def addresses(mesh):
    return [(endpoint.address, endpoint.port) for endpoint in answering(mesh)]


def test_endpoints_come_from_slices_and_identities_from_pods():
    mesh = mesh_of(orders(), pod(1, labels={"version": "v2"}, locality="r/z"), sliced(at(1)))
    assert answering(mesh) == (
        Endpoint(
            "10.244.0.1",
            8080,
            labels=labels_of({"app": "orders", "version": "v2"}),
            locality="r/z",
            meshed=True,
            tls=True,
            service_account="orders",
            instance="shop/orders-1",
        ),
    )


def test_the_order_of_events_does_not_matter():
    one, two = orders(), (sliced(at(1)), pod(1))
    assert answering(mesh_of(one, *two)) == answering(mesh_of(*two, one)) == answering(mesh_of(*two[::-1], one)) != ()


def test_a_selected_pod_in_no_slice_is_no_endpoint():
    assert addresses(mesh_of(orders(), pod(1), pod(2), sliced(at(1)))) == [("10.244.0.1", 8080)]


def test_without_slices_the_selector_alone_decides():
    mesh = mesh_of(orders(), instance("orders-0", "orders", address="10.244.0.9"))
    assert addresses(mesh) == [("10.244.0.9", 8080)]


def test_a_selected_workload_entry_is_an_endpoint_beside_the_pods():
    origin = Origin(ObjectKey("WorkloadEntry", "shop", "orders-1"))  # of the same name as a pod
    entry = Instance("orders-1", "shop", ("192.0.2.1",), labels_of({"app": "orders"}), origin=origin)
    mesh = mesh_of(orders(), pod(1), sliced(at(1)))
    mesh.apply(origin.key, (entry,))
    assert addresses(mesh) == [("10.244.0.1", 8080), ("192.0.2.1", 8080)]
    mesh.apply(origin.key, ())
    assert addresses(mesh) == [("10.244.0.1", 8080)]


def test_a_service_entry_selects_pods_regardless_of_slices():
    entry = service("orders", selector=labels_of({"app": "orders"}))
    assert addresses(mesh_of(entry, pod(1), sliced())) == [("10.244.0.1", 8080)]
    assert addresses(mesh_of(entry, pod(1, ready=False))) == []


def test_an_unready_pod_is_no_endpoint_unless_the_service_publishes_it():
    values = pod(1), pod(2), sliced(at(1, ready=False), at(2))
    assert addresses(mesh_of(orders(), *values)) == [("10.244.0.2", 8080)]
    assert len(addresses(mesh_of(orders(publish_not_ready=True), *values))) == 2


def test_terminating_pods_are_endpoints_only_while_none_is_ready():
    ending = at(1, ready=False, draining=True)
    assert addresses(mesh_of(orders(), pod(1), pod(2), sliced(ending, at(2)))) == [("10.244.0.2", 8080)]
    assert addresses(mesh_of(orders(), pod(1), pod(2), sliced(ending, at(2, ready=False)))) == [("10.244.0.1", 8080)]


def test_a_named_port_may_have_another_number_in_each_slice():
    old, new = sliced(at(1), name="a"), sliced(at(2), name="b", ports=(("http", 9090),))
    assert addresses(mesh_of(orders(target="web"), pod(1), pod(2), old, new)) == [
        ("10.244.0.1", 8080),
        ("10.244.0.2", 9090),
    ]


def test_pods_of_one_group_with_different_numbers_for_a_port_listen_on_both():
    mesh = mesh_of(orders(target="web"), pod(1, ports=(("web", 8080),)), pod(2, ports=(("web", 9090),)))
    assert [port.number for port in mesh.inbound_ports(group("orders"))] == [8080, 9090]


def test_the_two_addresses_of_a_pod_are_one_endpoint():
    both = pod(1, "fd00::1", "10.244.0.1")
    v4, v6 = sliced(at(1), name="v4"), sliced(at(1, "fd00::1"), name="v6")
    (found,) = answering(mesh_of(orders(), both, v4, v6))
    assert (found.address, found.extra_addresses) == ("fd00::1", ("10.244.0.1",))
    (only,) = answering(mesh_of(orders(), both, v4))  # a service of one family
    assert (only.address, only.extra_addresses) == ("10.244.0.1", ())


def test_a_pod_that_is_not_known_yet_is_not_called():
    """Nobody knows whether it takes the mesh's TLS."""
    mesh = mesh_of(orders(), sliced(at(1)))
    assert addresses(mesh) == []
    assert put(mesh, pod(1)).endpoints == {ORDERS}
    assert addresses(mesh) == [("10.244.0.1", 8080)]


def test_a_deleted_pod_is_no_endpoint_though_the_slice_lists_it():
    mesh = mesh_of(orders(), pod(1), sliced(at(1)))
    assert mesh.apply(ObjectKey("Instance", "shop", "orders-1"), ()).endpoints == {ORDERS}
    assert addresses(mesh) == []


def test_another_pod_of_the_same_name_is_not_called_at_the_old_address():
    mesh = mesh_of(orders(), pod(1), sliced(at(1)))
    put(mesh, pod(1, "10.244.0.77"))
    assert addresses(mesh) == []
    put(mesh, sliced(at(1, "10.244.0.77")))
    assert addresses(mesh) == [("10.244.0.77", 8080)]


def test_addresses_without_a_pod_are_called_in_plain():
    mesh = mesh_of(orders(selector=None), sliced(SliceEndpoint("192.0.2.1"), managed=False))
    assert answering(mesh) == (Endpoint("192.0.2.1", 8080),)
    assert mesh.standing(next(mesh.services())) == Standing()


def test_an_address_without_target_ref_is_matched_to_its_pod():
    mesh = mesh_of(orders(selector=None), pod(1), sliced(SliceEndpoint("10.244.0.1"), managed=False))
    assert answering(mesh)[0].tls and mesh.standing(next(mesh.services())) == Standing((80,), ("orders",))


def test_an_address_shared_by_host_network_pods_is_matched_to_none():
    here = {"meshed": False, "labels": {"version": "v1"}}
    mesh = mesh_of(orders(), pod(1, "192.0.2.9", **here), pod(2, "192.0.2.9", **here))
    put(mesh, sliced(at(1, "192.0.2.9"), at(2, "192.0.2.9")))
    assert [endpoint.instance for endpoint in answering(mesh)] == ["shop/orders-1", "shop/orders-2"]
    put(mesh, sliced(SliceEndpoint("192.0.2.9"), managed=False))
    assert answering(mesh) == (Endpoint("192.0.2.9", 8080),)


def test_a_named_pod_with_a_foreign_address_does_not_count_as_meshed():
    mesh = mesh_of(orders(selector=None), pod(1), sliced(at(1, "172.16.0.1"), managed=False))
    assert answering(mesh) == (Endpoint("172.16.0.1", 8080),)


def test_an_endpoint_that_is_no_pod_makes_the_service_unmeshed():
    mesh = mesh_of(orders(), pod(1), sliced(at(1)))
    assert mesh.standing(next(mesh.services())) == Standing((80,), ("orders",))
    touched = put(mesh, sliced(SliceEndpoint("192.0.2.1"), name="by-hand", managed=False))
    assert touched.hosts == {ORDERS} and mesh.standing(next(mesh.services())) == Standing((), ("orders",))


def test_a_headless_service_is_secured_if_all_its_pods_are():
    headless = orders(headless=True)
    mesh = mesh_of(headless, pod(1), sliced(at(1)))
    assert mesh.secured_ports(headless) == (80,)
    put(mesh, sliced(SliceEndpoint("192.0.2.1"), name="by-hand", managed=False))
    assert mesh.secured_ports(headless) == ()
    by_hand = orders(selector=None, headless=True)
    mesh = mesh_of(by_hand, pod(1), sliced(at(1), managed=False))
    assert mesh.secured_ports(by_hand) == (80,)


@pytest.mark.parametrize("name", ["", "http"])
def test_an_unnamed_service_port_matches_an_unnamed_slice_port(name):
    port = ServicePort(80, name, Protocol.HTTP, 8080)
    mesh = mesh_of(Service(ORDERS, "orders", "shop", (port,), sliced=True), sliced(SliceEndpoint("192.0.2.1")))
    put(mesh, sliced(SliceEndpoint("192.0.2.1"), ports=((name, 8080),)))
    assert addresses(mesh) == [("192.0.2.1", 8080)]


# What a change touches


def test_a_pod_that_becomes_ready_touches_only_the_endpoints_of_its_services():
    mesh = mesh_of(orders(), service("cart", sliced=True), pod(1), pod(2, ready=False))
    put(mesh, sliced(at(1), at(2, ready=False)))
    assert not put(mesh, pod(2))  # the pod itself says it first, and the slice decides
    touched = put(mesh, sliced(at(1), at(2)))
    assert (touched.hosts, touched.endpoints, touched.inbound, touched.scopes) == (set(), {ORDERS}, set(), set())


def test_another_pod_of_the_same_profile_touches_nothing_before_a_slice_lists_it():
    mesh = mesh_of(orders(), pod(1), sliced(at(1)))
    assert not put(mesh, pod(2))


def test_a_pod_of_another_account_touches_its_services_before_it_is_an_endpoint():
    mesh = mesh_of(orders(), pod(1), sliced(at(1)))
    assert put(mesh, pod(2, service_account="legacy")).hosts == {ORDERS}


def test_a_pod_with_changed_labels_touches_the_services_that_list_it():
    mesh = mesh_of(orders(), pod(1), sliced(at(1)))
    assert put(mesh, pod(1, labels={"version": "v2"})).endpoints == {ORDERS}


def test_a_pod_in_two_services_touches_both():
    mesh = mesh_of(orders(), service("all", sliced=True, selector=labels_of({"app": "orders"})), pod(1))
    put(mesh, sliced(at(1)), sliced(at(1), name="all-x", service="all"))
    assert put(mesh, pod(1, locality="r/z")).endpoints == {ORDERS, "all.shop.svc.cluster.local"}


def test_a_changed_endpoint_touches_the_whole_headless_service():
    mesh = mesh_of(orders(headless=True), pod(1), pod(2), sliced(at(1)))
    assert put(mesh, sliced(at(1), at(2))).hosts == {ORDERS}


def test_a_slice_that_is_now_for_another_service_touches_both():
    mesh = mesh_of(orders(), service("cart", sliced=True), pod(1), sliced(at(1)))
    touched = put(mesh, sliced(at(1), service="cart"))
    assert touched.endpoints == {ORDERS, "cart.shop.svc.cluster.local"}


def test_a_slice_of_no_service_touches_nothing():
    assert not put(Mesh(), sliced(at(1)))


# The index itself


def test_a_pods_services_are_dropped_with_the_last_slice_that_lists_it():
    slices, one, two = Slices(), sliced(at(1), name="a"), sliced(at(1), at(2), name="b")
    slices.add(one)
    slices.add(two)
    assert slices.naming("shop", ("orders-1",)) == {"orders"} and len(list(slices.of("shop", "orders"))) == 2
    slices.remove(one)
    assert slices.naming("shop", ("orders-1",)) == {"orders"}
    slices.remove(two)
    assert slices.naming("shop", ("orders-1", "orders-2")) == set() and not list(slices.of("shop", "orders"))


NUMBERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), NUMBERS, st.sampled_from(["orders", "cart"]), st.booleans()),
        st.tuples(st.just("no pod"), NUMBERS, st.just(""), st.just(False)),
        st.tuples(st.just("slice"), NUMBERS, st.sampled_from(["orders", "cart"]), st.booleans()),
        st.tuples(st.just("no slice"), NUMBERS, st.just(""), st.just(False)),
        st.tuples(st.sampled_from(["service", "no service"]), NUMBERS, st.just("orders"), st.just(False)),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(STEPS)
def test_incrementally_updated_endpoints_equal_recomputed_ones_and_every_change_is_touched(steps):
    mesh, kept = Mesh(), {}
    for what, number, name, flag in steps:
        key = ObjectKey(what.removeprefix("no "), "shop", f"orders-{number}" if "service" not in what else name)
        value = None
        if what == "pod":
            value = pod(number, meshed=flag, app=name)
        elif what == "slice":
            value = sliced(at(number), at(number % 3 + 1, ready=flag), name=key.name, service=name, managed=flag)
        elif what == "service":
            value = orders(selector=labels_of({"app": "orders"}) if number > 1 else None)
        before = _seen(mesh)
        touched = mesh.apply(key, (value,) if value else ())
        kept.pop(key, None)
        if value:
            kept[key] = value
        after = _seen(mesh)
        assert touched.endpoints >= {host for host in before.keys() | after if before.get(host) != after.get(host)}
    fresh = Mesh()
    for key, value in kept.items():
        fresh.apply(key, (value,))
    assert _seen(mesh) == _seen(fresh)


def _seen(mesh):
    return {
        each.host: ([mesh.endpoints(each, port) for port in each.ports], mesh.standing(each), mesh.secured_ports(each))
        for each in mesh.services()
    }
