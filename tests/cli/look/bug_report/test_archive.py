import io
import tarfile

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from weft.base.key_search import kinds_of_keys
from weft.cli.look.bug_report import archive as archives
from weft.cli.look.bug_report.archive import ReportArchive, without_secrets

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLWl0"


def bundled(*parts, **options):
    file = io.BytesIO()
    with ReportArchive(file, "report") as bundle:
        for name, data in parts:
            bundle.add(name, data, **options)
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        return bundle, {each.name: archive.extractfile(each).read() for each in archive}


def pem(form):
    key = ec.generate_private_key(ec.SECP256R1()) if form != "rsa" else rsa.generate_private_key(65537, 2048)
    kind = serialization.PrivateFormat.PKCS8 if form == "pkcs8" else serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


@pytest.mark.parametrize("form", ["pkcs8", "traditional", "rsa"])
@pytest.mark.parametrize("written", ["as it is", "in JSON", "cut off"])
def test_no_private_key_gets_through(form, written):
    key = pem(form)
    secret = key.splitlines()[2]
    said = {"as it is": key, "in JSON": key.replace(b"\n", b"\\n"), "cut off": key[:-30]}[written]
    _, files = bundled(("x.log", b"before\n" + said + b"\nafter\n"))
    assert b"before\n[redacted]" in files["report/x.log"] and secret not in files["report/x.log"]


def test_what_still_looks_like_a_key_is_left_out_and_named():
    der = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    assert kinds_of_keys(der)
    bundle, files = bundled(("core", b"x" + der), ("good", b"y"))
    assert set(files) == {"report/good", "report/left-out.txt"} and bundle.left_out[0].startswith("core: ")


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (f"token={TOKEN}&x=1", "token=[redacted]&x=1"),
        (f"/a/b{TOKEN}/c eyJx.{TOKEN}", "/a/[redacted]/c eyJx.[redacted]"),
        ("Authorization: Bearer abcDEF.123", "Authorization: Bearer [redacted]"),
        ('{"key": "x", "value": "Bearer 0123456789abcdef"}', '{"key": "x", "value": "Bearer [redacted]"}'),
        ('{"authorization": "Basic dXNlcjpwYXNz"}', '{"authorization":"[redacted]"}'),
        (r'"inline_string": "{\"keys\": [{\"kty\": \"oct\", \"k\": \"c2VjcmV0LXNlY3JldC1zZWNyZXQ\"}]}"',
         r'"inline_string": "{\"keys\": [{\"kty\": \"oct\", \"k\": \"[redacted]\"}]}"'),
        ("nothing of the kind, eyJ alone", "nothing of the kind, eyJ alone"),
    ],
)  # fmt: skip
def test_tokens_passwords_and_symmetric_keys_go_out(said, left):
    assert without_secrets(said.encode()).decode() == left


def test_a_long_file_keeps_its_beginning_and_a_log_its_end(monkeypatch):
    monkeypatch.setattr(archives, "MOST_FILE", 10)
    _, files = bundled(("a", b"0123456789abcdef"))
    assert files["report/a"] == b"0123456789[weft: 6 bytes are left out here]\n"
    _, files = bundled(("a", b"0123456789abcdef"), tail=True)
    assert files["report/a"] == b"[weft: 6 bytes are left out here]\n6789abcdef"


def test_the_archive_is_bounded_and_lists_what_is_missing(monkeypatch):
    monkeypatch.setattr(archives, "MOST_TOTAL", 10)
    bundle, files = bundled(("a", b"x" * 8), ("b", b"x" * 8), ("c", b"x"))
    assert set(files) == {"report/a", "report/c", "report/left-out.txt"}
    assert bundle.left_out == ["b: the report is full"]
