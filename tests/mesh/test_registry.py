from hypothesis import given, settings
from hypothesis import strategies as st

from model.builders import instance, service
from weft.mesh.registry import Registry
from weft.model.names import labels_of


def test_move_returns_every_service_that_selects_the_instance_before_or_after():
    registry = Registry()
    orders, cart, pod = service("orders"), service("cart"), instance("pod", "orders")
    for each in (orders, cart, service("other")):
        registry.add(each)
    assert registry.move(None, pod) == {orders: True}  # nobody was there: whoever is there now has no proxy
    assert registry.move(pod, instance("pod", "cart")) == {orders: True, cart: True}
    assert not list(registry.members(orders)) and [each.name for each in registry.members(cart)] == ["pod"]


def test_another_instance_of_the_same_profile_changes_no_standing():
    registry, orders = Registry(), service("orders")
    registry.add(orders)
    registry.move(None, instance("orders-0", "orders", meshed=True))
    assert registry.move(None, instance("orders-1", "orders", meshed=True)) == {orders: False}


def test_only_services_of_its_own_namespace_select_an_instance():
    registry, orders = Registry(), service("orders")
    registry.add(orders)
    registry.add(service("orders", namespace="other"))
    assert registry.selecting(instance("orders-0", "orders")) == [orders]


def test_a_service_without_a_selector_has_no_members():
    registry, written = Registry(), service("orders", selector=None)
    registry.add(written)
    assert registry.members(written) is None
    registry.remove(written)
    assert not list(registry.services)


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("service"), NAMES, NAMES),
        st.tuples(st.just("instance"), NAMES, NAMES),
        st.tuples(st.sampled_from(["no service", "no instance"]), NAMES, NAMES),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(STEPS)
def test_incrementally_updated_members_equal_recomputed_members(steps):
    """Whatever order services and instances come and go in, the index says what a look at everything would say."""
    registry, services, instances = Registry(), {}, {}
    for kind, name, app in steps:
        if kind.endswith("service"):
            if name in services:
                registry.remove(services.pop(name))
            if kind == "service":
                services[name] = service(name, selector=labels_of({"app": app}))
                registry.add(services[name])
        else:
            before = instances.pop(name, None)
            after = instance(name, app) if kind == "instance" else None
            registry.move(before, after)
            if after is not None:
                instances[name] = after
    for each in services.values():
        selected = [one for one in instances.values() if one.labels == each.selector]
        assert set(registry.members(each)) == set(selected)
