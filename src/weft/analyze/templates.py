"""Parses the pod of a document: a Pod, or the template of a Deployment, StatefulSet, DaemonSet or Job. Only the
fields that the checks need are read; malformed fields are treated as absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.api.document import Document, Path
from weft.model.names import Labels, labels_of

_TEMPLATE: Path = ("spec", "template")
PLACES: Mapping[str, Path] = {
    "Pod": (),
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


class TemplateContainer(msgspec.Struct, frozen=True):
    path: Path
    name: str = ""
    image: str = ""
    user: int | None = None
    ports: tuple[tuple[str, int, str], ...] = ()  # name, number, protocol


class PodTemplate(msgspec.Struct, frozen=True):
    document: Document
    path: Path  # where the pod begins in the document
    labels: Labels = ()
    annotations: Labels = ()
    account: str = "default"
    host_network: bool = False
    user: int | None = None  # the UID of all containers without their own
    containers: tuple[TemplateContainer, ...] = ()  # those that keep running: no init containers, except sidecars
    runs: bool = False  # a pod that exists, not only a template
    owner: tuple[str, str] = ("", "")  # kind and name of its controller
    over: bool = False  # the pod has succeeded or failed
    drivers: tuple[str, ...] = ()  # CSI drivers of its volumes

    @property
    def namespace(self) -> str:
        return self.document.key.namespace

    @property
    def name(self) -> str:
        return self.document.key.name

    @property
    def proxy(self) -> TemplateContainer | None:
        return next((each for each in self.containers if each.name == "istio-proxy"), None)

    @property
    def applications(self) -> tuple[TemplateContainer, ...]:
        return tuple(each for each in self.containers if each.name != "istio-proxy")

    def body(self) -> Mapping[str, Any]:
        """The manifest of the pod, as the API server would send it to the injector."""
        return _mapping(self.document.body, self.path)


def template_of(document: Document) -> PodTemplate | None:
    """The pod or pod template of a document; None if its kind has no pods. Never raises."""
    path = PLACES.get(document.key.kind)
    if path is None:
        return None
    metadata, spec = _mapping(document.body, (*path, "metadata")), _mapping(document.body, (*path, "spec"))
    status = _mapping(document.body, ("status",)) if not path else {}
    own = _mapping(document.body, ("metadata",))
    owners = [each for each in _list(own, "ownerReferences") if isinstance(each, Mapping) and each.get("controller")]
    account = spec.get("serviceAccountName")
    return PodTemplate(
        document=document,
        path=path,
        labels=labels_of(_texts(metadata.get("labels"))),
        annotations=labels_of(_texts(metadata.get("annotations"))),
        account=account if isinstance(account, str) and account else "default",
        host_network=spec.get("hostNetwork") is True,
        user=_user(spec),
        containers=tuple(_containers(spec, (*path, "spec"))),
        runs=bool(status.get("phase")),
        owner=(str(owners[0].get("kind", "")), str(owners[0].get("name", ""))) if owners else ("", ""),
        over=status.get("phase") in ("Succeeded", "Failed"),
        drivers=tuple(_drivers(spec)),
    )


def _containers(spec: Mapping[str, Any], path: Path) -> Iterator[TemplateContainer]:
    for field in ("containers", "initContainers"):
        for index, written in enumerate(_list(spec, field)):
            if not isinstance(written, Mapping):
                continue
            if field == "initContainers" and written.get("restartPolicy") != "Always":
                continue
            image = written.get("image")
            yield TemplateContainer(
                path=(*path, field, index),
                name=str(written.get("name", "")),
                image=image if isinstance(image, str) else "",
                user=_user(written),
                ports=tuple(_ports(written)),
            )


def _ports(container: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    for port in _list(container, "ports"):
        if isinstance(port, Mapping) and isinstance(number := port.get("containerPort"), int):
            yield str(port.get("name", "")), number, str(port.get("protocol", "TCP"))


def _drivers(spec: Mapping[str, Any]) -> Iterator[str]:
    for volume in _list(spec, "volumes"):
        driver = _mapping(volume, ("csi",)).get("driver") if isinstance(volume, Mapping) else None
        if isinstance(driver, str):
            yield driver


def _user(holder: Mapping[str, Any]) -> int | None:
    user = _mapping(holder, ("securityContext",)).get("runAsUser")
    return user if isinstance(user, int) and not isinstance(user, bool) else None


def _mapping(body: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    value: Any = body
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    return value if isinstance(value, list) else []


def _texts(mapping: Any) -> dict[str, str]:
    items = mapping.items() if isinstance(mapping, Mapping) else ()
    return {name: value for name, value in items if isinstance(name, str) and isinstance(value, str)}
