"""How what somebody typed becomes the value of a parameter: words, numbers, paths, one of a few. typer does it with
pydantic, and loading that takes as long as all the rest of a short command. A flag may be given a value, too, as
istioctl's may: `--verbose=false`.

Rule: only what is plainly right is read here. Anything else goes typer's way, which knows how to complain.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}  # as Go reads them


class PlainCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _without_values(self.get_params(ctx), ctx, args))


class PlainGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))


def _without_values(parameters: list[Any], ctx: Any, arguments: list[str]) -> list[str]:
    """Flags that have a value become flags, or nothing. What belongs to another program is left alone."""
    flags = {name: each for each in parameters if getattr(each, "is_flag", False) for name in each.opts}
    found: list[str] = []
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if argument == "--" or not (argument.startswith("-") or ctx.allow_interspersed_args):
            return [*found, *arguments[number:]]
        if not equals or name not in flags or value.lower() not in _BOOLEANS:
            found.append(argument)
            continue
        flag, names = flags[name], (*flags[name].opts, *flags[name].secondary_opts)
        found = [each for each in found if each not in names]  # the last one counts
        found += [name] if _BOOLEANS[value.lower()] else flag.secondary_opts[:1]
    return found


def _plain(parameters: list[Any]) -> list[Any]:
    """The same, each reading for itself what it can."""
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)  # what a typer has that needs pydantic
        if described is None or "process_value" in vars(parameter):
            continue
        if (read := _reader(described)) is not None:
            parameter.process_value = partial(_process, parameter, read, parameter.process_value)
    return parameters


class _NotPlainError(Exception):
    """Leave it to typer."""


def _process(
    parameter: Any, read: Callable[[Any], Any], usual: Callable[[Any, Any], Any], context: Any, value: Any
) -> Any:
    try:
        plain = _all_of(parameter, read, value)
    except _NotPlainError:
        return usual(context, value)
    return plain if parameter.callback is None else parameter.callback(context, parameter, plain)


def _all_of(parameter: Any, read: Callable[[Any], Any], value: Any) -> Any:
    several = parameter.multiple or parameter.nargs == -1
    if value is None or (several and not value):
        if parameter.required:
            raise _NotPlainError
        return () if several and value is None else value
    if several:
        if not isinstance(value, (list, tuple)):
            raise _NotPlainError
        return [read(each) for each in value]
    return read(value)


def _reader(described: Any) -> Callable[[Any], Any] | None:
    """Of one value; none for what is not plain."""
    kind, settings = described.annotation, described.parameter_info
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if settings.parser is not None or not isinstance(kind, type):
        return None
    if issubclass(kind, Enum):
        return partial(_one_of, kind)
    if kind in (str, bool):
        return partial(_same, kind)
    if kind in (int, float):
        return partial(_number, kind, settings)
    demanding = settings.exists or settings.writable or settings.resolve_path or settings.path_type is not None
    if kind is Path and settings.file_okay and settings.dir_okay and not demanding:
        return _path
    return None


def _same(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise _NotPlainError
    return value


def _number(kind: type, settings: Any, value: Any) -> Any:
    number = kind(value) if type(value) is str and value.isascii() and value.isdecimal() else _same(kind, value)
    if (settings.min is not None and number < settings.min) or (settings.max is not None and number > settings.max):
        raise _NotPlainError
    return number


def _path(value: Any) -> Path:
    if not isinstance(value, (str, Path)) or (Path(value).exists() and not os.access(value, os.R_OK)):
        raise _NotPlainError
    return Path(value)


def _one_of(kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise _NotPlainError from None
