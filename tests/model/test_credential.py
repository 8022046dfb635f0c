from weft.model.credential import Credential
from weft.model.gateway import CredentialRef


def test_whoever_prints_it_shows_nothing():
    held = Credential("edge", "shop", b"CHAIN", b"SECRETKEY", b"ROOTS")
    for text in (repr(held), str(held), f"{held}", repr((held,)), repr({"a": held})):
        assert "SECRETKEY" not in text and "CHAIN" not in text
        assert "edge/shop" in text


def test_what_two_hold_is_told_apart_without_the_key():
    one, two = (Credential("edge", "shop", chain, b"k") for chain in (b"a", b"b"))
    assert repr(one) != repr(two)
    assert repr(one) == repr(Credential("edge", "shop", b"a", b"another"))


def test_it_is_known_by_its_name():
    assert Credential("edge", "shop").reference == CredentialRef("shop", "edge")
