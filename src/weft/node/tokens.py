"""Reads service account tokens on a node: from files that kubelet or another program keeps fresh, and from the CSI
calls with which kubelet publishes the volume of a pod.

Rule: only the CA, which verifies a token, decides which identity it proves. The agent sends a token to the CA and to no
other program.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from weft.model.identity import Identity, parse_identity
from weft.node.identities import TokenSource

AUDIENCE = "istio-ca"
TOKENS_KEY = "csi.storage.k8s.io/serviceAccount.tokens"
_SUBJECT = "system:serviceaccount:"
_MOST_BYTES = 64 * 1024


def token_in(file: Path) -> TokenSource:
    """Return a function that reads the token from the file on every call."""

    async def read() -> str:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            token = opened.read(_MOST_BYTES).decode("ascii", "replace").strip()
        if not token:
            raise ValueError(f"{file} is empty: there is no token to send to the CA")
        return token

    return read


class _Given(msgspec.Struct):
    token: str


def token_for(audience: str, context: Mapping[str, str], secrets: Mapping[str, str]) -> str:
    """Return the token for `audience` that kubelet sent with a volume: in `secrets` if the CSIDriver is configured
    so, else in `context` (CSI's volume_context). Return "" if there is none. Raises ValueError if the tokens
    cannot be parsed; its message contains none of their text."""
    text = secrets.get(TOKENS_KEY) or context.get(TOKENS_KEY) or ""
    if not text:
        return ""
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{TOKENS_KEY} is longer than {_MOST_BYTES} bytes")
    try:
        given = msgspec.json.decode(text, type=dict[str, _Given])
    except (msgspec.DecodeError, RecursionError):
        raise ValueError(f"{TOKENS_KEY} is not a JSON object of tokens by audience") from None
    return given[audience].token if audience in given else ""


class _Claims(msgspec.Struct):
    sub: str


def identity_in(token: str, trust_domain: str) -> Identity:
    """Return the identity that a Kubernetes token claims, without verifying it: enough to request a certificate. Raises
    ValueError. `trust_domain`: that of the identity; a token does not name one."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, binascii.Error, msgspec.DecodeError, UnicodeError, RecursionError):
        raise ValueError("the token is not a service account token") from None
    namespace, _, account = claims.sub.removeprefix(_SUBJECT).partition(":")
    return parse_identity(str(Identity(trust_domain, namespace, account)))
