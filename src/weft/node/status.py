"""What can be told of a workload's identity: a value for `weft status -o json`, and what is wrong with it in words.
Loaded by every command, so it loads next to nothing itself."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec


class IdentityStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Times are Unix time; 0: not yet."""

    workload: str
    identity: str
    serial: str = ""
    not_before: float = 0.0
    not_after: float = 0.0
    renewal: float = 0.0  # when the next certificate is asked for
    renewals: int = 0
    roots: tuple[str, ...] = ()  # SHA-256 fingerprints of what it trusts
    failing_since: float = 0.0
    error: str = ""  # why the last try failed, while it goes on failing

    def is_held(self, now: float) -> bool:
        """Whether there is a certificate that is good now."""
        return bool(self.serial) and self.not_before <= now < self.not_after

    def warning(self, now: float) -> str:
        """A hint for a table's last column."""
        if self.serial and now >= self.not_after:
            return f"certificate EXPIRED at {clock_text(self.not_after)}"
        what = "certificate not renewed" if self.serial else "no certificate"
        return f"{what} since {clock_text(self.failing_since)}" if self.error else ""

    def trouble(self, now: float) -> str:
        """What is wrong, since when, why, and until when it can go on; empty if nothing is."""
        if not self.error:
            return "" if self.serial else "it has no certificate yet"
        since = f"since {clock_text(self.failing_since)}: {self.error}"
        if not self.serial:
            return f"no certificate {since}"
        if now >= self.not_after:
            return f"its certificate ended at {clock_text(self.not_after)} and is not renewed {since}"
        return f"its certificate is not renewed {since}; it ends at {clock_text(self.not_after)}"


def clock_text(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M:%S} UTC"
