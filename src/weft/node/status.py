"""The status of a workload's certificate: a value for `weft status -o json`, and a text for what is wrong. Every
command imports this module, so it imports almost nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec


class IdentityStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate of one workload. Times are Unix time; 0 means not yet. `renewal`: when the next certificate is
    requested. `renewals`: how often the certificate was renewed. `roots`: SHA-256 fingerprints of the roots that the
    workload trusts. `failing_since`: the first failure since the last success; 0 if the last attempt succeeded.
    `error`: the error of the last attempt; empty if it succeeded."""

    workload: str
    identity: str
    serial: str = ""
    not_before: float = 0.0
    not_after: float = 0.0
    renewal: float = 0.0  # when the next certificate is requested
    renewals: int = 0
    roots: tuple[str, ...] = ()  # SHA-256 fingerprints of the roots it trusts
    failing_since: float = 0.0
    error: str = ""  # of the last attempt, if it failed

    def is_held(self, now: float) -> bool:
        """Return whether there is a certificate that is valid at `now`."""
        return bool(self.serial) and self.not_before <= now < self.not_after

    def warning(self, now: float) -> str:
        """Return a short warning about the certificate for the last column of a table; an empty string if there is
        nothing to warn about."""
        if self.serial and now >= self.not_after:
            return f"certificate EXPIRED at {clock_text(self.not_after)}"
        what = "certificate not renewed" if self.serial else "no certificate"
        return f"{what} since {clock_text(self.failing_since)}" if self.error else ""

    def trouble(self, now: float) -> str:
        """Return as one text what is wrong with the certificate, since when, why, and when the certificate expires;
        an empty string if nothing is wrong."""
        if not self.error:
            return "" if self.serial else "no certificate yet"
        since = f"since {clock_text(self.failing_since)}: {self.error}"
        if not self.serial:
            return f"no certificate {since}"
        if now >= self.not_after:
            return f"its certificate expired at {clock_text(self.not_after)}; renewal has failed {since}"
        return f"renewal of its certificate has failed {since}; the certificate expires at {clock_text(self.not_after)}"


def clock_text(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M:%S} UTC"
