from hypothesis import given
from hypothesis import strategies as st

from weft.base.suggest import did_you_mean


def test_finds_the_near_word():
    assert did_you_mean("retires", ["retries", "timeout", "match"]) == "did you mean `retries`?"


def test_ignores_case():
    assert did_you_mean("virtualservice", ["VirtualService"]) == "did you mean `VirtualService`?"


def test_lists_what_is_known_when_nothing_is_near():
    assert did_you_mean("zzz", ["a", "b"]) == "known here: a, b"


@given(st.text(), st.lists(st.text(), max_size=20))
def test_never_fails(word, known):
    assert isinstance(did_you_mean(word, known), str)
