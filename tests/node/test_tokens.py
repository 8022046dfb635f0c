from __future__ import annotations

import json

import pytest

from weft.ca.signed_tokens import TokenIssuer
from weft.ca.tokens import Caller
from weft.node.tokens import TOKENS_KEY, identity_in, token_for, token_in


def tokens(**by_audience) -> dict:
    given = {audience: {"token": token, "expirationTimestamp": "2030"} for audience, token in by_audience.items()}
    return {TOKENS_KEY: json.dumps(given)}


def test_the_one_for_the_audience_from_either_place_and_secrets_first():
    assert token_for("ca", tokens(ca="a", other="b"), {}) == "a"
    assert token_for("ca", {}, tokens(ca="s")) == "s"
    assert token_for("ca", tokens(ca="a"), tokens(ca="s")) == "s"
    assert token_for("ca", tokens(other="b"), {}) == token_for("ca", {}, {}) == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"ca": "secret"}', '{"ca": {}}', "x" * 70_000])
def test_an_invalid_token_is_reported_without_its_content(text):
    with pytest.raises(ValueError) as error:
        token_for("ca", {TOKENS_KEY: text}, {})
    assert TOKENS_KEY in str(error.value) and "secret" not in str(error.value)


async def test_a_token_file_is_read_on_every_call(tmp_path):
    file = tmp_path / "token"
    source = token_in(file)
    with pytest.raises(OSError):
        await source()
    file.write_text(" one\n")
    assert await source() == "one"
    file.write_text("two")
    assert await source() == "two"
    file.write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        await source()


def test_the_identity_is_read_from_a_tokens_claims():
    token = TokenIssuer().issue(Caller("istio-system", "weft-node", "weft-node-x", "u-1"))
    assert str(identity_in(token, "cluster.local")) == "spiffe://cluster.local/ns/istio-system/sa/weft-node"


@pytest.mark.parametrize("token", ["", "a.b.c", "a", "a.e30.c", "a.eyJzdWIiOiJib2IifQ.c", "a.é.c"])
def test_other_tokens_are_rejected_as_service_account_tokens(token):
    with pytest.raises(ValueError):
        identity_in(token, "cluster.local")
