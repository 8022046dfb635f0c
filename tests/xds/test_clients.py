from __future__ import annotations

import pytest
from conversation import SOTW, Client, blobs

from weft.xds.clients import Sync, type_status
from weft.xds.snapshot import Snapshots
from weft.xds.types import ENDPOINT


def status(client: Client):
    return type_status(client.stream.subscriptions[ENDPOINT], settled=client.stream.is_settled(ENDPOINT))


@pytest.fixture
def client() -> Client:
    client = Client(Snapshots())
    client.ask(ENDPOINT, "a", "b")
    return client


def test_nothing_is_sent_while_the_group_has_no_state(client):
    client.settle()
    assert status(client).sync is Sync.NOT_SENT
    assert (status(client).names, status(client).wildcard) == (2, False)


def test_a_sent_type_is_stale_until_it_is_acknowledged(client):
    client.snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    (response,) = client.turn()
    assert (status(client).sync, status(client).sent, status(client).settled) == (Sync.STALE, "1", 0)
    client.now += 5
    client.ack(response)
    client.turn()
    assert (status(client).sync, status(client).settled) == (Sync.SYNCED, 1)
    assert status(client).settled_at - status(client).sent_at == 5


def test_a_client_that_had_everything_already_is_synced_though_nothing_was_sent(client):
    client.snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client.settle()
    client.reconnect()
    client.settle()
    assert (status(client).sync, status(client).sent) == (Sync.SYNCED, "")


def test_a_client_that_subscribes_to_missing_names_is_not_synced_before_a_response():
    client = Client(Snapshots(), dialect=SOTW)
    client.ask(ENDPOINT, "c")
    client.snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client.settle()
    assert (status(client).sync, status(client).sent) == (Sync.NOT_SENT, "")
    client.snapshots.update("shop", {ENDPOINT: blobs("c")})
    client.settle()
    assert status(client).sync is Sync.SYNCED


def test_the_last_nack_is_shown(client):
    client.bad = {("a", "1")}
    client.snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client.settle()
    assert status(client).error == "no"


def test_a_client_is_behind_since_the_first_change_that_it_has_not_acknowledged(client):
    snapshots = client.snapshots
    snapshots.replace("shop", {ENDPOINT: blobs("a", "b")})
    client.settle()
    assert status(client).behind == 0
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    (response,) = client.turn()
    for version in "345":  # the same name again and again: the table forgets when it changed first
        snapshots.update("shop", {ENDPOINT: blobs("a", version=version)})
        client.turn()
    assert (status(client).settled, status(client).behind, snapshots.push) == (1, 2, 5)
    client.ack(response)
    (response,) = client.turn()
    assert (status(client).settled, status(client).behind) == (2, 5)
    client.ack(response)
    client.settle()
    assert (status(client).sync, status(client).behind) == (Sync.SYNCED, 0)


def test_a_client_is_not_behind_for_names_it_has_not_subscribed_to(client):
    client.snapshots.replace("shop", {ENDPOINT: blobs("a", "b", "c")})
    client.settle()
    client.snapshots.update("shop", {ENDPOINT: blobs("c", version="2")})
    client.snapshots.update("shop", {ENDPOINT: blobs("b", version="2")})
    client.turn()
    assert (status(client).sync, status(client).behind) == (Sync.STALE, 3)
