"""JSON Patch (RFC 6902): computes a short list of operations from one JSON value to another, as far as pods need it.

Lists whose entries have names, such as containers and volumes, are compared by name, so that an entry added at the
front does not replace all later entries. Applied to the first value in order, the operations give exactly the second.
"""

from __future__ import annotations

from typing import Any

Operation = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    return list(_compare("", before, after))


def same(one: Any, other: Any) -> bool:
    """Return whether the JSON values `one` and `other` are equal and of the same type: in Python, `True == 1 ==
    1.0`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def copied(value: Any) -> Any:
    """Return a deep copy in which no two fields share a value, so that each can be changed alone. In YAML, an alias
    makes several fields share one value."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def _compare(path: str, before: Any, after: Any) -> list[Operation]:
    if same(before, after):
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        return _of_mappings(path, before, after)
    if isinstance(before, list) and isinstance(after, list):
        return _of_lists(path, before, after)
    return [{"op": "replace", "path": path, "value": after}]


def _of_mappings(path: str, before: dict[str, Any], after: dict[str, Any]) -> list[Operation]:
    operations: list[Operation] = [
        {"op": "remove", "path": f"{path}/{_token(key)}"} for key in before if key not in after
    ]
    for key, value in after.items():
        place = f"{path}/{_token(key)}"
        if key in before:
            operations += _compare(place, before[key], value)
        else:
            operations.append({"op": "add", "path": place, "value": value})
    return operations


def _of_lists(path: str, before: list[Any], after: list[Any]) -> list[Operation]:
    old, new = _places(before), _places(after)
    if old is None or new is None or [name for name in new if name in old] != [name for name in old if name in new]:
        return _by_position(path, before, after)
    removed = [place for name, place in old.items() if name not in new]
    operations: list[Operation] = [{"op": "remove", "path": f"{path}/{place}"} for place in reversed(removed)]
    for place, (name, value) in enumerate(zip(new, after, strict=True)):
        if name in old:
            operations += _compare(f"{path}/{place}", before[old[name]], value)
        else:
            operations.append({"op": "add", "path": f"{path}/{place}", "value": value})
    return operations


def _by_position(path: str, before: list[Any], after: list[Any]) -> list[Operation]:
    common = min(len(before), len(after))
    operations = [each for place in range(common) for each in _compare(f"{path}/{place}", before[place], after[place])]
    operations += [{"op": "remove", "path": f"{path}/{place}"} for place in reversed(range(common, len(before)))]
    operations += [
        {"op": "add", "path": f"{path}/{place}", "value": after[place]} for place in range(common, len(after))
    ]
    return operations


def _places(values: list[Any]) -> dict[str, int] | None:
    """Return the position of each entry by its name; None unless every entry has a unique name. The lookup in a dict
    keeps the comparison linear, which matters because the author of a pod decides how many entries there are."""
    names = [each["name"] for each in values if isinstance(each, dict) and isinstance(each.get("name"), str)]
    places = {name: place for place, name in enumerate(names)}
    return places if len(places) == len(values) else None


def _token(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
