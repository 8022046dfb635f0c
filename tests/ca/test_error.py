from pathlib import Path

from weft.ca.error import AuthorityError


def test_an_error_has_its_file_text_and_hint():
    error = AuthorityError("is encrypted", "decrypt it", file=Path("/ca/ca-key.pem"))
    assert error.problem.where.file == "/ca/ca-key.pem"
    assert str(error) == "/ca/ca-key.pem: error: is encrypted (hint: decrypt it)"
