from weft.ca.tokens import Caller, TokenReason, TokenRefused


def test_a_caller_is_shown_by_account_and_pod():
    assert str(Caller("shop", "web")) == "shop/web"
    assert str(Caller("shop", "web", "web-1", "uid")) == "shop/web (pod web-1)"


def test_a_rejection_has_a_reason_code_and_a_message():
    refused = TokenRefused(TokenReason.EXPIRED, "the token expired 5 s ago")
    assert refused.reason == "token-expired"
    assert str(refused) == "the token expired 5 s ago"
    assert refused.caller is None
