"""What a client is owed, by the rules of the protocol's subscriptions."""

from __future__ import annotations

import gc
from ipaddress import ip_address

import pytest
from conversation import DELTA, SOTW, Client, blob, blobs

from weft.mesh.calls import MOST
from weft.translate.names import called_at, held
from weft.xds import subscription as module
from weft.xds.request import StreamRefused
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, WILDCARD

both = pytest.mark.parametrize("dialect", [DELTA, SOTW])


@pytest.fixture
def snapshots() -> Snapshots:
    return Snapshots()


@both
def test_an_empty_list_at_first_means_everything(snapshots, dialect):
    snapshots.replace("shop", {CLUSTER: blobs("a", "b")})
    client = Client(snapshots, dialect)
    client.ask(CLUSTER)
    assert client.settle() == ["CDS +a +b"]


@both
def test_an_explicit_wildcard_means_everything(snapshots, dialect):
    snapshots.replace("shop", {CLUSTER: blobs("a", "b")})
    client = Client(snapshots, dialect)
    client.ask(CLUSTER, WILDCARD, "b")
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs("c")})
    client.settle()
    assert set(client.have[CLUSTER]) == {"a", "b", "c"}


@both
def test_a_wildcard_gets_a_response_even_if_it_is_empty(snapshots, dialect):
    snapshots.replace("shop", {})
    client = Client(snapshots, dialect)
    client.ask(LISTENER)
    assert client.settle() == ["LDS"]


@both
def test_nothing_is_sent_before_the_group_has_its_first_state(snapshots, dialect):
    client = Client(snapshots, dialect)
    client.ask(CLUSTER)
    assert client.settle() == []
    assert not client.stream.synced(frozenset({CLUSTER}))
    snapshots.replace("shop", {CLUSTER: blobs("a")})
    assert client.settle() == ["CDS +a"]
    assert client.stream.synced(frozenset({CLUSTER}))


@both
def test_a_subscription_by_name_gets_that_name_only(snapshots, dialect):
    snapshots.replace("shop", {ENDPOINT: blobs("a", "b", "c")})
    client = Client(snapshots, dialect)
    client.ask(ENDPOINT, "a")
    assert client.settle() == ["EDS +a"]
    client.ask(ENDPOINT, "b")
    assert client.settle() == ["EDS +b"]
    snapshots.update("shop", {ENDPOINT: {"a": blob("a", "2"), "c": blob("c", "2")}})
    assert client.settle() == ["EDS +a"]


@both
def test_after_unsubscribing_a_change_is_not_sent(snapshots, dialect):
    snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client = Client(snapshots, dialect)
    client.ask(ENDPOINT, "a", "b")
    client.settle()
    client.forget(ENDPOINT, "a")
    snapshots.update("shop", {ENDPOINT: blobs("a", "b", version="2")})
    assert client.settle() == ["EDS +b"]


@both
def test_an_empty_list_for_a_type_without_legacy_wildcard_means_nothing(snapshots, dialect):
    snapshots.replace("shop", {ENDPOINT: blobs("a")})
    client = Client(snapshots, dialect)
    client.send(ENDPOINT)
    assert client.settle() == []


def test_an_empty_list_after_a_name_means_nothing():
    snapshots = Snapshots()
    snapshots.replace("shop", {CLUSTER: blobs("a", "b")})
    client = Client(snapshots, SOTW)
    client.ask(CLUSTER, "a")
    client.settle()
    client.forget(CLUSTER, "a")
    snapshots.update("shop", {CLUSTER: blobs("a", "b", version="2")})
    assert client.settle() == []


def test_delta_reports_a_missing_name_at_once(snapshots):
    snapshots.replace("shop", {ENDPOINT: blobs("a")})
    client = Client(snapshots, DELTA)
    client.ask(ENDPOINT, "a", "nobody")
    assert client.settle() == ["EDS +a -nobody"]
    snapshots.update("shop", {ENDPOINT: blobs("nobody")})
    assert client.settle() == ["EDS +nobody"]


def test_state_of_the_world_shows_a_missing_cluster_by_its_absence(snapshots):
    snapshots.replace("shop", {CLUSTER: blobs("a")})
    client = Client(snapshots, SOTW)
    client.ask(CLUSTER, "nobody")
    assert client.settle() == ["CDS"]


def test_state_of_the_world_cannot_remove_endpoints_and_sends_nothing(snapshots):
    snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client = Client(snapshots, SOTW)
    client.ask(ENDPOINT, "a", "b")
    client.settle()
    snapshots.update("shop", {ENDPOINT: {"a": None}})
    assert client.settle() == []
    assert client.stream.synced(frozenset({ENDPOINT}))


def test_state_of_the_world_sends_all_listeners_on_any_change_and_routes_only_as_changed(snapshots):
    snapshots.replace("shop", {LISTENER: blobs("l", "m"), ROUTE: blobs("r", "s")})
    client = Client(snapshots, SOTW)
    client.ask(LISTENER)
    client.ask(ROUTE, "r", "s")
    client.settle()
    snapshots.update("shop", {LISTENER: blobs("l", version="2"), ROUTE: blobs("r", version="2")})
    assert client.settle() == ["RDS +r", "LDS +l +m"]
    snapshots.update("shop", {LISTENER: {"m": None}})
    assert client.settle() == ["LDS +l"]


def test_listeners_and_clusters_by_name_bring_every_subscribed_one_in_state_of_the_world(snapshots):
    snapshots.replace("shop", {CLUSTER: blobs("a", "b", "c")})
    client = Client(snapshots, SOTW)
    client.ask(CLUSTER, "a", "b")
    client.settle()
    snapshots.update("shop", {CLUSTER: {"a": blob("a", "2"), "c": blob("c", "2")}})
    assert client.settle() == ["CDS +a +b"]
    snapshots.update("shop", {CLUSTER: {"b": None}})
    assert client.settle() == ["CDS +a"]


def test_delta_sends_only_what_changed(snapshots):
    snapshots.replace("shop", {CLUSTER: blobs("a", "b", "c")})
    client = Client(snapshots, DELTA)
    client.ask(CLUSTER)
    client.settle()
    snapshots.update("shop", {CLUSTER: {"a": blob("a", "2"), "b": None, "c": blob("c", "1")}})
    assert client.settle() == ["CDS +a", "CDS -b"]


def test_a_delta_client_that_subscribes_again_is_sent_the_resource_again(snapshots):
    snapshots.replace("shop", {ENDPOINT: blobs("a")})
    client = Client(snapshots, DELTA)
    client.ask(ENDPOINT, "a")
    client.settle()
    client.ask(ENDPOINT, "a")
    assert client.settle() == ["EDS +a"]


def test_unsubscribing_a_name_under_a_wildcard_gets_its_current_version(snapshots):
    snapshots.replace("shop", {CLUSTER: blobs("a")})
    client = Client(snapshots, DELTA)
    client.ask(CLUSTER, WILDCARD, "a", "gone")
    client.settle()
    client.send(CLUSTER, unsubscribe=("a", "gone"))
    assert client.settle() == ["CDS +a -gone"]


def test_unsubscribing_the_wildcard_leaves_the_names(snapshots):
    snapshots.replace("shop", {CLUSTER: blobs("a", "b")})
    client = Client(snapshots, DELTA)
    client.ask(CLUSTER)
    client.ask(CLUSTER, "a")
    client.settle()
    client.forget(CLUSTER, WILDCARD)
    snapshots.update("shop", {CLUSTER: blobs("a", "b", version="2")})
    assert client.settle() == ["CDS +a"]


@both
def test_a_name_unsubscribed_before_it_was_sent_is_not_sent(snapshots, dialect):
    snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client = Client(snapshots, dialect)
    client.ask(ENDPOINT, "a")
    client.settle()
    client.ask(ENDPOINT, "b")
    client.forget(ENDPOINT, "b")
    assert client.settle() == []


def test_a_wildcard_unsubscribed_before_its_response_gets_none(snapshots):
    snapshots.replace("shop", {CLUSTER: blobs("a", "b")})
    client = Client(snapshots, DELTA)
    client.ask(CLUSTER, "a")
    client.settle()
    client.ask(CLUSTER, WILDCARD)
    client.forget(CLUSTER, WILDCARD)
    assert client.settle() == ["CDS +a"]


def test_a_reconnecting_delta_client_is_sent_what_differs_from_what_it_has(snapshots):
    snapshots.replace("shop", {CLUSTER: {**blobs("same", "new"), "old": blob("old", "2")}})
    client = Client(snapshots, DELTA)
    client.have[CLUSTER] = {"same": "1", "old": "1", "gone": "1"}
    client.asked[CLUSTER] = {WILDCARD}
    client.reconnect()
    assert client.settle() == ["CDS +new +old", "CDS -gone"]
    client.reconnect()
    assert client.settle() == ["CDS"]


def test_a_reconnecting_delta_client_with_names_is_sent_nothing_it_has(snapshots):
    snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client = Client(snapshots, DELTA)
    client.ask(ENDPOINT, "a", "b", "nobody")
    client.settle()
    client.reconnect()
    assert client.settle() == ["EDS -nobody"]
    assert client.stream.synced(frozenset({ENDPOINT}))


def test_a_control_plane_that_has_just_started_removes_nothing_from_a_reconnecting_client():
    before = Snapshots()
    before.replace("shop", {CLUSTER: blobs("a")})
    client = Client(before, DELTA)
    client.ask(CLUSTER)
    client.settle()
    client.snapshots = Snapshots()
    client.reconnect()
    assert client.settle() == []
    client.snapshots.replace("shop", {CLUSTER: blobs("a", "b")})
    assert client.settle() == ["CDS +b"]


@both
def test_types_the_order_does_not_know_are_served_too(snapshots, dialect):
    snapshots.replace("shop", {"example.com/Thing": blobs("t"), SECRET: blobs("s")})
    client = Client(snapshots, dialect)
    client.ask("example.com/Thing", "t")
    client.ask(SECRET, "s")
    client.settle()
    assert client.have == {"example.com/Thing": {"t": "1"}, SECRET: {"s": "1"}}


@both
def test_the_names_of_one_stream_are_bounded_over_all_its_requests(snapshots, dialect, monkeypatch):
    monkeypatch.setattr(module, "NAMES", 3)
    client = Client(snapshots, dialect)
    client.ask(ENDPOINT, "a", "b")
    with pytest.raises(StreamRefused, match="on one stream"):
        client.ask(ENDPOINT, "c", "d")


def test_clients_with_equal_subscriptions_share_one_set_and_no_set_outlives_its_use(snapshots):
    """Envoy subscribes to one name after the other, so each request makes another set."""
    gc.collect()  # free objects of other tests
    before = len(module._names)
    clients = [Client(snapshots, DELTA) for _ in range(2)]
    for number in range(100):
        for client in clients:
            client.ask(ENDPOINT, f"outbound|{number}||web")
    one, two = (client.stream.subscriptions[ENDPOINT].names for client in clients)
    assert len(one) == 100 and one is two
    assert len(module._names) == before + 1


def test_a_proxy_may_wait_for_more_addresses_than_are_kept_for_its_group(snapshots):
    client = Client(snapshots, DELTA)
    called = [str(ip_address("10.96.0.0") + number) for number in range(MOST + 1)]
    client.ask(CLUSTER, *(name for address in called[:-1] for name in held(address)))
    client.ask(CLUSTER, *held(called[-1]))
    waited = {address for name in client.stream.subscriptions[CLUSTER].names if (address := called_at(name))}
    assert waited == set(called)


def test_an_application_that_calls_every_address_neither_ends_its_stream_nor_fills_memory(snapshots, monkeypatch):
    monkeypatch.setattr(module, "HELD", 3)
    monkeypatch.setattr(module, "NAMES", 5)
    snapshots.replace("shop", {CLUSTER: blobs("a")})
    client = Client(snapshots, DELTA)
    client.ask(CLUSTER)
    client.settle()
    tried = [f"hold|15001|10.96.0.{number}" for number in range(20)]
    for name in tried:
        client.ask(CLUSTER, name)
    subscription = client.stream.subscriptions[CLUSTER]
    assert subscription.names == frozenset(tried[:3])
    snapshots.update("shop", {CLUSTER: blobs("b", tried[0], tried[9])})
    client.settle()
    assert set(client.have[CLUSTER]) == {"a", "b", tried[0]}
    client.forget(CLUSTER, tried[1])
    client.ask(CLUSTER, tried[9])
    client.settle()
    assert tried[9] in client.have[CLUSTER]
