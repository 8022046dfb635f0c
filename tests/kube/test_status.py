import asyncio
import logging
from contextlib import asynccontextmanager

import msgspec
import pytest
from tools.kube.process import wait_for

from eventually import eventually
from kube.cluster import MERGE, client_of, path, put, remove, watched
from kube.manifests import definition, virtual_service
from weft.base.problem import Problem, Severity, Where
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.objects import JudgedObject, Metadata, ObjectCondition
from weft.kube.resource import ResourceKind
from weft.kube.status import CarriedStatus, StatusWriter, carried, condition
from weft.model.names import ObjectKey

ROUTES = ResourceKind("networking.istio.io", "v1", "virtualservices", "VirtualService")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ERROR = Problem(Where(object="x", field="spec.hosts"), "no host is named", "name one")
WARNING = Problem(Where(object="x"), "nobody answers there", severity=Severity.WARNING)


def test_an_object_without_problems_is_accepted():
    found = condition((), 3)
    assert (found.type, found.status, found.reason, found.observed_generation) == ("Accepted", "True", "Accepted", 3)


def test_with_an_error_the_condition_is_false_and_has_the_field_the_message_and_the_hint():
    found = condition((WARNING, ERROR), 1)
    assert (found.status, found.reason) == ("False", "Invalid")
    assert found.message.splitlines()[0] == "spec.hosts: error: no host is named (hint: name one)"
    assert found.message.splitlines()[1] == "warning: nobody answers there"


def test_an_object_with_a_warning_is_accepted():
    assert (condition((WARNING,), 1).status, condition((WARNING,), 1).reason) == ("True", "AcceptedWithWarnings")


def test_a_long_message_is_truncated():
    assert len(condition((ERROR,) * 1_000, 1).message) == 4_096


@pytest.mark.parametrize(
    "status", [b"", b"{}", b'{"conditions": null}', b'"nonsense"', b'{"conditions": [{"type": 7}]}']
)
def test_a_status_of_another_shape_does_not_reject_the_object(status):
    found = carried(ROUTES, JudgedObject(Metadata("a", generation=2), status=msgspec.Raw(status)), apart=True)
    assert found == CarriedStatus(ROUTES, 2, None, apart=True)


def test_wefts_condition_is_read_among_others():
    status = b'{"conditions": [{"type": "Reconciled", "status": "True"}, {"type": "Accepted", "status": "False"}]}'
    found = carried(ROUTES, JudgedObject(Metadata("a"), status=msgspec.Raw(status)), apart=False)
    assert found.accepted == ObjectCondition("Accepted", "False")


# With a real API server


def is_established(server, name):
    found = server.request("GET", f"{CRDS}/{name}").get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)


@pytest.fixture(scope="module")
def cluster(api_server):
    manifest = definition("VirtualService")
    put(api_server, manifest)
    name = manifest["metadata"]["name"]
    wait_for(lambda: is_established(api_server, name), f"definition {name} to be ready", timeout=60)
    return api_server


@pytest.fixture(params=["apart", "whole"])
def merging(cluster, request):
    """Conditions with an owner each, and, as Istio's own definitions have them, with one owner for all."""
    manifest = definition("VirtualService")
    name, versions = manifest["metadata"]["name"], manifest["spec"]["versions"]
    if request.param == "whole":
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        for version in versions:
            version["schema"]["openAPIV3Schema"]["properties"]["status"] = loose
    cluster.request("PATCH", f"{CRDS}/{name}", {"spec": {"versions": versions}}, kind=MERGE)
    yield request.param
    versions = definition("VirtualService")["spec"]["versions"]
    cluster.request("PATCH", f"{CRDS}/{name}", {"spec": {"versions": versions}}, kind=MERGE)


def conditions(server, manifest):
    found = server.request("GET", path(manifest)).get("status", {}).get("conditions") or ()
    return {each["type"]: each for each in found}


@asynccontextmanager
async def writing(server, connection=None, **options):
    """A source, a writer that sees what it tells, and the writer's loop."""
    async with watched(server) as seen, client_of(server) as client:
        own = Client(connection) if connection else client
        writer = StatusWriter(own, **options)
        await seen.next()
        writer.see(seen.statuses.items())

        async def follow():
            while True:
                batch, _ = await seen.next()
                writer.see(batch.statuses)

        tasks = [asyncio.create_task(follow()), asyncio.create_task(writer.run())]
        try:
            yield writer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await own.close()


async def until(holds, seconds=30):
    await eventually(lambda: asyncio.to_thread(holds), limit=seconds, every=0.05)


async def test_the_condition_is_written_to_the_objects_status(cluster, merging):
    shop = cluster.make_namespace(f"judged-{merging}")
    written = virtual_service("orders", shop, "orders")
    put(cluster, written)
    key = ObjectKey("VirtualService", shop, "orders")
    async with writing(cluster) as writer:
        writer.judge(key, [ERROR])
        await until(lambda: "Accepted" in conditions(cluster, written))
        refused = conditions(cluster, written)["Accepted"]
        assert (refused["status"], refused["observedGeneration"]) == ("False", 1)
        assert cluster.request("GET", path(written))["status"]["observedGeneration"] == 1
        writer.judge(key, [])
        await until(lambda: conditions(cluster, written)["Accepted"]["status"] == "True")
        since = conditions(cluster, written)["Accepted"]["lastTransitionTime"]
        put(cluster, virtual_service("orders", shop, "orders", gateways=["mesh"]))
        await until(lambda: conditions(cluster, written)["Accepted"]["observedGeneration"] == 2)
        assert conditions(cluster, written)["Accepted"]["lastTransitionTime"] == since  # it was accepted all along


async def test_a_status_that_is_right_is_not_written_again(cluster):
    shop = cluster.make_namespace("settled")
    written = virtual_service("orders", shop, "orders")
    put(cluster, written)
    key = ObjectKey("VirtualService", shop, "orders")
    async with writing(cluster) as writer:
        writer.judge(key)
        await until(lambda: "Accepted" in conditions(cluster, written) and not writer.due)
    version = cluster.request("GET", path(written))["metadata"]["resourceVersion"]
    other = virtual_service("other", shop, "other")
    put(cluster, other)
    async with writing(cluster) as writer:
        writer.judge(key)
        writer.judge(ObjectKey("VirtualService", shop, "other"))
        await until(lambda: "Accepted" in conditions(cluster, other) and not writer.due)
    assert cluster.request("GET", path(written))["metadata"]["resourceVersion"] == version


async def test_conditions_of_other_controllers_are_kept(cluster, merging):
    shop = cluster.make_namespace(f"others-{merging}")
    written = virtual_service("orders", shop, "orders")
    put(cluster, written)
    key = ObjectKey("VirtualService", shop, "orders")
    theirs = {"type": "Reconciled", "status": "True", "reason": "Theirs"}
    cluster.request("PATCH", path(written, "status"), {"status": {"conditions": [theirs]}}, kind=MERGE)
    async with writing(cluster) as writer:
        for problems in ((), (ERROR,), (WARNING,)):
            writer.judge(key, problems)
            wanted = condition(problems, 1)
            await until(
                lambda wanted=wanted: conditions(cluster, written).get("Accepted", {}).get("reason") == wanted.reason
            )
            assert conditions(cluster, written)["Reconciled"]["reason"] == "Theirs"


async def test_a_condition_of_the_same_name_of_another_manager_is_kept(cluster, caplog):
    caplog.set_level(logging.INFO, "weft.kube")
    shop = cluster.make_namespace("taken")
    written, other = virtual_service("orders", shop, "orders"), virtual_service("other", shop, "other")
    put(cluster, written, other)
    theirs = {"type": "Accepted", "status": "True", "reason": "Theirs"}
    cluster.request("PATCH", path(written, "status"), {"status": {"conditions": [theirs]}}, kind=MERGE)
    async with writing(cluster) as writer:
        writer.judge(ObjectKey("VirtualService", shop, "orders"), [ERROR])
        await until(lambda: "conflict" in caplog.text.lower())
        writer.judge(ObjectKey("VirtualService", shop, "other"))
        await until(lambda: "Accepted" in conditions(cluster, other))
        assert conditions(cluster, written)["Accepted"]["reason"] == "Theirs"


async def test_a_deleted_object_does_not_stop_other_writes(cluster):
    shop = cluster.make_namespace("vanishing")
    written, other = virtual_service("orders", shop, "orders"), virtual_service("other", shop, "other")
    put(cluster, written, other)
    async with watched(cluster) as seen, client_of(cluster) as client:
        await seen.next()
        writer = StatusWriter(client)
        writer.see(seen.statuses.items())
        remove(cluster, written)  # and nobody tells the writer
        writer.judge(ObjectKey("VirtualService", shop, "orders"))
        writer.judge(ObjectKey("VirtualService", shop, "other"))
        running = asyncio.create_task(writer.run())
        await until(lambda: "Accepted" in conditions(cluster, other))
        running.cancel()


async def test_a_forbidden_kind_is_logged_once_and_others_are_written(cluster, caplog):
    shop = cluster.make_namespace("forbidden")
    names = [f"orders-{number}" for number in range(3)]
    put(cluster, *(virtual_service(name, shop, name) for name in names))
    account = f"/api/v1/namespaces/{shop}/serviceaccounts/default/token"
    token = cluster.request("POST", account, {"spec": {"audiences": []}})["status"]["token"]
    anybody = msgspec.structs.replace(load(cluster.kubeconfig), client_certificate=b"", client_key=b"", token=token)
    async with writing(cluster, anybody) as writer:
        for name in names:
            writer.judge(ObjectKey("VirtualService", shop, name))
        await until(lambda: "no status is written to virtualservices.networking.istio.io" in caplog.text)
        await until(lambda: not writer.due)
    assert caplog.text.count("no status is written") == 1


async def test_judge_all_assigns_problems_to_their_objects(cluster):
    shop = cluster.make_namespace("everything")
    good, bad = virtual_service("good", shop, "good"), virtual_service("bad", shop, "bad")
    put(cluster, good, bad)
    async with writing(cluster) as writer:
        where = Where(object=f"VirtualService {shop}/bad")
        writer.judge_all([Problem(where, "this is wrong"), Problem(Where(object="Service x/y"), "not this")])
        await until(lambda: all("Accepted" in conditions(cluster, each) for each in (good, bad)))
        assert conditions(cluster, good)["Accepted"]["status"] == "True"
        assert conditions(cluster, bad)["Accepted"]["message"] == "error: this is wrong"
        writer.judge_all([])
        await until(lambda: conditions(cluster, bad)["Accepted"]["status"] == "True")


async def test_a_status_that_changes_repeatedly_is_written_without_growing_delay(cluster, monkeypatch):
    monkeypatch.setattr("weft.kube.status._FIRST_DELAY", 0.05)
    shop = cluster.make_namespace("restless")
    written = virtual_service("orders", shop, "orders")
    put(cluster, written)
    async with writing(cluster) as writer:
        for number in range(14):  # doubled each time, the delay would be a minute by then
            writer.judge(ObjectKey("VirtualService", shop, "orders"), [Problem(Where(), f"wrong {number}")])
            wanted = f"error: wrong {number}"
            await until(lambda wanted=wanted: wanted in str(conditions(cluster, written).get("Accepted")))


async def test_the_rate_of_writes_is_limited(cluster):
    shop = cluster.make_namespace("bounded")
    names = [f"orders-{number}" for number in range(60)]
    put(cluster, *(virtual_service(name, shop, name) for name in names))
    async with writing(cluster, per_second=1.0) as writer:
        for name in names:
            writer.judge(ObjectKey("VirtualService", shop, name))
        last = virtual_service(names[49], shop, names[49])
        await until(lambda: "Accepted" in conditions(cluster, last))
        written = [name for name in names if "Accepted" in conditions(cluster, virtual_service(name, shop, name))]
        assert 50 <= len(written) < 60  # a burst, and then one each second


async def test_only_the_replica_that_runs_writes(cluster):
    shop = cluster.make_namespace("follower")
    written = virtual_service("orders", shop, "orders")
    put(cluster, written)
    async with watched(cluster) as seen, client_of(cluster) as client:
        await seen.next()
        writer = StatusWriter(client)
        writer.see(seen.statuses.items())
        writer.judge(ObjectKey("VirtualService", shop, "orders"))
        assert writer.due == 1 and not conditions(cluster, written)
