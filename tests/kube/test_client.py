import asyncio
from contextlib import aclosing

import msgspec
import pytest

from kube.following import ConfigMap, config_map, put
from weft.kube import client as client_module
from weft.kube.client import Client, PatchType
from weft.kube.config import ApiConnection
from weft.kube.error import ApiError, ApiUnavailable, KubeError
from weft.kube.resource import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, ResourceKind

WIDGETS = ResourceKind("client.example.org", "v1", "widgets", "Widget")


async def test_creates_reads_replaces_and_deletes(client, namespace):
    made = await client.create(CONFIG_MAPS, config_map(namespace, "one", a="1"), namespace=namespace)
    assert (await client.get(CONFIG_MAPS, "one", ConfigMap, namespace=namespace)).data == {"a": "1"}
    made["data"] = {"a": "2"}
    await client.replace(CONFIG_MAPS, "one", made, namespace=namespace)
    assert (await client.get(CONFIG_MAPS, "one", namespace=namespace))["data"] == {"a": "2"}
    assert await client.delete(CONFIG_MAPS, "one", namespace=namespace)
    assert not await client.delete(CONFIG_MAPS, "one", namespace=namespace)
    with pytest.raises(ApiError) as missing:
        await client.get(CONFIG_MAPS, "one", namespace=namespace)
    assert missing.value.not_found


async def test_a_lost_race_and_an_existing_name_are_conflicts(client, namespace):
    made = await client.create(CONFIG_MAPS, config_map(namespace, "one", a="1"), namespace=namespace)
    with pytest.raises(ApiError) as taken:
        await client.create(CONFIG_MAPS, config_map(namespace, "one"), namespace=namespace)
    assert taken.value.already_exists
    await put(client, namespace, "one", a="2")
    with pytest.raises(ApiError) as lost:
        await client.replace(CONFIG_MAPS, "one", made, namespace=namespace)
    assert lost.value.conflict
    assert not lost.value.already_exists


async def test_only_the_object_with_the_given_uid_is_deleted(client, namespace):
    await put(client, namespace, "one")
    with pytest.raises(ApiError) as another:
        await client.delete(CONFIG_MAPS, "one", namespace=namespace, uid="00000000-0000-0000-0000-000000000000")
    assert another.value.conflict


async def test_a_list_is_read_in_pages_at_one_version(client, namespace):
    for number in range(5):
        await put(client, namespace, f"page-{number}", n=str(number))
    sizes = [len(page.items) async for page in client.pages(CONFIG_MAPS, ConfigMap, namespace=namespace, limit=2)]
    assert sizes == [2, 2, 1]
    listed = await client.list(CONFIG_MAPS, ConfigMap, namespace=namespace)
    assert [item.data for item in listed.items] == [{"n": str(number)} for number in range(5)]
    assert int(listed.resource_version) > 0


async def test_label_and_field_selectors_filter_a_list(client, namespace):
    labelled = config_map(namespace, "one")
    labelled["metadata"]["labels"] = {"app": "a"}
    await client.apply(labelled, manager="test")
    await put(client, namespace, "two")
    by_label = await client.list(CONFIG_MAPS, dict, namespace=namespace, labels="app=a")
    by_field = await client.list(CONFIG_MAPS, dict, namespace=namespace, fields="metadata.name=two")
    assert [item["metadata"]["name"] for item in by_label.items] == ["one"]
    assert [item["metadata"]["name"] for item in by_field.items] == ["two"]


async def test_apply_shares_an_object_between_managers_and_names_the_manager_in_a_conflict(client, namespace):
    await client.apply(config_map(namespace, "one", a="1"), manager="first")
    await client.apply(config_map(namespace, "one", b="1"), manager="second")
    with pytest.raises(ApiError) as conflict:
        await client.apply(config_map(namespace, "one", a="2"), manager="second")
    assert conflict.value.conflict
    assert any(".data.a" in cause and '"first"' in cause for cause in conflict.value.causes)
    forced = await client.apply(config_map(namespace, "one", a="2"), manager="second", force=True)
    assert forced["data"] == {"a": "2"}, "b was second's, which no longer says it"


async def test_a_dry_run_writes_nothing(client, namespace):
    await client.apply(config_map(namespace, "one"), manager="test", dry_run=True)
    assert not (await client.list(CONFIG_MAPS, dict, namespace=namespace)).items


async def test_merge_patches_and_json_patches_work(client, namespace):
    await put(client, namespace, "one", a="1", b="1")
    await client.patch(CONFIG_MAPS, "one", {"data": {"a": None}}, namespace=namespace)
    steps = [{"op": "replace", "path": "/data/b", "value": "2"}]
    patched = await client.patch(CONFIG_MAPS, "one", steps, ConfigMap, namespace=namespace, patch_type=PatchType.JSON)
    assert patched.data == {"b": "2"}


async def test_a_subresource_can_be_created(client, namespace):
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["istio-ca"]}}
    made = await client.create(SERVICE_ACCOUNTS, request, namespace=namespace, name="default", subresource="token")
    assert made["status"]["token"].count(".") == 2


async def test_without_a_name_or_namespace_nothing_is_written(client):
    with pytest.raises(KubeError, match="a ConfigMap needs a name"):
        await client.delete(CONFIG_MAPS, "", namespace="default")
    with pytest.raises(KubeError, match="needs a namespace"):
        await client.delete(CONFIG_MAPS, "one")
    with pytest.raises(KubeError, match="needs a namespace"):
        await client.create(CONFIG_MAPS, config_map("", "one"))


async def test_find_returns_kinds_that_are_not_built_in(client, api_server):
    assert (await client.find("autoscaling/v1", "HorizontalPodAutoscaler")).plural == "horizontalpodautoscalers"
    with pytest.raises(ApiError) as unknown:
        await client.find("autoscaling/v1", "Widget")
    assert unknown.value.not_found
    assert await client.exists(PODS)
    assert not await client.exists(WIDGETS)
    assert not await client.exists(ResourceKind("apps", "v1", "widgets", "Widget"))


async def test_a_forbidden_request_is_recognized(client, api_server, namespace):
    token = api_server.request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"spec": {"audiences": []}}
    )["status"]["token"]
    plain = ApiConnection(server=api_server.server, ca_file=str(api_server.ca), token=token)
    async with Client(plain) as nobody:
        with pytest.raises(ApiError) as refused:
            await nobody.list(PODS, dict)
    assert refused.value.forbidden
    assert f"system:serviceaccount:{namespace}:default" in str(refused.value)


async def test_a_busy_servers_retry_after_is_read(client, api_server, namespace):
    group = "flowcontrol.apiserver.k8s.io"
    level, schema = (
        ResourceKind(group, "v1", plural, kind, namespaced=False)
        for plural, kind in (
            ("prioritylevelconfigurations", "PriorityLevelConfiguration"),
            ("flowschemas", "FlowSchema"),
        )
    )
    limits = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
    nothing = {"type": "Limited", "limited": {**limits, "limitResponse": {"type": "Reject"}}}
    account = {"kind": "ServiceAccount", "serviceAccount": {"name": "default", "namespace": namespace}}
    paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    flow = {
        "matchingPrecedence": 2,
        "priorityLevelConfiguration": {"name": namespace},
        "rules": [{"subjects": [account], "nonResourceRules": paths}],
    }
    for resource, spec in ((level, nothing), (schema, flow)):
        await client.create(resource, {"metadata": {"name": namespace}, "spec": spec})
    request = {"spec": {"audiences": []}}
    made = await client.create(SERVICE_ACCOUNTS, request, namespace=namespace, name="default", subresource="token")
    patient = ApiConnection(server=api_server.server, ca_file=str(api_server.ca), token=made["status"]["token"])
    async with Client(patient) as slowed, asyncio.timeout(30):
        refused = None
        while refused is None:  # until the server has taken in its own new rule: of several at once, one is let in
            asked = await asyncio.gather(*(slowed.raw("GET", "/version") for _ in range(20)), return_exceptions=True)
            refused = next((error for error in asked if isinstance(error, ApiError) and error.status == 429), None)
    assert refused.retryable
    assert refused.retry_after >= 1.0
    await client.delete(schema, namespace)
    await client.delete(level, namespace)


async def test_a_watch_line_over_the_maximum_size_raises(client, monkeypatch, namespace):
    monkeypatch.setattr(client_module, "_LONGEST_LINE", 50_000)
    await put(client, namespace, "large", text="x" * 100_000)
    with pytest.raises(ApiUnavailable, match="a watch line of over"):
        async with aclosing(client.watch(CONFIG_MAPS, namespace=namespace)) as lines:
            async for _ in lines:
                pass


async def test_a_response_of_the_wrong_shape_is_unavailable(client):
    class Strange(msgspec.Struct):
        metadata: int

    with pytest.raises(ApiUnavailable, match="the response cannot be decoded"):
        await client.get(NAMESPACES, "default", Strange)


async def test_a_watch_yields_lines_and_ends_when_the_server_ends_it(client, namespace):
    version = (await put(client, namespace, "one"))["metadata"]["resourceVersion"]
    got = []
    watched = client.watch(
        CONFIG_MAPS, namespace=namespace, options={"resourceVersion": version, "timeoutSeconds": "1"}
    )
    async for lines in watched:
        if not got:
            assert lines == ()
            await put(client, namespace, "two")
        got.append(lines)
    assert b'"ADDED"' in got[1][0]
    assert msgspec.json.decode(got[1][0])["object"]["metadata"]["name"] == "two"
