"""A pod as it was before we touched it, made of one that we did.

The status annotation says what was ours: containers and volumes. Probes come back from what the proxy was told of them,
and a pod's own words about our containers from the annotation that keeps them. Labels, other annotations and the
wait of applications stay: they say the same the second time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weft.inject import probes
from weft.inject.annotations import OVERRIDES, STATUS
from weft.inject.containers import INIT, PROBERS, PROXY, VALIDATION
from weft.inject.json_patch import copied

OURS = (PROXY, INIT, VALIDATION)
_LISTS = ("containers", "initContainers")


class InjectionStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was injected, by name. The form is Istio's; its tools and node agents read it."""

    init_containers: tuple[str, ...] | None = None
    containers: tuple[str, ...] | None = None
    volumes: tuple[str, ...] | None = None
    image_pull_secrets: tuple[str, ...] | None = None
    revision: str = ""


class Stripped(msgspec.Struct, frozen=True):
    pod: dict[str, Any]
    status: InjectionStatus | None  # None: we have never seen it
    current: dict[str, dict[str, Any]]  # our containers as they are now, by name
    overrides: dict[str, dict[str, Any]]  # what the pod itself says about them


def strip(pod: dict[str, Any]) -> Stripped:
    """The pod that came in stays as it is. Its `spec` and its lists are taken to be what they should."""
    pod = copied(pod)
    spec = pod["spec"]
    for holder, fields in ((pod["metadata"], ("labels", "annotations")), (spec, ("initContainers", "volumes"))):
        for field in fields:
            if field in holder and holder[field] is None:
                del holder[field]
    annotations = pod["metadata"].get("annotations", {})
    status = _status(annotations.get(STATUS))
    kept = _kept_overrides(annotations.get(OVERRIDES))
    found: dict[str, dict[str, Any]] = {}
    for field in _LISTS:
        if field in spec:
            found |= {each["name"]: each for each in spec[field] if each["name"] in OURS}
            spec[field] = [each for each in spec[field] if each["name"] not in OURS]
    if status is None:
        return Stripped(pod, None, {}, {**found, **kept})
    originals = _originals(found.get(PROXY, {}))
    probes.restore([each for field in _LISTS for each in spec.get(field, ())], originals)
    return Stripped(pod, status, found, kept)


def _status(text: Any) -> InjectionStatus | None:
    try:
        return msgspec.json.decode(text, type=InjectionStatus) if isinstance(text, str) else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def _kept_overrides(text: Any) -> dict[str, dict[str, Any]]:
    """Each container by its name; nothing where the annotation says nothing that makes sense."""
    try:
        document = msgspec.json.decode(text, type=dict[str, list[dict[str, Any]] | None]) if text else {}
    except (msgspec.DecodeError, UnicodeError, TypeError):
        return {}
    entries = [each for field in _LISTS for each in document.get(field) or ()]
    return {each["name"]: each for each in entries if each.get("name") in OURS}


def _originals(proxy: dict[str, Any]) -> dict[str, Any]:
    variables = proxy.get("env")
    for each in variables if isinstance(variables, list) else ():
        if isinstance(each, dict) and each.get("name") == PROBERS and isinstance(each.get("value"), str):
            return probes.decode(each["value"])
    return {}
