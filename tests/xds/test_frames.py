"""Encoding and decoding of the messages between agent and control plane."""

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
    frames.PodsFrame(("uid-1",), ("uid-2",)),
    frames.TakenFrame(7),
    frames.ReportFrame(
        (frames.Acceptance("web", CLUSTER, {"a": "1"}), frames.Acceptance("web", CLUSTER, None, 9)),
        (frames.Refusal("web", CLUSTER, "a", "1", "no", "sidecar~1"),),
        (frames.ProxyFrame(1, "sidecar~1", "web", {CLUSTER: frames.NOT_SENT}, ("no",)),),
        (2,),
    ),
]


def test_updates_come_out_as_they_went_in():
    assert frames.decode_update(frames.encode(UPDATE)) == UPDATE


@pytest.mark.parametrize("frame", FROM_AGENT, ids=lambda frame: type(frame).__name__)
def test_frames_of_agents_are_decoded_as_encoded(frame):
    assert frames.decode_from_agent(frames.encode(frame)) == frame


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x93" * 100_000, frames.encode(UPDATE), msgspec.msgpack.encode(["hello"]), b'{"json": 1}'],
    ids=["nothing", "no msgpack", "nested", "the other direction", "half a hello", "json"],
)
def test_anything_else_is_malformed(payload):
    with pytest.raises(frames.Malformed):
        frames.decode_from_agent(payload)


def test_unknown_fields_of_a_newer_version_are_ignored():
    payload = msgspec.msgpack.encode(["taken", 7, "something new"])
    assert frames.decode_from_agent(payload) == frames.TakenFrame(7)


def test_a_digest_covers_names_and_versions_in_any_order():
    assert frames.digest([("a", "1"), ("b", "2")]) == frames.digest([("b", "2"), ("a", "1")])
    assert len({frames.digest(each) for each in ([], [("a", "1")], [("a", "2")], [("b", "1")], [("a\n", "1")])}) == 5
    assert frames.digests({CLUSTER: [("a", "1")]}) == {CLUSTER: frames.digest([("a", "1")])}


def test_a_short_report_is_one_message():
    report = FROM_AGENT[-1]
    assert [frames.decode_from_agent(each) for each in frames.encode_report(report)] == [report]


def test_a_long_report_is_sent_in_several_messages_with_the_same_content():
    versions = {f"outbound|80||svc-{number}": f"{number:016x}" for number in range(1_000)}
    report = frames.ReportFrame(
        (frames.Acceptance("web", CLUSTER, None, 9), frames.Acceptance("web", CLUSTER, versions)),
        tuple(frames.Refusal("web", CLUSTER, f"bad-{number}", "1", "no" * 50, "sidecar~1") for number in range(100)),
        tuple(
            frames.ProxyFrame(number, f"sidecar~{number}", "web", {CLUSTER: 1}, ("no" * 50,)) for number in range(100)
        ),
        tuple(range(1_000, 2_000)),
    )
    payloads = list(frames.encode_report(report, 4_096))
    assert len(payloads) > 10 and max(map(len, payloads)) < 4_096 + 64
    parts = [frames.decode_from_agent(each) for each in payloads]
    first, *others = (acceptance for part in parts for acceptance in part.acceptances)
    assert first == report.acceptances[0]
    assert {name: version for each in others for name, version in each.versions.items()} == versions
    assert {(each.group, each.type_url) for each in others} == {("web", CLUSTER)}
    for field in ("refusals", "proxies", "left"):
        assert tuple(each for part in parts for each in getattr(part, field)) == getattr(report, field)
    # Acceptances are sent first: a resource that one proxy accepted is not at fault if another rejected it.
    assert max(i for i, each in enumerate(parts) if each.acceptances) <= min(
        i for i, each in enumerate(parts) if each.refusals
    )
