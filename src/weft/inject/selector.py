"""Kubernetes label selectors, for namespaces and for objects. As in the API server, a label that no requirement names
has no effect, and a selector without requirements selects everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class SelectorRequirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def fits(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":  # also objects without the label
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None

    def __str__(self) -> str:
        match self.operator:
            case "In" | "NotIn":
                word = "is" if self.operator == "In" else "is not"
                return f"{self.key} {word} {' or '.join(self.values)}"
            case "Exists":
                return f"{self.key} is set"
            case "DoesNotExist":
                return f"{self.key} is not set"


class Selector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()

    @property
    def requirements(self) -> tuple[SelectorRequirement, ...]:
        named = tuple(SelectorRequirement(key, "In", (value,)) for key, value in self.match_labels.items())
        return named + self.match_expressions

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.fits(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ", ".join(map(str, self.requirements)) or "everything"
