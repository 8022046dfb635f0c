"""Conversations with a model client: responses, their order, and properties that hold for every sequence."""

from __future__ import annotations

import pytest
from conversation import DELTA, SOTW, Client, blob, blobs, both, contents, envoy, small_shop, told
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.xds.request import StreamRefused
from weft.xds.response import Responses
from weft.xds.snapshot import Snapshots
from weft.xds.stream import HOLD_SECONDS, TYPES, Acked
from weft.xds.table import TOMBSTONE_LIMIT, Behind
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, WHOLE_SET, WILDCARD, is_held


@pytest.fixture
def snapshots() -> Snapshots:
    return small_shop()


# Responses


@both
def test_one_response_of_a_type_is_out_at_a_time_and_changes_meanwhile_become_one(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    (first,) = client.turn()
    for version in "3456":
        snapshots.update("shop", {ENDPOINT: blobs("a", version=version)})
        assert client.turn() == []
    client.ack(first)
    assert client.settle() == ["EDS +a"]
    assert client.have[ENDPOINT] == {"a": "6"}


@both
def test_an_ack_is_reported_with_its_push_number(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    client.settle()
    assert client.outcomes[-1] == Acked(ENDPOINT, str(snapshots.push))


@both
def test_a_stale_nonce_is_no_acknowledgement(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    (response,) = client.turn()
    assert client.send(ENDPOINT, names=["a"], nonce="no such push") is None
    assert client.send(ENDPOINT, names=["a"], nonce="no such push", error="never sent") is None
    assert not client.stream.synced()
    client.ack(response)
    client.settle()
    assert client.stream.synced()


def test_names_in_a_stale_state_of_the_world_request_are_not_read(snapshots):
    client = envoy(snapshots, SOTW)
    client.send(ENDPOINT, names=[], nonce="no such push")
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    assert client.settle() == ["EDS +a"]


def test_names_with_a_stale_delta_nonce_are_read_because_they_are_sent_once(snapshots):
    snapshots.update("shop", {ENDPOINT: blobs("b")})
    client = envoy(snapshots, DELTA)
    client.asked[ENDPOINT].add("b")
    client.send(ENDPOINT, subscribe=["b"], nonce="no such push")
    assert client.settle() == ["EDS +b"]


@both
def test_every_response_of_a_stream_has_its_own_nonce(snapshots, dialect):
    snapshots.update("shop", {ENDPOINT: blobs("b", "c")})
    client = Client(snapshots, dialect)
    nonces = []
    for name in "abc":
        client.ask(ENDPOINT, name)
        (response,) = client.turn()
        nonces.append(response.nonce)
        client.ack(response)
    assert nonces == ["2", "2.1", "2.2"]


@both
def test_streams_with_the_same_changes_share_the_same_bytes(snapshots, dialect):
    responses = Responses()
    clients = [envoy(snapshots, dialect, responses=responses) for _ in range(3)]
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    payloads = {id(response.payload) for client in clients for response in client.turn()}
    assert len(payloads) == 1


def test_groups_do_not_share(snapshots):
    snapshots.replace("bank", {CLUSTER: blobs("a", version="9")})
    responses = Responses()
    shop, bank = (Client(snapshots, group=group, responses=responses) for group in ("shop", "bank"))
    for client in (shop, bank):
        client.ask(CLUSTER)
        client.settle()
    assert (shop.have[CLUSTER], bank.have[CLUSTER]) == ({"a": "1"}, {"a": "9"})


def test_the_types_of_one_stream_are_bounded(snapshots):
    client = Client(snapshots)
    for number in range(TYPES):
        client.ask(f"example.com/{number}", "x")
    with pytest.raises(StreamRefused, match="types"):
        client.ask("example.com/more", "x")


def test_a_stream_whose_group_is_dropped_must_restart(snapshots):
    client = envoy(snapshots)
    snapshots.drop("shop")
    with pytest.raises(Behind):
        client.turn()


def test_a_client_that_never_acknowledges_must_reconnect_when_changes_are_dropped(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("b")})
    assert [told(response) for response in client.turn()] == ["CDS +b"]
    with pytest.raises(Behind):
        for start in range(0, 4 * TOMBSTONE_LIMIT, 1000):
            names = [f"c{number}" for number in range(start, start + 1000)]
            snapshots.update("shop", {CLUSTER: blobs(*names)})
            snapshots.update("shop", {CLUSTER: dict.fromkeys(names)})
            client.turn()


# Make before break


@both
def test_a_route_waits_until_its_new_cluster_has_its_endpoints(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.replace(
        "shop", {CLUSTER: blobs("b"), ENDPOINT: blobs("b"), LISTENER: blobs("l"), ROUTE: blobs("r", version="2")}
    )
    (clusters,) = client.turn()
    assert "+b" in told(clusters)
    client.ack(clusters)
    assert client.turn() == []  # the client has the new cluster, but not its endpoints
    client.ask(ENDPOINT, "b")
    (endpoints,) = client.turn()
    assert told(endpoints) == "EDS +b"
    client.ack(endpoints)
    (routes,) = client.turn()
    assert told(routes) == "RDS +r"
    assert "a" in client.have[CLUSTER]  # still used by the old route
    client.ack(routes)
    client.settle()
    assert client.have[CLUSTER] == {"b": "1"}


@both
def test_a_client_that_does_not_warm_a_cluster_still_gets_its_routes(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {CLUSTER: blobs("b"), ENDPOINT: blobs("b"), ROUTE: blobs("r", version="2")})
    client.settle()
    assert client.have[ROUTE] == {"r": "1"}
    client.now = client.stream.wake_at - 0.001
    assert client.settle() == []
    client.now += 0.001
    (routes,) = client.turn()
    assert told(routes) == "RDS +r"
    assert client.stream.wake_at is None


def test_nothing_waits_for_held_clusters_that_were_unsubscribed(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("b"), ENDPOINT: blobs("b"), ROUTE: blobs("r", version="2")})
    client.settle()
    assert client.stream.wake_at is not None
    client.forget(ROUTE, "r")
    client.settle()
    assert client.stream.wake_at is None


def test_clusters_that_keep_changing_do_not_block_routes(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {ROUTE: blobs("r", version="2"), CLUSTER: blobs("c0")})
    started = client.now
    for number in range(1, 100):
        responses = client.turn()
        if client.now >= started + HOLD_SECONDS:
            break
        snapshots.update("shop", {CLUSTER: blobs(f"c{number}")})
        assert [told(response)[:3] for response in responses] == ["CDS"]
        client.ack(responses[0])
        client.now += 0.1
    assert "RDS +r" in [told(response) for response in responses]


def test_a_cluster_removed_before_it_was_warm_delays_nothing(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("b"), ENDPOINT: blobs("b")})
    client.settle()
    snapshots.update("shop", {CLUSTER: {"b": None}})
    assert client.settle() == ["CDS -b"]
    snapshots.update("shop", {ROUTE: blobs("r", version="2")})
    assert client.settle() == ["RDS +r"]


@both
def test_endpoints_are_never_delayed(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {CLUSTER: blobs("b"), LISTENER: blobs("l", version="2")})
    assert [told(response)[:3] for response in client.turn()] == ["CDS"]
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    assert [told(response) for response in client.turn()] == ["EDS +a"]


def test_endpoints_of_a_changed_cluster_are_sent_again_because_it_warms_again(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    assert client.settle() == ["CDS +a", "EDS +a"]


def test_endpoints_requested_after_their_cluster_are_sent_though_the_client_has_them(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    client.stream.close()
    client.connect()
    client.send(CLUSTER, versions={"a": "1"})
    client.turn()
    client.send(ENDPOINT, subscribe=["a"], versions={"a": "1"})
    assert [told(response) for response in client.turn()] == ["EDS +a"]


def test_a_changed_cluster_without_endpoints_gets_an_empty_endpoint_response_again(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("static", "empty")})
    client = envoy(snapshots)
    client.forget(ENDPOINT, "static")
    snapshots.update("shop", {CLUSTER: blobs("static", "empty", version="2")})
    assert client.settle() == ["CDS +empty +static", "EDS -empty"]


@both
def test_a_listener_waits_while_routes_that_it_may_share_cannot_be_sent(snapshots, dialect):
    """Otherwise the listener would use the old routes, which do not know its hosts."""
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {ROUTE: blobs("r", version="2")})
    (routes,) = client.turn()
    snapshots.update("shop", {LISTENER: blobs("m"), ROUTE: blobs("r", version="3")})
    assert client.turn() == []
    client.ack(routes)
    routes, listeners = client.turn()
    assert (told(routes), told(listeners)) == ("RDS +r", "LDS +m" if dialect is DELTA else "LDS +l +m")


def test_a_listener_does_not_wait_for_ever(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {ROUTE: blobs("r", version="2")})
    client.turn()
    snapshots.update("shop", {LISTENER: blobs("m"), ROUTE: blobs("r", version="3")})
    assert client.turn() == []
    client.now = client.stream.wake_at
    assert [told(each) for each in client.turn()] == ["LDS +m"]


def test_routes_are_removed_after_the_listeners_that_use_them(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {LISTENER: {"l": None}, ROUTE: {"r": None}})
    (listeners,) = client.turn()
    assert told(listeners) == "LDS -l"
    client.ack(listeners)
    assert [told(each) for each in client.turn()] == ["RDS -r"]


@both
def test_a_cluster_is_removed_only_after_listeners_and_routes_are_acknowledged(snapshots, dialect):
    snapshots.update("shop", {CLUSTER: blobs("keep")})
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {CLUSTER: {"a": None}, LISTENER: blobs("l", version="2"), ROUTE: blobs("r", version="2")})
    routes, listeners = client.turn()
    assert (told(routes), told(listeners)) == ("RDS +r", "LDS +l")
    client.ack(listeners)
    assert client.turn() == []
    client.ack(routes)
    assert client.settle() == ["CDS -a" if dialect is DELTA else "CDS +keep"]
    assert set(client.have[CLUSTER]) == {"keep"}


def test_endpoints_are_removed_after_their_cluster(snapshots):
    client = envoy(snapshots)
    snapshots.replace("shop", {LISTENER: blobs("l"), ROUTE: blobs("r")})
    assert client.settle() == ["CDS -a", "EDS -a"]


def test_a_new_listener_may_reuse_the_address_of_a_removed_one(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {LISTENER: {"l": None, "m": blob("m")}})
    assert client.settle() == ["LDS +m -l"]


def test_a_missing_endpoint_name_gets_a_response_while_a_cluster_waits_for_it(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("b")})
    client.turn()  # Envoy does not acknowledge while a cluster is warming
    client.ask(ENDPOINT, "b")
    assert [told(response) for response in client.turn()] == ["EDS -b"]


def test_order_is_not_imposed_on_clients_that_name_their_clusters(snapshots):
    client = Client(snapshots, SOTW)
    client.ask(LISTENER, "l")
    client.ask(CLUSTER, "a")
    assert sorted(told(response) for response in client.turn()) == ["CDS +a", "LDS +l"]


# Whatever happens, in whatever order, a client that acknowledges ends with what the snapshot has.

NAMES = st.sampled_from("abcd")
TYPES_USED = (CLUSTER, ENDPOINT, LISTENER, ROUTE)
steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(TYPES_USED), NAMES, st.sampled_from("123")),
    st.tuples(st.just("remove"), st.sampled_from(TYPES_USED), NAMES),
    st.tuples(st.just("replace"), st.dictionaries(NAMES, st.sampled_from("123"), max_size=4)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("reconnect")),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 3.0])),
    st.tuples(st.just("ask"), st.sampled_from((ENDPOINT, ROUTE)), NAMES),
    st.tuples(st.just("forget"), st.sampled_from((ENDPOINT, ROUTE)), NAMES),
    st.tuples(st.just("call"), st.sampled_from("123")),
    st.tuples(st.just("hang up"), st.sampled_from("123")),
)
# Without a minimum size, lists have five steps on average: few of these hold a call and close it.
histories = st.lists(steps, max_size=40) | st.lists(steps, min_size=20, max_size=60)


@both
@settings(max_examples=300, deadline=None)
@given(histories)
def test_a_client_that_acknowledges_ends_with_exactly_the_snapshot(dialect, history):
    snapshots = Snapshots()
    snapshots.replace("shop", {CLUSTER: blobs("a")})
    client = Client(snapshots, dialect)
    witness = Client(snapshots, dialect)  # accepts everything, so nothing is quarantined
    for each in (client, witness):
        each.ask(CLUSTER)
        each.ask(LISTENER)
        each.ask(ENDPOINT, *"abcd")
        each.ask(ROUTE, *"abcd")
    out = []
    for step in history:
        match step:
            case ("put", type_url, name, version):
                snapshots.update("shop", {type_url: {name: blob(name, version)}})
            case ("remove", type_url, name):
                snapshots.update("shop", {type_url: {name: None}})
            case ("replace", versions):
                state = {name: blob(name, version) for name, version in versions.items()}
                snapshots.replace("shop", dict.fromkeys(TYPES_USED, state))
            case ("turn",):
                out += client.turn()
            case ("answer", True) if out:
                client.ack(out.pop(0))
            case ("answer", False) if out:
                witness.now += 10
                witness.settle()
                refused = out.pop(0)
                # Reject only one of several new resources: the others must still be accepted, and so must this one when
                # it is sent again. A state-of-the-world response also contains resources that were accepted before.
                flight = client.stream.subscriptions[refused.type_url].flight
                if flight is not None and len(flight.upserts) > 1:
                    client.nack(refused)
                else:
                    client.ack(refused)
            case ("reconnect",):
                client.reconnect()
                out = []
            case ("pass", seconds):
                client.now += seconds
            case ("ask", type_url, name):
                client.ask(type_url, name)
            case ("forget", type_url, name) if name in client.asked[type_url]:
                client.forget(type_url, name)
            case ("call", number) if dialect is DELTA:
                client.ask(CLUSTER, f"{HELD}{number}")
                snapshots.update("shop", {CLUSTER: blobs(f"{HELD}{number}")})
            case ("hang up", number) if f"{HELD}{number}" in client.asked[CLUSTER]:
                client.forget(CLUSTER, f"{HELD}{number}")
    for response in out:
        client.ack(response)
    client.settle()
    while (due := client.stream.wake_at) is not None:  # a delayed step: only time wakes the stream then
        assert due > client.now, "it is turned without a pause"
        client.now = due
        client.settle()
    for type_url in TYPES_USED:
        live = {name: resource.version for name, resource in snapshots.resources("shop", type_url).items()}
        asked = client.asked[type_url]
        every = {name for name in live if WILDCARD in asked and not is_held(type_url, name)}
        wanted = {name: version for name, version in live.items() if name in asked | every}
        have = client.have.get(type_url, {})
        if dialect is SOTW and type_url not in WHOLE_SET:  # state of the world cannot report removals of these types
            have = {name: version for name, version in have.items() if name in wanted}
        # A held cluster may have been removed, which is never reported (`is_held`).
        have = {name: version for name, version in have.items() if name in wanted or not is_held(type_url, name)}
        assert have == wanted
    assert not any(f"-{HELD}" in said for said in client.seen)
    assert client.stream.synced()
    assert client.turn() == []


bad_steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(TYPES_USED), NAMES, st.sampled_from(["1", "2", "bad"])),
    st.tuples(st.just("remove"), st.sampled_from(TYPES_USED), NAMES),
    st.tuples(st.just("settle"), st.integers(0, 2)),
    st.tuples(st.just("reconnect"), st.integers(0, 2)),
)


@both
@settings(max_examples=300, deadline=None)
@given(st.lists(bad_steps, max_size=40))
def test_good_resources_reach_every_client_whichever_others_are_bad(dialect, history):
    snapshots = Snapshots()
    snapshots.replace("shop", {})
    clients = [Client(snapshots, dialect) for _ in range(3)]
    for client in clients:
        client.bad = {(name, "bad") for name in "abcd"}
        client.ask(CLUSTER)
        client.ask(LISTENER)
        client.ask(ENDPOINT, *"abcd")
        client.ask(ROUTE, *"abcd")
    wanted: dict[tuple[str, str], str] = {}
    for step in history:
        match step:
            case ("put", type_url, name, version):
                snapshots.update("shop", {type_url: {name: blob(name, version)}})
                wanted[type_url, name] = version
            case ("remove", type_url, name):
                snapshots.update("shop", {type_url: {name: None}})
                wanted.pop((type_url, name), None)
            case ("settle", number):
                clients[number].now += 3
                clients[number].settle()
            case ("reconnect", number):
                clients[number].reconnect()
    for _ in range(3):
        for client in clients:
            client.now += 3
            client.settle()
    good = {key: version for key, version in wanted.items() if version != "bad"}
    assert snapshots.rejected("shop").keys() == wanted.keys() - good.keys()
    for client in clients:
        have = {(type_url, name): version for type_url, of in client.have.items() for name, version in of.items()}
        assert "bad" not in have.values()
        assert good.items() <= have.items()
        if dialect is DELTA:
            assert have.keys() <= wanted.keys()


HELD = "hold|15001|10.96.0.1"


def test_a_held_cluster_is_never_reported_as_missing(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    assert client.settle() == []
    assert client.stream.synced()
    client.forget(CLUSTER, HELD)
    assert client.settle() == []


def test_a_held_cluster_is_sent_when_everything_else_is_acknowledged(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    client.settle()
    snapshots.update(
        "shop",
        {CLUSTER: blobs("b", HELD), ENDPOINT: blobs("b"), LISTENER: blobs("m"), ROUTE: blobs("r", version="2")},
    )
    (clusters,) = client.turn()
    client.ack(clusters)
    client.ask(ENDPOINT, "b")
    assert client.settle() == ["EDS +b", "RDS +r", "LDS +m", f"CDS +{HELD}"]


def test_a_held_cluster_waits_for_the_routes_that_a_new_listener_will_request(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs(HELD), LISTENER: blobs("m"), ROUTE: blobs("s")})
    assert client.settle() == ["LDS +m"]
    client.ask(ROUTE, "s")
    assert client.settle() == ["RDS +s", f"CDS +{HELD}"]


def test_a_held_call_does_not_wait_for_ever(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs(HELD), ROUTE: blobs("of nobody")})
    assert client.settle() == []
    assert client.stream.wake_at == client.now + HOLD_SECONDS
    client.now += HOLD_SECONDS
    assert client.settle() == [f"CDS +{HELD}"]
    assert client.stream.wake_at is None


def test_routes_that_no_listener_requests_delay_held_calls_once(snapshots):
    """Routes of a headless service at one of the proxy's own ports have no listener: only one held call waits for
    them."""
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD, f"{HELD}1")
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs(HELD), ROUTE: blobs("of nobody")})
    client.settle()
    client.now += HOLD_SECONDS
    assert client.settle() == [f"CDS +{HELD}"]
    snapshots.update("shop", {CLUSTER: blobs(f"{HELD}1")})
    assert client.settle() == [f"CDS +{HELD}1"]
    # A changed route may be for a new listener.
    client.ask(CLUSTER, f"{HELD}2")
    snapshots.update("shop", {CLUSTER: blobs(f"{HELD}2"), ROUTE: blobs("of nobody", version="2")})
    assert client.settle() == []


def call(snapshots, client, number):
    """Hold a call: the client requests its cluster, and the snapshot gets the resources that the call needs."""
    name, host = f"hold|15001|10.96.1.{number}", f"s{number}"
    client.ask(CLUSTER, name)
    snapshots.update("shop", {
        CLUSTER: blobs(name, host), ENDPOINT: blobs(host), LISTENER: blobs(host), ROUTE: blobs("r", version=host),
    })  # fmt: skip
    return name


def test_held_calls_continue_though_new_calls_arrive_all_the_time(snapshots):
    """The resources of a new call must be acknowledged before that call continues, but no other call waits for them."""
    client = envoy(snapshots)
    began = {call(snapshots, client, 0): 0}
    out, took = [], []
    for at in range(1, 200):
        out += client.turn()
        response = out.pop(0)
        took += [at - began[name] for name in began.keys() & contents(DELTA, response).keys()]
        client.ack(response)
        if response.type_url == CLUSTER:
            new = contents(DELTA, response).keys() - began.keys()
            client.ask(ENDPOINT, *new) if new else None
        began[call(snapshots, client, at)] = at
    assert len(took) > 150 and max(took) <= 10, took


def test_held_calls_do_not_wait_for_endpoint_changes(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), LISTENER: blobs("m"), ENDPOINT: blobs("a", version="0")})
    out = client.turn()
    for version in map(str, range(1, 10)):
        snapshots.update("shop", {ENDPOINT: blobs("a", version=version)})
        for response in out:
            client.ack(response)
        out = client.turn()
        assert "EDS +a" in [told(each) for each in out]
    assert HELD in client.have[CLUSTER]


def test_held_calls_wait_for_a_slow_client_however_slow(snapshots):
    """Without its listener the call would leave the pod unprotected. If it takes too long, the application closes
    it."""
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD, "b"), ENDPOINT: blobs("b"), LISTENER: blobs("m"), ROUTE: blobs("s")})
    (clusters,) = client.turn()
    client.ack(clusters)
    for _ in range(3):
        client.now += HOLD_SECONDS
        client.turn()
    assert client.seen == ["CDS +b", "LDS +m"]
    client.ask(ENDPOINT, "b")
    client.settle()
    client.now += HOLD_SECONDS
    assert client.turn() == [], "it has not answered for its listener"
    client.send(LISTENER, nonce=client.stream.subscriptions[LISTENER].nonce)
    assert client.turn() == [], "and is about to ask for routes"
    client.now += HOLD_SECONDS / 2
    client.ask(ROUTE, "s")
    assert client.settle() == ["RDS +s", f"CDS +{HELD}"]


def test_changes_while_a_call_is_held_are_sent_after_it_and_in_order(snapshots):
    """A route to a new cluster is not sent before that cluster, though an older version of the route is due."""
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD, "b"), ROUTE: blobs("r", version="2"), LISTENER: blobs("m")})
    (clusters,) = client.turn()
    snapshots.update("shop", {CLUSTER: blobs("c"), ROUTE: blobs("r", version="3"), LISTENER: {"l": None}})
    client.ack(clusters)
    (routes, listeners) = client.turn()
    assert contents(DELTA, routes) == {"r": "2"} and told(listeners) == "LDS +m"
    client.ack(routes)
    client.ack(listeners)
    assert client.settle() == [f"CDS +{HELD}", "CDS +c", "RDS +r", "LDS -l"]
    assert client.have[ROUTE] == {"r": "3"}


def test_a_call_held_later_is_not_released_in_the_round_of_earlier_ones(snapshots):
    """The cluster exists because another proxy of the group has called it, but the resources of this call were not sent
    yet."""
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), LISTENER: blobs("m")})
    (listeners,) = client.turn()
    snapshots.update("shop", {CLUSTER: blobs(f"{HELD}1"), LISTENER: blobs("n")})
    client.ask(CLUSTER, f"{HELD}1")
    client.ack(listeners)
    assert client.settle() == [f"CDS +{HELD}", "LDS +n", f"CDS +{HELD}1"]


def test_routes_of_others_are_not_waited_for(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), LISTENER: blobs("m")})
    (listeners,) = client.turn()
    snapshots.update("shop", {ROUTE: blobs("of one who comes later")})
    client.ack(listeners)
    assert client.settle() == [f"CDS +{HELD}"]


def test_a_slow_client_gets_changes_while_a_call_is_held(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), ROUTE: blobs("r", version="2")})
    (routes,) = client.turn()
    snapshots.update("shop", {LISTENER: blobs("l", version="2")})
    assert client.turn() == []
    assert client.stream.wake_at == client.now + HOLD_SECONDS
    client.now += HOLD_SECONDS
    assert [told(each) for each in client.turn()] == ["LDS +l"]
    client.ack(routes)
    assert client.settle() == []


@pytest.mark.parametrize("type_url", [CLUSTER, LISTENER, ROUTE])
def test_held_calls_continue_when_the_rejected_resource_was_found(snapshots, type_url):
    client = envoy(snapshots)
    client.bad = {("bad", "1")}
    client.ask(CLUSTER, HELD)
    client.ask(ROUTE, "bad", "n")
    client.settle()
    good = {CLUSTER: blobs(HELD, "n"), LISTENER: blobs("m", "n"), ROUTE: blobs("n")}
    snapshots.update("shop", {**good, type_url: {**good[type_url], **blobs("bad")}})
    client.settle()
    assert client.seen[-1] == f"CDS +{HELD}" and not client.stream.wake_at
    assert {(each, name) for each, names in client.have.items() for name in names} >= {
        *((CLUSTER, name) for name in ("a", "n")), (LISTENER, "m"), (LISTENER, "n"), (ROUTE, "n"),
    }  # fmt: skip
    assert snapshots.rejected("shop").keys() == {(type_url, "bad")}


def test_removed_endpoints_and_held_calls_do_not_wait_for_each_other(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), ENDPOINT: {"a": None}})
    assert client.settle() == ["EDS -a", f"CDS +{HELD}"]


def test_a_held_cluster_is_sent_only_to_clients_that_requested_it(snapshots):
    asking, other = envoy(snapshots), envoy(snapshots)
    asking.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD)})
    assert asking.settle() == [f"CDS +{HELD}"]
    assert other.settle() == []
    assert envoy(snapshots).have[CLUSTER].keys() == {"a"}


def test_a_reconnecting_client_keeps_the_clusters_of_its_held_calls(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD)})
    client.settle()
    client.reconnect()
    assert client.settle() == ["CDS", "LDS"]
    forgetful = small_shop()
    client.snapshots = forgetful
    client.reconnect()
    assert client.settle() == ["CDS", "LDS"], "what is not known yet is not gone"
    assert HELD in client.have[CLUSTER]


def test_a_held_cluster_that_is_unsubscribed_is_not_owed(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD)})
    client.settle()
    client.forget(CLUSTER, HELD)
    assert client.settle() == []
    assert client.stream.synced()


def test_held_clusters_of_a_rejected_response_are_not_owed_after_unsubscribing(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD, f"{HELD}1")
    snapshots.update("shop", {CLUSTER: blobs(HELD, f"{HELD}1")})
    (answer,) = client.turn()
    client.forget(CLUSTER, HELD, f"{HELD}1")
    client.nack(answer)
    assert client.settle() == []
    assert client.stream.synced()


def test_no_turn_is_due_for_a_call_that_no_longer_waits(snapshots):
    """A removal is still owed, because the client does not acknowledge a listener."""
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), ROUTE: blobs("of nobody")})
    assert client.turn() == [] and client.stream.wake_at is not None
    client.forget(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: {HELD: None, "a": None}, LISTENER: blobs("l", version="2")})
    (_listeners,) = client.turn()
    assert client.stream.subscriptions[CLUSTER].owed.keys() == {"a"}
    assert client.stream.wake_at is None


def test_a_route_removed_and_added_while_a_call_is_held_does_not_delay_listeners(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD, "b"), ROUTE: {"r": None}, LISTENER: blobs("m")})
    (clusters,) = client.turn()
    snapshots.update("shop", {ROUTE: blobs("r", version="2")})
    client.ack(clusters)
    assert client.settle() == ["LDS +m", "RDS -r", f"CDS +{HELD}", "RDS +r"]


def test_no_call_is_held_for_a_state_of_the_world_client(snapshots):
    """Envoy's on-demand discovery uses delta only. A client gets no held clusters that it has not requested."""
    client = Client(snapshots, SOTW)
    client.ask(CLUSTER, WILDCARD, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD, f"{HELD}1")})
    assert client.settle() == ["CDS +a"]
    assert client.stream.synced(frozenset({CLUSTER}))
    assert client.stream.subscriptions[CLUSTER].names == frozenset()
