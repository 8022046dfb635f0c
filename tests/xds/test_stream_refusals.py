"""Conversations in which a client rejects a resource: it is found by bisection, and all others are delivered."""

from __future__ import annotations

import pytest
from conversation import DELTA, Client, blob, blobs, both, envoy, small_shop

from weft.xds.snapshot import Snapshots
from weft.xds.stream import Nacked, NackedResource
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, WILDCARD


@pytest.fixture
def snapshots() -> Snapshots:
    return small_shop()


@both
def test_the_rejected_resource_among_many_is_found_and_the_others_are_accepted(snapshots, dialect):
    names = [f"c{number:02}" for number in range(20)]
    client = envoy(snapshots, dialect)
    client.bad = {("c13", "1")}
    snapshots.update("shop", {CLUSTER: blobs(*names)})
    client.settle()
    assert set(client.have[CLUSTER]) == {"a", *names} - {"c13"}
    culprits = [each.resource for each in client.outcomes if isinstance(each, Nacked) and each.resource]
    assert culprits == [NackedResource("shop", CLUSTER, "c13", "1", "no", "node-1")]
    assert len(client.seen) < 2 * 2 * 5  # the number of responses shows a search by halves


@both
def test_the_last_good_version_stays_and_the_bad_one_is_not_sent_again(snapshots, dialect):
    client = envoy(snapshots, dialect)
    client.bad = {("a", "2")}
    snapshots.update("shop", {CLUSTER: {"a": blob("a", "2"), "b": blob("b")}})
    client.settle()
    assert client.have[CLUSTER] == {"a": "1", "b": "1"}
    later = Client(snapshots, dialect)
    later.ask(CLUSTER)
    later.settle()
    assert later.have[CLUSTER] == {"a": "1", "b": "1"}
    snapshots.update("shop", {CLUSTER: blobs("a", version="3")})
    client.settle()
    assert client.have[CLUSTER]["a"] == "3"


def test_a_proxy_keeps_its_last_good_version_if_the_server_has_none(snapshots):
    client = Client(Snapshots(), DELTA)  # a control plane that has just started: no version is recorded as accepted
    client.have[CLUSTER] = {"a": "1", "b": "1"}
    client.asked[CLUSTER] = {WILDCARD}
    client.bad = {("a", "2")}
    client.snapshots.replace("shop", {CLUSTER: {"a": blob("a", "2"), "b": blob("b", "2")}})
    client.reconnect()
    client.settle()
    assert client.have[CLUSTER] == {"a": "1", "b": "2"}
    client.reconnect()
    assert client.settle() == ["CDS"]  # the client gets no removal of `a`
    client.snapshots.replace("shop", {CLUSTER: blobs("b", version="2")})
    assert client.settle() == ["CDS -a"]  # until `a` is really removed


@both
def test_a_version_that_others_accepted_is_withheld_only_from_the_client_that_rejects_it(snapshots, dialect):
    strange, usual = envoy(snapshots, dialect), envoy(snapshots, dialect)
    strange.bad = {("a", "2")}
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    usual.settle()
    strange.settle()
    assert (strange.have[CLUSTER]["a"], usual.have[CLUSTER]["a"]) == ("1", "2")
    assert snapshots.resources("shop", CLUSTER)["a"].version == "2"
    refusals = [each for each in strange.outcomes if isinstance(each, Nacked)]
    snapshots.update("shop", {CLUSTER: blobs("a", version="3")})
    snapshots.update("shop", {CLUSTER: {"a": blob("a", "2"), "b": blob("b")}})
    strange.settle()
    assert strange.have[CLUSTER]["b"] == "1"
    assert refusals == [each for each in strange.outcomes if isinstance(each, Nacked)]


@both
def test_a_rejected_version_that_was_removed_and_added_again_is_reported_again(snapshots, dialect):
    client = envoy(snapshots, dialect)
    client.bad = {("a", "2")}
    for _ in range(2):
        snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
        client.settle()
        assert client.have[CLUSTER]["a"] == "1" and (CLUSTER, "a") in snapshots.rejected("shop")
        snapshots.update("shop", {CLUSTER: blobs("a")})
        client.settle()
        assert not snapshots.rejected("shop")
    assert sum(1 for each in client.outcomes if isinstance(each, Nacked) and each.resource) == 2


def test_a_rejection_is_dropped_with_the_rejected_version(snapshots):
    client = envoy(snapshots)
    client.bad = {("a", "2")}
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    client.settle()
    assert client.stream.subscriptions[CLUSTER].error
    snapshots.update("shop", {CLUSTER: blobs("a", "b")})
    client.settle()
    assert client.stream.subscriptions[CLUSTER].error is None


def test_after_the_rejected_resource_is_found_changes_are_sent_together_again(snapshots):
    client = envoy(snapshots)
    client.bad = {("b", "1"), ("c", "1")}
    snapshots.update("shop", {ENDPOINT: blobs("b", "c")})
    client.ask(ENDPOINT, "b", "c")
    client.settle()
    snapshots.update("shop", {ENDPOINT: blobs("a", "b", "c", version="2")})
    assert client.settle() == ["EDS +a +b +c"]


def test_a_removal_sent_with_a_rejected_listener_is_sent_again(snapshots):
    client = envoy(snapshots)
    client.bad = {("m", "1")}
    snapshots.update("shop", {LISTENER: {"l": None, "m": blob("m")}})
    assert client.settle() == ["LDS +m -l", "LDS -l"]
    assert client.have[LISTENER] == {}


def test_a_removal_sent_with_several_listeners_is_sent_again_if_one_is_rejected(snapshots):
    client = envoy(snapshots)
    client.bad = {("m", "1")}
    snapshots.update("shop", {LISTENER: {"l": None, "m": blob("m"), "n": blob("n")}})
    client.settle()
    assert client.have[LISTENER] == {"n": "1"}


@both
def test_a_bad_resource_removed_before_it_was_sent_is_never_sent(snapshots, dialect):
    client = envoy(snapshots, dialect)
    client.bad = {("c", "1")}
    snapshots.update("shop", {CLUSTER: blobs("c")})
    snapshots.update("shop", {CLUSTER: {"c": None, "b": blob("b")}})
    client.settle()
    assert client.have[CLUSTER] == {"a": "1", "b": "1"}
    assert not [each for each in client.outcomes if isinstance(each, Nacked)]


def test_versions_that_a_reconnecting_client_has_count_as_accepted():
    before = Snapshots()
    before.replace("shop", {CLUSTER: blobs("a")})
    client = Client(before)
    client.ask(CLUSTER)
    client.settle()
    client.snapshots = Snapshots()
    client.snapshots.replace("shop", {CLUSTER: blobs("a")})
    client.reconnect()
    client.settle()
    client.bad = {("a", "2")}
    client.snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    client.settle()
    assert client.snapshots.resources("shop", CLUSTER)["a"].version == "1"


def test_subscribing_again_to_a_quarantined_name_does_not_remove_an_older_version():
    client = Client(Snapshots())
    client.have[ENDPOINT] = {"a": "1"}
    client.asked[ENDPOINT] = {"a"}
    client.bad = {("a", "2")}
    client.snapshots.replace("shop", {ENDPOINT: blobs("a", version="2")})
    client.reconnect()
    client.settle()
    client.ask(ENDPOINT, "a")
    assert client.settle() == []
    other = Client(client.snapshots)
    other.ask(ENDPOINT, "a")
    assert other.settle() == ["EDS -a"]  # a client without the resource gets "does not exist"


def test_a_client_that_unsubscribes_a_rejected_name_may_try_it_again(snapshots):
    client, usual = envoy(snapshots), envoy(snapshots)
    client.bad = {("a", "2")}
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    usual.settle()
    client.settle()
    client.forget(ENDPOINT, "a")
    client.bad.clear()
    client.ask(ENDPOINT, "a")
    client.settle()
    assert client.have[ENDPOINT] == {"a": "2"}


def test_streams_that_bisect_the_same_fault_stop_when_one_has_found_it(snapshots):
    clients = [envoy(snapshots) for _ in range(5)]
    for client in clients:
        client.bad = {("a", "2")}
    snapshots.update("shop", {CLUSTER: {"a": blob("a", "2"), **blobs(*"bcdefgh")}})
    for client in clients:
        client.settle()
        assert set(client.have[CLUSTER]) == set("abcdefgh")
    assert sum(1 for client in clients for each in client.outcomes if isinstance(each, Nacked) and each.resource) == 1


@both
def test_a_rejected_cluster_delays_no_listener_and_no_route(snapshots, dialect):
    client = envoy(snapshots, dialect)
    client.bad = {("b", "1")}
    snapshots.update(
        "shop",
        {
            CLUSTER: blobs("b"),
            ENDPOINT: blobs("b"),
            LISTENER: blobs("l", version="2"),
            ROUTE: blobs("r", version="2"),
        },
    )
    client.settle()
    assert (client.have[LISTENER], client.have[ROUTE]) == ({"l": "2"}, {"r": "2"})


@both
def test_a_rejected_listener_does_not_keep_an_old_cluster_for_ever(snapshots, dialect):
    client = envoy(snapshots, dialect)
    client.bad = {("l", "2")}
    snapshots.update("shop", {CLUSTER: {"a": None, "b": blob("b")}, LISTENER: blobs("l", version="2")})
    client.settle()
    assert set(client.have[CLUSTER]) == {"b"}
    assert client.have[LISTENER] == {"l": "1"}


def test_the_error_is_kept_until_its_cause_is_removed(snapshots):
    client = envoy(snapshots)
    client.bad = {("a", "2")}
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs("b")})
    client.settle()
    assert client.stream.subscriptions[CLUSTER].error == "no"
    snapshots.update("shop", {CLUSTER: blobs("a", version="3")})
    client.settle()
    assert client.stream.subscriptions[CLUSTER].error is None
