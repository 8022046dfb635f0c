import asyncio
import copy
from contextlib import asynccontextmanager

import msgspec
import pytest

from control.proxy import changes
from eventually import eventually
from kube.cluster import MERGE, client_of, watched
from kube.standard import GROUP, put, served, url
from weft.control.plane import ControlPlane
from weft.kube.gateway_status import (
    ClassWanted,
    GatewayWanted,
    ListenerSetWanted,
    PolicyWanted,
    RouteWanted,
    all_wanted,
    is_right,
    status_of,
)
from weft.kube.status import StatusWriter
from weft.model.gateway_api import CONTROLLER, GATEWAY_KIND, GATEWAY_NAME, ParentRef, RouteKind
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of
from weft.model.outcome import ACCEPTED, INSECURE_VALIDATION, RESOLVED, ListenerOutcome, StatusCondition, not_accepted

PARENT = ParentRef("Gateway", "edge", "public", "http", namespaced=True)
THEIRS = {"parentRef": {"name": "other"}, "controllerName": "example.com/other", "conditions": []}


def test_entries_of_other_controllers_are_kept():
    made = status_of({"parents": [THEIRS]}, RouteWanted(((PARENT, (ACCEPTED, RESOLVED)),)), 3, now="then")
    assert made["parents"][0] == THEIRS
    own = made["parents"][1]
    assert own["parentRef"] == {
        "group": GROUP, "kind": "Gateway", "namespace": "edge", "name": "public", "sectionName": "http",
    }  # fmt: skip
    assert own["controllerName"] == CONTROLLER
    assert [(each["type"], each["status"], each["observedGeneration"]) for each in own["conditions"]] == [
        ("Accepted", "True", 3),
        ("ResolvedRefs", "True", 3),
    ]


def test_a_condition_keeps_its_transition_time_until_its_status_changes():
    wanted = RouteWanted(((PARENT, (ACCEPTED,)),))
    first = status_of({}, wanted, 1, now="then")
    again = status_of(first, wanted, 2, now="now")
    turned = status_of(again, RouteWanted(((PARENT, (not_accepted("NoMatchingParent", ""),)),)), 2, now="now")
    times = [made["parents"][0]["conditions"][0]["lastTransitionTime"] for made in (first, again, turned)]
    assert times == ["then", "then", "now"]


def test_a_status_that_differs_only_in_order_is_right():
    wanted = RouteWanted(((PARENT, (ACCEPTED, RESOLVED)),))
    made = status_of({"parents": [THEIRS]}, wanted, 1, now="then")
    other = copy.deepcopy(made)
    other["parents"].reverse()
    other["parents"][0]["conditions"].reverse()
    assert is_right(other, wanted, 1)
    assert not is_right(other, wanted, 2)
    assert not is_right({"parents": [THEIRS]}, wanted, 1)
    assert is_right({"parents": [THEIRS]}, RouteWanted(), 1)


def test_only_wefts_entry_is_removed_from_a_route_that_is_no_longer_wefts():
    made = status_of({"parents": [THEIRS]}, RouteWanted(((PARENT, (ACCEPTED,)),)), 1, now="then")
    assert status_of(made, RouteWanted(), 1, now="now")["parents"] == [THEIRS]


def test_a_gateways_status_has_each_listener():
    listener = ListenerOutcome("http", (RouteKind.HTTP, RouteKind.GRPC), 2, (ACCEPTED,))
    theirs = {"type": "Theirs", "status": "True"}
    wanted = GatewayWanted(
        (ACCEPTED, StatusCondition("Programmed", holds=False, reason="NoResources")), (listener,), ("10.0.0.1",)
    )
    made = status_of({"conditions": [theirs], "listeners": [{"name": "gone"}]}, wanted, 1, now="then")
    assert [(each["type"], each["status"]) for each in made["conditions"]] == [
        ("Accepted", "True"), ("Programmed", "False"), ("Theirs", "True"),
    ]  # fmt: skip
    (said,) = made["listeners"]
    assert (said["name"], said["attachedRoutes"]) == ("http", 2)
    assert [each["kind"] for each in said["supportedKinds"]] == ["HTTPRoute", "GRPCRoute"]
    assert made["addresses"] == [{"type": "IPAddress", "value": "10.0.0.1"}]
    named = msgspec.structs.replace(wanted, addresses=("edge.shop.svc",))
    assert status_of(made, named, 1, now="now")["addresses"] == [{"type": "Hostname", "value": "edge.shop.svc"}]
    assert "addresses" not in status_of(made, msgspec.structs.replace(wanted, addresses=()), 1, now="now")


def test_the_condition_of_unverified_client_certificates_is_removed_when_it_no_longer_holds():
    insecure = StatusCondition(INSECURE_VALIDATION, holds=True, reason="ConfigurationChanged")
    made = status_of({}, GatewayWanted((ACCEPTED, insecure)), 1, now="then")
    assert [each["type"] for each in made["conditions"]] == ["Accepted", INSECURE_VALIDATION]
    assert is_right(made, GatewayWanted((ACCEPTED, insecure)), 1) and not is_right(made, GatewayWanted((ACCEPTED,)), 1)
    assert [each["type"] for each in status_of(made, GatewayWanted((ACCEPTED,)), 1, now="now")["conditions"]] == [
        "Accepted"
    ]


def test_the_status_of_a_listener_set_has_each_listener_and_the_gateway_counts_accepted_sets():
    listener = ListenerOutcome("more", (RouteKind.HTTP,), 1, (ACCEPTED,))
    made = status_of({}, ListenerSetWanted((ACCEPTED,), (listener,)), 2, now="then")
    assert [(each["type"], each["observedGeneration"]) for each in made["conditions"]] == [("Accepted", 2)]
    assert [(each["name"], each["attachedRoutes"]) for each in made["listeners"]] == [("more", 1)]
    counted = status_of({}, GatewayWanted((ACCEPTED,), listener_sets=2), 1, now="then")
    assert counted["attachedListenerSets"] == 2
    assert "attachedListenerSets" not in status_of(counted, GatewayWanted((ACCEPTED,)), 1, now="now")


def test_a_gateway_class_is_accepted_and_lists_its_features_in_alphabetical_order():
    made = status_of({"supportedFeatures": [{"name": "Older"}]}, ClassWanted((ACCEPTED,)), 1, now="then")
    assert made["conditions"][0]["status"] == "True"
    names = [each["name"] for each in made["supportedFeatures"]]
    assert {"Gateway", "HTTPRoute"} <= set(names) and names == sorted(set(names))


def test_a_policys_entries_keep_those_of_others_and_are_at_most_sixteen():
    theirs = [{"ancestorRef": {"name": f"g{number}"}, "controllerName": "example.com/other"} for number in range(15)]
    ancestors = tuple((ParentRef("Gateway", "edge", name, namespaced=True), (ACCEPTED,)) for name in ("a", "b"))
    made = status_of({"ancestors": theirs}, PolicyWanted(ancestors), 1, now="then")
    assert made["ancestors"][:15] == theirs
    (ours,) = made["ancestors"][15:]
    assert ours["ancestorRef"] == {"group": GROUP, "kind": "Gateway", "namespace": "edge", "name": "a"}
    assert is_right(made, PolicyWanted(ancestors), 1)


MESH = """
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
"""
LED = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {gatewayClassName: weft, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: safe, namespace: shop}
spec:
  targetRefs: TARGETS
  validation: {hostname: a.example.com, wellKnownCACertificates: WHOM}
"""


def all_of(plane):
    return all_wanted(plane.mesh, plane.faulty(), plane.problems())


async def wanted_of(*targets, whom="System"):
    plane = ControlPlane()
    written = [{"group": "", "kind": "Service", "name": name} for name in targets]
    services = [MESH.replace("NAME", name) for name in ("web", "db")]
    plane.apply(changes("---".join([*services, LED.replace("TARGETS", str(written)).replace("WHOM", whom)])))
    found = all_of(plane)[ObjectKey("BackendTLSPolicy", "shop", "safe")]
    await plane.close()
    return {(each.kind, each.name): [told.reason for told in conditions] for each, conditions in found.ancestors}


async def test_a_policys_ancestors_are_the_gateways_that_call_its_service_or_the_service_itself():
    well = ["Accepted", "ResolvedRefs"]
    assert await wanted_of("web") == {("Gateway", "edge"): well}
    assert await wanted_of("db") == {("Service", "db"): well}
    assert await wanted_of("web", "db") == {("Gateway", "edge"): well, ("Service", "db"): well}
    assert await wanted_of("none") == {("Service", "none"): ["TargetNotFound", "ResolvedRefs"]}


async def test_a_policy_that_cannot_be_parsed_has_a_condition_at_its_ancestors():
    assert await wanted_of("web", whom="Nobody") == {("Gateway", "edge"): ["Invalid"]}


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("infrastructure: {parametersRef: {group: a.b, kind: C, name: d}}", "InvalidParameters"),
        ("addresses: [{value: 10.0.0.1}]", "UnsupportedAddress"),
        ("defaultScope: All", "Invalid"),
    ],
)
async def test_an_invalid_gateway_has_the_standards_reason(written, reason):
    plane = ControlPlane()
    plane.apply(
        changes(LED.partition("---")[0].replace("gatewayClassName: weft", f"gatewayClassName: weft, {written}"))
    )
    told = all_of(plane)[ObjectKey(GATEWAY_KIND, "shop", "edge")].conditions
    await plane.close()
    assert [(each.type, each.holds, each.reason) for each in told] == [
        ("Accepted", False, reason), ("Programmed", False, "Invalid"),
    ]  # fmt: skip


def test_conditions_of_an_older_generation_are_removed_from_wefts_entry():
    made = status_of({}, RouteWanted(((PARENT, (ACCEPTED, RESOLVED)),)), 1, now="then")
    made = status_of(made, RouteWanted(((PARENT, (not_accepted("UnsupportedValue", ""),)),)), 2, now="now")
    assert [(each["type"], each["observedGeneration"]) for each in made["parents"][0]["conditions"]] == [
        ("Accepted", 2)
    ]


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], "NoResources"),
        ([{"gateway": False}], "NoResources"),
        ([{"ready": False}], "Pending"),
        ([{"ready": False}, {"gateway": False}], "Pending"),
        ([{"ready": False}, {}], "Programmed"),
        ([{"labels": ()}], "NoResources"),
        ([{"namespace": "other"}], "NoResources"),
    ],
)
async def test_a_gateway_is_programmed_when_one_of_its_gateway_pods_is_ready(pods, reason):
    plane = ControlPlane()
    plane.apply(changes(LED.partition("---")[0]))
    for number, pod in enumerate(pods):
        name = f"edge-{number}"
        usual = {"namespace": "shop", "labels": labels_of({GATEWAY_NAME: "edge"}), "gateway": True}
        instance = Instance(name=name, addresses=(f"10.0.0.{number}",), **(usual | pod))
        plane.put(ObjectKey("Pod", instance.namespace, name), (instance,))
    told = {each.type: each for each in all_of(plane)[ObjectKey(GATEWAY_KIND, "shop", "edge")].conditions}["Programmed"]
    await plane.close()
    assert (told.reason, told.holds) == (reason, reason == "Programmed")


@pytest.mark.parametrize(
    ("hosts", "reason", "told"),
    [
        (["web.shop.svc.cluster.local"], "Programmed", ["web.shop.svc.cluster.local"]),
        (["web.shop.svc"], "Programmed", ["web.shop.svc"]),
        (["web.shop"], "Programmed", ["web.shop"]),
        (["web"], "Programmed", ["web"]),
        (["web.other.svc"], "AddressNotUsable", []),
        (["none", "web"], "AddressNotUsable", ["web"]),
    ],
)
async def test_a_gateway_with_an_address_of_no_service_is_not_programmed_and_lists_its_usable_addresses(
    hosts, reason, told
):
    plane = ControlPlane()
    written = str([{"type": "Hostname", "value": host} for host in hosts])
    gateway = LED.partition("---")[0].replace("gatewayClassName: weft", f"gatewayClassName: weft, addresses: {written}")
    plane.apply(changes("---".join((MESH.replace("NAME", "web"), gateway))))
    labels = labels_of({GATEWAY_NAME: "edge"})
    pod = Instance(name="edge-0", namespace="shop", addresses=("10.0.0.1",), labels=labels, gateway=True)
    plane.put(ObjectKey("Pod", "shop", "edge-0"), (pod,))
    found = all_of(plane)[ObjectKey(GATEWAY_KIND, "shop", "edge")]
    await plane.close()
    conditions = {each.type: each for each in found.conditions}
    assert conditions["Accepted"].holds
    assert (conditions["Programmed"].reason, conditions["Programmed"].holds) == (reason, reason == "Programmed")
    assert ("none" in conditions["Programmed"].message) == ("none" in hosts)
    assert list(found.addresses) == told


# With a real API server, and the standard's own definitions


STANDARD_SET = """apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weft
  allowedListeners: {namespaces: {from: Same}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: extra, namespace: shop}
spec:
  parentRef: {name: edge}
  listeners: [{name: more, port: 81, protocol: HTTP}]
"""


@pytest.mark.parametrize(("ready", "reason"), [(True, "Programmed"), (False, "ParentNotProgrammed")])
async def test_a_listener_set_is_programmed_with_its_gateway(ready, reason):
    pod = Instance("edge-0", "shop", ("10.1.0.1",), labels_of({GATEWAY_NAME: "edge"}), gateway=True, ready=ready)
    plane = ControlPlane()
    plane.apply(changes(STANDARD_SET))
    plane.put(ObjectKey("Pod", "shop", "edge-0"), (pod,))
    wanted = all_of(plane)
    await plane.close()
    found = wanted[ObjectKey("ListenerSet", "shop", "extra")]
    assert {each.type: each.reason for each in found.conditions} == {"Accepted": "Accepted", "Programmed": reason}
    assert wanted[ObjectKey(GATEWAY_KIND, "shop", "edge")].listener_sets == 1


@pytest.fixture(scope="module")
def cluster(api_server):
    with served(api_server) as server:
        yield server


@asynccontextmanager
async def judging(server):
    """The source, the mesh that it makes, and a writer of statuses that is told what is wanted."""
    async with watched(server) as seen, client_of(server) as client:
        writer = StatusWriter(client)
        await seen.next()
        writer.see(seen.statuses.items())

        def judge():
            problems = seen.problems.all()
            writer.judge_standard(all_wanted(seen.mesh, seen.intake.refused, problems))

        async def follow():
            while True:
                batch, _ = await seen.next()
                writer.see(batch.statuses)
                judge()

        judge()
        tasks = [asyncio.create_task(follow()), asyncio.create_task(writer.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def status(server, kind, namespace, name, holds):
    """Its status, once it is as it should be."""

    async def look():
        whole = await asyncio.to_thread(server.request, "GET", url(kind, namespace, name))
        return {**whole.get("status", {}), "generation": whole["metadata"]["generation"]}

    return await eventually(look, holds, every=0.1)


def conditions(holder):
    return {each["type"]: (each["status"], each["reason"]) for each in holder.get("conditions", ())}


def own(found):
    return [each for each in found.get("parents", ()) if each["controllerName"] == CONTROLLER]


SERVICE = {"spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}}
RULES = [{"backendRefs": [{"name": "web", "port": 80}]}]


async def test_gateway_api_statuses_are_written_in_the_standards_form(cluster):
    namespace = "standard"
    cluster.make_namespace(namespace)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace}, **SERVICE}
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/services", service)
    put(cluster, "GatewayClass", "", "ours", {"controllerName": CONTROLLER})
    put(cluster, "GatewayClass", "", "theirs", {"controllerName": "example.com/other"})
    listeners = [
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ]
    edge = {"gatewayClassName": "ours", "listeners": listeners, "allowedListeners": {"namespaces": {"from": "Same"}}}
    put(cluster, "Gateway", namespace, "edge", edge)
    put(cluster, "Gateway", namespace, "other", {"gatewayClassName": "theirs", "listeners": listeners})
    more = [{"name": "more", "port": 81, "protocol": "HTTP"}, {"name": "again", "port": 80, "protocol": "HTTP"}]
    put(cluster, "ListenerSet", namespace, "extra", {"parentRef": {"name": "edge"}, "listeners": more})
    parents = [
        {"name": "edge", "sectionName": "http"},
        {"name": "edge", "sectionName": "none"},
        {"name": "other"},
        {"group": "", "kind": "Service", "name": "web"},
    ]
    put(cluster, "HTTPRoute", namespace, "web", {"parentRefs": parents, "rules": RULES})
    put(cluster, "HTTPRoute", namespace, "wrong", {
        "parentRefs": parents[3:],
        "rules": [{**RULES[0], "sessionPersistence": {"sessionName": "x"}}],
    })  # fmt: skip
    theirs = {
        "parents": [
            {
                "parentRef": {"name": "other"},
                "controllerName": "example.com/other",
                "conditions": [
                    {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ],
            }
        ]
    }  # fmt: skip
    cluster.request("PATCH", url("HTTPRoute", namespace, "web", "/status"), {"status": theirs}, kind=MERGE)
    async with judging(cluster):
        found = await status(cluster, "GatewayClass", "", "ours", lambda each: _accepted(each) == "True")
        assert conditions(found)["Accepted"] == ("True", "Accepted")

        found = await status(cluster, "HTTPRoute", namespace, "web", lambda each: len(own(each)) == 3)
        assert found["parents"][0]["controllerName"] == "example.com/other"
        assert {each["parentRef"].get("sectionName", each["parentRef"]["kind"]): conditions(each)["Accepted"]
                for each in own(found)} == {
            "http": ("True", "Accepted"),
            "none": ("False", "NoMatchingParent"),
            "Service": ("True", "Accepted"),
        }  # fmt: skip
        assert {each["observedGeneration"] for one in own(found) for each in one["conditions"]} == {found["generation"]}

        found = await status(cluster, "Gateway", namespace, "edge", lambda each: _accepted(each) == "True")
        assert conditions(found) == {
            "Accepted": ("True", "ListenersNotValid"), "Programmed": ("False", "NoResources"),
            "ResolvedRefs": ("True", "ResolvedRefs"),
        }  # fmt: skip
        assert found["attachedListenerSets"] == 1
        told = {each["name"]: (each["attachedRoutes"], conditions(each)["Accepted"]) for each in found["listeners"]}
        assert told == {"http": (1, ("True", "Accepted")), "dns": (0, ("False", "UnsupportedProtocol"))}

        found = await status(cluster, "ListenerSet", namespace, "extra", lambda each: _accepted(each) == "True")
        assert conditions(found) == {
            "Accepted": ("True", "ListenersNotValid"), "Programmed": ("False", "ParentNotProgrammed"),
        }  # fmt: skip
        assert {each["name"]: conditions(each)["Conflicted"] for each in found["listeners"]} == {
            "more": ("False", "NoConflicts"), "again": ("True", "HostnameConflict"),
        }  # fmt: skip

        found = await status(cluster, "HTTPRoute", namespace, "wrong", lambda each: bool(own(each)))
        (entry,) = own(found)
        assert conditions(entry)["Accepted"] == ("False", "UnsupportedValue")
        assert "sessionPersistence" in entry["conditions"][0]["message"]

        target = {"group": "", "kind": "Service", "name": "web"}
        authority = {"group": "", "kind": "ConfigMap", "name": "none"}
        validation = {"hostname": "web.example.com", "caCertificateRefs": [authority]}
        put(cluster, "BackendTLSPolicy", namespace, "web", {"targetRefs": [target], "validation": validation})
        found = await status(cluster, "BackendTLSPolicy", namespace, "web", lambda each: bool(each.get("ancestors")))
        (entry,) = found["ancestors"]
        reference = {"group": GROUP, "kind": "Gateway", "namespace": namespace, "name": "edge"}
        assert (entry["ancestorRef"], entry["controllerName"]) == (reference, CONTROLLER)
        assert conditions(entry) == {
            "Accepted": ("False", "NoValidCACertificate"), "ResolvedRefs": ("False", "InvalidCACertificateRef"),
        }  # fmt: skip

        put(cluster, "HTTPRoute", namespace, "web", {"rules": [{"backendRefs": [{"name": "nobody", "port": 80}]}]})
        found = await status(
            cluster, "HTTPRoute", namespace, "web",
            lambda each: {("ResolvedRefs", ("False", "BackendNotFound"))} <= {
                pair for one in own(each) for pair in conditions(one).items()
            } and {c["observedGeneration"] for one in own(each) for c in one["conditions"]} == {each["generation"]},
        )  # fmt: skip
        assert found["parents"][0]["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    other = cluster.request("GET", url("Gateway", namespace, "other"))
    assert {each["reason"] for each in other["status"]["conditions"]} == {"Pending"}, "it is somebody else's to judge"


def _accepted(found):
    return conditions(found).get("Accepted", ("",))[0]
