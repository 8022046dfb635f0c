import base64
import json
import os
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from weft.base.key_search import files_below, kinds_of_keys, search, started_with
from weft.ca.certificates import Validity, make_root

KEYS = {
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "RSA": rsa.generate_private_key(public_exponent=65_537, key_size=2048),
    "RSA-4096": rsa.generate_private_key(public_exponent=65_537, key_size=4096),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
}
PKCS8, TRADITIONAL = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
FORMS = [
    *(pytest.param(kind, PKCS8, id=f"{kind}-pkcs8") for kind in KEYS),
    *(pytest.param(kind, TRADITIONAL, id=f"{kind}-traditional") for kind in KEYS if kind != "Ed25519"),
]


def written(kind, form, encoding, secrecy=None):
    return KEYS[kind].private_bytes(encoding, form, secrecy or serialization.NoEncryption())


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_a_key_is_found_however_it_is_written(kind, form):
    pem = written(kind, form, serialization.Encoding.PEM)
    der = written(kind, form, serialization.Encoding.DER)
    assert "PEM" in kinds_of_keys(b"noise" + pem)
    assert "PEM" in kinds_of_keys(json.dumps({"key": pem.decode()}).encode())
    assert "PEM in base64" in kinds_of_keys(b'{"inline_bytes":"' + base64.b64encode(pem) + b'"}')
    assert f"{kind.removesuffix('-4096')} in DER" in kinds_of_keys(b"\x00\xff" * 9 + der + b"\n")


def test_a_workloads_key_is_found_without_its_header_too():
    body = written("P-256", PKCS8, serialization.Encoding.PEM).split(b"\n", 1)[1]
    assert kinds_of_keys(body) == ("P-256 in base64",)


def test_an_encrypted_key_is_a_key():
    secrecy = serialization.BestAvailableEncryption(b"secret")
    for form in (PKCS8, TRADITIONAL):
        assert "PEM" in kinds_of_keys(written("RSA", form, serialization.Encoding.PEM, secrecy))


def test_public_keys_and_text_about_keys_are_no_private_keys():
    root = make_root("cluster.local", KEYS["P-256"], Validity(0, 1e9))
    assert isinstance(root, x509.Certificate)
    for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
        assert kinds_of_keys(root.public_bytes(encoding)) == ()
        for key in KEYS.values():
            public = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
            assert kinds_of_keys(public) == ()
    assert kinds_of_keys(b'"-----BEGIN PRIVATE KEY-----" is how one begins') == ()
    template = bytes.fromhex("308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420a144034200")
    assert kinds_of_keys(template + bytes(64)) == ()  # as in BoringSSL


def test_files_are_reported_by_name_without_the_key(tmp_path):
    pem = written("P-256", PKCS8, serialization.Encoding.PEM)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "key").write_bytes(pem)
    (tmp_path / "other").write_text("nothing")
    os.mkfifo(tmp_path / "pipe")  # reading the pipe would block
    searched = search(files_below(tmp_path, tmp_path / "other", tmp_path / "missing"))
    assert searched.places == 3
    assert searched.found == (f"{tmp_path}/deep/key: PEM", f"{tmp_path}/deep/key: P-256 in base64")


def test_a_key_that_a_process_was_given_is_found():
    pem = written("P-256", PKCS8, serialization.Encoding.PEM).decode()
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"KEY": pem},
    )
    process.stdout.readline()
    searched = search(started_with([process.pid, 2**22 + 1]))
    process.communicate(b"\n")
    assert searched.places == 2
    assert f"process {process.pid}'s environ: PEM" in searched.found
