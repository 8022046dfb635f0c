"""Conversations: answers, order, and what is the same for every sequence of them."""

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


# Answers


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
def test_an_answer_is_reported_with_the_push_it_answers(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    client.settle()
    assert client.outcomes[-1] == Acked(ENDPOINT, str(snapshots.push))


@both
def test_a_stale_nonce_is_no_answer(snapshots, dialect):
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


def test_names_beside_a_stale_delta_nonce_are_read_for_they_are_said_once(snapshots):
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
def test_streams_with_the_same_news_share_the_same_bytes(snapshots, dialect):
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


def test_a_stream_whose_group_is_dropped_must_start_anew(snapshots):
    client = envoy(snapshots)
    snapshots.drop("shop")
    with pytest.raises(Behind):
        client.turn()


def test_a_client_that_never_answers_must_start_anew_when_the_past_is_forgotten(snapshots):
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
    assert client.turn() == []  # the new cluster is known, but not its endpoints
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
def test_a_client_that_does_not_warm_a_cluster_gets_its_routes_all_the_same(snapshots, dialect):
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


def test_nothing_is_waited_for_when_what_was_held_is_no_longer_wanted(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("b"), ENDPOINT: blobs("b"), ROUTE: blobs("r", version="2")})
    client.settle()
    assert client.stream.wake_at is not None
    client.forget(ROUTE, "r")
    client.settle()
    assert client.stream.wake_at is None


def test_clusters_that_keep_changing_do_not_keep_routes_away(snapshots):
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


def test_a_cluster_that_goes_before_it_was_warm_holds_nothing(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("b"), ENDPOINT: blobs("b")})
    client.settle()
    snapshots.update("shop", {CLUSTER: {"b": None}})
    assert client.settle() == ["CDS -b"]
    snapshots.update("shop", {ROUTE: blobs("r", version="2")})
    assert client.settle() == ["RDS +r"]


@both
def test_endpoints_are_never_held(snapshots, dialect):
    client = envoy(snapshots, dialect)
    snapshots.update("shop", {CLUSTER: blobs("b"), LISTENER: blobs("l", version="2")})
    assert [told(response)[:3] for response in client.turn()] == ["CDS"]
    snapshots.update("shop", {ENDPOINT: blobs("a", version="2")})
    assert [told(response) for response in client.turn()] == ["EDS +a"]


def test_endpoints_of_a_changed_cluster_are_sent_again_for_it_warms_anew(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    assert client.settle() == ["CDS +a", "EDS +a"]


def test_endpoints_of_a_cluster_that_was_sent_before_they_were_asked_for_are_sent_though_the_client_has_them(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    client.stream.close()
    client.connect()
    client.send(CLUSTER, versions={"a": "1"})
    client.turn()
    client.send(ENDPOINT, subscribe=["a"], versions={"a": "1"})
    assert [told(response) for response in client.turn()] == ["EDS +a"]


def test_a_changed_cluster_without_endpoints_is_told_so_again(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("static", "empty")})
    client = envoy(snapshots)
    client.forget(ENDPOINT, "static")
    snapshots.update("shop", {CLUSTER: blobs("static", "empty", version="2")})
    assert client.settle() == ["CDS +empty +static", "EDS -empty"]


@both
def test_a_listener_waits_while_routes_that_it_may_share_cannot_be_sent(snapshots, dialect):
    """It would take calls with the routes that there are, and know nobody to whom they are."""
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


def test_routes_go_after_the_listeners_that_look_into_them(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {LISTENER: {"l": None}, ROUTE: {"r": None}})
    (listeners,) = client.turn()
    assert told(listeners) == "LDS -l"
    client.ack(listeners)
    assert [told(each) for each in client.turn()] == ["RDS -r"]


@both
def test_a_removed_cluster_goes_only_after_listeners_and_routes_were_answered(snapshots, dialect):
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


def test_endpoints_go_after_their_cluster(snapshots):
    client = envoy(snapshots)
    snapshots.replace("shop", {LISTENER: blobs("l"), ROUTE: blobs("r")})
    assert client.settle() == ["CDS -a", "EDS -a"]


def test_a_listener_may_take_over_the_address_of_one_that_goes(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {LISTENER: {"l": None, "m": blob("m")}})
    assert client.settle() == ["LDS +m -l"]


def test_an_unknown_endpoint_name_is_answered_while_a_cluster_waits_for_it(snapshots):
    client = envoy(snapshots)
    snapshots.update("shop", {CLUSTER: blobs("b")})
    client.turn()  # a warming cluster keeps Envoy from answering
    client.ask(ENDPOINT, "b")
    assert [told(response) for response in client.turn()] == ["EDS -b"]


def test_order_is_not_imposed_on_clients_that_name_their_clusters(snapshots):
    client = Client(snapshots, SOTW)
    client.ask(LISTENER, "l")
    client.ask(CLUSTER, "a")
    assert sorted(told(response) for response in client.turn()) == ["CDS +a", "LDS +l"]


# Whatever happens, in whatever order, a client that answers ends with what the snapshot has.

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
# Lists are short by themselves, five on average: few of them call somebody and hang up.
histories = st.lists(steps, max_size=40) | st.lists(steps, min_size=20, max_size=60)


@both
@settings(max_examples=300, deadline=None)
@given(histories)
def test_a_client_that_answers_ends_with_exactly_the_snapshot(dialect, history):
    snapshots = Snapshots()
    snapshots.replace("shop", {CLUSTER: blobs("a")})
    client = Client(snapshots, dialect)
    witness = Client(snapshots, dialect)  # accepts everything: what it has taken is never quarantined
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
                # Only what is one of several that are new: the others must still get through, and so must this one when
                # asked again. A whole set also carries what was taken before, and is no doubt about that.
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
    while (due := client.stream.wake_at) is not None:  # whoever waits for somebody: nothing else turns the stream then
        assert due > client.now, "it is turned without a pause"
        client.now = due
        client.settle()
    for type_url in TYPES_USED:
        live = {name: resource.version for name, resource in snapshots.resources("shop", type_url).items()}
        asked = client.asked[type_url]
        every = {name for name in live if WILDCARD in asked and not is_held(type_url, name)}
        wanted = {name: version for name, version in live.items() if name in asked | every}
        have = client.have.get(type_url, {})
        if dialect is SOTW and type_url not in WHOLE_SET:  # which cannot say that something is gone
            have = {name: version for name, version in have.items() if name in wanted}
        # What calls wait for may be gone, and is never said to be (`is_held`).
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
def test_whatever_is_bad_among_it_the_good_gets_through_to_everybody(dialect, history):
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


def test_a_held_name_is_never_said_to_be_missing(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    assert client.settle() == []
    assert client.stream.synced()
    client.forget(CLUSTER, HELD)
    assert client.settle() == []


def test_a_held_name_is_answered_when_all_else_was_taken(snapshots):
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


def test_a_held_name_waits_for_the_routes_that_a_new_listener_is_about_to_ask_for(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs(HELD), LISTENER: blobs("m"), ROUTE: blobs("s")})
    assert client.settle() == ["LDS +m"]
    client.ask(ROUTE, "s")
    assert client.settle() == ["RDS +s", f"CDS +{HELD}"]


def test_a_held_name_does_not_wait_for_ever(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs(HELD), ROUTE: blobs("of nobody")})
    assert client.settle() == []
    assert client.stream.wake_at == client.now + HOLD_SECONDS
    client.now += HOLD_SECONDS
    assert client.settle() == [f"CDS +{HELD}"]
    assert client.stream.wake_at is None


def test_what_no_listener_asks_for_is_waited_for_once(snapshots):
    """Routes of a headless service at a port of the proxy's own have no listener: not every first call is to wait."""
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD, f"{HELD}1")
    client.settle()
    snapshots.update("shop", {CLUSTER: blobs(HELD), ROUTE: blobs("of nobody")})
    client.settle()
    client.now += HOLD_SECONDS
    assert client.settle() == [f"CDS +{HELD}"]
    snapshots.update("shop", {CLUSTER: blobs(f"{HELD}1")})
    assert client.settle() == [f"CDS +{HELD}1"]
    # Made anew, it may be for a listener that is new.
    client.ask(CLUSTER, f"{HELD}2")
    snapshots.update("shop", {CLUSTER: blobs(f"{HELD}2"), ROUTE: blobs("of nobody", version="2")})
    assert client.settle() == []


def call(snapshots, client, number):
    """Somebody is called: a name is waited for, and there is what its call is to meet."""
    name, host = f"hold|15001|10.96.1.{number}", f"s{number}"
    client.ask(CLUSTER, name)
    snapshots.update("shop", {
        CLUSTER: blobs(name, host), ENDPOINT: blobs(host), LISTENER: blobs(host), ROUTE: blobs("r", version=host),
    })  # fmt: skip
    return name


def test_who_is_held_goes_on_though_others_are_called_all_the_time(snapshots):
    """Each of them is new to the client, and is to be taken before its call goes on: but no other call waits for it."""
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


def test_who_is_held_does_not_wait_for_news_of_endpoints(snapshots):
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


def test_who_is_held_waits_for_a_client_that_is_slow_however_slow(snapshots):
    """Before its listener is there it would pass that by, and leave unprotected. If it takes too long, it is closed."""
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


def test_what_changes_while_somebody_is_held_comes_after_it_and_in_order(snapshots):
    """A route that leads to a new cluster does not go before that, though a route of its name is due."""
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


def test_who_asks_for_what_others_wait_for_is_not_answered_with_them(snapshots):
    """Another proxy of the group has called it: it is there, but what the call is to meet has not been looked at."""
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


def test_a_slow_client_is_told_of_what_changes_while_somebody_is_held(snapshots):
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
def test_who_is_held_goes_on_when_the_one_that_is_refused_was_found(snapshots, type_url):
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


def test_endpoints_that_go_and_somebody_who_is_held_do_not_wait_for_each_other(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), ENDPOINT: {"a": None}})
    assert client.settle() == ["EDS -a", f"CDS +{HELD}"]


def test_only_who_asked_for_a_held_name_is_sent_it(snapshots):
    asking, other = envoy(snapshots), envoy(snapshots)
    asking.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD)})
    assert asking.settle() == [f"CDS +{HELD}"]
    assert other.settle() == []
    assert envoy(snapshots).have[CLUSTER].keys() == {"a"}


def test_a_client_that_comes_back_keeps_what_was_held_for_it(snapshots):
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


def test_a_held_name_that_is_no_longer_asked_for_is_not_owed(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD)})
    client.settle()
    client.forget(CLUSTER, HELD)
    assert client.settle() == []
    assert client.stream.synced()


def test_held_names_of_a_refused_response_are_not_owed_when_nobody_asks_for_them(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD, f"{HELD}1")
    snapshots.update("shop", {CLUSTER: blobs(HELD, f"{HELD}1")})
    (answer,) = client.turn()
    client.forget(CLUSTER, HELD, f"{HELD}1")
    client.nack(answer)
    assert client.settle() == []
    assert client.stream.synced()


def test_a_turn_is_not_due_for_a_call_that_waits_no_more(snapshots):
    """While something else is owed: a removal, behind a listener that the client does not answer for."""
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD), ROUTE: blobs("of nobody")})
    assert client.turn() == [] and client.stream.wake_at is not None
    client.forget(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: {HELD: None, "a": None}, LISTENER: blobs("l", version="2")})
    (_listeners,) = client.turn()
    assert client.stream.subscriptions[CLUSTER].owed.keys() == {"a"}
    assert client.stream.wake_at is None


def test_a_route_that_goes_and_comes_again_while_somebody_is_held_does_not_keep_listeners_waiting(snapshots):
    client = envoy(snapshots)
    client.ask(CLUSTER, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD, "b"), ROUTE: {"r": None}, LISTENER: blobs("m")})
    (clusters,) = client.turn()
    snapshots.update("shop", {ROUTE: blobs("r", version="2")})
    client.ack(clusters)
    assert client.settle() == ["LDS +m", "RDS -r", f"CDS +{HELD}", "RDS +r"]


def test_nobody_is_held_who_speaks_state_of_the_world(snapshots):
    """No Envoy asks so on demand; and of what nobody asked for, it is told nothing."""
    client = Client(snapshots, SOTW)
    client.ask(CLUSTER, WILDCARD, HELD)
    snapshots.update("shop", {CLUSTER: blobs(HELD, f"{HELD}1")})
    assert client.settle() == ["CDS +a"]
    assert client.stream.synced(frozenset({CLUSTER}))
    assert client.stream.subscriptions[CLUSTER].names == frozenset()
