"""The copy of an agent against the control plane's own snapshots, over real bytes and without a network."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_rig import Blob, Control, Rig, body, joined, size_of
from weft.xds import frames
from weft.xds.clients import Peer, StreamStatus, Sync, TypeStatus
from weft.xds.copy import Broken, Copy
from weft.xds.frames import PodsFrame
from weft.xds.layer import Layer
from weft.xds.node_stream import NodeStream
from weft.xds.patch import Patch
from weft.xds.request import REQUEST_BYTES, NodeInfo
from weft.xds.response import Dialect
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

TYPES = (CLUSTER, ENDPOINT, LISTENER, ROUTE)


def test_a_pod_gets_all_of_its_group_and_nothing_of_others():
    rig = Rig({"web-0": "web", "api-0": "api"})
    rig.control.put("web", CLUSTER, a="1", b="1")
    rig.control.put("api", CLUSTER, a="2")
    rig.add("web-0")
    rig.settle()
    assert rig.has("web") == {CLUSTER: {"a": "1", "b": "1"}}
    assert rig.copy.placements == {"web-0": "web"}
    assert rig.copy.snapshots.groups() == ["web"]


def test_no_part_of_a_group_is_served_before_the_whole_group_has_arrived():
    rig = Rig({"web-0": "web"})
    rig.add("web-0")
    assert rig.settle() == []
    rig.control.put("web", CLUSTER, a="1")
    rig.settle()
    assert rig.has("web") == {CLUSTER: {"a": "1"}}


def test_a_copy_stays_while_a_control_plane_does_not_know_the_pods_yet():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0")
    rig.settle()
    rig.control = Control(None)
    rig.reconnect()
    assert rig.settle() == []
    assert rig.has("web") == {CLUSTER: {"a": "1"}}
    rig.control.placed = {}
    rig.control.moved()
    rig.settle()
    assert rig.has("web") == {CLUSTER: {"a": "1"}} and rig.copy.placements == {"web-0": "web"}


def test_a_body_is_sent_once_however_many_groups_use_it():
    groups = [f"group-{number}" for number in range(5)]
    rig = Rig({f"pod-{group}": group for group in groups})
    shared = {f"service-{number}": "1" for number in range(200)}
    for group in groups:
        rig.control.put(group, CLUSTER, **shared)
        rig.control.put(group, LISTENER, virtualInbound=group)
        rig.add(f"pod-{group}")
    sent = rig.settle()
    bodies = [(name, version) for each in sent for name, version in sent_bodies(each)]
    assert len(bodies) == len(set(bodies)) == 200 + 5
    for group in groups:
        assert rig.has(group)[CLUSTER] == shared
    (first,) = {id(rig.copy.snapshots.resources(group, CLUSTER)["service-7"]) for group in groups}
    rig.control.put_all(groups, ENDPOINT, orders="2")
    (update,) = rig.settle()
    assert sent_bodies(update) == [("orders", "2")] and len(update.groups) == 5
    assert first


def test_a_new_stream_does_not_repeat_what_the_agent_has():
    rig = Rig({"web-0": "web", "api-0": "api"})
    for group in ("web", "api"):
        rig.control.put(group, CLUSTER, **{f"service-{number}": "1" for number in range(50)})
        rig.control.put(group, ENDPOINT, a="1", b="1")
    rig.add("web-0", "api-0")
    rig.settle()
    rig.reconnect()
    sent = rig.settle()
    assert [body for each in sent for body in sent_bodies(each)] == []
    assert sum(map(size_of, sent)) < 200
    rig.disconnect()
    rig.control.put("web", ENDPOINT, a="2")
    rig.control.remove("api", ENDPOINT, "b")
    rig.connect()
    sent = rig.settle()
    assert [body for each in sent for body in sent_bodies(each)] == [("a", "2")]
    assert {type_url for each in sent for group in each.groups for type_url in group.upserts} == {ENDPOINT}
    assert rig.has("web")[ENDPOINT] == {"a": "2", "b": "1"} and rig.has("api")[ENDPOINT] == {"a": "1"}


def test_an_agent_with_an_empty_group_gets_what_was_added_meanwhile():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.control.remove("web", CLUSTER, "a")
    rig.add("web-0")
    rig.settle()
    rig.disconnect()
    rig.control.put("web", CLUSTER, b="1")
    rig.connect()
    rig.settle()
    assert rig.has("web") == {CLUSTER: {"b": "1"}}


def test_a_pod_moves_to_another_group_only_when_that_group_is_complete():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0")
    rig.settle()
    rig.control.placed = {"web-0": "web-v2"}
    rig.control.moved()
    rig.settle()
    assert rig.copy.placements == {"web-0": "web"}  # no part of the new group has arrived yet
    rig.control.put("web-v2", CLUSTER, a="2")
    rig.settle()
    assert rig.copy.placements == {"web-0": "web-v2"} and rig.moves == ["web-0", "web-0"]
    assert rig.copy.snapshots.groups() == ["web-v2"] and rig.control.held == {"web-v2": 1}


def test_the_copy_of_a_group_goes_with_its_last_pod():
    rig = Rig({"web-0": "web", "web-1": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0", "web-1")
    rig.settle()
    rig.remove("web-0")
    rig.settle()
    assert rig.has("web") == {CLUSTER: {"a": "1"}}
    rig.remove("web-1")
    rig.settle()
    assert rig.copy.snapshots.groups() == [] and rig.control.held == {}
    assert len(rig.copy._bodies) == 0


def test_a_pod_that_is_removed_and_added_at_once_is_placed_again():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0")
    rig.settle()
    rig.copy.remove("web-0")
    rig.copy.add("web-0")
    rig.settle()
    assert rig.copy.placements == {"web-0": "web"}


def test_a_slow_agent_gets_the_latest_version_of_each_name_once():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="0")
    rig.add("web-0")
    rig.settle()
    rig.control.put("web", ENDPOINT, a="0")
    late = rig.turn()
    for version in range(1, 20):
        rig.control.put("web", ENDPOINT, a=str(version))
        assert rig.turn() is None
    rig.take(late)
    (update,) = rig.settle()
    assert sent_bodies(update) == [("a", "19")]


def test_a_reference_to_a_missing_body_ends_the_stream_and_changes_nothing():
    copy = Copy()
    copy.add("web-0")
    bad = frames.GroupUpdate("web", 1, {CLUSTER: [frames.Entry("a", "1")]}, fresh=True)
    with pytest.raises(Broken, match="a 1 was never sent"):
        copy.apply(frames.Update(1, (bad,), {"web-0": "web"}))
    with pytest.raises(Broken, match="which the agent does not have"):
        copy.apply(frames.Update(1, (frames.GroupUpdate("web", 1),)))
    with pytest.raises(Broken, match="which the agent does not have"):
        copy.apply(frames.Update(1, (), {"web-0": "web"}))
    assert copy.snapshots.groups() == [] and copy.placements == {}


def test_a_quarantined_name_is_not_removed_from_clients_that_have_it():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1", b="1")
    rig.add("web-0")
    rig.settle()
    rig.control = Control({"web-0": "web"})  # it has no record of acceptances
    rig.control.put("web", CLUSTER, a="bad", b="1")
    rig.control.snapshots.reject("web", CLUSTER, "a", "bad", "no")
    rig.reconnect()
    rig.settle()
    assert rig.has("web")[CLUSTER] == {"a": "1", "b": "1"}


def test_a_rejected_version_that_is_sent_again_is_tried_again():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0")
    rig.settle()
    rig.copy.snapshots.accept("web", CLUSTER, [rig.copy.snapshots.resources("web", CLUSTER)["a"]])
    rig.control.put("web", CLUSTER, a="2")
    rig.settle()
    rig.copy.snapshots.reject("web", CLUSTER, "a", "2", "no")
    assert rig.has("web")[CLUSTER] == {"a": "1"}
    rig.control.put("web", CLUSTER, a="3")
    rig.control.put("web", CLUSTER, a="2")
    rig.settle()
    assert rig.has("web")[CLUSTER] == {"a": "2"}


OPERATIONS = ("put", "put", "put", "remove", "place", "add", "delete", "turn", "take", "reconnect", "cut", "restart")


@pytest.mark.parametrize("layered", [False, True])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(5, 80))
def test_the_copy_becomes_what_the_control_plane_has_whatever_happens_on_the_way(layered, seed, length):
    chance = random.Random(seed)
    groups, pods = ["g1", "g2", "g3"], ["p1", "p2", "p3", "p4"]
    one, other = Layer(), Layer()
    rig = Rig({pod: chance.choice(groups) for pod in pods}, {"g1": one, "g2": one, "g3": other} if layered else None)
    for group in groups:
        rig.control.put(group, CLUSTER, a="0")
    rig.add(chance.choice(pods))
    flight = None
    for _ in range(length):
        operation = chance.choice(OPERATIONS)
        group, pod, type_url = chance.choice(groups), chance.choice(pods), chance.choice(TYPES)
        name, version = chance.choice("abcd"), chance.choice("123")
        if operation == "put" and rig.control.layers and chance.random() < 0.7:
            rig.control.put_layer(group, type_url, name, version if chance.random() < 0.8 else "")
        elif operation == "put":
            rig.control.put_all(chance.sample(groups, chance.randint(1, 3)), type_url, **{name: version})
        elif operation == "remove":
            rig.control.remove(group, type_url, name)
        elif operation == "place":
            rig.control.placed[pod] = group
            rig.control.moved()
        elif operation == "add":
            rig.add(pod)
        elif operation == "delete":
            rig.remove(pod)
        elif operation == "turn" and flight is None:
            flight = rig.turn()
        elif operation == "take" and flight is not None:
            rig.take(flight)
            flight = None
        elif operation == "reconnect":
            rig.reconnect()
            flight = None
        elif operation == "cut":
            rig.disconnect()
            rig.control.put(group, type_url, **{name: version})
            if chance.random() < 0.5:
                rig.remove(pod)
            rig.connect()
            flight = None
        elif operation == "restart":
            rig.disconnect()
            rig.control = rig.control.anew()
            rig.connect()
            flight = None
    if flight is not None:
        rig.take(flight)
    rig.settle()
    wanted = {pod: rig.control.placed[pod] for pod in rig.copy.pods}
    assert rig.copy.placements == wanted
    assert set(rig.copy.snapshots.groups()) == set(wanted.values())
    for group in set(wanted.values()):
        assert rig.has(group) == rig.control.has(group)
        for type_url in rig.has(group):
            here, there = (each.snapshots.resources(group, type_url) for each in (rig.copy, rig.control))
            assert {name: made.body for name, made in here.items()} == {name: made.body for name, made in there.items()}
        mirror = rig.copy._mirrors[group].tables.items()
        versions = {type_url: {name: each.version for name, each in table.items()} for type_url, table in mirror}
        assert {type_url: names for type_url, names in versions.items() if names} == rig.control.has(group)
    assert rig.control.held == dict.fromkeys(wanted.values(), 1)


def sent_bodies(update: frames.Update) -> list[tuple[str, str]]:
    return [
        (entry.name, entry.version)
        for group in update.groups
        for entries in group.upserts.values()
        for entry in entries
        if entry.body is not None
    ]


def test_a_group_that_nearly_equals_another_is_sent_as_the_difference():
    layer = Layer()
    rig = Rig({"web-0": "web", "db-0": "db"}, {"web": layer, "db": layer})
    for number in range(100):
        rig.control.put_layer("web", CLUSTER, f"c{number}", "1")
    rig.control.put("db", CLUSTER, own="1")
    rig.add("web-0")
    rig.settle()
    rig.add("db-0")
    (update,) = rig.settle()
    assert [entry.name for entry in update.groups[0].upserts[CLUSTER]] == ["own"]
    assert rig.has("db") == rig.control.has("db")


def test_only_the_changed_part_of_a_large_body_is_sent():
    rig = Rig({"web-0": "web"}, {"web": Layer()})
    rig.control.put_layer("web", CLUSTER, "a", "1")
    rig.add("web-0")
    rig.settle()
    rig.control.put_layer("web", CLUSTER, "a", "2")
    (update,) = rig.settle()
    (entry,) = update.groups[0].upserts[CLUSTER]
    assert entry.body is None
    assert entry.patch.weight < entry.patch.size
    assert rig.copy.snapshots.resources("web", CLUSTER)["a"].body == joined("a", "2").body


def test_an_agent_without_builds_gets_whole_bodies_and_groups():
    layer = Layer()
    control = Control({"web-0": "web", "db-0": "db"}, {"web": layer, "db": layer})
    control.put_layer("web", CLUSTER, "a", "1")
    stream = NodeStream(control.snapshots, control, "node-1", frames.Hello("node-1", ("web-0",)), wake=lambda: None)
    first = stream.turn()
    stream.receive(frames.TakenFrame(first.nonce))
    control.put_layer("web", CLUSTER, "a", "2")
    stream.receive(PodsFrame(("db-0",)))
    update = stream.turn()
    assert [(each.group, each.like) for each in update.groups] == [("db", ""), ("web", "")]
    assert sent_bodies(update) == [("a", "2")]


def test_a_patch_of_a_missing_base_ends_the_stream():
    rig = Rig({"web-0": "web"})
    patch = Patch("7", 1, (b"x",))
    update = frames.Update(
        1, (frames.GroupUpdate("web", 1, {CLUSTER: [frames.Entry("a", "8", None, patch)]}, {}, True),)
    )
    with pytest.raises(Broken):
        rig.copy.apply(update)


def test_a_body_is_passed_on_unchanged():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0")
    rig.settle()
    assert rig.copy.snapshots.resources("web", CLUSTER)["a"].body == body("a", "1").body
    assert isinstance(body("a", "1"), Blob)


def test_a_hello_is_never_longer_than_the_control_plane_accepts():
    """Otherwise an agent with many bodies could never reconnect, and its proxies would get no more changes."""
    rig = Rig({"web-0": "web"})
    names = [f"{number:05}-{'n' * 995}" for number in range(20_000)]
    rig.control.snapshots.update("web", {CLUSTER: {name: Blob(name, "1", b"") for name in names}})
    rig.add("web-0")
    rig.settle()
    hello = frames.encode(rig.copy.hello("node-1"))
    assert 4 << 20 < len(hello) < REQUEST_BYTES


def test_clusters_that_a_pod_claims_to_wait_for_never_make_a_hello_too_long():
    """The names come from the pod and are not trusted: a frame that is too long would end the stream of the whole
    node."""
    rig = Rig({"web-0": "web", "api-0": "api"})
    for group in ("web", "api"):
        rig.control.put(group, LISTENER, virtualOutboundAgain="1")
        rig.control.put(group, CLUSTER, **{"outbound|80||a": "1"})
    rig.add("web-0")
    rig.add("api-0")
    rig.settle()
    rig.copy.want("web", [f"hold|15001|{number:05}{'n' * 4_000}" for number in range(5_000)])
    rig.copy.had("web", [f"hold|15001|{number:05}{'n' * 4_000}" for number in range(5_000)])
    rig.copy.had("web", [f"outbound|80||{number:05}{'n' * 4_000}" for number in range(5_000)])
    for start in range(0, 100_000, 5_000):
        rig.copy.had("web", [f"outbound|80||{number:06}{'n' * 400}" for number in range(start, start + 5_000)])
    rig.copy.want("api", ["hold|15001|10.96.0.1"])
    said = {each.group: each for each in rig.copy.wanted_frames()}
    assert all(len(frames.encode(each)) < REQUEST_BYTES for each in said.values())
    assert said["api"].names == ("hold|15001|10.96.0.1",)
    hello = rig.copy.hello("node-1")
    assert len(frames.encode(hello)) < REQUEST_BYTES
    assert set(hello.wanted["api"]) == {"hold|15001|10.96.0.1", "outbound|80||a"}
    assert hello.whole == ("web",)  # the group counts as calling all clusters


def test_names_that_do_not_fit_into_a_hello_are_left_out():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0")
    rig.settle()
    rig.copy.want("web", [f"hold|15001|10.{x}.{y}.{z}" for x in range(256) for y in range(256) for z in (1, 2)])
    (said,) = rig.copy.wanted_frames()
    assert len(said.names) > 5_000  # more than a control plane keeps: the group gets every service


def stream_of(sync: Sync, error: str | None = None) -> StreamStatus:
    """A proxy of the group `web`, as its server at the agent sees it."""
    status = TypeStatus(sync, True, 0, "1", 0.0, 0, None, 0, error)
    node = NodeInfo("sidecar~web", metadata={"CLUSTER_ID": "east", "ISTIO_VERSION": "1.30"})
    return StreamStatus(7, node, "web", Peer("", ""), Dialect.DELTA, 0.0, {CLUSTER: status})


def test_a_proxy_is_behind_since_the_push_that_made_it_stale():
    rig = Rig({"web-0": "web"})
    rig.control.put("web", CLUSTER, a="1")
    rig.add("web-0")
    rig.settle()
    first = rig.control.snapshots.push
    (proxy,) = rig.copy.report([stream_of(Sync.SYNCED)]).proxies
    assert (proxy.settled, proxy.behind, proxy.cluster, proxy.version) == ({CLUSTER: first}, {}, "east", "1.30")
    for version in "23":
        rig.control.put("web", CLUSTER, a=version)
        rig.settle()
        report = rig.copy.report([stream_of(Sync.STALE, "no")])
        (proxy,) = report.proxies if report else (proxy,)
    assert (proxy.settled, proxy.behind) == ({CLUSTER: first}, {CLUSTER: first + 1})
    assert (proxy.refused, proxy.errors) == ({CLUSTER: "no"}, ("no",))
    (proxy,) = rig.copy.report([stream_of(Sync.SYNCED)]).proxies
    assert (proxy.settled, proxy.behind) == ({CLUSTER: first + 2}, {})
