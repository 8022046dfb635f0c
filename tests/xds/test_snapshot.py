from __future__ import annotations

import pytest
from conversation import blob, blobs

from weft.xds.snapshot import Snapshots
from weft.xds.table import TOMBSTONE_LIMIT, TOMBSTONE_SLACK, ResourceTable
from weft.xds.types import CLUSTER, LISTENER


class Watcher:
    def __init__(self, settled: int | None = 0) -> None:
        self.woken = 0
        self.at = settled

    def wake(self) -> None:
        self.woken += 1

    def settled(self, type_url: str) -> int | None:
        return self.at


@pytest.fixture
def snapshots() -> Snapshots:
    return Snapshots()


def table(snapshots: Snapshots) -> ResourceTable:
    watcher = Watcher(settled=None)
    group = snapshots.attach("shop", watcher)
    snapshots.detach(group, watcher)
    return group.table(CLUSTER)


def test_update_returns_what_changed_and_ignores_equal_versions(snapshots):
    assert snapshots.update("shop", {CLUSTER: blobs("a", "b")}) == {CLUSTER: ("a", "b")}
    assert snapshots.update("shop", {CLUSTER: {"a": blob("a", "1"), "b": blob("b", "2")}}) == {CLUSTER: ("b",)}
    assert snapshots.update("shop", {CLUSTER: {"a": None, "unknown": None}}) == {CLUSTER: ("a",)}
    assert set(snapshots.resources("shop", CLUSTER)) == {"b"}


def test_replace_removes_what_is_not_in_it(snapshots):
    snapshots.replace("shop", {CLUSTER: blobs("a", "b"), LISTENER: blobs("l")})
    changed = snapshots.replace("shop", {CLUSTER: blobs("b", "c")})
    assert {type_url: set(names) for type_url, names in changed.items()} == {CLUSTER: {"a", "c"}, LISTENER: {"l"}}
    assert dict(snapshots.resources("shop", LISTENER)) == {}


def test_changes_are_read_from_the_newest_end(snapshots):
    for name in "abc":
        snapshots.update("shop", {CLUSTER: blobs(name)})
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    assert list(table(snapshots).changed_since(2)) == ["a", "c"]
    assert list(table(snapshots).changed_since(4)) == []


def test_wakes_only_the_streams_of_a_group_that_changed(snapshots):
    shop, bank = Watcher(), Watcher()
    snapshots.attach("shop", shop)
    snapshots.attach("bank", bank)
    snapshots.update("shop", {CLUSTER: blobs("a")})
    assert (shop.woken, bank.woken) == (1, 0)
    snapshots.update("shop", {CLUSTER: blobs("a")})
    assert shop.woken == 1


def test_the_first_update_makes_a_group_ready_even_when_it_is_empty(snapshots):
    watcher = Watcher()
    group = snapshots.attach("shop", watcher)
    assert not group.ready
    snapshots.replace("shop", {})
    assert group.ready
    assert watcher.woken == 1
    assert snapshots.groups() == ["shop"]


def test_a_group_without_state_is_dropped_with_its_last_stream(snapshots):
    watcher = Watcher()
    first = snapshots.attach("shop", watcher)
    snapshots.detach(first, watcher)
    assert snapshots.attach("shop", watcher) is not first


def test_drop_wakes_the_streams_and_removes_the_group(snapshots):
    watcher = Watcher()
    group = snapshots.attach("shop", watcher)
    snapshots.update("shop", {CLUSTER: blobs("a")})
    snapshots.drop("shop")
    assert group.dropped
    assert watcher.woken == 2
    assert dict(snapshots.resources("shop", CLUSTER)) == {}


def test_removed_names_are_dropped_once_every_stream_has_sent_them(snapshots):
    ahead, behind = Watcher(), Watcher()
    snapshots.attach("shop", ahead)
    snapshots.attach("shop", behind)
    names = [f"c{i}" for i in range(TOMBSTONE_SLACK + 1)]
    snapshots.update("shop", {CLUSTER: blobs(*names)})
    ahead.at = behind.at = snapshots.push
    snapshots.update("shop", {CLUSTER: dict.fromkeys(names)})
    assert len(table(snapshots).removed) == len(names)
    ahead.at = snapshots.push
    for number in range(2 * len(names)):
        snapshots.update("shop", {CLUSTER: blobs(f"d{number}")})
        snapshots.update("shop", {CLUSTER: {f"d{number}": None}})
    assert names[0] in table(snapshots).removed  # one stream still needs it
    behind.at = snapshots.push
    for number in range(4 * len(names)):
        snapshots.update("shop", {CLUSTER: blobs(f"e{number}")})
        snapshots.update("shop", {CLUSTER: {f"e{number}": None}})
        ahead.at = behind.at = snapshots.push
    assert names[0] not in table(snapshots).removed
    assert len(table(snapshots).removed) <= TOMBSTONE_SLACK + 1
    assert table(snapshots).floor == 0


def test_a_stream_that_never_settles_cannot_grow_the_table_without_limit(snapshots):
    snapshots.attach("shop", Watcher(settled=0))
    names = [f"c{i}" for i in range(3 * TOMBSTONE_LIMIT)]
    for start in range(0, len(names), 500):
        some = names[start : start + 500]
        snapshots.update("shop", {CLUSTER: blobs(*some)})
        snapshots.update("shop", {CLUSTER: dict.fromkeys(some)})
    assert len(table(snapshots).removed) <= 2 * TOMBSTONE_LIMIT + 1_000
    assert table(snapshots).floor > 0


def test_a_rejected_version_is_replaced_by_the_last_accepted_one(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("a", version="good")})
    table(snapshots).accept(blob("a", "good"))
    snapshots.update("shop", {CLUSTER: blobs("a", version="bad")})
    assert snapshots.reject("shop", CLUSTER, "a", "bad", "no such field")
    assert snapshots.resources("shop", CLUSTER)["a"].version == "good"
    assert snapshots.rejected("shop")[CLUSTER, "a"].detail == "no such field"


def test_a_rejected_version_that_another_proxy_accepts_is_restored(snapshots):
    first, second = blob("a", "1"), blob("a", "2")
    for version in (first, second):
        snapshots.update("shop", {CLUSTER: {"a": version}})
        if version is first:
            snapshots.accept("shop", CLUSTER, [first])
    assert snapshots.reject("shop", CLUSTER, "a", "2", "no")
    snapshots.accept("shop", CLUSTER, [first])
    assert snapshots.resources("shop", CLUSTER)["a"] is first
    snapshots.accept("shop", CLUSTER, [second])
    assert snapshots.resources("shop", CLUSTER)["a"] is second
    assert snapshots.rejected("shop") == {}
    assert not snapshots.reject("shop", CLUSTER, "a", "2", "no")


def test_a_rejected_version_is_not_sent_again_but_another_one_is(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("a", version="bad")})
    snapshots.reject("shop", CLUSTER, "a", "bad", "no")
    assert dict(snapshots.resources("shop", CLUSTER)) == {}
    assert snapshots.update("shop", {CLUSTER: blobs("a", version="bad")}) == {}
    assert snapshots.update("shop", {CLUSTER: blobs("a", version="mended")}) == {CLUSTER: ("a",)}
    assert snapshots.rejected("shop") == {}


def test_a_quarantined_name_can_still_be_removed(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("a", version="bad")})
    snapshots.reject("shop", CLUSTER, "a", "bad", "no")
    assert snapshots.replace("shop", {}) == {CLUSTER: ("a",)}
    assert snapshots.rejected("shop") == {}
    assert list(table(snapshots).changed_since(snapshots.push - 1)) == ["a"]


def test_a_version_accepted_before_a_removal_is_not_restored(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("a", version="good")})
    table(snapshots).accept(blob("a", "good"))
    snapshots.update("shop", {CLUSTER: {"a": None}})
    snapshots.update("shop", {CLUSTER: blobs("a", version="bad")})
    snapshots.reject("shop", CLUSTER, "a", "bad", "no")
    assert dict(snapshots.resources("shop", CLUSTER)) == {}


def test_a_name_that_was_added_again_is_not_collected_with_removed_ones(snapshots):
    names = [f"c{i}" for i in range(TOMBSTONE_SLACK + 1)]
    snapshots.update("shop", {CLUSTER: blobs("back")})
    snapshots.update("shop", {CLUSTER: {"back": None}})
    snapshots.update("shop", {CLUSTER: blobs("back")})
    snapshots.update("shop", {CLUSTER: blobs(*names)})
    snapshots.update("shop", {CLUSTER: dict.fromkeys(names)})
    assert list(table(snapshots).changed_since(0)) == ["back"]


def test_a_version_that_one_proxy_accepted_cannot_be_quarantined_by_another(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("a")})
    table(snapshots).accept(blob("a"))
    assert not snapshots.reject("shop", CLUSTER, "a", "1", "I am broken")
    assert "a" in snapshots.resources("shop", CLUSTER)


def test_a_late_rejection_of_an_old_version_changes_nothing(snapshots):
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    assert not snapshots.reject("shop", CLUSTER, "a", "1", "no")
    assert not snapshots.reject("shop", CLUSTER, "b", "1", "no")
    assert not snapshots.reject("bank", CLUSTER, "a", "1", "no")
