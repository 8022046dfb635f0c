"""Reads Kubernetes' Secret with a certificate or CA certificates for gateways: `kubernetes.io/tls`, or Istio's generic
format (`cert`, `key`, `cacert`). Other Secrets are ignored. Rule: a problem names keys of the Secret, never their
values."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.model.credential import HIDDEN, Credential

if TYPE_CHECKING:
    from cryptography import x509

_TYPES = ("kubernetes.io/tls", "Opaque", "")
# For each item, the key that Kubernetes uses, and Istio's older key.
_CHAIN, _KEY, _ROOTS, _REVOKED = ("tls.crt", "cert"), ("tls.key", "key"), ("ca.crt", "cacert"), ("ca.crl", "crl")
_MOST = 1 << 20  # bytes of one value; Kubernetes' limit for a whole Secret
# The public PEM blocks. Some files have the private key beside the certificate, and Envoy's config dump would show it.
_SHOWN = re.compile(rb"-----BEGIN ((?:TRUSTED |X509 )?CERTIFICATE|X509 CRL)-----[^-]*-----END \1-----\s*")


def read_secret(root: Fields, meta: Meta) -> tuple[Credential, ...]:
    root.ignored("immutable")
    kind = root.raw("type") or ""
    held = {**_mapping(root.raw("data")), **_mapping(root.raw("stringData"))}
    if kind not in _TYPES or not any(name in held for names in (_CHAIN, _ROOTS) for name in names):
        return ()
    chain, roots, revoked = (without_key(_content(root, names)) for names in (_CHAIN, _ROOTS, _REVOKED))
    key = _content(root, _KEY)
    if bool(chain) != bool(key):
        there, lacking = (_CHAIN[0], _KEY[0]) if chain else (_KEY[0], _CHAIN[0])
        root.error(("data",), f"`{there}` is set, and `{lacking}` is missing")
    leaf = _Leaf(root, meta, chain, key)
    if roots:
        leaf.check_roots(roots)
    if revoked:
        leaf.check_revoked(revoked)
    return (
        Credential(
            meta.namespace, meta.name, chain, key, roots, revoked, leaf.hosts, leaf.key_kind, leaf.expires, meta.origin
        ),
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _content(root: Fields, names: tuple[str, ...]) -> bytes:
    written, encoded = _mapping(root.raw("stringData")), _mapping(root.raw("data"))
    for name in names:
        value = written.get(name, encoded.get(name))
        if value is None:
            continue
        where = ("stringData" if name in written else "data", name)
        if not isinstance(value, str) or len(value) > 2 * _MOST:
            root.error(where, f"`{name}` is not text, or is too long")
            return b""
        if name in written:
            return value.encode()
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError):
            root.error(where, f"`{name}` is not base64", "put plain text into `stringData`")
            return b""
    return b""


def without_key(pem: bytes) -> bytes:
    """Return the PEM text without private keys. If the text contains a private key, only its certificates and
    revocation lists are returned, or a placeholder if it has none of these; any other text is returned unchanged."""
    return b"".join(found[0] for found in _SHOWN.finditer(pem)) or HIDDEN if b"PRIVATE KEY" in pem else pem


class _Leaf:
    """The parsed certificate of a Secret and its private key: the certificate's hosts and expiry, and the type of the
    key. What Envoy would reject is reported to `root` as an error: a certificate or key that cannot be parsed, a key of
    another certificate, or a key that is neither RSA nor ECDSA."""

    def __init__(self, root: Fields, meta: Meta, chain: bytes, key: bytes) -> None:
        self._root = root
        self.hosts: tuple[str, ...] = ()
        self.key_kind = ""
        self.expires = 0.0
        if chain and key:
            self._read(chain, key)

    def _read(self, chain: bytes, key: bytes) -> None:
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec, rsa

        try:
            found = x509.load_pem_x509_certificates(chain)
        except ValueError:
            self._root.error(("data", _CHAIN[0]), f"`{_CHAIN[0]}` has no certificate that can be parsed", "use PEM")
            return
        leaf = found[0]
        self.expires = leaf.not_valid_after_utc.timestamp()
        self.hosts = _hosts(leaf)
        if key == HIDDEN:  # the Secret is from a cache without keys, and is not sent to a proxy
            return
        try:
            private = serialization.load_pem_private_key(key, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):  # not its text, which may quote the key
            self._root.error(
                ("data", _KEY[0]), f"`{_KEY[0]}` has no private key that can be parsed", "use PEM, not encrypted"
            )
            return
        public = leaf.public_key()
        form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        if public.public_bytes(*form) != private.public_key().public_bytes(*form):
            self._root.error(("data", _KEY[0]), f"`{_KEY[0]}` is not the key of the first certificate in `{_CHAIN[0]}`")
            return
        self.key_kind = (
            "RSA"
            if isinstance(public, rsa.RSAPublicKey)
            else "ECDSA"
            if isinstance(public, ec.EllipticCurvePublicKey)
            else ""
        )
        if not self.key_kind:
            self._root.error(("data", _KEY[0]), "the key is neither RSA nor ECDSA: Envoy accepts no other")

    def check_roots(self, roots: bytes) -> None:
        from cryptography import x509

        try:
            x509.load_pem_x509_certificates(roots)
        except ValueError:
            self._root.error(("data", _ROOTS[0]), f"`{_ROOTS[0]}` has no certificate that can be parsed", "use PEM")

    def check_revoked(self, revoked: bytes) -> None:
        from cryptography import x509

        try:
            x509.load_pem_x509_crl(revoked)
        except ValueError:
            self._root.error(
                ("data", _REVOKED[0]), f"`{_REVOKED[0]}` has no revocation list that can be parsed", "use PEM"
            )


def _hosts(leaf: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(name.lower() for name in names.get_values_for_type(x509.DNSName))
