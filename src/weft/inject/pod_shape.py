"""The shape of a pod: every field that injection reads, with its type.

Injection works on the pod as plain data, because it must keep fields that it does not know. So the types of the fields
that it reads are checked once, here, and the other modules rely on them. The API server checks the rest of the pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.base.problem import Problem, Where

_MISMATCH = re.compile(r"Expected `(.+?)`, got `(.+?)`(?: - at `(?:key in )?\$\.?(.*)`)?")
_MISSING = re.compile(r"Object missing required field `(.+?)`(?: - at `\$\.?(.*)`)?")
_WORDS = {
    "object": "an object",
    "array": "a list",
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


class _Named(msgspec.Struct, rename="camel"):
    name: str | None = None


class _ContainerPort(msgspec.Struct, rename="camel"):
    name: str | None = None
    container_port: int | None = None


class _Place(msgspec.Struct, rename="camel"):
    mount_path: str | None = None
    device_path: str | None = None


class _SecurityContext(msgspec.Struct, rename="camel"):
    run_as_user: int | None = None
    run_as_group: int | None = None
    sysctls: list[_Named] | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    image: str | None = None
    image_pull_policy: str | None = None
    restart_policy: str | None = None
    env: list[_Named] | None = None
    ports: list[_ContainerPort] | None = None
    volume_mounts: list[_Place] | None = None
    volume_devices: list[_Place] | None = None
    security_context: _SecurityContext | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    init_containers: list[_Container] | None = None
    volumes: list[_Named] | None = None
    image_pull_secrets: list[_Named] | None = None
    security_context: _SecurityContext | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec


def flaw_of_pod(pod: Mapping[str, Any], named: str) -> Problem | None:
    """Return a problem for the first field of a pod that has the wrong type; None if there is none. `named` is the
    pod's name for messages."""
    return _flaw(pod, _Pod, named)


def is_container(value: Any) -> bool:
    """Return whether a value has the shape of a container."""
    return _flaw(value, _Container, "") is None


def _flaw(value: Any, shape: Any, named: str) -> Problem | None:
    try:
        msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error)
        if missing := _MISSING.search(text):
            field = ".".join(filter(None, (missing[2], missing[1])))
            return Problem(Where(object=named, field=field), "it is required")
        if wrong := _MISMATCH.search(text):
            expected, actual = _WORDS.get(wrong[1].removesuffix(" | null"), wrong[1]), _WORDS.get(wrong[2], wrong[2])
            field = (wrong[3] or "").replace("[...]", "")
            return Problem(Where(object=named, field=field), f"it must be {expected}, not {actual}")
        return Problem(Where(object=named), f"the pod is not valid: {text}")
    return None
