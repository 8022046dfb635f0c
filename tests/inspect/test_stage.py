"""Tests of a stage by the explanations that it gives: requests through a small mesh, with the config that its
proxies would get."""

import pytest

from model.builders import group, instance, put, service
from weft.api.document import Change
from weft.api.parse import parse
from weft.base.ambiguous import Ambiguous
from weft.control.plane import ControlPlane
from weft.explain.decision import Kind
from weft.explain.explain import explain
from weft.explain.request import Request
from weft.files.documents import read_documents
from weft.inspect.stage import NoProxy, NoSuchWorkload, Stage
from weft.mesh.calls import Calls
from weft.mesh.mesh import Mesh
from weft.model.group import group_of
from weft.model.names import ObjectKey, Origin
from weft.model.on_demand import FEW, OnDemand, Telling
from weft.model.settings import Settings
from weft.model.sidecar import EgressListener, Sidecar
from weft.model.workload import Workload as Written
from weft.xds.types import CLUSTER, LISTENER

NARROW = Origin(ObjectKey("Sidecar", "shop", "narrow"), "", "narrow.yaml", 7)
KEY = ObjectKey("Service", "shop", "web")
DENY = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: only-orders, namespace: shop}
spec:
  selector: {matchLabels: {app: payments}}
  rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/orders]}}]}]
"""


def shop(*more, few=FEW):
    mesh = Mesh(few=few)
    put(mesh, service("payments", addresses=("10.96.0.7",)), *more)
    for app, address in (("orders", "10.244.0.2"), ("payments", "10.244.0.3"), ("frontend", "10.244.0.4")):
        put(mesh, instance(f"{app}-0", app, address=address, meshed=True, service_account=app, workload=app))
    return mesh


def asked(stage, caller, host="payments", **more):
    return explain(Request(host, caller=stage.find(caller), **more), stage).verdict


def test_a_request_goes_from_pod_to_pod_by_the_services_name():
    verdict = asked(Stage(shop()), "orders", path="/charge")
    assert (verdict.kind, verdict.workload) == (Kind.DELIVERED, "payments-0.shop")
    assert verdict.cluster == "outbound|80||payments.shop.svc.cluster.local"


def test_policies_decide_by_the_callers_identity():
    mesh = shop()
    for document in read_documents(DENY.encode(), "deny.yaml").documents:
        mesh.apply(document.key, parse(document).values)
    stage = Stage(mesh)
    assert asked(stage, "orders").kind is Kind.DELIVERED
    refused = asked(stage, "frontend")
    assert (refused.kind, refused.status) == (Kind.DENIED, 403)


def test_an_excluded_port_is_reached_without_the_proxy():
    mesh = shop()
    pod = instance("legacy-0", "legacy", address="10.244.0.6", meshed=True, excluded_ports=(9000,), workload="legacy")
    put(
        mesh,
        pod,
        Written("orders", "shop", (), exclude_outbound_ports=(5432,), exclude_outbound_ranges=("192.0.2.0/24",)),
    )
    stage = Stage(mesh)
    legacy, orders = stage.at("10.244.0.6"), stage.at("10.244.0.2")
    assert [stage.intercepts(legacy, "10.244.0.6", port, inbound=True) for port in (80, 9000)] == [True, False]
    assert [stage.intercepts(orders, "10.96.0.7", port, inbound=False) for port in (80, 5432)] == [True, False]
    assert not stage.intercepts(orders, "192.0.2.9", 80, inbound=False)
    assert not stage.intercepts(orders, "127.0.0.1", 80, inbound=False)


@pytest.mark.parametrize("sliced", [True, False])
def test_a_call_to_a_port_that_a_service_does_not_have_fails(sliced):
    mesh = shop(service("web", addresses=("10.96.0.8",), origin=Origin(KEY, "", "web.yaml", 3), sliced=sliced))
    verdict = asked(Stage(mesh), "orders", "web", port=81)
    assert (verdict.kind, verdict.why) == (Kind.FAILED, "web has no port 81 (it has 80)")
    (source,) = Stage(mesh).no_port("10.96.0.8", 81).sources
    assert str(source) == "Service shop/web (web.yaml:3)"
    assert Stage(mesh).no_port("10.96.0.8", 80) is None


def test_an_address_of_a_service_entry_may_have_any_port():
    origin = Origin(ObjectKey("ServiceEntry", "shop", "api"))
    mesh = shop(service("api", addresses=("192.0.2.7",), origin=origin, external=True))
    assert asked(Stage(mesh), "orders", "api", port=81).kind is Kind.PASSED_ON


def test_an_unknown_name_does_not_resolve():
    assert asked(Stage(shop()), "orders", "paymnets").kind is Kind.FAILED


@pytest.mark.parametrize(
    "word", ["orders", "orders-0", "orders.shop", "orders-0.shop", "shop/orders", "deploy/orders", "pod/orders-0"]
)
def test_a_pod_is_found_by_all_its_names(word):
    assert Stage(shop()).find(word) == "orders-0.shop"


def test_a_ready_pod_is_preferred():
    mesh = shop(instance("orders-a", "orders", address="10.244.0.9", ready=False, workload="orders"))
    assert Stage(mesh).find("orders") == "orders-0.shop"


@pytest.mark.parametrize("word", ["orders", "orders-0", "deploy/orders", "pod/orders-0"])
def test_a_pod_name_in_two_namespaces_is_ambiguous(word):
    mesh = shop()
    other = instance("orders-0", "orders", address="10.244.0.9", workload="orders", namespace="bank")
    mesh.apply(ObjectKey("Pod", "bank", "orders-0"), (other,))
    with pytest.raises(Ambiguous) as caught:
        Stage(mesh).find(word)
    name = word.rpartition("/")[2]
    assert caught.value.problem.what == f"`{name}` is in several namespaces: bank, shop"
    assert Stage(mesh).find(f"bank/{name}") == "orders-0.bank"  # the form that the hint suggests
    assert Stage(mesh).find(word, "bank") == Stage(mesh).find(f"{word}.bank") == "orders-0.bank"


def test_a_pods_name_takes_precedence_over_another_pods_label():
    mesh = shop()
    other = instance("else", "orders-0", address="10.244.0.9", workload="else", namespace="bank")
    mesh.apply(ObjectKey("Pod", "bank", "else"), (other,))
    assert Stage(mesh).find("orders-0") == "orders-0.shop"


def test_an_unknown_pod_gets_a_suggestion():
    with pytest.raises(NoSuchWorkload) as caught:
        Stage(shop()).find("order")
    assert caught.value.problem.hint == "did you mean `orders`?"


@pytest.mark.parametrize(("word", "namespace"), [("orders", "bank"), ("deploy/orders", "bank"), ("orders.bank", "")])
def test_a_pod_of_another_namespace_is_suggested_with_its_namespace(word, namespace):
    with pytest.raises(NoSuchWorkload) as caught:
        Stage(shop()).find(word, namespace)
    assert caught.value.problem.what == f"there is no workload or pod `{word}` in that namespace"
    assert caught.value.problem.hint == "did you mean `orders.shop`?"


async def test_served_config_equals_translated_config():
    plane = ControlPlane()
    documents = read_documents(DENY.encode(), "deny.yaml").documents
    plane.apply([Change(document.key, document) for document in documents])
    for key, values in shop().values():
        plane.put(key, values)
    await plane.pushed()
    orders = group("orders")
    plane.hold(orders)
    await plane.pushed()
    live, alone = Stage(plane.mesh, plane._snapshots), Stage(plane.mesh)
    assert live.versions(orders) == alone.versions(orders)
    assert {type_url for type_url, _ in live.versions(orders)} >= {CLUSTER, LISTENER}
    await plane.close()


@pytest.mark.parametrize("sliced", [True, False])
def test_the_network_forwards_calls_to_a_services_address(sliced):
    mesh = shop()
    put(mesh, service("payments", addresses=("10.96.0.7",), sliced=sliced))
    stage = Stage(mesh)
    assert stage.behind("10.96.0.7", 80) == (("10.244.0.3", 8080),)
    assert stage.behind("10.96.0.7", 81) == ()
    assert stage.behind("10.244.0.3", 80) is None


def test_an_address_of_a_service_entry_is_forwarded_only_in_a_local_mesh():
    origin = Origin(ObjectKey("ServiceEntry", "shop", "api"))
    mesh = shop(service("api", selector=(("app", "payments"),), addresses=("10.96.0.9",), origin=origin))
    assert Stage(mesh).behind("10.96.0.9", 80) is None
    put(mesh, Written("orders", "shop", ()))
    assert Stage(mesh).behind("10.96.0.9", 80) == (("10.244.0.3", 8080),)
    put(mesh, service("api", selector=(("app", "nobody"),), addresses=("10.96.0.9",), origin=origin))
    assert Stage(mesh).behind("10.96.0.9", 80) is None


@pytest.mark.parametrize("on_demand", [OnDemand.ON, OnDemand.OFF])
@pytest.mark.parametrize("where", [{}, {"address": "10.96.0.7"}])
def test_a_call_to_a_service_hidden_by_a_sidecar_names_the_service(where, on_demand):
    narrow = Sidecar("narrow", "shop", egress=(EgressListener(("./api.shop.svc.cluster.local",)),), origin=NARROW)
    mesh = shop(narrow)
    mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=on_demand),))
    stage = Stage(mesh, calls=Calls())
    found = explain(Request("payments", caller=stage.find("orders"), **where), stage)
    told = {step.what: step.sources for step in found.outcomes[0].steps}
    said = (
        "10.96.0.7:80 is payments.shop.svc.cluster.local, which is hidden from orders-0.shop: Sidecar shop/narrow does "
        "not import this host and port"
    )
    assert [str(each) for each in told[said]] == ["Sidecar shop/narrow (narrow.yaml:7)"]
    assert (found.verdict.kind, found.verdict.workload) == (Kind.DELIVERED, "payments-0.shop")
    assert (found.verdict.cluster, "unknown to the mesh" in str(told)) == ("PassthroughCluster", False)
    held = [what for what in told if "held" in what]
    shown = "10.96.0.7:80 belongs to no service visible to this proxy: the call is held until the control plane answers"
    assert [each.startswith(shown) for each in held] == ([True] if on_demand is OnDemand.ON else [])


def test_a_call_to_an_unexported_service_names_the_service():
    stage = Stage(shop(service("ledger", "bank", export_to=(".",), addresses=("10.96.0.9",))))
    found = explain(Request("ledger", address="10.96.0.9", caller=stage.find("orders")), stage)
    said = "10.96.0.9:80 is ledger.bank.svc.cluster.local, which is exported to `.` only, so not to orders-0.shop"
    assert said in [step.what for step in found.outcomes[0].steps]
    assert (found.verdict.kind, found.verdict.status) == (Kind.FAILED, 503), "it has no endpoints"


def test_a_call_to_an_unknown_address_is_held_each_time():
    mesh = shop(few=0)
    stage = Stage(mesh, calls=Calls())
    caller = stage.workload(stage.find("orders"))
    stage.after_call(caller, "10.96.0.9")
    (way,) = explain(Request("nobody", address="10.96.0.9", caller=caller.name), stage).outcomes
    (told,) = [step.what for step in way.steps if "held" in step.what]
    assert told.startswith(
        "10.96.0.9:80 belongs to no service: the call is held until the control plane answers (1 service could"
    )


def test_calls_are_still_held_after_on_demand_ended():
    calls = Calls()
    before = Stage(shop(few=0))
    calls.tell(before.group(before.find("orders")), Telling(held=True, ranges=("10.96.0.0/16",)))
    stage = Stage(shop(), calls=calls)
    (way,) = explain(Request("nobody", address="10.96.0.9", caller=stage.find("orders")), stage).outcomes
    (told,) = [step.what for step in way.steps if "held" in step.what]
    assert told.endswith("(its proxy was on demand before, and still holds such calls until it is restarted)")


def test_groups_are_those_of_pods_with_a_proxy():
    mesh = shop(instance("outside", "outside", address="10.244.0.8"))
    stage = Stage(mesh)
    assert sorted(stage.groups().values()) == [["frontend-0.shop"], ["orders-0.shop"], ["payments-0.shop"]]
    (pod,) = mesh.get(ObjectKey("Instance", "shop", "orders-0"))
    assert group_of(pod) in stage.groups()


def test_a_port_without_a_listener_is_reported_where_ports_are_known():
    assert asked(Stage(shop()), "orders").kind is Kind.DELIVERED
    assert asked(Stage(shop(), listening=lambda pod: frozenset({8080})), "orders").kind is Kind.DELIVERED
    failed = asked(Stage(shop(), listening=lambda pod: frozenset({9000})), "orders")
    assert (failed.kind, failed.status, failed.why) == (
        Kind.FAILED,
        503,
        "payments-0.shop does not listen on port 8080",
    )


def test_the_first_call_to_a_service_gets_its_cluster():
    mesh = shop()
    put(mesh, service("payments", addresses=("10.96.0.7",)))
    mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=OnDemand.ON),))
    stage = Stage(mesh, calls=Calls())
    caller = stage.workload(stage.find("orders"))
    cluster = "outbound|80||payments.shop.svc.cluster.local"
    assert cluster not in caller.resources.clusters
    assert cluster in stage.after_call(caller, "10.96.0.7").clusters
    assert cluster not in stage.after_call(stage.workload(stage.find("frontend")), "10.96.0.8").clusters
    everything = Stage(mesh)
    assert cluster in everything.workload(everything.find("orders")).resources.clusters, "who has called is not known"


@pytest.mark.parametrize("shared", [False, True])
def test_the_first_call_to_an_unknown_address_is_passed_through(shared):
    """Also at a port that is shared by hosts without an address, where the call is held a second time."""
    mesh = shop()
    if shared:
        put(mesh, service("outside", selector=None, external=True))
    mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=OnDemand.ON),))
    stage = Stage(mesh, calls=Calls())
    told = explain(Request("nobody", address="10.96.0.9", caller=stage.find("orders")), stage)
    steps = [step.what for step in told.outcomes[0].steps]
    assert (told.verdict.kind, told.verdict.cluster) == (Kind.PASSED_ON, "PassthroughCluster"), steps
    taking = (
        ["0.0.0.0_80", "0.0.0.0_80", "virtualOutboundUnknown"]
        if shared
        else ["virtualOutbound", "virtualOutboundAgain"]
    )
    assert [what.split()[2] for what in steps if what.startswith("the listener")] == taking, steps


def test_a_held_call_has_its_reason():
    stage = Stage(shop(few=0), calls=Calls())
    (way,) = explain(Request("payments", caller=stage.find("orders")), stage).outcomes
    (told,) = [step.what for step in way.steps if "has not been called yet" in step.what]
    assert "(1 service could be called from here, more than 0; weft.dev/on-demand: auto)" in told
    assert way.verdict.kind is Kind.DELIVERED
    (way,) = explain(Request("payments", caller=stage.find("orders")), Stage(shop(), calls=Calls())).outcomes
    assert not any("has not been called yet" in step.what for step in way.steps)


def test_telling_returns_the_on_demand_state_of_the_proxies():
    calls = Calls()
    stage = Stage(shop(few=0), calls=calls)
    group = stage.group(stage.find("orders"))
    assert not stage.telling(group).every
    assert stage.telling(group).ranges == ("10.96.0.0/16",)
    calls.tell(group, Telling())
    kept = Stage(shop(few=0), calls=calls).telling(group)
    assert not kept.every and kept.shared, "as a proxy that lives"
    assert Stage(shop(few=0)).telling(group).every


def test_a_pod_without_a_proxy_is_not_a_missing_pod():
    bare = instance("bare-0", "bare", address="10.244.0.9")
    stage = Stage(shop(bare))
    with pytest.raises(NoProxy) as caught:
        stage.group("bare-0.shop")
    assert caught.value.problem.what == "the pod bare-0.shop has no proxy"
    assert caught.value.problem.hint.endswith("weft describe pod bare-0.shop")
