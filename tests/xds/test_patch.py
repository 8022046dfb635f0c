import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.xds.patch import Mismatch, Patch, difference, patched

parts = st.lists(st.sampled_from([bytes([letter]) * 20 for letter in b"abcdefgh"]))


@given(before=parts, after=parts)
def test_a_patch_turns_the_base_into_the_result(before, after):
    patch = difference("1", tuple(before), tuple(after))
    assert patch.base == "1"
    assert patched(b"".join(before), patch) == b"".join(after)


def test_a_patch_contains_only_the_changed_part():
    before = [f"part {number}".encode() for number in range(1000)]
    after = [*before[:500], b"another", *before[501:]]
    size = len(b"".join(before))
    assert difference("1", tuple(before), tuple(after)).pieces == ((0, 3890), b"another", (3898, size))


def test_a_patch_for_another_body_is_detected():
    with pytest.raises(Mismatch):
        patched(b"short", Patch("1", 20, ((0, 20),)))
