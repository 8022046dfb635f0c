from hypothesis import given
from hypothesis import strategies as st

from weft.base.suggest import did_you_mean, did_you_mean_name


def test_finds_the_near_word():
    assert did_you_mean("retires", ["retries", "timeout", "match"]) == "did you mean `retries`?"


def test_ignores_case():
    assert did_you_mean("virtualservice", ["VirtualService"]) == "did you mean `VirtualService`?"


def test_lists_what_is_known_when_nothing_is_near():
    assert did_you_mean("zzz", ["a", "b"]) == "known here: a, b"


@given(st.text(), st.lists(st.text(), max_size=20))
def test_never_fails(word, known):
    assert isinstance(did_you_mean(word, known), str)


def test_a_name_with_dots_is_guessed_by_its_first_label_and_not_by_what_all_of_them_share():
    known = ["ledger.shop.svc.cluster.local", "web.shop.svc.cluster.local", "web.bank.svc.cluster.local"]
    assert did_you_mean_name("wbe.shop.svc.cluster.local", known) == "did you mean `web.shop.svc.cluster.local`?"
    assert did_you_mean_name("ledger.shp.svc.cluster.local", known) == "did you mean `ledger.shop.svc.cluster.local`?"
    assert did_you_mean_name("api.shop.svc.cluster.local", known).startswith("known here: ledger.shop")
    assert did_you_mean_name("api.shop", [f"{number}.com" for number in range(13)]) == ""
