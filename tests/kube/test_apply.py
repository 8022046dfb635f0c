"""Applying on a real API server: in order, twice the same, and what is no longer wanted goes."""

import asyncio

import pytest

from weft.kube.apply import ApplyOutcome, apply, owned, remove
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.error import ApiError
from weft.kube.resource import CONFIG_MAPS, ObjectReference

LABELS = {"test-apply": "yes"}
SELECTOR = "test-apply=yes"
ELSEWHERE = {"namespace": "applying", "manager": "other"}


def config_map(name, value="1", namespace="applying"):
    metadata = {"name": name, "namespace": namespace, "labels": LABELS}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value}}


def definition(plural):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.weft.dev"},
        "spec": {
            "group": "test.weft.dev",
            "names": {"kind": plural.title(), "plural": plural, "singular": plural},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "applying"}}


@pytest.fixture
async def client(own_api_server):
    async with Client(load(own_api_server.kubeconfig)) as client:
        yield client
        async for _ in remove(client, SELECTOR):
            pass


async def outcomes(steps):
    return [(done.what.name, done.outcome) async for done in steps]


async def test_an_object_is_created_then_unchanged_then_changed(client):
    objects = [NAMESPACE, config_map("a"), config_map("b")]
    await outcomes(apply(client, objects[:1]))
    assert await outcomes(apply(client, objects[1:])) == [("a", ApplyOutcome.CREATED), ("b", ApplyOutcome.CREATED)]
    assert {outcome for _, outcome in await outcomes(apply(client, objects))} == {ApplyOutcome.UNCHANGED}
    changed = await outcomes(apply(client, [config_map("a", "2"), config_map("b")]))
    assert changed == [("a", ApplyOutcome.CHANGED), ("b", ApplyOutcome.UNCHANGED)]


async def test_remove_deletes_labelled_objects_outside_of_keep_and_no_others(client):
    await outcomes(apply(client, [NAMESPACE, config_map("a"), config_map("b")]))
    other = config_map("theirs")
    other["metadata"]["labels"] = {}
    await outcomes(apply(client, [other]))
    assert await outcomes(remove(client, SELECTOR, keep=[config_map("a")])) == [("b", ApplyOutcome.REMOVED)]
    assert [who async for _, who in owned(client, SELECTOR)] == [ObjectReference("v1", "ConfigMap", "applying", "a")]
    assert (await client.get(CONFIG_MAPS, "theirs", namespace="applying"))["data"] == {"a": "1"}


async def test_a_dry_run_yields_the_results_and_changes_nothing(client):
    await outcomes(apply(client, [NAMESPACE, config_map("a")]))
    told = await outcomes(apply(client, [config_map("a", "2"), config_map("b")], dry_run=True))
    assert told == [("a", ApplyOutcome.CHANGED), ("b", ApplyOutcome.CREATED)]
    assert await outcomes(remove(client, SELECTOR, dry_run=True)) == [("a", ApplyOutcome.REMOVED)]
    assert (await client.get(CONFIG_MAPS, "a", namespace="applying"))["data"] == {"a": "1"}


async def test_a_dry_run_reports_objects_in_a_namespace_that_it_would_create(client):
    objects = [{**NAMESPACE, "metadata": {"name": "not-there"}}, config_map("a", namespace="not-there")]
    told = await outcomes(apply(client, objects, dry_run=True))
    assert told == [("not-there", ApplyOutcome.CREATED), ("a", ApplyOutcome.CREATED)]


async def test_an_object_of_a_new_kind_is_sent_only_when_the_kind_is_served(client):
    objects = [definition("looms"), {"apiVersion": "test.weft.dev/v1", "kind": "Looms", "metadata": {"name": "x"}}]
    assert await outcomes(apply(client, objects)) == [
        ("looms.test.weft.dev", ApplyOutcome.CREATED),
        ("x", ApplyOutcome.CREATED),
    ]


async def test_an_object_that_is_being_deleted_is_created_again_after_it_is_deleted(client):
    await outcomes(apply(client, [NAMESPACE, config_map("a")]))
    held = await client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": ["test.weft.dev/held"]}}, **ELSEWHERE)
    await client.delete(CONFIG_MAPS, "a", namespace="applying")
    applying = asyncio.create_task(outcomes(apply(client, [config_map("a", "2")])))
    await asyncio.wait({applying}, timeout=0.5)
    await client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, **ELSEWHERE)
    assert await applying == [("a", ApplyOutcome.CREATED)]
    found = await client.get(CONFIG_MAPS, "a", namespace="applying")
    assert found["metadata"]["uid"] != held["metadata"]["uid"] and found["data"] == {"a": "2"}


async def test_fields_of_other_managers_are_kept(client):
    await outcomes(apply(client, [NAMESPACE, config_map("a")]))
    await client.patch(CONFIG_MAPS, "a", {"data": {"b": "theirs"}}, namespace="applying", manager="other")
    assert await outcomes(apply(client, [config_map("a")])) == [("a", ApplyOutcome.UNCHANGED)]
    assert (await client.get(CONFIG_MAPS, "a", namespace="applying"))["data"] == {"a": "1", "b": "theirs"}


async def test_an_object_that_the_server_rejects_raises_at_once(client):
    with pytest.raises(ApiError) as error:
        await outcomes(apply(client, [config_map("Not A Name", namespace="default")]))
    assert error.value.status in (400, 422)
