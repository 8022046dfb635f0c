"""A gateway's certificate, key and CA certificates from a Secret. Rule: a credential is passed on as a whole, and its
content is never printed."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from weft.model.names import CredentialRef, Origin

# Replaces a private key in stored history; no real key has this value.
HIDDEN = b"[hidden]"


class Credential(msgspec.Struct, frozen=True, cache_hash=True):
    namespace: str
    name: str
    chain: bytes = b""  # PEM, the leaf first; all of these may be absent
    private_key: bytes = b""
    roots: bytes = b""
    revoked: bytes = b""
    hosts: tuple[str, ...] = ()  # DNS names of the leaf; below, its kind of key and its expiry
    key_kind: str = ""
    expires: float = 0.0  # seconds since 1970; 0: unknown
    origin: Origin | None = None

    @property
    def reference(self) -> CredentialRef:
        return CredentialRef(self.name, self.namespace)

    def hidden(self) -> Credential:
        """A copy with the private key replaced by `HIDDEN`, for readers that only need to know whether there is a
        key."""
        return msgspec.structs.replace(self, private_key=HIDDEN if self.private_key else b"")

    def __repr__(self) -> str:
        digest = blake2b(self.chain + self.roots + self.revoked, digest_size=4).hexdigest()
        return f"Credential({self.namespace}/{self.name}, {digest})"
