"""What can go wrong with Kubernetes, in three kinds: our configuration is wrong, the API server said no, or nobody
answered. aiohttp's and ssl's exceptions are renamed to these at the edge. Rule: no message holds a token or a key."""

from __future__ import annotations

from pathlib import Path

from weft.base.problem import Problem, Where


class KubeError(Exception):
    """`retryable`: the same request may succeed later without anybody mending anything."""

    retryable = False

    def __init__(self, what: str, hint: str = "", *, file: Path | str = "", where: str = "") -> None:
        self.problem = Problem(Where(file=str(file), object=where), what, hint)
        super().__init__(str(self.problem))


class ConfigError(KubeError):
    """How to reach the API server is not known, or makes no sense: the operator's to mend."""


class ApiUnavailable(KubeError):
    """No answer, or none that an API server gives: nothing is known about whether a write has happened."""

    retryable = True


class ApiError(KubeError):
    """The API server's own refusal, as it said it."""

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
        self.retry_after = retry_after  # seconds the server asks us to wait; 0 if it did not say
        self.causes = causes
        said = ": ".join(part for part in (reason, message) if part)
        super().__init__(f"{status} {said}".rstrip(), _HINTS.get(status, ""), where=request)

    @property
    def retryable(self) -> bool:  # type: ignore[override]
        return self.status in (408, 429) or self.status >= 500

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Somebody else wrote first: read again. Or a create found its name taken."""
        return self.status == 409

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def expired(self) -> bool:
        """A resource version or continue token that the server no longer knows: list again."""
        return self.status == 410 or self.reason in ("Expired", "Gone")

    @property
    def forbidden(self) -> bool:
        return self.status == 403


_HINTS = {
    401: "the credentials are not valid (any more): log in again, or look at the token",
    403: "RBAC does not allow it: kubectl auth can-i VERB RESOURCE --as USER",
}
