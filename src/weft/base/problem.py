"""The type of everything that can be wrong with an input: what is wrong, where it is, and what to do about it.

A problem is a value: it is printed, kept for diagnosis and put on an object's status. It does not stop the
processing of other inputs.
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
        """Return a number for sorting by severity; an error has the largest."""
        return _WEIGHTS.index(self)


_WEIGHTS = (Severity.INFO, Severity.WARNING, Severity.ERROR)


class Where(msgspec.Struct, frozen=True):
    """The place of a problem: a file and line, an object, a field in it. Empty parts are unknown."""

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
    code: str = ""  # the stable code of an analyzer check, such as WFT0104; "" if the problem has none

    def __str__(self) -> str:
        place = f"{self.where}: " if str(self.where) else ""
        hint = f" (hint: {self.hint})" if self.hint else ""
        return f"{place}{self.level}: {self.what}{hint}"

    @property
    def level(self) -> str:
        """The severity with the code, such as `warning [WFT0104]`."""
        return f"{self.severity} [{self.code}]" if self.code else str(self.severity)
