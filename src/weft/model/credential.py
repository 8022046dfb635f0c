"""What a gateway shows and whom it trusts, out of a Secret. Rule: it is handed on whole, and nobody prints it."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from weft.model.gateway import CredentialRef
from weft.model.names import Origin

# In the place of a key, wherever what was is remembered: no key is this.
HIDDEN = b"[hidden]"


class Credential(msgspec.Struct, frozen=True, cache_hash=True):
    namespace: str
    name: str
    chain: bytes = b""  # PEM, the leaf first; all of these may be absent
    private_key: bytes = b""
    roots: bytes = b""
    revoked: bytes = b""
    hosts: tuple[str, ...] = ()  # whom the leaf is for, of what kind of key it is, and until when it is good:
    key_kind: str = ""
    expires: float = 0.0  # seconds since 1970; 0: nobody knows
    origin: Origin | None = None

    @property
    def reference(self) -> CredentialRef:
        return CredentialRef(self.name, self.namespace)

    def hidden(self) -> Credential:
        """The same without its key, for those who only ask whether it was there."""
        return msgspec.structs.replace(self, private_key=HIDDEN if self.private_key else b"")

    def __repr__(self) -> str:
        digest = blake2b(self.chain + self.roots + self.revoked, digest_size=4).hexdigest()
        return f"Credential({self.namespace}/{self.name}, {digest})"
