"""The control plane's side of an agent's stream: updates, reports and limits."""

import pytest

from node_rig import Control, Rig, over_the_line
from weft.xds import frames, node_stream, table
from weft.xds.clients import Sync
from weft.xds.frames import Acceptance, Hello, PodsFrame, ProxyFrame, Refusal, ReportFrame
from weft.xds.node_stream import NodeStream
from weft.xds.request import StreamRefused
from weft.xds.stream import NackedResource
from weft.xds.table import Behind
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER


@pytest.fixture
def rig():
    made = Rig({"web-0": "web"})
    made.control.put("web", CLUSTER, a="1", b="1")
    made.add("web-0")
    made.settle()
    return made


def report(rig, **parts):
    rig.stream.receive(over_the_line(ReportFrame(**parts)))


def test_an_accepted_version_is_recorded_as_good(rig):
    report(rig, acceptances=(Acceptance("web", CLUSTER, {"a": "1", "b": "0"}),))
    assert rig.control.snapshots.accepted("web", CLUSTER, "a").version == "1"
    assert rig.control.snapshots.accepted("web", CLUSTER, "b") is None
    assert rig.control.heard == [("web", CLUSTER)]
    report(rig, acceptances=(Acceptance("web", CLUSTER, None, rig.control.snapshots.push),))
    assert rig.control.snapshots.accepted("web", CLUSTER, "b").version == "1"


def test_an_ack_of_a_replaced_version_is_recorded_and_does_not_accept_the_live_one(rig):
    revision = rig.control.snapshots.push
    rig.control.put("web", CLUSTER, a="2")
    report(rig, acceptances=(Acceptance("web", CLUSTER, None, revision),))
    assert rig.control.snapshots.accepted("web", CLUSTER, "a").version == "1"
    assert rig.control.heard == []
    rig.settle()
    report(rig, refusals=(Refusal("web", CLUSTER, "a", "2", "no", "proxy"),))
    assert rig.control.has("web")[CLUSTER] == {"a": "1", "b": "1"}


def test_a_nack_reaches_the_observer_and_restores_the_last_good_version(rig):
    report(rig, acceptances=(Acceptance("web", CLUSTER, {"a": "1"}),))
    rig.control.put("web", CLUSTER, a="2")
    rig.settle()
    report(rig, refusals=(Refusal("web", CLUSTER, "a", "2", "no", "proxy"),))
    assert rig.control.heard[-1] == NackedResource("web", CLUSTER, "a", "2", "no", "proxy")
    rig.settle()
    assert rig.has("web")[CLUSTER] == {"a": "1", "b": "1"}


def test_a_version_that_one_rejected_and_another_accepted_is_restored(rig):
    report(rig, acceptances=(Acceptance("web", CLUSTER, {"a": "1"}),))
    rig.control.put("web", CLUSTER, a="2")
    rig.settle()
    report(rig, refusals=(Refusal("web", CLUSTER, "a", "2", "no", "proxy"),))
    rig.settle()
    report(rig, acceptances=(Acceptance("web", CLUSTER, {"a": "2"}),))
    rig.settle()
    assert rig.has("web")[CLUSTER]["a"] == "2"


def test_reports_about_groups_that_are_not_on_the_node_are_ignored(rig):
    rig.control.put("api", CLUSTER, a="1")
    report(
        rig,
        acceptances=(Acceptance("api", CLUSTER, {"a": "1"}),),
        refusals=(Refusal("api", CLUSTER, "a", "1", "no", "proxy"),),
        proxies=(ProxyFrame(1, "proxy", "api", {CLUSTER: 1}),),
    )
    assert rig.control.heard == [] and rig.stream.proxies() == []
    assert rig.control.has("api") == {CLUSTER: {"a": "1"}}


def test_a_proxy_is_stale_until_it_has_settled_the_newest_of_a_type(rig):
    push = rig.control.snapshots.push
    report(rig, proxies=(ProxyFrame(1, "proxy", "web", {CLUSTER: push, ENDPOINT: frames.NOT_SENT}, ("no",)),))
    (proxy,) = rig.stream.proxies()
    assert (proxy.types, proxy.errors) == ({CLUSTER: Sync.SYNCED, ENDPOINT: Sync.NOT_SENT}, ("no",))
    rig.control.put("web", CLUSTER, a="2")
    assert rig.stream.proxies()[0].types[CLUSTER] is Sync.STALE
    assert not rig.stream.settled
    rig.settle()
    assert rig.stream.settled
    report(rig, left=(1,))
    assert rig.stream.proxies() == []


def test_a_proxy_is_behind_since_the_push_that_its_agent_reports(rig):
    push = rig.control.snapshots.push
    rig.control.put("web", CLUSTER, a="2")
    rig.control.put("web", CLUSTER, a="3")
    proxy = ProxyFrame(
        1, "proxy", "web", {CLUSTER: push}, ("no",), {CLUSTER: push + 1}, {CLUSTER: "no"}, "east", "1.30"
    )
    report(rig, proxies=(proxy,))
    (proxy,) = rig.stream.proxies()
    assert (proxy.settled, proxy.behind, proxy.refused) == ({CLUSTER: push}, {CLUSTER: push + 1}, {CLUSTER: "no"})
    assert (proxy.node, proxy.cluster, proxy.version) == ("node-1", "east", "1.30")


def test_a_proxy_whose_agent_lacks_a_change_is_behind_since_that_change(rig):
    push = rig.control.snapshots.push
    report(rig, proxies=(ProxyFrame(1, "proxy", "web", {CLUSTER: push}),))
    assert rig.stream.proxies()[0].behind == {}
    rig.control.put("web", CLUSTER, a="2")
    rig.control.put("web", CLUSTER, b="2")
    assert rig.stream.proxies()[0].behind == {CLUSTER: push + 1}


def test_groups_of_a_new_node_are_joined_one_at_a_time():
    rig = Rig({"p1": "g1", "p2": "g2", "p3": "g3"})
    held = []
    rig.control.hold = held.append
    for group in ("g1", "g2", "g3"):
        rig.control.put(group, CLUSTER, a=group)
    rig.add("p1", "p2", "p3")
    for turn in range(1, 4):
        update = rig.turn()
        assert len(held) == turn
        assert not rig.stream.settled
        assert len(update.placements) == 1, "a pod is served as soon as its own group is there"
        rig.take(update)
    assert rig.stream.settled


def test_large_groups_are_sent_one_by_one_and_none_starves(monkeypatch):
    monkeypatch.setattr(node_stream, "BATCH_BYTES", 1)
    rig = Rig({"p1": "g1", "p2": "g2", "p3": "g3"})
    for group in ("g1", "g2", "g3"):
        rig.control.put(group, CLUSTER, a=group)
    rig.add("p1", "p2", "p3")
    seen = []
    for version in range(3):
        update = rig.turn()
        seen += [group.group for group in update.groups]
        rig.control.put(update.groups[0].group, CLUSTER, a=f"again-{version}")
        rig.take(update)
    assert sorted(seen) == ["g1", "g2", "g3"]
    rig.settle()
    assert [rig.has(group) for group in ("g1", "g2", "g3")] == [rig.control.has(group) for group in ("g1", "g2", "g3")]


def test_an_agent_too_far_behind_gets_the_type_whole_instead_of_a_new_stream(rig, monkeypatch):
    monkeypatch.setattr(table, "TOMBSTONE_SLACK", 1)
    monkeypatch.setattr(table, "TOMBSTONE_LIMIT", 1)
    rig.control.put("web", ENDPOINT, a="1")
    rig.settle()
    for number in range(300):
        rig.control.put("web", ENDPOINT, **{f"e{number}": "1"})
        rig.control.remove("web", ENDPOINT, f"e{number}")
    rig.control.remove("web", ENDPOINT, "a")
    (update,) = rig.settle()
    assert update.groups[0].whole == (ENDPOINT,)
    assert rig.has("web") == {CLUSTER: {"a": "1", "b": "1"}}


def test_a_stream_must_restart_when_one_of_its_groups_is_dropped(rig):
    rig.control.snapshots.drop("web")
    with pytest.raises(Behind):
        rig.stream.turn()


def test_a_second_hello_and_too_many_pods_or_proxies_end_the_stream(rig, monkeypatch):
    monkeypatch.setattr(node_stream, "PODS", 2)
    monkeypatch.setattr(node_stream, "PROXIES", 2)
    with pytest.raises(StreamRefused, match="a second Hello"):
        rig.stream.receive(Hello("node-1"))
    with pytest.raises(StreamRefused, match="more than 2 pods"):
        rig.stream.receive(PodsFrame(("a", "b", "c")))
    with pytest.raises(StreamRefused, match="more than 2 proxies"):
        report(rig, proxies=tuple(ProxyFrame(number, "proxy", "web") for number in range(3)))


def test_closing_lets_go_of_every_group(rig):
    assert (rig.stream.groups, rig.stream.pods) == (["web"], frozenset({"web-0"}))
    rig.stream.close()
    assert rig.control.held == {} and not rig.control.snapshots.state("web").watchers


def test_nothing_is_sent_while_pods_are_not_known():
    control = Control(None)
    stream = NodeStream(control.snapshots, control, "node-1", Hello("node-1", ("web-0",)), wake=lambda: None)
    assert stream.turn() is None


def test_the_status_of_a_proxy_is_bounded(rig):
    types = {f"type-{number}": 1 for number in range(1_000)}
    errors = dict.fromkeys(list(types)[:20], "e" * 10**5)
    told = ProxyFrame(1, "p" * 10**6, "web", types, tuple(errors.values()), types, errors, "c" * 10**6, "v" * 10**6)
    report(rig, proxies=(told,))
    (proxy,) = rig.stream.proxies()
    assert [len(error) for error in proxy.refused.values()] == [512] * 16
    assert len(proxy.behind) <= 16 and len(proxy.cluster) == len(proxy.version) == 512
    assert len(proxy.node_id) == 4_096 and len(proxy.types) == 16
    assert [len(error) for error in proxy.errors] == [512] * 8


HELD = "hold|15001|10.96.0.1"


def test_clusters_that_proxies_wait_for_are_sent_once_for_their_group(rig):
    rig.copy.want("web", [HELD])
    rig.copy.want("web", [HELD])
    rig.settle()
    assert rig.control.wanted == [("web", (HELD,), True)]


def test_wanted_clusters_are_known_before_their_group_is_joined_again(rig):
    """Otherwise the group would be computed without these clusters, and its proxies would lose them."""
    rig.copy.want("web", ["hold|15001|10.96.0.2"])
    rig.control.put("web", CLUSTER, **{HELD: "1", "outbound|80||a": "1"})
    rig.control.put("web", LISTENER, virtualOutboundAgain="1")
    rig.settle()
    rig.disconnect()
    rig.control = rig.control.anew()
    rig.connect()
    rig.settle()
    ((group, wanted, was_held),) = rig.control.wanted
    assert (group, set(wanted), was_held) == ("web", {HELD, "outbound|80||a", "hold|15001|10.96.0.2"}, False)


def test_wanted_clusters_of_a_group_that_is_not_joined_wait_for_it(rig):
    rig.stream.receive(over_the_line(frames.WantedFrame("later", (HELD,))))
    assert rig.control.wanted == []
    rig.control.placed = {**rig.control.placed, "later-0": "later"}
    rig.control.put("later", CLUSTER, a="1")
    rig.add("later-0")
    rig.settle()
    assert rig.control.wanted == [("later", (HELD,), False)]


def test_wanted_clusters_of_a_group_without_pods_are_dropped(rig):
    rig.copy.want("web", [HELD])
    rig.remove("web-0")
    rig.settle()
    rig.reconnect()
    assert rig.copy.hello("node-1").wanted == {}


def on_demand(rig):
    """The group `web` has only what its proxies call."""
    rig.control.put("web", LISTENER, virtualOutboundAgain="1")
    rig.control.called = {"outbound|80||a": "1"}
    rig.settle()


def test_clusters_that_a_proxy_has_and_its_agent_lacks_are_in_the_reply(rig):
    on_demand(rig)
    replied = []
    rig.copy.replied = replied.append
    number = rig.copy.had("web", ["outbound|80||a", "outbound|81||a", "outbound|80||gone", "PassthroughCluster"])
    assert number and not rig.copy.is_answered("web", number) and replied == []
    (sent,) = rig.settle()
    assert rig.control.wanted == [("web", ("outbound|81||a", "outbound|80||gone"), True)]
    assert replied == ["web"] and rig.copy.is_answered("web", number)
    assert [(each.group, each.replied) for each in sent.groups] == [("web", number)]
    # A cluster that is missing after the reply does not exist, so the next proxy need not wait.
    assert rig.copy.had("web", ["outbound|80||gone"]) == 0
    assert rig.settle() == []


def test_proxies_with_the_same_clusters_wait_for_the_same_reply(rig):
    on_demand(rig)
    first = rig.copy.had("web", ["outbound|80||a"])
    assert rig.copy.had("web", ["outbound|80||a"]) == first != 0
    second = rig.copy.had("web", ["outbound|80||a", "outbound|80||b"])
    assert second > first
    rig.settle()
    assert rig.copy.is_answered("web", first) and rig.copy.is_answered("web", second)
    assert rig.has("web")[CLUSTER]["outbound|80||a"] == "1"


def test_clusters_that_the_copy_has_or_gets_without_a_call_are_not_requested(rig):
    rig.control.put("web", CLUSTER, **{"outbound|80||a": "1"})
    rig.settle()
    assert rig.copy.had("web", ["outbound|80||gone"]) == 0  # the group gets every service
    rig.control.put("web", LISTENER, virtualOutboundAgain="1")
    rig.settle()
    assert rig.copy.had("web", ["outbound|80||a", "outbound|81|v1|a", "inbound|80||"]) == 0
    assert rig.copy.had("web", [HELD]) == 0  # a held cluster is never reported as missing
    rig.settle()
    assert rig.control.wanted == [("web", (HELD,), True)]


def test_the_listener_of_a_whole_port_that_a_proxy_has_is_requested_and_is_in_the_next_hello(rig):
    on_demand(rig)
    rig.control.put("web", CLUSTER, **{"outbound|80||a": "1"})
    rig.settle()
    number = rig.copy.had("web", ["0.0.0.0_80", "10.96.0.1_80"])
    assert number and not rig.copy.is_answered("web", number)
    rig.settle()
    assert rig.control.wanted == [("web", ("0.0.0.0_80",), True)] and rig.copy.is_answered("web", number)
    rig.control.put("web", LISTENER, **{"0.0.0.0_80": "1", "0.0.0.0_81": "1", "10.96.0.1_80": "1"})
    rig.settle()
    assert rig.copy.had("web", ["0.0.0.0_80"]) == 0
    assert {"0.0.0.0_80", "0.0.0.0_81"} <= set(rig.copy.hello("node-1").wanted["web"])
    assert "10.96.0.1_80" not in rig.copy.hello("node-1").wanted["web"]


def test_a_request_lost_with_its_stream_is_in_the_next_hello_and_answered_by_the_first_update(rig):
    on_demand(rig)
    number = rig.copy.had("web", ["outbound|80||a"])
    rig.copy.wanted_frames()  # the frames are lost
    rig.disconnect()
    rig.control = rig.control.anew()
    rig.control.called = {"outbound|80||a": "1"}
    assert not rig.copy.is_answered("web", number)
    rig.connect()
    later = rig.copy.had("web", ["outbound|80||b"])
    first = rig.stream.turn()
    rig.take(first)
    assert rig.copy.is_answered("web", number) and not rig.copy.is_answered("web", later)
    rig.settle()
    assert rig.copy.is_answered("web", later)


def test_a_request_for_a_group_that_is_not_joined_is_answered_when_it_joins(rig):
    rig.stream.receive(over_the_line(frames.WantedFrame("later", ("outbound|80||a",), 7)))
    rig.control.placed = {**rig.control.placed, "later-0": "later"}
    rig.control.put("later", CLUSTER, a="1")
    rig.add("later-0")
    updates = {each.group: each.replied for sent in rig.settle() for each in sent.groups}
    assert updates["later"] == 7
    assert rig.control.wanted == [("later", ("outbound|80||a",), False)]


def test_no_request_waits_for_a_group_that_was_dropped(rig):
    on_demand(rig)
    replied = []
    rig.copy.replied = replied.append
    number = rig.copy.had("web", ["outbound|80||a"])
    rig.disconnect()
    rig.remove("web-0")
    assert replied == ["web"] and rig.copy.is_answered("web", number)


def test_called_clusters_of_a_group_that_is_held_already_are_in_the_agents_first_update(rig):
    """Otherwise its proxies would lose for a moment the clusters that only they have called."""
    rig.control.put("web", CLUSTER, **{"outbound|80||a": "1"})
    on_demand(rig)
    rig.disconnect()
    rig.control = rig.control.anew()
    rig.control.remove("web", CLUSTER, "outbound|80||a")  # no proxy has called it on this control plane
    rig.control.called = {"outbound|80||a": "1"}
    rig.connect()
    first = rig.stream.turn()
    rig.take(first)
    assert rig.has("web")[CLUSTER] == {"a": "1", "b": "1", "outbound|80||a": "1"}


def test_a_group_that_had_every_service_counts_as_calling_all(rig):
    """A control plane that starts with on-demand scope enabled removes nothing from running proxies."""
    rig.control.put("web", CLUSTER, **{"outbound|80||a": "1", "outbound|81||a": "1", "outbound|80|v1|b": "1"})
    rig.control.put("web", LISTENER, virtualOutbound="1")
    rig.settle()
    rig.reconnect()
    rig.settle()
    ((group, wanted, _),) = rig.control.wanted
    assert (group, {name.rpartition("|")[2] for name in wanted}) == ("web", {"a", "b"})
    # An on-demand group beside it has called the clusters that it has, and no others.
    rig.control.placed = {**rig.control.placed, "api-0": "api"}
    rig.control.put("api", CLUSTER, **{"outbound|80||c": "1"})
    rig.control.put("api", LISTENER, virtualOutboundAgain="1")
    rig.add("api-0")
    rig.settle()
    rig.control.wanted.clear()
    rig.reconnect()
    rig.settle()
    called = {group: {name.rpartition("|")[2] for name in wanted} for group, wanted, _ in rig.control.wanted}
    assert called == {"web": {"a", "b", "c"}, "api": {"c"}}
    # A new group has called nothing yet.
    rig.control.wanted.clear()
    rig.control.placed = {**rig.control.placed, "later-0": "later"}
    rig.control.put("later", CLUSTER, a="1")
    rig.add("later-0")
    rig.settle()
    assert rig.control.wanted == []


def test_a_group_that_has_every_service_keeps_all_beside_on_demand_groups(rig):
    rig.control.placed = {**rig.control.placed, "all-0": "all"}
    on_demand(rig)
    rig.control.put("all", CLUSTER, **{"outbound|80||a": "1", "outbound|80||b": "1"})
    rig.control.put("all", LISTENER, virtualOutbound="1")
    rig.add("all-0")
    rig.settle()
    rig.reconnect()
    rig.settle()
    wanted = {group: {name.rpartition("|")[2] for name in names} for group, names, _ in rig.control.wanted}
    assert wanted.get("all") == {"a", "b"} and "web" not in wanted


def test_a_request_is_answered_though_more_clusters_are_wanted_after_it(rig):
    rig.stream.receive(over_the_line(frames.WantedFrame("later", ("outbound|80||a",), 7)))
    rig.stream.receive(over_the_line(frames.WantedFrame("later", (HELD,))))
    rig.control.placed = {**rig.control.placed, "later-0": "later"}
    rig.control.put("later", CLUSTER, a="1")
    rig.add("later-0")
    updates = {each.group: each.replied for sent in rig.settle() for each in sent.groups}
    assert updates["later"] == 7
