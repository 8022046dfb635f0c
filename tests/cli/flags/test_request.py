import click
import pytest

from weft.cli.flags.request import _header_of, _token_of


def test_a_header_is_a_name_and_a_value():
    assert _header_of("X-User: ann: the first") == ("X-User", "ann: the first")
    for wrong in ("x-user", ": ann"):
        with pytest.raises(click.exceptions.Exit):
            _header_of(wrong)


def test_claims_are_taken_as_if_their_issuer_had_signed_them():
    assert _token_of('{"sub": "ann"}')["claims"] == {"sub": "ann"}


def test_a_whole_token_is_read_and_verified_by_the_control_plane(tmp_path):
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln"
    assert _token_of(token) == {"text": token, "claims": {"sub": "ann"}, "signed": True}
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    assert _token_of(f"@{file}")["text"] == token


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("nonsense", "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"),
        ("e30.e30", "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"),
        ("%.e30.c2ln", "Jwt header is an invalid Base64url encoded"),
        ("e30.e30.c2ln", "Jwt header [alg] field is required and must be a string"),
        ("eyJhbGciOiJSUzI1NiJ9.W10.c2ln", "Jwt payload is an invalid JSON"),
    ],
)
def test_an_invalid_token_is_sent_unchanged_and_rejected_with_envoys_message(token, said):
    assert _token_of(token) == {"text": token, "verified": False, "malformed": said}


@pytest.mark.parametrize("token", ["{", "@/nowhere"])
def test_an_invalid_token_argument_is_an_error(token):
    with pytest.raises(click.exceptions.Exit):
        _token_of(token)
