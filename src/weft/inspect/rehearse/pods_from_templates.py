"""Generate the pods that Kubernetes would create from Deployments and other templates, each with a proxy if the
injector would add one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from weft.analyze.namespaces import INJECTION, REVISION
from weft.analyze.templates import PodTemplate, template_of
from weft.api.document import Document
from weft.inject.annotations import InjectionRefused
from weft.inject.decision import decide
from weft.inject.gateway import is_gateway
from weft.inject.overrides import AUTO_IMAGE
from weft.inject.settings import InjectionSettings
from weft.model.group import ProxyKind
from weft.model.instance import Instance
from weft.model.names import ObjectKey, Origin

_ADDRESS = "192.0.2.2"  # address of generated pods: a documentation address (RFC 5737)


def written_pods(documents: Iterable[Document]) -> Iterator[tuple[ObjectKey, Instance]]:
    """Generate one pod for each pod template in the documents. Yields the key of the pod and its Instance."""
    written = tuple(documents)
    templates = (each for document in written if (each := template_of(document)) is not None)
    return would_be(templates, AssumedInjection(written))


def would_be(templates: Iterable[PodTemplate], injection: AssumedInjection) -> Iterator[tuple[ObjectKey, Instance]]:
    for template in templates:
        if template.owner != ("", ""):
            continue
        named = {name: number for container in template.containers for name, number, _ in container.ports if name}
        document, kind = template.document, injection.kind_of(template)
        yield (
            ObjectKey("Pod", template.namespace, f"{document.key.kind}/{template.name}"),
            Instance(
                name=template.name,
                namespace=template.namespace,
                addresses=(_ADDRESS,),
                labels=template.labels,
                service_account=template.account,
                ports=tuple(sorted(named.items())),
                meshed=kind is ProxyKind.SIDECAR,
                gateway=kind is ProxyKind.GATEWAY,
                workload=template.name,
                by_slice=True,
                origin=Origin(document.key, "", document.file, document.line),
                included_ports=_ports_of(template, "includeInboundPorts"),
                excluded_ports=_ports_of(template, "excludeInboundPorts") or (),
            ),
        )


class AssumedInjection:
    """Decides which pods get a proxy, as API server and injector would. `injectors`: revision -> settings of its
    running injector."""

    def __init__(self, documents: Iterable[Document], injectors: Mapping[str, InjectionSettings] = {}) -> None:
        self._namespaces = {each.key.name: _labels(each) for each in documents if each.key.kind == "Namespace"}
        self._injectors = injectors

    def kind_of(self, template: PodTemplate) -> ProxyKind | None:
        """The kind of proxy (sidecar or gateway) that a pod of this template has already or would get; None if it gets
        none."""
        if template.host_network:
            return None
        try:
            kind = ProxyKind.GATEWAY if is_gateway(dict(template.annotations), template.name) else ProxyKind.SIDECAR
        except InjectionRefused:  # the injector rejects the pod; a check reports it
            return None
        injected = template.proxy is not None and template.proxy.image != AUTO_IMAGE
        return kind if injected or self.wants(template) else None

    def wants(self, template: PodTemplate) -> bool:
        labels = self._namespaces.get(template.namespace)
        if labels is None:
            # The namespace is not in the files. Most meshes inject into namespaces that contain objects of the mesh.
            labels = {INJECTION: "enabled"}
        return decide(template.body(), template.namespace, labels, self.settings(labels)).inject

    def settings(self, labels: Mapping[str, str]) -> InjectionSettings:
        revision = "default" if INJECTION in labels else labels.get(REVISION, "default")
        return self._injectors.get(revision) or InjectionSettings(revision=revision)

    def settings_for(self, namespace: str) -> InjectionSettings:
        return self.settings(self._namespaces.get(namespace, {}))


def _ports_of(template: PodTemplate, name: str) -> tuple[int, ...] | None:
    """The ports in the annotation `traffic.sidecar.istio.io/NAME`; None if it contains `*` or is not set. Values
    that are not ports are skipped; a check reports them."""
    written = dict(template.annotations).get(f"traffic.sidecar.istio.io/{name}", "*")
    if "*" in written:
        return None
    return tuple(int(part) for part in map(str.strip, written.split(",")) if part.isdecimal() and len(part) <= 5)


def _labels(document: Document) -> Mapping[str, str]:
    metadata = document.body.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return labels if isinstance(labels, Mapping) else {}
