import copy
import pickle

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import x25519

from identity_rig import TRUST_DOMAIN, identity
from weft.ca.authority import Authority
from weft.node.key import Key, KeyKind


@pytest.mark.parametrize("kind", list(KeyKind))
def test_every_kind_is_signed_for(kind):
    key = Key(kind)
    issued = Authority.in_memory(TRUST_DOMAIN).sign(key.request(identity("web")), identity("web"))
    leaf = x509.load_pem_x509_certificate(issued.chain[0].encode())
    assert key.is_for(leaf) and not Key().is_for(leaf)
    assert serialization.load_pem_private_key(key.secret_pem(), None).public_key() == leaf.public_key()


def test_a_signing_request_names_the_identity_and_nothing_else():
    request = x509.load_pem_x509_csr(Key().request(identity("web")))
    assert request.is_signature_valid and not list(request.subject)
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == ["spiffe://cluster.local/ns/shop/sa/web"]


def test_a_key_is_neither_printed_nor_copied_out():
    key = Key()
    assert f"{key} {key!r} {[key]}" == "<private key, P-256> <private key, P-256> [<private key, P-256>]"
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(key)


@pytest.mark.parametrize("kind", list(KeyKind))
def test_the_next_agent_has_the_same_key(kind):
    key = Key(kind)
    again = Key.from_secret_pem(key.secret_pem(), kind)
    assert again.secret_pem() == key.secret_pem() and again.kind is kind


@pytest.mark.parametrize("pem", [b"", b"nothing", x25519.X25519PrivateKey.generate()])
def test_other_data_than_a_private_key_is_rejected(pem):
    if not isinstance(pem, bytes):
        pem = pem.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    with pytest.raises(ValueError):
        Key.from_secret_pem(pem)
