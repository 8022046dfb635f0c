"""First calls of proxies behind their node's agent, with the control plane running, down, and back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from e2e import behind_agent as behind
from e2e.behind_agent import NODE, behind_agent
from e2e.mesh import running_mesh
from e2e.objects import http_service, service, text, workload
from e2e.separate import separate_mesh
from e2e.test_on_demand import ON, address, held
from eventually import eventually
from weft.control.node_metadata import group_of
from weft.xds.clients import Sync
from weft.xds.types import CLUSTER, LISTENER

HOST = "web.shop.svc.cluster.local"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def files(control: Path) -> dict[str, str]:
    others = (http_service(name) | {"spec": http_service("web")["spec"]} for name in ("other", "third", "fourth"))
    return {
        "settings.yaml": text(ON),
        "client.yaml": text(workload("client", control=control)),
        "web.yaml": text(
            workload("web", control=control, serve="http=8080 echo=9000 greeting=9001"),
            service(
                "web",
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "tcp", "port": 9000},
                {"name": "tcp-greeting", "port": 9001},
            ),
            *others,
        ),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relayed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        async with behind_agent(patch, tmp_path_factory.mktemp("agent")) as (line, agent), running_mesh(files) as mesh:
            yield mesh, line[0], agent


async def test_the_first_post_and_the_greeting_of_a_server_first_protocol_arrive(relayed):
    mesh, _, agent = relayed
    assert agent.upstream.connected
    answer = await mesh.get("client", f"http://{address(mesh, 'web')}/first", method="POST", body="some bytes")
    assert (answer["status"], answer["body"]["body"], answer["body"]["peer"]) == (200, "some bytes", "127.0.0.6")
    answer = await mesh.tell(
        "client", "tcp", host=address(mesh, "web"), port=9001, send="hi\n", half_close=True, wait_first=True
    )
    assert answer["first"].startswith("greetings from web"), answer


async def test_a_call_held_during_an_outage_of_the_control_plane_proceeds_when_it_is_back(relayed):
    mesh, line, agent = relayed
    virtual = address(mesh, "other")
    await line.shut()
    await eventually(lambda: not agent.upstream.connected)
    call = asyncio.create_task(mesh.get("client", f"http://{virtual}/", method="POST", body="some bytes"))
    await eventually(lambda: any(f"hold|15001|{virtual}" in names for names in agent._copy._wanted.values()))
    known = await mesh.get("client", "http://web/")
    assert known["status"] == 200, known  # it needs no control plane
    await line.open()
    answer = await call
    assert (answer["status"], answer["body"]["body"]) == (200, "some bytes"), answer
    assert (await held(mesh, mesh.pod("client").name))[virtual] == 1


async def test_a_first_call_without_a_control_plane_is_closed_in_time_and_the_next_one_succeeds(relayed):
    mesh, line, agent = relayed
    virtual = address(mesh, "third")
    await line.shut()
    await eventually(lambda: not agent.upstream.connected)
    answer = await mesh.tell("client", "tcp", host=virtual, port=80, send="GET / HTTP/1.0\r\n\r\n", timeout=10)
    assert (answer["received"], "Timeout" in answer["error"]) == ("", False), answer
    await line.open()
    await eventually(lambda: agent.upstream.connected)
    answer = await mesh.get("client", f"http://{virtual}/")
    assert answer["status"] == 200, answer


async def test_an_agent_reports_the_called_services_to_a_restarted_control_plane(relayed):
    """Proxies keep their resources, and no call is held again."""
    mesh, line, agent = relayed
    await mesh.get("client", "http://fourth/")  # not held: the DNS lookup sent it
    assert (await mesh.get("client", "http://web/"))["status"] == 200
    await mesh.synced()
    await line.shut()
    await eventually(lambda: not agent.upstream.connected)
    before = await mesh.stats(mesh.pod("client").name, CHANGES)
    forget(mesh)
    await line.open()
    await eventually(lambda: agent.upstream.connected)
    assert (await mesh.get("client", "http://web/"))["status"] == 200
    assert await mesh.stats(mesh.pod("client").name, CHANGES) == before


async def test_a_proxy_whose_pod_gets_another_label_keeps_its_resources(relayed, monkeypatch):
    """It moves to another group, whose proxies have called no service."""
    mesh, _, agent = relayed
    pod, target = mesh.pod("client").name, address(mesh, "web")
    assert (await mesh.get("client", f"http://{target}/"))["status"] == 200
    mesh.control.expect(agent.placed.group_of(client(mesh, agent).node.id), [address(mesh, "fourth")])  # not held
    await eventually(lambda: mesh.stats(pod, r"^cluster\.outbound\|80\|\|fourth.*\.membership_total$"))
    await eventually(lambda: all_served(agent))
    node_id, named = client(mesh, agent).node.id, client(mesh, agent).group
    group = agent.placed.group_of(node_id)
    other = msgspec.structs.replace(group, labels=(*group.labels, ("zone", "elsewhere")))
    monkeypatch.setattr(
        behind, "group_of", lambda found, metadata: other if found == node_id else group_of(found, metadata)
    )
    removals = CHANGES.replace("added|", "")  # resources without a call may be added once more, for the whole port
    before, went_on = await mesh.stats(pod, removals), await held(mesh, pod)
    agent.placed.put(node_id, NODE, other)
    await eventually(lambda: named not in {each.group for each in agent.streams()} and all_served(agent))
    assert await mesh.stats(pod, removals) == before
    assert (await mesh.get("client", f"http://{target}/"))["status"] == 200
    assert await held(mesh, pod) == went_on


async def test_proxies_keep_their_resources_when_both_the_agent_and_the_control_plane_restarted(relayed):
    """Neither agent nor control plane has the proxy's state: the agent requests it before it sends updates."""
    mesh, line, agent = relayed
    pod = mesh.pod("client").name
    target = [address(mesh, "web"), 9000]
    await mesh.tell("client", "steady_start", streams=[], held={"tcp": target})
    await eventually(lambda: messages(mesh, 1))
    await eventually(lambda: all_served(agent))
    before = await mesh.stats(pod, CHANGES)
    await line.shut()
    await eventually(lambda: not agent.upstream.connected)
    forget(mesh)
    await line.open()
    after = await agent.killed()
    say = after._copy.wanted_frames
    after._copy.wanted_frames = list  # delays its requests
    try:
        await after.serve()
        await eventually(lambda: all_asked(after))
        await mesh.get("client", f"http://{target[0]}/")  # not reported yet
        after._copy.wanted_frames = say
        after._copy.changed()
        await eventually(lambda: all_served(after))
        assert await mesh.stats(pod, CHANGES) == before
        # The control plane has the called service again.
        assert HOST in {host for each in mesh.control.calls.groups().values() for host in each.hosts}
        seen = (await mesh.tell("client", "steady_seen"))["messages"]["tcp"]
        await eventually(lambda: messages(mesh, seen + 2))
        assert (await mesh.tell("client", "steady_stop"))["dropped"] == {}
    finally:
        await after.close()


CHANGES = r"(cluster|listener)_manager\.(cluster|listener)_(added|modified|removed)$"


def client(mesh, agent):
    """The stream of the client's proxy."""
    return next(each for each in agent.streams() if f"~{mesh.pod('client').name}." in each.node.id)


def all_asked(agent) -> bool:
    """Whether the proxies of the client and of `web` have sent their requests."""
    return [each.types.keys() >= {CLUSTER, LISTENER} for each in agent.streams()] == [True, True]


def all_served(agent) -> bool:
    """Whether both proxies have acknowledged everything."""
    states = {one.sync for each in agent.streams() for one in each.types.values()}
    return all_asked(agent) and states == {Sync.SYNCED}


def forget(mesh):
    """Remove all recorded calls, as in a control plane that has just started."""
    push = mesh.control._push
    for group in tuple(push.groups()):
        push.leave(group)
    push.calls._groups.clear()
    while mesh.control._idle:
        mesh.control._idle.popitem()[1].cancel()


async def messages(mesh, count):
    """Whether this many messages have come back on the held connection."""
    return (await mesh.tell("client", "steady_seen"))["messages"].get("tcp", 0) >= count


async def test_a_restarted_control_plane_learns_the_called_services_from_the_proxies():
    """With separate processes; these proxies connect to the control plane directly."""
    async with separate_mesh() as mesh:
        web = service("web", {"name": "http", "port": 80, "targetPort": 8080}, clusterIP="10.96.0.7")
        other = service("other", {"name": "http", "port": 80, "targetPort": 8080}, clusterIP="10.96.0.8")
        mesh.write("mesh.yaml", ON, web, other | {"spec": {**other["spec"], "selector": {"app": "web"}}})
        await mesh.start_control(skew="5s")
        await mesh.start_agent(certificate_ttl="1h")
        await mesh.add("web", "http=8080")
        client = await mesh.add("client")

        async def status(virtual):
            return (await client.tell("http", url=f"http://{virtual}/"))[0]["status"]

        async def stats(pattern):
            said = json.loads(await client.proxy.admin.read("/stats", {"format": "json", "filter": pattern}))
            return {each["name"]: each["value"] for each in said["stats"] if "name" in each}

        assert await status("10.96.0.7") == 200
        changes = r"_manager\.(cluster|listener)_(added|modified|removed)$"
        before = await stats(changes)
        mesh.control.kill()
        assert await status("10.96.0.7") == 200
        await mesh.start_control(skew="5s")
        await eventually(lambda: _connected(stats), limit=40)
        assert await status("10.96.0.8") == 200
        after = await stats(changes)
        assert {name: after[name] for name in after if name.endswith("removed")} == {
            name: before[name] for name in before if name.endswith("removed")
        }
        assert after["cluster_manager.cluster_added"] > before["cluster_manager.cluster_added"]
        assert await status("10.96.0.7") == 200


async def _connected(stats):
    return (await stats("control_plane.connected_state"))["control_plane.connected_state"] == 1
