"""What goes over the line comes out as it went in, and nothing else does."""

import msgspec
import pytest

from weft.xds import frames
from weft.xds.types import CLUSTER

UPDATE = frames.Update(
    7,
    (
        frames.GroupUpdate(
            "web",
            9,
            {CLUSTER: [frames.Entry("a", "1", b"\0body"), frames.Entry("b", "2")]},
            {CLUSTER: ["c"]},
            True,
            (CLUSTER,),
            {CLUSTER: ["d"]},
        ),
    ),
    {"uid-1": "web"},
    ("api",),
    True,
)
FROM_AGENT = [
    frames.Hello("node-1", ("uid-1",), {"web": {CLUSTER: "digest"}}, {CLUSTER: [("a", "1")]}),
    frames.Pods(("uid-1",), ("uid-2",)),
    frames.Taken(7),
    frames.Report(
        (frames.Acceptance("web", CLUSTER, {"a": "1"}), frames.Acceptance("web", CLUSTER, None, 9)),
        (frames.Refusal("web", CLUSTER, "a", "1", "no", "sidecar~1"),),
        (frames.Proxy(1, "sidecar~1", "web", {CLUSTER: frames.NOT_SENT}, ("no",)),),
        (2,),
    ),
]


def test_updates_come_out_as_they_went_in():
    assert frames.decode_update(frames.encode(UPDATE)) == UPDATE


@pytest.mark.parametrize("frame", FROM_AGENT, ids=lambda frame: type(frame).__name__)
def test_what_agents_say_comes_out_as_it_went_in(frame):
    assert frames.decode_from_agent(frames.encode(frame)) == frame


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x93" * 100_000, frames.encode(UPDATE), msgspec.msgpack.encode(["hello"]), b'{"json": 1}'],
    ids=["nothing", "no msgpack", "nested", "the other direction", "half a hello", "json"],
)
def test_anything_else_is_malformed(payload):
    with pytest.raises(frames.Malformed):
        frames.decode_from_agent(payload)


def test_a_newer_side_may_say_more_than_is_known_here():
    payload = msgspec.msgpack.encode(["taken", 7, "something new"])
    assert frames.decode_from_agent(payload) == frames.Taken(7)


def test_a_digest_is_of_names_and_versions_in_any_order():
    assert frames.digest([("a", "1"), ("b", "2")]) == frames.digest([("b", "2"), ("a", "1")])
    assert len({frames.digest(each) for each in ([], [("a", "1")], [("a", "2")], [("b", "1")], [("a\n", "1")])}) == 5
    assert frames.digests({CLUSTER: [("a", "1")]}) == {CLUSTER: frames.digest([("a", "1")])}
