from __future__ import annotations

import pytest

from weft.model.identity import Identity, is_trust_domain, parse_identity


def test_an_identity_is_formatted_and_parsed_as_a_spiffe_uri() -> None:
    identity = Identity("cluster.local", "shop", "payments")
    assert str(identity) == "spiffe://cluster.local/ns/shop/sa/payments"
    assert parse_identity(str(identity)) == identity


@pytest.mark.parametrize(
    "text",
    [
        "",
        "spiffe://cluster.local/ns/shop",
        "spiffe://cluster.local/ns/shop/sa/",
        "spiffe://cluster.local/ns/shop/sa/payments/",
        "spiffe://cluster.local/ns/shop/sa/payments\n",
        "spiffe://cluster.local/ns/a/../sa/payments",
        "spiffe://Cluster.local/ns/shop/sa/payments",
        "spiffe:///ns/shop/sa/payments",
        "spiffe://cluster.local/ns/shop/sa/pay?x=1",
        "https://cluster.local/ns/shop/sa/payments",
        "spiffe://cluster.local/ns/shop/sa/" + "a" * 3000,
    ],
)
def test_nothing_else_is_an_identity(text: str) -> None:
    with pytest.raises(ValueError, match="is not spiffe"):
        parse_identity(text)


def test_a_trust_domain_is_validated():
    assert is_trust_domain("cluster.local") and is_trust_domain("a_b-c.d9")
    assert not any(map(is_trust_domain, ("", "A.b", "a/b", "a:b", ".a", "a" * 256)))
