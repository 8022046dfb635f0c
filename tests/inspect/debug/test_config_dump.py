"""Tests of the dump of the config that a proxy should have. tests/e2e compare it with Envoy's own dump."""

from __future__ import annotations

import asyncio

from envoy.admin.v3 import config_dump_shared_pb2

from control.proxy import Client, serving
from control.test_plane import ORDERS
from eventually import eventually
from model.builders import group
from weft.envoy.messages import as_dict
from weft.inspect.debug import config_dump
from weft.xds.types import CLUSTER, LISTENER


async def test_json_and_messages_have_the_same_content(tmp_path):
    async with serving(tmp_path, ORDERS) as (plane, channel):
        await Client(channel).subscribe(CLUSTER)
        await eventually(lambda: plane.diagnosis.resources(group("web"), CLUSTER))
        messages = config_dump.as_messages(plane.diagnosis, group("web"))
        written = await config_dump.as_json(plane.diagnosis, group("web"), include_eds=False)
        assert [each.type_url for each in messages] == [section["@type"] for section in written["configs"]]
        for section, message in zip(written["configs"], messages, strict=True):
            kind = getattr(config_dump_shared_pb2, message.type_url.rpartition(".")[2], None)
            if kind is None:
                continue
            body = {key: value for key, value in section.items() if key != "@type"}
            assert body == as_dict(kind.FromString(message.value))
        names = [each["cluster"]["name"] for each in written["configs"][1]["dynamic_active_clusters"]]
        assert names == sorted(plane.diagnosis.resources(group("web"), CLUSTER))
        (listeners,) = (each for each in written["configs"] if each["@type"].endswith("ListenersConfigDump"))
        found = {each["name"] for each in listeners["dynamic_listeners"]}
        assert found == set(plane.diagnosis.resources(group("web"), LISTENER)) > {"virtualInbound"}


async def test_endpoints_are_included_on_request(tmp_path):
    async with serving(tmp_path, ORDERS) as (plane, channel):
        await Client(channel).subscribe(CLUSTER)
        await eventually(lambda: plane.diagnosis.resources(group("web"), CLUSTER))
        kinds = {}
        for include_eds in (False, True):
            dump = await config_dump.as_json(plane.diagnosis, group("web"), include_eds=include_eds)
            kinds[include_eds] = {section["@type"].rpartition(".")[2] for section in dump["configs"]}
        assert kinds[True] - kinds[False] == {"EndpointsConfigDump"}


async def test_rejected_resources_are_listed(tmp_path):
    bad = "outbound|80||orders.shop.svc.cluster.local"
    async with serving(tmp_path, ORDERS) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        while not plane.diagnosis.refused(group("web")):
            response = await client.read()
            is_bad = bad in {resource.name for resource in response.resources}
            await client.answer(response, "no such cluster" if is_bad else "")
            await asyncio.sleep(0.05)
        dump = await config_dump.as_json(plane.diagnosis, group("web"), include_eds=False)
        (refused,) = dump["refused"]
        assert (refused["type_url"], refused["name"], refused["details"]) == (CLUSTER, bad, "no such cluster")
        assert bad not in {each["cluster"]["name"] for each in dump["configs"][1]["dynamic_active_clusters"]}


async def test_writing_a_large_dump_yields_to_the_event_loop(tmp_path):
    many = "---".join(ORDERS.replace("orders", f"orders-{number}") for number in range(200))
    async with serving(tmp_path, many) as (plane, channel):
        await Client(channel).subscribe(CLUSTER)
        await eventually(lambda: len(plane.diagnosis.resources(group("web"), CLUSTER)) > 200)
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        running = asyncio.create_task(other())
        await config_dump.as_json(plane.diagnosis, group("web"), include_eds=False)
        running.cancel()
        assert turns > 10
