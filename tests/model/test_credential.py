from weft.model.credential import Credential
from weft.model.names import CredentialRef


def test_printing_a_credential_shows_no_secret():
    held = Credential("edge", "shop", b"CHAIN", b"SECRETKEY", b"ROOTS")
    for text in (repr(held), str(held), f"{held}", repr((held,)), repr({"a": held})):
        assert "SECRETKEY" not in text and "CHAIN" not in text
        assert "edge/shop" in text


def test_the_repr_of_credentials_differs_by_certificate_and_not_by_key():
    one, two = (Credential("edge", "shop", chain, b"k") for chain in (b"a", b"b"))
    assert repr(one) != repr(two)
    assert repr(one) == repr(Credential("edge", "shop", b"a", b"another"))


def test_a_credential_is_identified_by_its_name():
    assert Credential("edge", "shop").reference == CredentialRef("shop", "edge")
