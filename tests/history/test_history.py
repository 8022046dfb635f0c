import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.builders import instance, service
from weft.history import history
from weft.history.history import Forgotten, History
from weft.mesh.mesh import Mesh
from weft.model.credential import HIDDEN, Credential
from weft.model.names import ObjectKey
from weft.model.settings import Settings

KEY = ObjectKey("Service", "shop", "orders")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Rig:
    def __init__(self):
        self.clock, self.mesh = Clock(), Mesh()
        self.history = History(self.mesh, Settings(), clock=self.clock)

    def change(self, *objects):
        for key, values in objects:
            before = self.mesh.get(key)
            self.mesh.apply(key, values)
            if self.mesh.get(key) != before:
                self.history.note(key, before, self.mesh.get(key))
        self.history.seal()
        self.clock.now += 1


def of(name):
    return ObjectKey("Service", "shop", name), (service(name),)


def pod(name, ready=True):
    return ObjectKey("Pod", "shop", name), (instance(name, "orders", ready=ready),)


@pytest.fixture
def rig():
    made = Rig()
    made.change(of("orders"))
    return made


def services(mesh):
    return {each.name for each in mesh.services()}


def test_the_first_objects_are_where_it_begins_and_no_change(rig):
    assert rig.history.moments() == ()
    assert rig.history.begun == 1000.0
    assert services(rig.history.mesh_at(0)) == {"orders"}


def test_a_mesh_is_as_it_was_after_each_moment(rig):
    rig.change(of("payments"))
    rig.change((KEY, ()))
    assert [services(rig.history.mesh_at(number)) for number in range(3)] == [
        {"orders"},
        {"orders", "payments"},
        {"payments"},
    ]
    assert services(rig.history.mesh_at(-1)) == {"orders", "payments"}


def test_a_change_that_changed_nothing_is_no_moment(rig):
    rig.change(of("orders"))
    assert rig.history.moments() == ()


def test_an_object_added_and_removed_between_two_moments_is_no_moment(rig):
    key, values = of("payments")
    rig.history.note(key, (), values)
    rig.history.note(key, values, ())
    rig.history.seal()
    assert rig.history.moments() == ()


def test_a_moment_is_found_by_its_time(rig):
    rig.change(of("payments"))  # at 1001
    rig.change(of("reports"))  # at 1002
    assert [rig.history.number_at(at) for at in (1000.5, 1001, 1001.9, 1002, 9999)] == [0, 1, 1, 2, 2]
    with pytest.raises(Forgotten, match="not running yet"):
        rig.history.number_at(999)


def test_endpoint_changes_of_a_minute_are_one_moment_and_config_changes_are_separate(rig):
    rig.change(pod("a"))
    rig.change(pod("b"))
    rig.change(pod("a", ready=False))
    (gathered,) = rig.history.moments()
    assert {edit.key.name for edit in gathered.edits} == {"a", "b"}
    assert gathered.at == 1001
    rig.change(of("payments"))
    rig.change(pod("c"))
    rig.clock.now += history.GATHERED
    rig.change(pod("d"))
    assert [moment.of_endpoints for moment in rig.history.moments()] == [True, False, True, True]


def test_the_oldest_moment_is_dropped_first_and_reported_as_missing(rig, monkeypatch):
    monkeypatch.setattr(history, "MOMENTS", 2)
    for name in ("payments", "reports", "search"):
        rig.change(of(name))
    assert [moment.number for moment in rig.history.moments()] == [2, 3]
    assert services(rig.history.mesh_at(1)) == {"orders", "payments"}
    with pytest.raises(Forgotten, match="the history has moments 1 to 3"):
        rig.history.mesh_at(0)


def test_edits_are_bounded_too_but_the_last_moment_stays(rig, monkeypatch):
    monkeypatch.setattr(history, "EDITS", 3)
    rig.change(of("a"))
    rig.change(of("b"), of("c"))
    rig.change(of("d"), of("e"), of("f"), of("g"))
    assert [moment.number for moment in rig.history.moments()] == [3]


def test_large_changes_are_kept_for_a_shorter_time(rig, monkeypatch):
    monkeypatch.setattr(history, "BYTES", 2_000)
    key = ObjectKey("Service", "shop", "large")
    for number in range(1, 20):
        rig.change((key, (service("large", port=number, addresses=("10.0.0.1",) * 50),)))
    assert 1 < len(rig.history.moments()) < 5
    assert rig.history.moments()[-1].number == 19


NAMES = st.sampled_from(["orders", "payments", "reports"])
CHANGES = st.lists(st.lists(st.tuples(NAMES, st.integers(0, 3)), max_size=3), max_size=12)


@given(CHANGES)
def test_the_mesh_of_every_moment_can_be_reconstructed(batches):
    rig = Rig()
    rig.change(of("orders"))
    seen = {0: dict(rig.mesh.values())}
    for batch in batches:
        rig.change(
            *((ObjectKey("Service", "shop", name), (service(name, port=port),) if port else ()) for name, port in batch)
        )
        moments = rig.history.moments()
        seen[moments[-1].number if moments else 0] = dict(rig.mesh.values())
    for number, values in seen.items():
        assert dict(rig.history.mesh_at(number).values()) == values


def test_negative_numbers_do_not_count_endpoint_changes(rig):
    rig.change(of("payments"))
    rig.change(pod("orders-0"))
    rig.change(of("bank"))
    rig.clock.now += 100
    rig.change(pod("orders-1"))
    assert [rig.history.number(number) for number in (-1, -2)] == [2, 0]
    assert services(rig.history.mesh_at(-1)) == {"orders", "payments"}
    with pytest.raises(Forgotten):
        rig.history.number(-3)


def test_a_moment_is_found_by_the_digest_of_what_was_written():
    clock, mesh, written = Clock(), Mesh(), ["aaaa"]
    kept = History(mesh, Settings(), digest=lambda: written[-1], clock=clock)
    kept.seal()
    for name, digest in (("a", "bbbb"), ("b", "cccc"), ("c", "bbbb")):
        written.append(digest)
        kept.note(ObjectKey("Service", "shop", name), (), (service(name),))
        kept.seal()
    assert [each.digest for each in kept.moments()] == ["bbbb", "cccc", "bbbb"]
    assert (kept.first_digest, kept.latest) == ("aaaa", 3)
    assert [kept.number_of(digest) for digest in ("aa", "bbbb", "cccc")] == [0, 3, 2]
    with pytest.raises(Forgotten, match="digest dddd"):
        kept.number_of("dddd")


def test_what_is_restored_is_bounded_too(monkeypatch):
    rig = Rig()
    rig.change()
    for number in range(6):
        rig.change(of(f"s{number}"))
    moments = [msgspec.structs.replace(each, digest=f"d{each.number}") for each in rig.history.moments()]
    monkeypatch.setattr(history, "EDITS", 2)
    other = History(rig.mesh, Settings())
    other.restore(1.0, moments, "d0")
    assert ([each.number for each in other.moments()], other.first_digest, other.latest) == ([5, 6], "d4", 6)


def test_a_key_that_was_replaced_is_not_kept(rig):
    key = ObjectKey("Secret", "edge", "shop")
    first, second = (Credential("edge", "shop", chain, b"KEY" + chain, b"") for chain in (b"1", b"2"))
    rig.change((key, (first,)))
    rig.change((key, (second,)))
    kept = [value for moment in rig.history.moments() for edit in moment.edits for value in (*edit.before, *edit.after)]
    assert [value.private_key for value in kept] == [HIDDEN] * 3
    (before,) = rig.history.mesh_at(rig.history.latest - 1).get(key)
    assert (before.chain, before.private_key) == (b"1", HIDDEN)
