"""Sends TokenReviews for the CA's token checks: the API server checks a token's signature, time and audience, and
that its pod and service account still exist.

Rule: the response is read strictly, and only a token that is bound to a pod gives an identity. An API server that
cannot be reached is not a rejection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from weft.kube.client import Client
from weft.kube.error import KubeError
from weft.kube.resource import TOKEN_REVIEWS

_LONGEST_TOKEN = 16 << 10
_TIMEOUT = 10.0
_ACCOUNT = "system:serviceaccount:"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_EXTRA = "authentication.kubernetes.io/"


class Reason(StrEnum):
    NOT_AUTHENTICATED = "not authenticated"
    WRONG_AUDIENCE = "wrong audience"
    NOT_A_SERVICE_ACCOUNT = "not a service account"
    NOT_POD_BOUND = "not bound to a pod"


class Reviewed(msgspec.Struct, frozen=True):
    username: str
    namespace: str
    service_account: str
    pod: str
    pod_uid: str
    node: str  # "" if the server is too old to return it
    audiences: tuple[str, ...]


class ReviewRefused(Exception):
    """The token is not valid, or does not give an identity."""

    def __init__(self, reason: Reason, detail: str = "", reviewed: Reviewed | None = None) -> None:
        """`reason` and `detail`: why the token is rejected. `reviewed`: the identity that the API server returned for
        the token, if it returned one that is not sufficient for weft; else None."""
        self.reason, self.detail, self.reviewed = reason, detail, reviewed
        super().__init__(f"{reason}: {detail}" if detail else str(reason))


class ReviewUnavailable(KubeError):
    """The API server could not be reached, or does not allow the review: the token may be valid. Try again later."""

    retryable = True


async def review(client: Client, token: str, audiences: Sequence[str], *, timeout: float = _TIMEOUT) -> Reviewed:
    """Return the identity of a token, as the API server reports it. The token must be issued for at least one of
    `audiences`. Raises ReviewRefused or ReviewUnavailable."""
    if not audiences:
        raise ValueError("an audience is needed")
    if not token or len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ReviewRefused(
            Reason.NOT_AUTHENTICATED, "the token is empty or too long, or has characters that no token has"
        )
    question = {
        "apiVersion": TOKEN_REVIEWS.api_version,
        "kind": TOKEN_REVIEWS.kind,
        "spec": {"token": token, "audiences": list(audiences)},
    }
    try:
        answer = await client.raw("POST", TOKEN_REVIEWS.path(), body=msgspec.json.encode(question), timeout=timeout)
        status = msgspec.json.decode(answer, type=_Answer).status
    except (KubeError, msgspec.MsgspecError, ValueError) as error:
        hint = "check that the API server is up, and that this account may create tokenreviews.authentication.k8s.io"
        raise ReviewUnavailable(f"a token cannot be reviewed: {error}", hint) from error
    return _identity(status, audiences)


def _identity(status: _Status, audiences: Sequence[str]) -> Reviewed:
    if not status.authenticated:
        # Only the server's message distinguishes the reasons; the decision does not depend on it.
        wrong = "audience" in (status.error or "")
        reason = Reason.WRONG_AUDIENCE if wrong else Reason.NOT_AUTHENTICATED
        raise ReviewRefused(reason, (status.error or "the API server did not authenticate the token")[:500])
    granted = tuple(status.audiences or ())
    if not set(granted) & set(audiences):
        detail = f"the token is for {', '.join(granted) or 'no audience'}, not for {', '.join(audiences)}"
        raise ReviewRefused(Reason.WRONG_AUDIENCE, detail)
    username = status.user.username
    namespace, _, account = username.removeprefix(_ACCOUNT).partition(":")
    if not username.startswith(_ACCOUNT) or not _NAME.fullmatch(namespace) or not _NAME.fullmatch(account):
        raise ReviewRefused(Reason.NOT_A_SERVICE_ACCOUNT, username[:300])
    extra = status.user.extra or {}
    pod, uid, node = (_only(extra, f"{_EXTRA}{key}") for key in ("pod-name", "pod-uid", "node-name"))
    reviewed = Reviewed(username, namespace, account, pod, uid, node, granted)
    if not pod or not uid:
        what = f"the token of {username} names no pod; use a projected service account token"
        raise ReviewRefused(Reason.NOT_POD_BOUND, what, reviewed)
    return reviewed


def _only(extra: dict[str, list[str] | None], key: str) -> str:
    """Return the value of `key` in the `extra` fields of a user; "" unless there is exactly one value, since several
    are ambiguous."""
    values = extra.get(key) or []
    return values[0] if len(values) == 1 else ""


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str] | None] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    error: str | None = None
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] | None = None


class _Answer(msgspec.Struct):
    status: _Status
