"""Parses a document into model values and problems. The table `KINDS` maps each kind to its reader.

Rule: an object is accepted or rejected as a whole. If one of its problems is an error, there are no values, and the
caller keeps the last valid version. Objects of kinds that weft does not read have neither values nor errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from weft.api.authorization_policy import closed_authorization_policy, read_authorization_policy
from weft.api.client_tls import closed_rule
from weft.api.core import read_namespace, read_service_account
from weft.api.destination_rule import read_destination_rule
from weft.api.document import Document
from weft.api.gateway import read_gateway
from weft.api.gateway_api.backend_tls_policy import read_backend_tls_policy
from weft.api.gateway_api.gateway import read_standard_gateway
from weft.api.gateway_api.gateway_class import read_gateway_class
from weft.api.gateway_api.grpc_route import read_grpc_route
from weft.api.gateway_api.http_route import read_http_route
from weft.api.gateway_api.listener_set import read_listener_set
from weft.api.gateway_api.reference_grant import read_reference_grant
from weft.api.gateway_api.stream_routes import read_tcp_route, read_tls_route
from weft.api.kinds import GATEWAY_API, STANDARD_GATEWAY
from weft.api.mesh_config import read_config_map
from weft.api.metadata import Meta, read_metadata
from weft.api.peer_authentication import read_peer_authentication, strict
from weft.api.reader import Fields, root_of
from weft.api.report import DocumentReport
from weft.api.request_authentication import closed_request_authentication, read_request_authentication
from weft.api.request_test import KIND, read_request_test
from weft.api.secret import read_secret
from weft.api.service import read_service
from weft.api.service_entry import read_service_entry
from weft.api.sidecar import read_sidecar
from weft.api.syntax import words
from weft.api.telemetry import read_telemetry
from weft.api.virtual_service import read_virtual_service
from weft.api.workload import read_workload
from weft.api.workload_entry import read_workload_entry
from weft.api.yaml_text import MOST_DEPTH
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.value import Value


class Parsed(msgspec.Struct, frozen=True):
    values: tuple[Value, ...] = ()
    problems: tuple[Problem, ...] = ()
    # The values of a rejected object that could be parsed, only for checks of references to it.
    meant: tuple[Value, ...] = ()
    closed: tuple[Value, ...] = ()  # replaces a rejected object that restricts access, if there is no valid version


class KindReader(msgspec.Struct, frozen=True):
    versions: tuple[str, ...]  # accepted apiVersions, the preferred one first
    read: Callable[[Fields, Meta], tuple[Value, ...]]
    namespaced: bool = True
    # Returns the values that replace a rejected object, so that access fails closed. It gets the values that could be
    # parsed.
    closed: Callable[[tuple[Value, ...], Meta], tuple[Value, ...]] | None = None


_ISTIO = ("networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3")
_SECURITY = ("security.istio.io/v1", "security.istio.io/v1beta1")


def _standard(*versions: str) -> tuple[str, ...]:
    return tuple(f"{GATEWAY_API}/{version}" for version in versions)


KINDS: Mapping[str, KindReader] = {
    "Namespace": KindReader(("v1",), read_namespace, namespaced=False),
    "ServiceAccount": KindReader(("v1",), read_service_account),
    "Service": KindReader(("v1",), read_service),
    "ConfigMap": KindReader(("v1",), read_config_map),
    "Secret": KindReader(("v1",), read_secret),
    "VirtualService": KindReader(_ISTIO, read_virtual_service),
    "DestinationRule": KindReader(_ISTIO, read_destination_rule, closed=closed_rule),
    "ServiceEntry": KindReader(_ISTIO, read_service_entry),
    "WorkloadEntry": KindReader(_ISTIO, read_workload_entry),
    "Sidecar": KindReader(_ISTIO, read_sidecar),
    "Gateway": KindReader(_ISTIO, read_gateway),
    "AuthorizationPolicy": KindReader(_SECURITY, read_authorization_policy, closed=closed_authorization_policy),
    "Telemetry": KindReader(("telemetry.istio.io/v1", "telemetry.istio.io/v1alpha1"), read_telemetry),
    "RequestAuthentication": KindReader(_SECURITY, read_request_authentication, closed=closed_request_authentication),
    "PeerAuthentication": KindReader(_SECURITY, read_peer_authentication, closed=strict),
    "GatewayClass": KindReader(_standard("v1", "v1beta1"), read_gateway_class, namespaced=False),
    STANDARD_GATEWAY: KindReader(_standard("v1", "v1beta1"), read_standard_gateway),
    "ListenerSet": KindReader(_standard("v1"), read_listener_set),
    "HTTPRoute": KindReader(_standard("v1", "v1beta1"), read_http_route),
    "GRPCRoute": KindReader(_standard("v1", "v1alpha2"), read_grpc_route),
    "TLSRoute": KindReader(_standard("v1", "v1alpha3", "v1alpha2"), read_tls_route),
    "TCPRoute": KindReader(_standard("v1", "v1alpha2"), read_tcp_route),
    "BackendTLSPolicy": KindReader(_standard("v1", "v1alpha3"), read_backend_tls_policy),
    "ReferenceGrant": KindReader(_standard("v1", "v1beta1", "v1alpha2"), read_reference_grant),
    "Workload": KindReader(("weft.dev/v1alpha1",), read_workload),
}

# Kinds of other tools, which are often in the same files as objects of a mesh. They are ignored with a warning.
NOT_READ = frozenset(
    words("""
    Pod Deployment ReplicaSet StatefulSet DaemonSet Job CronJob Endpoints EndpointSlice Node Ingress
    IngressClass NetworkPolicy HorizontalPodAutoscaler PodDisruptionBudget Role RoleBinding ClusterRole
    ClusterRoleBinding PersistentVolume PersistentVolumeClaim StorageClass CustomResourceDefinition
    ValidatingWebhookConfiguration MutatingWebhookConfiguration ResourceQuota LimitRange PriorityClass Lease
    Event ReplicationController PodTemplate APIService Kustomization EnvoyFilter ProxyConfig WorkloadGroup
    WasmPlugin IstioOperator UDPRoute XListenerSet ServiceMonitor PodMonitor
    """)
)

# The kinds in NOT_READ that would change how a mesh behaves if weft supported them.
OF_MESHES = frozenset(
    words("""
    EnvoyFilter ProxyConfig WasmPlugin WorkloadGroup UDPRoute XListenerSet
    """)
)

# The kinds in NOT_READ that create pods. A mesh on one machine has Workloads instead; on a cluster, Kubernetes creates
# the pods.
OF_PODS = frozenset(words("Pod Deployment ReplicaSet StatefulSet DaemonSet Job CronJob ReplicationController"))

# Hints: what to use instead of a kind that is not read.
_INSTEAD: Mapping[str, str] = {
    "EnvoyFilter": "use a VirtualService, DestinationRule, Telemetry or AuthorizationPolicy",
    "WasmPlugin": "to authorize requests, use an AuthorizationPolicy with action CUSTOM",
    "WorkloadGroup": "write a WorkloadEntry for each machine",
    "UDPRoute": "UDP bypasses the proxies: a mesh does not route it",
    "XListenerSet": f"write a ListenerSet of {GATEWAY_API}/v1",
    "ProxyConfig": "remove the ProxyConfig, or keep the control plane that supports it",
}

CLUSTER_SCOPED = frozenset(
    words("""
    Namespace Node ClusterRole ClusterRoleBinding CustomResourceDefinition GatewayClass PersistentVolume
    StorageClass PriorityClass IngressClass APIService ValidatingWebhookConfiguration
    MutatingWebhookConfiguration
    """)
)


def parse(document: Document, domain: str = "cluster.local") -> Parsed:
    """Parse a document into model values and problems. `domain` is the cluster's DNS domain. Never raises, whatever the
    document contains."""
    report = DocumentReport(document)
    values: tuple[Value, ...] = ()
    reader = KINDS.get(document.key.kind)
    if not document.usable:  # the source of the document has reported the problem
        return Parsed(closed=_closed_unread(document, reader, domain))
    if reader is None and document.key.kind != KIND:
        _report_kind(report, document.key.kind)
    elif reader is not None and document.api_version not in reader.versions:
        _report_version(report, document, reader)
    elif _deeper(document.body, MOST_DEPTH):
        report.error((), f"the object is nested deeper than {MOST_DEPTH} levels")
    elif reader is None:  # a RequestTest, which `weft test` runs, may be in the same files
        return Parsed((), read_request_test(document)[1])
    else:
        root = root_of(report)
        meta = read_metadata(root, document, domain)
        values = reader.read(root, meta)
        problems = report.finish()
        if not report.failed:
            return Parsed(values, problems)
        return Parsed((), problems, meant=values, closed=reader.closed(values, meta) if reader.closed else ())
    return Parsed((), report.finish(), closed=_closed_unread(document, reader, domain))


def may_close(document: Document) -> bool:
    """Whether the document's kind restricts access, so that a rejected object of this kind fails closed."""
    reader = KINDS.get(document.key.kind)
    return reader is not None and reader.closed is not None


def _closed_unread(document: Document, reader: KindReader | None, domain: str) -> tuple[Value, ...]:
    if reader is None or reader.closed is None:
        return ()
    return reader.closed((), read_metadata(root_of(DocumentReport(document)), document, domain))


def _report_kind(report: DocumentReport, kind: str) -> None:
    if kind in OF_PODS:
        what = f"a mesh on one machine does not run a {kind}: its pods are checked only for a cluster"
        report.warning(("kind",), what, "to run a process here, write a Workload (weft.dev/v1alpha1)")
    elif kind in NOT_READ:
        code = "WFT0003" if kind in OF_MESHES else ""
        what = f"weft does not read kind {kind}"
        report.warning(
            ("kind",), f"{what}: the object has no effect" if code else what, _INSTEAD.get(kind, ""), code=code
        )
    else:
        report.error(("kind",), f"unknown kind `{kind[:80]}`", did_you_mean(kind[:80], (*KINDS, *NOT_READ, KIND)))


def _report_version(report: DocumentReport, document: Document, reader: KindReader) -> None:
    kind, version = document.key.kind, document.api_version[:80]
    report.error(("apiVersion",), f"{kind} has no version `{version}`", f"write {reader.versions[0]}")


def _deeper(value: Any, levels: int) -> bool:
    """Whether a value is nested deeper than `levels`. It visits the value level by level, which is faster than
    recursion: the check runs for every object of a cluster."""
    level = [value]
    while level := [each for each in level if isinstance(each, _NESTING)]:
        if levels == 0:
            return True
        level = [member for each in level for member in (each.values() if isinstance(each, _MAPPING) else each)]
        levels -= 1
    return False


_MAPPING = (dict, Mapping)  # dict is first, because almost all mappings are dict and its check is fast
_NESTING = (dict, list, tuple, Mapping)
