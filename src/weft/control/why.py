"""Why a proxy has what it has: a resource comes in, and out goes, for each part of it that was made of objects, which
objects these are and where they are written. What no object made is a default of weft's, and is said to be one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from envoy.config.core.v3.base_pb2 import Metadata
from google.protobuf import symbol_database
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError, Message

from weft.base.problem import Problem, Where
from weft.base.suggest import did_you_mean
from weft.control.stage import Stage
from weft.explain.decision import policy_source, sources_of
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

_KINDS = {LISTENER: "listener", ROUTE: "route", CLUSTER: "cluster", ENDPOINT: "endpoints"}
_NAMES = ("name", "cluster_name", "prefix", "path", "regex")  # by which people know an item of a list


class Made(msgspec.Struct, frozen=True):
    """One part of a resource and the objects behind it; none: a default."""

    path: str
    sources: tuple[str, ...] = ()  # with the part of the object, where it is known


class Why(msgspec.Struct, frozen=True):
    proxy: str
    kind: str
    name: str
    version: str
    parts: tuple[Made, ...]


class NoSuchResource(Exception):
    def __init__(self, name: str, proxy: str, known: list[str]) -> None:
        what = f"{proxy} has no resource `{name}`"
        super().__init__(what)
        listed = "list them with: weft proxy-config all " + proxy
        guess = did_you_mean(name, known) if len(known) <= 5_000 else ""
        self.problem = Problem(Where(), what, guess if guess.startswith("did you") else listed)


def why(stage: Stage, proxy: str, name: str, below: str = "") -> list[Why]:
    """Of each resource of that name; `below`: only of the parts whose path begins so. Raises NoSuchResource."""
    group = stage.group(proxy)
    found = []
    versions = stage.versions(group)
    for type_url, resources in stage.resources(group).items():
        body = resources.get(name)
        if body is None:
            continue
        message = _message(type_url, body)
        parts = tuple(part for part in _parts(stage, message, "") if part.path.startswith(below))
        found.append(Why(proxy, _KINDS[type_url], name, versions[type_url, name], parts or (Made(below),)))
    if not found:
        raise NoSuchResource(name, proxy, sorted({each for _, each in versions}))
    return found


def _message(type_url: str, body: bytes) -> Message:
    made: Message = symbol_database.Default().GetSymbol(type_url.rpartition("/")[2])()
    made.ParseFromString(body)
    return made


def _parts(stage: Stage, message: Message, path: str) -> Iterator[Made]:
    """This message, if objects made it, and then what is in it."""
    if isinstance(message, Packed):
        opened = _opened(message)
        if opened is not None:
            yield from _parts(stage, opened, path)
        return
    metadata = getattr(message, "metadata", None)
    if isinstance(metadata, Metadata) and (sources := sources_of(metadata)):
        yield Made(path, tuple(str(stage.placed(source)) for source in sources))
    for field, value in message.ListFields():
        if field.message_type is None or field.name == "metadata":
            continue
        where = f"{path}.{field.name}" if path else field.name
        if field.is_repeated and field.message_type.GetOptions().map_entry:
            for key in sorted(value, key=str):
                if sources := policy_source(str(key)):
                    yield Made(f"{where}[{key}]", tuple(str(stage.placed(source)) for source in sources))
                elif isinstance(value[key], Message):
                    yield from _parts(stage, value[key], f"{where}[{key}]")
        elif field.is_repeated:
            for number, each in enumerate(value):
                yield from _parts(stage, each, f"{where}[{_called(each, number)}]")
        else:
            yield from _parts(stage, value, where)


def _opened(packed: Packed) -> Message | None:
    """None for what nobody here knows."""
    try:
        return _message(packed.type_url, packed.value)
    except (KeyError, DecodeError):
        return None


def _called(message: Message, number: int) -> str:
    fields: Any = message.DESCRIPTOR.fields_by_name
    for name in _NAMES:
        if name in fields and fields[name].type == fields[name].TYPE_STRING and getattr(message, name):
            return str(getattr(message, name))
    return str(number)
