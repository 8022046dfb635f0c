"""Builds findings: a Problem with the code of its check, the location of the object and field, and a hint that
guesses the intended name."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from weft.analyze.checks import CHECKS
from weft.base.problem import Problem, Severity
from weft.base.suggest import did_you_mean, did_you_mean_name
from weft.model.names import Labels, Origin, where_of


def finding(code: str, origin: Origin | None, field: str, what: str, hint: str = "", *, line: int = 0) -> Problem:
    """Return the Problem of a failed check: `code` names the check, which also sets the severity (`checks.py`);
    `origin` and `field` are the place; `what` and `hint` the text. `line`: the line of the field; 0 for the line
    of the object."""
    return Problem(where_of(origin, line=line, field=field), what, hint, CHECKS[code].severity, code)


class Aged(Protocol):
    @property
    def created(self) -> str: ...


def ahead(first: Aged, then: Aged) -> str:
    """Return the reason why the object `first` takes precedence over the object `then`, as text for a message:
    `first` is older or, if both have the same age, comes first by name. Objects from files have no age."""
    return "comes first by its name" if first.created == then.created else "is older"


def coded(problem: Problem) -> Problem:
    """Return the problem with a code. A problem that already has one is unchanged. Problems from parsing a single
    object have none: an error gets WFT0001, a warning WFT0002."""
    if problem.code:
        return problem
    return msgspec.structs.replace(problem, code="WFT0001" if problem.severity is Severity.ERROR else "WFT0002")


def meant_host(host: str, hosts: Collection[str], domain: str) -> str:
    """Hint with the host that was probably meant instead of `host`, which does not exist; "" if there is none. A
    frequent mistake is a name such as `web.shop`: it has a dot, so Istio takes it for a fully qualified name. `domain`:
    the DNS domain of services."""
    for longer in (f"{host}.svc.{domain}", f"{host}.{domain}"):
        if longer in hosts:
            return f"a host with a dot is a full name: write {longer}"
    guess = did_you_mean_name(host, hosts)
    return guess if guess.startswith("did you") else ""


def written(labels: Labels) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels)


def meant_labels(labels: Labels, there: Iterable[Labels]) -> str:
    """Hint for a selector with these labels that no workload matches. It names the first label that no workload has,
    or that no workload has with this value. `there`: the labels of each workload."""
    values: dict[str, set[str]] = {}
    for each in there:
        for name, value in each:
            values.setdefault(name, set()).add(value)
    if not values:
        return "there is no workload at all"
    for name, value in labels:
        if name not in values:
            return did_you_mean(name, values)
        if value not in values[name]:
            guess = did_you_mean(value, values[name])
            return f"{name}: {guess}" if guess else ""
    return "each of these labels is on some workload, but no workload has all of them"
