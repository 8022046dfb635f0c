import pytest

from weft.model.names import ObjectKey, Origin, full_host, host_covers, labels_of, selects, where_of


@pytest.mark.parametrize(
    ("pattern", "host", "covers"),
    [
        ("*", "a.b", True),
        ("a.b", "a.b", True),
        ("*.b", "a.b", True),
        ("*.b", "b", False),
        ("*.b", "*.a.b", True),
        ("*.a.b", "*.b", False),
        ("a.b", "*.b", False),
    ],
)
def test_a_pattern_covers_hosts_and_narrower_patterns(pattern, host, covers):
    assert host_covers(pattern, host) is covers


def test_a_name_without_a_dot_is_a_service_of_the_own_namespace():
    assert full_host("orders", "shop", "cluster.local") == "orders.shop.svc.cluster.local"
    assert full_host("orders.other", "shop", "cluster.local") == "orders.other"
    assert full_host("*", "shop", "cluster.local") == "*"


def test_a_selector_needs_every_pair():
    labels = labels_of({"version": "v1", "app": "orders"})
    assert selects(labels_of({"app": "orders"}), labels)
    assert not selects(labels_of({"app": "orders", "version": "v2"}), labels)
    assert selects((), labels)


def test_a_key_is_shown_as_kind_namespace_and_name():
    assert str(ObjectKey("Service", "shop", "orders")) == "Service shop/orders"
    assert str(ObjectKey("Namespace", "", "shop")) == "Namespace shop"


def test_a_position_names_the_object_or_the_given_name():
    origin = Origin(ObjectKey("Workload", "shop", "web"), file="web.yaml", line=3)
    assert str(where_of(origin)) == "web.yaml:3: Workload shop/web"
    assert str(where_of(origin, "pod shop/web-0")) == "web.yaml:3: pod shop/web-0"
    assert str(where_of(origin, line=7, field="spec.ports")) == "web.yaml:7: Workload shop/web: spec.ports"
    assert str(where_of(None, "pod shop/web-0")) == "pod shop/web-0"
