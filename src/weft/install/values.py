"""The configurable values of an installation. Input: a mapping from YAML or `--set`. Output: a Values, or an error with
the unknown name and a suggestion. The Helm chart has the same names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from weft import __version__
from weft.api.document import Document
from weft.api.mesh_config import NAME as MESH_CONFIG
from weft.api.parse import parse
from weft.api.syntax import is_dns_label, words
from weft.base.problem import Problem, Severity, Where
from weft.base.suggest import did_you_mean
from weft.model.names import CLUSTER_NAMESPACES, ObjectKey
from weft.model.settings import Settings

DEFAULT_REVISION = "default"
EVERYWHERE = "*"
LONGEST_REVISION = 40  # so that every name that contains it fits into 63 characters

# The injector's settings that follow from other values.
OURS = frozenset(
    words("""
    image imagePullPolicy imagePullSecrets redirectBy enableNamespacesByDefault revision rootNamespace driver
    clusterDomain trustDomain excludedNamespaces
    """)
)

Quantity = str | int | float
FailurePolicy = Literal["Fail", "Ignore"]

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?|[0-9]+(\.[0-9]+)?e[0-9]+")
_TIME = re.compile(r"[0-9]{1,9}(s|m|h|d)")


class ValuesError(Exception):
    """The given values are invalid. `problem` has the field, the reason and a hint for the author of the values."""

    def __init__(self, what: str, hint: str = "", *, field: str = "", file: str = "") -> None:
        super().__init__(what)
        self.problem = Problem(Where(file=file, field=field), what, hint)


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class ContainerResources(_Part, frozen=True):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class ControlValues(_Part, frozen=True):
    """The values of the control plane's Deployment. `annotations`: those of its pods. `plaintext_xds`: whether it also
    serves xDS without TLS on port 15010; every client in the cluster can then read every configuration."""

    replicas: int = 2
    # With 1,000 services, 2,000 pods and 100 nodes it uses 290 MB (`python -m bench --kubernetes kube-control`).
    resources: ContainerResources = ContainerResources(
        {"cpu": "200m", "memory": "256Mi"}, {"cpu": "2", "memory": "1Gi"}
    )
    priority_class: str = "system-cluster-critical"
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    annotations: dict[str, str] = {}  # of its pods
    plaintext_xds: bool = False  # on 15010: every client in the cluster can then read every configuration
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class NodeValues(_Part, frozen=True):
    """The values of the node agent's DaemonSet. `kubelet_root`: kubelet's directory on the nodes. `certificate_ttl`:
    the lifetime of a pod's certificate. `max_unavailable`: how many of its pods may be missing during an update."""

    kubelet_root: str = "/var/lib/kubelet"
    certificate_ttl: str = "24h"  # lifetime of a pod's certificate; it is renewed after four fifths of it
    resources: ContainerResources = ContainerResources(
        {"cpu": "50m", "memory": "96Mi"}, {"cpu": "1", "memory": "512Mi"}
    )
    priority_class: str = "system-node-critical"
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ({"operator": "Exists"},)
    annotations: dict[str, str] = {}
    max_unavailable: str | int = "10%"  # of its pods at once, during an update
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class InjectionValues(_Part, frozen=True):
    """Which pods get a proxy, and what installs the redirect to it. `failure_policy`: whether pods are rejected (Fail)
    or start without a proxy (Ignore) while the webhook does not respond. `by_default`: whether namespaces without an
    injection label are included. `redirect_by`: `init` for an init container with NET_ADMIN, `node` for the node's
    agent. `settings`: those of the injected containers (docs/kubernetes.md)."""

    failure_policy: FailurePolicy = "Fail"
    by_default: bool = False  # also in namespaces without an injection label
    # An init container with NET_ADMIN, or the node's agent, for clusters that forbid such containers.
    redirect_by: Literal["init", "node"] = "init"
    excluded_namespaces: tuple[str, ...] = CLUSTER_NAMESPACES
    settings: dict[str, Any] = {}  # of the injected containers: docs/kubernetes.md


class Validation(_Part, frozen=True):
    """Whether the API server rejects an invalid resource when it is applied (`enabled`), and whether it rejects
    every resource while the validating webhook does not respond (`failure_policy`)."""

    enabled: bool = True
    failure_policy: FailurePolicy = "Fail"


class GatewayValues(_Part, frozen=True):
    """Optional permissions that the control plane needs for gateways. `secrets_in`: the namespaces in which it may read
    Secrets, for the certificates of gateways. `config_maps_in`: those in which it may read ConfigMaps, for the CA
    certificates of backends. `*` means all namespaces. `deployments`: whether it may create the proxies of Gateways."""

    # Namespaces in which it may read Secrets, for the certificates of gateways there; `*`: in all namespaces. It
    # watches only the Secrets that a Gateway names, but Kubernetes cannot limit its permission to these.
    secrets_in: tuple[str, ...] = ()
    # Namespaces in which it may read ConfigMaps, for the CA certificates that BackendTLSPolicies there trust.
    config_maps_in: tuple[str, ...] = ()
    # Whether it creates proxies for Gateways of the Gateway API that name no address. It may then create and change
    # Deployments, Services and ServiceAccounts, and so run any program as any account. Therefore it is off by default.
    deployments: bool = False


class AuthorityValues(_Part, frozen=True):
    """The name of the Secret with your own CA; its files have Istio's names. If the Secret does not exist, weft
    creates a root and stores it in a Secret of its own."""

    secret: str = "cacerts"  # noqa: S105


class Values(_Part, frozen=True):
    revision: str = DEFAULT_REVISION
    namespace: str = "istio-system"
    image: str = f"weft:{__version__}"
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    crds: bool = True
    control: ControlValues = ControlValues()
    node: NodeValues = NodeValues()
    injection: InjectionValues = InjectionValues()
    validation: Validation = Validation()
    gateways: GatewayValues = GatewayValues()
    ca: AuthorityValues = AuthorityValues()
    mesh: dict[str, Any] = {}  # Istio's MeshConfig


def values_of(given: Mapping[str, Any]) -> Values:
    """Return the defaults with `given` merged over them; null removes a value. Raises ValuesError."""
    _refuse_unknown(Values, given, ())
    try:
        values = msgspec.convert(_without_null(merged(written(Values()), given)), Values)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at ")
        field = at.strip("`").removeprefix("$.")
        raise ValuesError(what[:1].lower() + what[1:], "list all values: weft manifest values", field=field) from error
    _check(values)
    return values


def written(values: Values) -> dict[str, Any]:
    """Return the values as a mapping, in the form of a values file."""
    document: dict[str, Any] = msgspec.to_builtins(values)
    return document


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `above` over `below` as Helm does: mappings are merged, any other value is replaced."""
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        result[name] = merged(under, value) if both else value  # type: ignore[arg-type]
    return result


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_null(member) for name, member in value.items() if member is not None}
    return value


def _refuse_unknown(type_: type[msgspec.Struct], given: Any, path: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        return  # a wrong type is reported later, with the expected type
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(type_)}
    for name, value in given.items():
        if name not in fields:
            where = ".".join((*path, str(name)))
            raise ValuesError(f"there is no value `{where}`", did_you_mean(str(name), fields), field=".".join(path))
        inner = fields[name]
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _refuse_unknown(inner, value, (*path, name))


def _check(values: Values) -> None:
    if not is_dns_label(values.revision) or len(values.revision) > LONGEST_REVISION:
        hint = f"use at most {LONGEST_REVISION} lower-case letters, digits and -, for example 1-1-0"
        raise ValuesError(f"`{values.revision}` is not a name for a revision", hint, field="revision")
    for name in (values.namespace, *values.injection.excluded_namespaces):
        if not is_dns_label(name):
            raise ValuesError(f"`{name}` is not a namespace", "use lower-case letters, digits and -", field="namespace")
    for field, places in (("secretsIn", values.gateways.secrets_in), ("configMapsIn", values.gateways.config_maps_in)):
        for name in places:
            if name != EVERYWHERE and not is_dns_label(name):
                hint = f"use lower-case letters, digits and -; or {EVERYWHERE} for all namespaces"
                raise ValuesError(f"`{name}` is not a namespace", hint, field=f"gateways.{field}")
    if "kube-system" not in values.injection.excluded_namespaces:
        hint = "while the webhook cannot be reached, pods of kube-system could not start; add kube-system to the list"
        raise ValuesError("kube-system must be excluded from injection", hint, field="injection.excludedNamespaces")
    if values.control.replicas < 2:
        hint = "with one replica, the control plane is down during a node failure, a drain or an upgrade"
        raise ValuesError("the control plane needs two replicas or more", hint, field="control.replicas")
    root = values.node.kubelet_root
    if not root.startswith("/") or root.endswith("/"):
        hint = "give kubelet's --root-dir, for example /var/lib/kubelet"
        raise ValuesError(f"`{root}` is not an absolute path", hint, field="node.kubeletRoot")
    if not _TIME.fullmatch(values.node.certificate_ttl):
        what = f"`{values.node.certificate_ttl}` is not a duration"
        raise ValuesError(what, "for example 24h or 30m", field="node.certificateTtl")
    if not values.image:
        raise ValuesError("`image` must not be empty", f"for example weft:{__version__}", field="image")
    for name in sorted(OURS & set(values.injection.settings)):
        raise ValuesError(
            f"`{name}` cannot be set here: weft sets it from other values",
            "remove it",
            field=f"injection.settings.{name}",
        )
    for part, resources in (("control", values.control.resources), ("node", values.node.resources)):
        for sort in ("requests", "limits"):
            _check_quantities(f"{part}.resources.{sort}", getattr(resources, sort))
    _check_mesh(values)


def _check_quantities(field: str, quantities: Mapping[str, Quantity]) -> None:
    for name, quantity in quantities.items():
        if isinstance(quantity, bool) or not _QUANTITY.fullmatch(str(quantity)):
            raise ValuesError(f"`{quantity}` is not a quantity", "for example 100m or 256Mi", field=f"{field}.{name}")


def _check_mesh(values: Values) -> None:
    """Raise ValuesError for a mesh config with which the control plane would not start."""
    root = Settings().root_namespace
    body = {
        "metadata": {"name": MESH_CONFIG, "namespace": root},
        "data": {"mesh": msgspec.json.encode(values.mesh).decode()},
    }
    document = Document(ObjectKey("ConfigMap", root, MESH_CONFIG), "v1", body)
    for problem in parse(document).problems:
        if problem.severity is Severity.ERROR:
            raise ValuesError(problem.what, problem.hint, field=problem.where.field.removeprefix("data."))
