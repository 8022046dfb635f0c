"""Findings about pods that the mesh cannot handle as intended: they run as the proxy's user, listen on its ports,
use the node's network, or have labels in the wrong place. Each is reported once, at the object that a user wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.analyze.checks import CHECKS
from weft.analyze.facts import Facts
from weft.analyze.templates import PodTemplate
from weft.api.document import Document, Path
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.peer_authentication import TlsMode
from weft.model.proxy import ADMIN_PORT, METRICS_PORT, TAKEN_PORTS

INJECT = "sidecar.istio.io/inject"
_USER = 1337  # the proxy's UID, whose connections are not intercepted
_OF_PODS = ("sidecar.istio.io/", "traffic.sidecar.istio.io/", "proxy.istio.io/")
_TAKEN = TAKEN_PORTS | {ADMIN_PORT, METRICS_PORT}
_WANTED = ("true", "yes", "y", "on")
_UNWANTED = ("false", "no", "n", "off")
# Annotations with a prefix of `_OF_PODS` that are also valid on other objects.
_ELSEWHERE = ("sidecar.istio.io/status",)


# Annotations that Istio has deprecated, and what replaces them.
DEPRECATED = {
    "sidecar.istio.io/discoveryAddress": "`discoveryAddress` in proxy.istio.io/config",
    "sidecar.istio.io/extraStatTags": "`extraStatTags` in proxy.istio.io/config, or a Telemetry",
    "sidecar.istio.io/statsCompression": "",
    "sidecar.istio.io/statsInclusionPrefixes": "`proxyStatsMatcher` in proxy.istio.io/config",
    "sidecar.istio.io/statsInclusionRegexps": "`proxyStatsMatcher` in proxy.istio.io/config",
    "sidecar.istio.io/statsInclusionSuffixes": "`proxyStatsMatcher` in proxy.istio.io/config",
    "traffic.sidecar.istio.io/kubevirtInterfaces": "istio.io/reroute-virtual-interfaces",
    "alpha.istio.io/canonical-serviceaccounts": "`subjectAltNames` in a DestinationRule",
    "alpha.istio.io/kubernetes-serviceaccounts": "`subjectAltNames` in a DestinationRule",
}
_OF_SERVICES = (
    "networking.istio.io/exportTo",
    "networking.istio.io/traffic-distribution",
    "traffic.istio.io/nodeSelector",
    "galley.istio.io/analyze-suppress",
    "ambient.istio.io/waypoint-inbound-binding",
    "istio.io/use-waypoint-canary-weight",
)
_SCRAPE, _SCRAPED_PORT = "prometheus.io/scrape", "prometheus.io/port"


def of_pods(templates: Iterable[PodTemplate], others: Iterable[Document]) -> Iterator[Problem]:
    """Findings about pods and pod templates, and about labels for pods on other objects. `others`: documents of
    kinds that have no pod."""
    for template in templates:
        if not _refuses(template):
            yield from _of_users(template)
            yield from _of_ports(template)
        yield from _of_network(template)
        yield from _of_annotation(template)
        yield from _deprecated(template.document, (*template.path, "metadata", "annotations"), template.annotations)
        if template.path:
            yield from _misplaced(template.document, "spec.template.metadata")
    for document in others:
        if document.key.kind in ("Service", "Namespace"):
            yield from _misplaced(document, "the pods")
        if document.key.kind == "Service":
            yield from _of_service(document)


def found(code: str, document: Document, path: Path, what: str, hint: str = "") -> Problem:
    """A finding at the line of the field `path` of the document: `code` names the check, `what` and `hint` are the
    text."""
    return Problem(document.where(path), what, hint, CHECKS[code].severity, code)


def _refuses(template: PodTemplate) -> bool:
    """Whether the pod of this template has a label or annotation by which it gets no proxy."""
    value = {**dict(template.annotations), **dict(template.labels)}.get(INJECT, "")
    return template.proxy is None and value.lower() in _UNWANTED


def _of_users(template: PodTemplate) -> Iterator[Problem]:
    for container in template.applications:
        user = template.user if container.user is None else container.user
        if user == _USER:
            at = container.path if container.user is not None else (*template.path, "spec")
            path = (*at, "securityContext", "runAsUser")
            what = (
                f"container {container.name} runs as user {_USER}, which is the proxy's: its calls are not intercepted"
            )
            yield found("WFT0807", template.document, path, what, "run the container as another user")


def _of_ports(template: PodTemplate) -> Iterator[Problem]:
    for container in template.applications if not template.host_network else ():
        for index, (_, number, protocol) in enumerate(container.ports):
            if number in _TAKEN and protocol == "TCP":
                path = (*container.path, "ports", index, "containerPort")
                what = (
                    f"port {number} of container {container.name} is reserved for the proxy: container and proxy "
                    "cannot both listen on it"
                )
                yield found("WFT0813", template.document, path, what, "use another port")


def _of_network(template: PodTemplate) -> Iterator[Problem]:
    value = {**dict(template.annotations), **dict(template.labels)}.get(INJECT, "")
    if template.host_network and value.lower() in _WANTED:
        what = (
            f"the pod requests a proxy ({INJECT}: {value}), but gets none: it uses the node's network (`hostNetwork`)"
        )
        yield found(
            "WFT0808",
            template.document,
            (*template.path, "spec", "hostNetwork"),
            what,
            f"remove `hostNetwork`, or {INJECT}",
        )


def _of_annotation(template: PodTemplate) -> Iterator[Problem]:
    if INJECT in dict(template.annotations) and INJECT not in dict(template.labels):
        path = (*template.path, "metadata", "annotations", INJECT)
        what = f"{INJECT} is an annotation, which the API server cannot select by: make it a label"
        yield found("WFT0812", template.document, path, what, f"write metadata.labels: {{{INJECT}: …}}")


def _of_service(document: Document) -> Iterator[Problem]:
    """Findings about annotations of a Service that have a domain of Istio and are misspelled or deprecated."""
    metadata = document.body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    names = [name for name in annotations if isinstance(name, str)] if isinstance(annotations, dict) else []
    path = ("metadata", "annotations")
    yield from _deprecated(document, path, ((name, "") for name in names))
    for name in names:
        domain = name.partition("/")[0]
        known = name in _OF_SERVICES or name in DEPRECATED or name.startswith(_OF_PODS)
        if not known and (domain == "istio.io" or domain.endswith(".istio.io")):
            what = f"{name} is no annotation of a Service: it has no effect"
            yield found("WFT0821", document, (*path, name), what, did_you_mean(name, _OF_SERVICES))


def _deprecated(document: Document, path: Path, annotations: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    for name, _ in annotations:
        if name in DEPRECATED:
            instead = f"use {DEPRECATED[name]}" if DEPRECATED[name] else "remove it"
            yield found(
                "WFT0822", document, (*path, name), f"Istio has deprecated {name}, and weft ignores it", instead
            )


def of_scraping(templates: Iterable[PodTemplate], facts: Facts) -> Iterator[Problem]:
    """Findings about metrics of applications that Prometheus cannot scrape in plaintext, because the port accepts only
    mutual TLS. `templates`: the pods that have a proxy."""
    for template in templates:
        annotations = dict(template.annotations)
        written = annotations.get(_SCRAPED_PORT, "")
        if annotations.get(_SCRAPE) != "true" or not written.isdecimal() or len(written) > 5:
            continue
        port = int(written)
        excluded = annotations.get("traffic.sidecar.istio.io/excludeInboundPorts", "").replace(" ", "").split(",")
        included = annotations.get("traffic.sidecar.istio.io/includeInboundPorts", "*").replace(" ", "").split(",")
        intercepted = written not in excluded and ("*" in included or written in included)
        if intercepted and facts.modes(template.namespace, template.labels).at(port) is TlsMode.STRICT:
            what = f"port {port} accepts only mutual TLS: Prometheus cannot scrape it in plaintext"
            path = (*template.path, "metadata", "annotations", _SCRAPED_PORT)
            hint = (
                "set the port to PERMISSIVE in `portLevelMtls`, or exclude it from interception (excludeInboundPorts)"
            )
            yield found("WFT0820", template.document, path, what, hint)


def _misplaced(document: Document, place: str) -> Iterator[Problem]:
    metadata = document.body.get("metadata")
    for field in ("labels", "annotations"):
        names = metadata.get(field) if isinstance(metadata, dict) else None
        for name in names if isinstance(names, dict) else ():
            if isinstance(name, str) and name.startswith(_OF_PODS) and name not in _ELSEWHERE:
                what = f"{name} has no effect on a {document.key.kind}: it is for pods"
                yield found("WFT0809", document, ("metadata", field, name), what, f"set it in {place}")
