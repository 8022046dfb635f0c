"""Merges several values files and `--set a.b=c` assignments into one Values: the later one wins, mappings are merged,
any other value is replaced, and null removes a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from weft.install.values import Values, ValuesError, merged, values_of

_PART = re.compile(r"((?:[^.\[\]\\]|\\.)+)((?:\[[0-9]{1,3}\])*)")
_INDEX = re.compile(r"\[([0-9]+)\]")


def read_values(files: Iterable[tuple[str, str]], assignments: Iterable[str]) -> Values:
    """Return the installation's values: the defaults, overridden by the values files in `files`, as pairs of (name,
    text), and then by the `--set` `assignments`, in Helm's order. Raises ValuesError."""
    values: dict[str, Any] = {}
    for name, text in files:
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            where = getattr(error, "problem_mark", None)
            line = f" (line {where.line + 1})" if where else ""
            raise ValuesError(
                f"the file is not YAML{line}", "for a valid file, see: weft manifest values", file=name
            ) from error
        if document is not None and not isinstance(document, Mapping):
            raise ValuesError(
                "a values file must contain a mapping", "for a valid file, see: weft manifest values", file=name
            )
        values = merged(values, document or {})
    for assignment in assignments:
        values = merged(values, assigned(assignment, values))
    return values_of(values)


def assigned(assignment: str, there: Mapping[str, Any]) -> dict[str, Any]:
    r"""Parse one `--set` assignment: `control.replicas=3` becomes `{"control": {"replicas": 3}}`. The value is read
    as YAML. A dot in a name is written `\.`. `there` holds the values so far. An assignment to a list's item,
    such as `tolerations[0].key=x`, returns the whole list, and takes its other items from `there`."""
    path, equals, text = assignment.partition("=")
    if not equals or not path:
        raise ValuesError(
            f"`{assignment}` is not an assignment", "write --set NAME=VALUE, for example control.replicas=3"
        )
    steps = _steps(path)
    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        value = text
    return {steps[0]: _placed(there.get(steps[0]), steps[1:], value)}  # type: ignore[dict-item,arg-type]


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            raise ValuesError(f"`{path}` is not the name of a value", "for example control.resources.limits.cpu")
        steps.append(re.sub(r"\\(.)", r"\1", match[1]))
        steps += (int(index) for index in _INDEX.findall(match[2]))
        at = match.end()
        if (at < len(path) and path[at] != ".") or at == len(path) - 1:
            raise ValuesError(f"`{path}` is not the name of a value", "for example control.resources.limits.cpu")
        at += 1
    return steps


def _placed(there: Any, steps: list[str | int], value: Any) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = list(there) if isinstance(there, (list, tuple)) else []
        if step > len(items):
            raise ValuesError(f"there is no item [{step}]: the list has {len(items)}", "the first item is [0]")
        item = _placed(items[step] if step < len(items) else None, rest, value)
        return [*items[:step], item, *items[step + 1 :]]
    inner = there if isinstance(there, Mapping) else {}
    return merged(inner, {step: _placed(inner.get(step), rest, value)})
