"""Restores a pod to its state before injection.

The status annotation lists the injected containers and volumes. The original probes are in a variable of the proxy, and
the pod's overrides of weft's containers are in an annotation. Labels, other annotations and the preStop hooks of
applications are kept: a second injection would add the same ones.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weft.inject import probes
from weft.inject.annotations import OVERRIDES, STATUS
from weft.inject.containers import INIT, PROBERS, PROXY, VALIDATION
from weft.inject.json_patch import copied
from weft.inject.pod_shape import is_container

OURS = (PROXY, INIT, VALIDATION)
_LISTS = ("containers", "initContainers")


class InjectionStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The names of everything that was injected into a pod, and the revision that did it: the content of the status
    annotation, in Istio's format, which Istio's tools and node agents read. A field is None if nothing of its kind was
    injected."""

    init_containers: tuple[str, ...] | None = None
    containers: tuple[str, ...] | None = None
    volumes: tuple[str, ...] | None = None
    image_pull_secrets: tuple[str, ...] | None = None
    revision: str = ""


class Stripped(msgspec.Struct, frozen=True):
    pod: dict[str, Any]
    status: InjectionStatus | None  # None: the pod was never injected
    current: dict[str, dict[str, Any]]  # weft's containers as they are now, by name
    overrides: dict[str, dict[str, Any]]  # the pod's overrides of these containers, by name


def strip(pod: dict[str, Any]) -> Stripped:
    """Return a copy of the pod without the injected parts, together with the removed parts that a new injection
    needs. The shape of `spec` is not checked here."""
    pod = copied(pod)
    spec = pod["spec"]
    for holder, fields in ((pod["metadata"], ("labels", "annotations")), (spec, ("initContainers", "volumes"))):
        for field in fields:
            if field in holder and holder[field] is None:
                del holder[field]
    annotations = pod["metadata"].get("annotations", {})
    status = _status(annotations.get(STATUS))
    kept = _kept_overrides(annotations.get(OVERRIDES))
    ours: dict[str, dict[str, Any]] = {}
    for field in _LISTS:
        if field in spec:
            ours |= {each["name"]: each for each in spec[field] if each["name"] in OURS}
            spec[field] = [each for each in spec[field] if each["name"] not in OURS]
    if status is None:
        return Stripped(pod, None, {}, {**ours, **kept})
    originals = _originals(ours.get(PROXY, {}))
    probes.restore([each for field in _LISTS for each in spec.get(field, ())], originals)
    return Stripped(pod, status, ours, kept)


def _status(text: Any) -> InjectionStatus | None:
    try:
        return msgspec.json.decode(text, type=InjectionStatus) if isinstance(text, str) else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def _kept_overrides(text: Any) -> dict[str, dict[str, Any]]:
    """Return the pod's overrides of weft's containers, by container name, from `text`, the content of the annotation
    that stores them; empty if it cannot be parsed."""
    try:
        document = msgspec.json.decode(text, type=dict[str, list[dict[str, Any]] | None]) if text else {}
    except (msgspec.DecodeError, UnicodeError, TypeError):
        return {}
    entries = [each for field in _LISTS for each in document.get(field) or ()]
    return {each["name"]: each for each in entries if is_container(each) and each["name"] in OURS}


def _originals(proxy: dict[str, Any]) -> dict[str, Any]:
    variables = proxy.get("env")
    for each in variables if isinstance(variables, list) else ():
        if isinstance(each, dict) and each.get("name") == PROBERS and isinstance(each.get("value"), str):
            return probes.decode(each["value"])
    return {}
