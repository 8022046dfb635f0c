import pytest

from model.builders import group, put, service
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConnectionPool,
    DestinationRule,
    Subset,
    TrafficPolicy,
    effective,
)
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.scope import Scope

ORDERS = "orders.shop.svc.cluster.local"
SHOP = Scope("shop")


def rule(name, namespace, host=ORDERS, **more):
    return DestinationRule(name, namespace, host, **more)


def test_the_callers_own_rule_comes_before_the_services_and_the_roots():
    mesh = Mesh()
    put(mesh, service("orders"), rule("root", "istio-system", "*.cluster.local"))
    orders = mesh.service(ORDERS, SHOP)
    caller = group("web", "front")
    assert mesh.destination_rule(ORDERS, orders, caller).name == "root"
    put(mesh, rule("owner", "shop"))
    assert mesh.destination_rule(ORDERS, orders, caller).name == "owner"
    put(mesh, rule("caller", "front"))
    assert mesh.destination_rule(ORDERS, orders, caller).name == "caller"


def test_a_rule_that_is_not_exported_or_selects_others_does_not_count():
    mesh = Mesh()
    put(mesh, service("orders"), rule("private", "shop", export_to=(".",)))
    orders = mesh.service(ORDERS, SHOP)
    assert mesh.destination_rule(ORDERS, orders, group("web", "front")) is None
    put(mesh, rule("picky", "front", workload_selector=labels_of({"app": "batch"})))
    assert mesh.destination_rule(ORDERS, orders, group("web", "front")) is None
    assert mesh.destination_rule(ORDERS, orders, group("batch", "front")).name == "picky"


def written(name, created, **more):
    return rule(name, "shop", created=created, origin=Origin(ObjectKey("DestinationRule", "shop", name)), **more)


def found(mesh, caller=None):
    return mesh.destination_rule(ORDERS, mesh.service(ORDERS, SHOP), caller or group("web"))


def test_rules_for_one_host_are_merged_with_all_subsets_and_the_oldest_policy():
    mesh = Mesh()
    older, younger = TrafficPolicy(connection_pool=ConnectionPool(max_connections=1)), TrafficPolicy()
    put(
        mesh,
        service("orders"),
        written("late", "2026-03", policy=younger, subsets=(Subset("v1", line=9), Subset("v3"))),
        written("early", "2026-01", subsets=(Subset("v1", line=1), Subset("v2"))),
        written("middle", "2026-02", policy=older),
    )
    both = found(mesh)
    assert [(subset.name, subset.line) for subset in both.subsets] == [("v1", 1), ("v2", 0), ("v3", 0)]
    assert both.policy == older
    assert [origin.key.name for origin in both.origins] == ["early", "middle", "late"]


def test_removing_a_rule_removes_only_its_own_subsets():
    mesh = Mesh()
    put(mesh, service("orders"), written("a", "1", subsets=(Subset("v1"),)), written("b", "2", subsets=(Subset("v2"),)))
    touched = mesh.apply(ObjectKey("DestinationRule", "shop", "a"), ())
    assert touched.hosts == {ORDERS}
    assert [subset.name for subset in found(mesh).subsets] == ["v2"]
    mesh.apply(ObjectKey("DestinationRule", "shop", "b"), ())
    assert found(mesh) is None


def test_rules_for_other_callers_or_namespaces_are_not_merged():
    mesh = Mesh()
    put(
        mesh,
        service("orders"),
        written("everybody", "1", subsets=(Subset("v1"),)),
        written("batch", "2", subsets=(Subset("v2"),), workload_selector=labels_of({"app": "batch"})),
        written("private", "3", subsets=(Subset("v3"),), export_to=(".",)),
    )
    assert [subset.name for subset in found(mesh).subsets] == ["v1"]
    assert [origin.key.name for origin in found(mesh, group("web", "front")).origins] == ["everybody"]


def test_a_rule_for_some_callers_comes_before_an_older_one_for_all():
    mesh = Mesh()
    picky = rule("a-picky", "shop", workload_selector=labels_of({"app": "batch"}), created="2")
    put(mesh, service("orders"), rule("all", "shop", created="1"), picky)
    orders = mesh.service(ORDERS, SHOP)
    assert mesh.destination_rule(ORDERS, orders, group("batch", "shop")).name == "a-picky"
    assert mesh.destination_rule(ORDERS, orders, group("web", "shop")).name == "all"


POOL = TrafficPolicy(connection_pool=ConnectionPool(max_connections=7))


@pytest.mark.parametrize(
    "beside",
    [
        rule("plain", "shop", policy=POOL),
        rule("exported", "shop", policy=POOL, export_to=("*",)),
        rule("selecting", "front", policy=POOL, workload_selector=labels_of({"app": "web"})),
        rule("callers", "front", policy=POOL),
        rule("wide", "front", "*.cluster.local", policy=POOL),
    ],
    ids=lambda each: each.name,
)
def test_a_rule_without_tls_keeps_the_tls_of_a_backend_tls_policy(beside):
    mesh = Mesh()
    tls = ClientTls(ClientTlsMode.SIMPLE, server_name="orders.example.com")
    made = rule("made", "shop", policy=TrafficPolicy(tls=tls), export_to=("*",), created="9999", attached=True)
    put(mesh, service("orders"), made, beside)
    orders = mesh.service(ORDERS, SHOP)
    chosen = effective(mesh.destination_rule(ORDERS, orders, group("web", "front")), 80)
    assert (chosen.tls, chosen.connection_pool) == (tls, POOL.connection_pool)


def test_a_wider_or_later_rule_does_not_replace_a_backend_tls_policy():
    mesh = Mesh()
    off = TrafficPolicy(tls=ClientTls(ClientTlsMode.DISABLE))
    tls = ClientTls(ClientTlsMode.SIMPLE, server_name="orders.example.com")
    made = rule("made", "shop", policy=TrafficPolicy(tls=tls), export_to=("*",), created="9999", attached=True)
    put(mesh, service("orders"), made, rule("wide", "shop", "*.shop.svc.cluster.local", policy=off))
    put(mesh, rule("root", "istio-system", "*.cluster.local", policy=off))
    assert effective(found(mesh, group("web", "front")), 80).tls == tls
    put(mesh, rule("own", "shop", policy=off))
    assert effective(found(mesh, group("web", "front")), 80).tls.mode is ClientTlsMode.DISABLE
