from __future__ import annotations

from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, PUSH_ORDER, ROUTE, PushPart


def position(type_url: str, part: PushPart) -> int:
    return next(
        i for i, step in enumerate(PUSH_ORDER) if step.type_url == type_url and step.part in (part, PushPart.BOTH)
    )


def test_clusters_and_endpoints_are_sent_before_what_refers_to_them_and_removed_after_it():
    made = [position(each, PushPart.UPSERTS) for each in (CLUSTER, ENDPOINT, ROUTE, LISTENER)]
    broken = [position(each, PushPart.REMOVALS) for each in (LISTENER, ROUTE, CLUSTER, ENDPOINT)]
    assert made == sorted(made)
    assert broken == sorted(broken)


def test_a_step_waits_only_for_types_that_had_their_turn_before_it():
    for index, step in enumerate(PUSH_ORDER):
        assert set(step.after) <= {earlier.type_url for earlier in PUSH_ORDER[:index]}


def test_every_step_has_a_reason():
    assert all(step.why for step in PUSH_ORDER)
