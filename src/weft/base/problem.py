"""What is wrong, where it is, and what to do about it.

Everything that can be wrong with an input ends as a Problem. A problem is a value: it is printed, kept for diagnosis,
put on an object's status, and it stops nothing else.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    ERROR = "error"  # the object is rejected; its last good version stays
    WARNING = "warning"  # the object works, but perhaps not as its author expects
    INFO = "info"  # nothing is wrong; worth knowing

    @property
    def weight(self) -> int:
        """The worse, the more."""
        return _WEIGHTS.index(self)


_WEIGHTS = (Severity.INFO, Severity.WARNING, Severity.ERROR)


class Where(msgspec.Struct, frozen=True):
    """A place a person can go to: a file and line, an object, a field in it. Empty parts are unknown."""

    file: str = ""
    line: int = 0
    object: str = ""  # "VirtualService shop/payments"
    field: str = ""  # "spec.http[0].route[1].weight"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return ": ".join(part for part in (place, self.object, self.field) if part)


class Problem(msgspec.Struct, frozen=True):
    where: Where
    what: str
    hint: str = ""
    severity: Severity = Severity.ERROR
    code: str = ""  # of a check: WFT0104, stable; "" if there is none

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        hint = f" (hint: {self.hint})" if self.hint else ""
        return f"{place}{self.level}: {self.what}{hint}"

    @property
    def level(self) -> str:
        """`warning [WFT0104]`"""
        return f"{self.severity} [{self.code}]" if self.code else str(self.severity)
