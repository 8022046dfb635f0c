"""Merges a pod's own `istio-proxy` container into the container of that name that weft injects: the pod's container
holds overrides of fields of weft's container.

The merge follows Kubernetes' strategic merge, as far as containers need it: mappings are merged, the lists below are
merged by their key, and any other value is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.inject.json_patch import copied

AUTO_IMAGE = "auto"

_KEYS = {"env": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath", "ports": "containerPort"}


def merge(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return weft's container `ours` with the fields of the pod's container `theirs` merged over it. The image `auto`
    overrides nothing: it is a placeholder, because a container must have an image. The pull policy `Always` is then
    ignored too: the API server sets it for every image without a tag, before it calls the webhook."""
    wanted = dict(theirs)
    if theirs.get("image") in (AUTO_IMAGE, ""):
        del wanted["image"]
        if wanted.get("imagePullPolicy") == "Always":
            del wanted["imagePullPolicy"]
    return _merged(ours, wanted)


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    result = {key: copied(value) for key, value in ours.items()}
    for key, value in theirs.items():
        mine = result.get(key)
        if isinstance(mine, dict) and isinstance(value, Mapping):
            result[key] = _with_one_source(_merged(mine, value), value)
        elif isinstance(mine, list) and isinstance(value, list) and key in _KEYS:
            result[key] = _joined(mine, value, _KEYS[key])
        elif value is not None:
            result[key] = copied(value)
    return result


def _joined(ours: list[Any], theirs: list[Any], key: str) -> list[Any]:
    """Merge two lists of mappings; entries with the same value of `key` are merged. The result has the entries of
    `ours` in their order, then the entries that only `theirs` has."""
    result: list[Any] = copied(ours)
    places = {entry.get(key): place for place, entry in enumerate(result) if isinstance(entry, dict)}
    for entry in theirs:
        place = places.get(entry.get(key)) if isinstance(entry, dict) else None
        if place is None:
            result.append(copied(entry))
        else:
            result[place] = _with_one_source(_merged(result[place], entry), entry)
    return result


def _with_one_source(merged: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Remove from `merged` the fields that Kubernetes does not allow beside a field of `theirs`, and return `merged`. A
    variable can have only one of `value` and `valueFrom`; a probe or hook can have only one handler."""
    for alternatives in (("value", "valueFrom"), ("httpGet", "tcpSocket", "grpc", "exec", "sleep")):
        chosen = [each for each in alternatives if each in theirs]
        if chosen:
            for other in alternatives:
                if other not in chosen:
                    merged.pop(other, None)
    return merged
