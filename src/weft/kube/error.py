"""Errors of the Kubernetes API, of three kinds: weft's configuration is wrong, the API server rejected the request,
or the API server did not answer. Exceptions of aiohttp and ssl are converted to these. Rule: no message contains
a token or a key."""

from __future__ import annotations

from pathlib import Path

from weft.base.problem import Problem, Where


class KubeError(Exception):
    """Base class of all errors of the Kubernetes API. `retryable`: the same request may succeed later without a
    change by the operator."""

    retryable = False

    def __init__(self, what: str, hint: str = "", *, file: Path | str = "", where: str = "") -> None:
        self.problem = Problem(Where(file=str(file), object=where), what, hint)
        super().__init__(str(self.problem))


class ConfigError(KubeError):
    """The connection settings are missing or wrong; the operator must fix them."""


class ApiUnavailable(KubeError):
    """No response, or a response that is not an API server's. It is unknown whether a write has happened."""

    retryable = True


class ApiError(KubeError):
    """The API server rejected the request. Has the server's reason and message."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        request: str = "",
        retry_after: float = 0.0,
        causes: tuple[str, ...] = (),
    ) -> None:
        self.status, self.reason, self.message = status, reason, message
        self.retry_after = retry_after  # seconds to wait, from the server's Retry-After; 0 if it sent none
        self.causes = causes
        text = ": ".join(part for part in (reason, message) if part)
        super().__init__(f"{status} {text}".rstrip(), _HINTS.get(status, ""), where=request)

    @property
    def retryable(self) -> bool:  # type: ignore[override]
        return self.status in (408, 429) or self.status >= 500

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Whether another client changed the object first, so that it must be read again, or (for a create) an
        object of that name already exists."""
        return self.status == 409

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def expired(self) -> bool:
        """Whether the server no longer has the requested resource version or continue token, so that the objects
        must be listed again."""
        return self.status == 410 or self.reason in ("Expired", "Gone")

    @property
    def forbidden(self) -> bool:
        return self.status == 403


_HINTS = {
    401: "the credentials are not valid (any more): log in again, or check the token",
    403: "RBAC does not allow the request; check with: kubectl auth can-i VERB RESOURCE --as USER",
}
