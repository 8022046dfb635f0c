import base64

import pytest

from api.reading import read, told, value
from authority import Authority
from weft.api.secret import without_key
from weft.model.credential import HIDDEN

AUTHORITY = Authority()
SHOWN = AUTHORITY.issue("shop.example.com")


def secret(kind="kubernetes.io/tls", data="data", **held):
    encode = (lambda text: base64.b64encode(text).decode()) if data == "data" else (lambda text: text.decode())
    lines = "".join(f"  {name.replace('_', '.')}: {encode(content)!r}\n" for name, content in held.items()).replace(
        "\\\\n", "\\n"
    )
    return f"apiVersion: v1\nkind: Secret\nmetadata: {{name: shop, namespace: edge}}\ntype: {kind}\n{data}:\n{lines}"


def pair(**more):
    return {"tls_crt": SHOWN.certificate, "tls_key": SHOWN.key} | more


def test_reads_a_certificate_with_its_key_and_hosts():
    found = value(secret(**pair()))
    assert (found.namespace, found.name, found.chain, found.private_key) == (
        "edge",
        "shop",
        SHOWN.certificate,
        SHOWN.key,
    )
    assert (found.hosts, found.key_kind) == (("shop.example.com",), "ECDSA")
    assert found.expires > 0


def test_reads_istios_generic_secret_and_one_with_roots_alone():
    found = value(secret("Opaque", cert=SHOWN.certificate, key=SHOWN.key, cacert=SHOWN.root))
    assert (found.chain, found.roots) == (SHOWN.certificate, SHOWN.root)
    assert value(secret("Opaque", cacert=SHOWN.root)).roots == SHOWN.root
    crl = AUTHORITY.revoked(SHOWN)
    assert value(secret(**pair(ca_crt=SHOWN.root, ca_crl=crl))).revoked == crl


def test_a_key_beside_its_certificate_is_not_shown_with_it():
    found = value(secret(**pair(tls_crt=SHOWN.key + SHOWN.certificate + SHOWN.root, ca_crt=SHOWN.root + SHOWN.key)))
    assert (found.chain, found.roots, found.private_key) == (SHOWN.certificate + SHOWN.root, SHOWN.root, SHOWN.key)
    assert found.hosts == ("shop.example.com",)


@pytest.mark.timeout(20)
def test_unterminated_certificates_are_parsed_fast():
    assert without_key(b"-----BEGIN CERTIFICATE-----\n" * 35_000 + b"PRIVATE KEY") == HIDDEN


def test_other_secrets_are_ignored():
    for text in (
        secret("kubernetes.io/service-account-token", token=b"x", ca_crt=SHOWN.root),
        secret("Opaque", password=b"x"),
        secret("kubernetes.io/dockerconfigjson", _dockerconfigjson=b"{}"),
    ):
        parsed = read(text)
        assert (parsed.values, parsed.problems) == ((), ())


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (pair(tls_key=AUTHORITY.issue("a").key), "`tls.key` is not the key of the first certificate in `tls.crt`"),
        (pair(tls_crt=b"SECRETWORD"), "`tls.crt` has no certificate that can be parsed"),
        (pair(tls_crt=SHOWN.key), "`tls.crt` has no certificate that can be parsed"),
        (pair(tls_key=b"SECRETWORD"), "`tls.key` has no private key that can be parsed"),
        (pair(ca_crt=b"SECRETWORD"), "`ca.crt` has no certificate that can be parsed"),
        (pair(ca_crl=b"SECRETWORD"), "`ca.crl` has no revocation list that can be parsed"),
        ({"tls_crt": SHOWN.certificate}, "`tls.crt` is set, and `tls.key` is missing"),
    ],
)
def test_secrets_that_envoy_would_reject_are_rejected_without_quoting_them(held, said):
    found = told(secret(**held))
    assert any(said in line for line in found), found
    assert not any("SECRETWORD" in line or "U0VDUkVUV09SRA" in line for line in found)


def test_a_value_that_is_not_base64_is_reported_by_its_key():
    text = secret(**pair()).replace(base64.b64encode(SHOWN.key).decode(), "SECRETWORD!")
    found = told(text)
    assert any("`tls.key` is not base64" in line for line in found)
    assert not any("SECRETWORD" in line for line in found)
    assert any(
        "`tls.key` is not text" in line for line in told(secret(tls_crt=SHOWN.certificate) + "  tls.key: {a: b}\n")
    )
