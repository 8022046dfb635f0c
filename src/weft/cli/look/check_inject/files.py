"""Reads every pod template in files and directories, with file, line, and the labels of its namespace if the files
contain them. Decides without a cluster whether each pod would get a proxy, as the API server and the injector of a
default installation would."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from weft.cli.print.output import fail
from weft.inject.decision import decide
from weft.inject.settings import InjectionSettings
from weft.inject.webhooks import DEFAULT_REVISION, INJECT_LABEL

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_WORKLOAD = "Workload"  # a Workload of `weft up` decides for itself whether it has a proxy


class Template(msgspec.Struct, frozen=True):
    """The template from which pods are created. `object`: the object that contains it, such as `Deployment shop/web`;
    `kind` and `namespace`: those of this object; `file` and `line`: where the object is written. `pod`: the template
    itself, with metadata and spec."""

    object: str  # such as `Deployment shop/web`
    kind: str
    namespace: str
    file: str
    line: int
    pod: Mapping[str, Any]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


class WrittenPods(msgspec.Struct, frozen=True):
    templates: tuple[Template, ...]
    namespaces: Mapping[str, Mapping[str, str]]  # labels of the Namespaces in the files


class FileVerdict(msgspec.Struct, frozen=True):
    object: str
    where: str
    webhook: str
    revision: str
    injected: bool
    reason: str


def read(paths: Sequence[Path], namespace: str) -> WrittenPods:
    """Return all pod templates and Namespaces in `paths`. `namespace` is used for objects that name none. The command
    ends if a file is not YAML, or if no object creates pods."""
    templates: list[Template] = []
    namespaces: dict[str, Mapping[str, str]] = {}
    for file in _files(paths):
        for body, line in _objects(file):
            metadata = _mapping(body, "metadata")
            if body.get("kind") == "Namespace":
                namespaces[str(metadata.get("name"))] = _mapping(metadata, "labels")
            elif (pod := pod_of(body)) is not None:
                place = str(metadata.get("namespace") or namespace)
                name = f"{place}/{metadata.get('name') or metadata.get('generateName') or '?'}"
                templates.append(Template(f"{body['kind']} {name}", str(body["kind"]), place, str(file), line, pod))
    if not templates:
        fail(
            f"{', '.join(map(str, paths))}: no pod and no workload in these files",
            "give files with a Pod, a Deployment, or another object that creates pods",
        )
    return WrittenPods(tuple(templates), namespaces)


def verdicts(written: WrittenPods, settings: InjectionSettings) -> list[FileVerdict]:
    """Return for each template in `written` whether its pods would get a proxy in an installation with these settings:
    first the selectors of the installation's webhooks decide, then the injector. For a Workload of `weft up`, its own
    label or annotation decides."""
    revision = settings.revision or DEFAULT_REVISION
    result = []
    for each in written.templates:
        if each.kind == _WORKLOAD:
            has, reason = _by_itself(each.pod)
            result.append(FileVerdict(each.object, each.where, "-", "-", has, reason))
            continue
        decision = decide(each.pod, each.namespace, written.namespaces.get(each.namespace, {}), settings)
        result.append(FileVerdict(each.object, each.where, "-", revision, decision.inject, decision.reason))
    return result


def _by_itself(workload: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether a Workload has a proxy, and the reason. The reason has the same words as the one that
    `inspect/describe/pods_and_services.py` gives for a running mesh."""
    for place in ("label", "annotation"):
        value = _mapping(_mapping(workload, "metadata"), f"{place}s").get(INJECT_LABEL)
        if value is not None:
            return str(value).lower() != "false", f"its {place} {INJECT_LABEL} is {value}"
    return True, "a Workload has one by default"


def pod_of(document: Any) -> dict[str, Any] | None:
    """Return the pod, or the pod template, of an object; None if the object creates no pods."""
    if not isinstance(document, dict):
        return None
    if document.get("kind") in ("Pod", _WORKLOAD):
        return document
    spec = _mapping(document, "spec")
    if document.get("kind") == "CronJob":
        spec = _mapping(_mapping(spec, "jobTemplate"), "spec")
    template = spec.get("template")
    # A RequestTest, a Certificate and other kinds have templates without containers.
    return template if isinstance(template, dict) and isinstance(template.get("spec"), dict) else None


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    from weft.files import scan

    for path in paths:
        if path.is_dir():
            root = str(path.absolute())
            yield from (path / name for name in sorted(scan.look(root, str(path)).files))
        else:
            yield path


def _objects(file: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each object of a file with its line. The items of a List are yielded one by one."""
    from weft.api.yaml_text import YamlError, compose

    line = 1
    for part in _MARKER.split(_text(file)):
        if part.strip():
            try:
                composed = compose(part, line)
            except YamlError as error:
                fail(f"{file}:{error.flaw.line}: {error.flaw.what}", error.flaw.hint or "give YAML, or JSON")
            body = composed.value
            if isinstance(body, dict) and body.get("kind") == "List":
                for number, item in enumerate(body.get("items") or ()):
                    if isinstance(item, dict):
                        yield item, composed.lines.get(("items", number), composed.line)
            elif isinstance(body, dict):
                yield body, composed.line
        line += part.count("\n")


def _text(file: Path) -> str:
    try:
        return sys.stdin.buffer.read().decode() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {getattr(error, 'strerror', '') or error}", "give a file of Kubernetes objects")


def _mapping(body: Any, field: str) -> Mapping[str, Any]:
    value = body.get(field) if isinstance(body, Mapping) else None
    return value if isinstance(value, Mapping) else {}
