"""Creates the proxies of the Gateway API's Gateways: for each Gateway of a weft class that has no `addresses`, a
Deployment, a Service and a ServiceAccount `NAME-CLASS`, as Istio does. Only the leader writes them.

Rule: objects that the Gateway does not own are never changed. Nothing is deleted here: the Gateway owns the created
objects, so Kubernetes deletes them together with the Gateway. Fields that other field managers set, such as
`replicas`, are kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from weft.base.backoff import Backoff
from weft.base.problem import Problem, Severity, Where
from weft.kube.client import Client
from weft.kube.error import ApiError, KubeError
from weft.kube.resource import DEPLOYMENTS, NAMESPACES, SERVICE_ACCOUNTS, SERVICES, ResourceKind
from weft.kube.revisions import DEFAULT, REVISION_LABEL, chosen_revision
from weft.mesh.mesh import Mesh
from weft.model.gateway import Gateway
from weft.model.gateway_api import GATEWAY_NAME, GROUP, StandardGateway
from weft.model.names import ObjectKey
from weft.model.proxy import GATEWAY_TEMPLATE

log = logging.getLogger("weft.kube")

MANAGER = "weft-gateways"  # the field manager, in the objects' managedFields
REVISION_OF = "gateway.weft.dev/revision"  # label of created objects: the revision that created them, for its removal
SERVICE_TYPE = "networking.istio.io/service-type"  # Istio's annotation of a Gateway
GATEWAYS = ResourceKind(GROUP, "v1", "gateways", "Gateway")

_CLASS_LABEL = "gateway.networking.k8s.io/gateway-class-name"
_OF_INJECTION = ("istio.io", "weft.dev")  # suffixes of the domains of labels and annotations for injection
_TYPES = ("ClusterIP", "LoadBalancer", "NodePort")
_LOOK_SECONDS = 1.0  # between checks for new or changed Gateways
_AGAIN_SECONDS = 60.0  # until an object that was deleted or changed is restored
_FIRST_DELAY = 2.0  # seconds until the next attempt after the API server rejected a write


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Owner(msgspec.Struct, frozen=True):
    uid: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata


Ports = tuple[tuple[int, str], ...]  # number and protocol


class _Made:
    """The state of the objects that were created for one Gateway: the version of the Gateway they were created from,
    and the time of the next check."""

    def __init__(self) -> None:
        self.version: tuple[str, Ports] = ("", ())
        self.due = 0.0
        self.backoff = Backoff(_FIRST_DELAY, _AGAIN_SECONDS)
        self.problem: Problem | None = None


class GatewayDeployments:
    def __init__(
        self, client: Client, mesh: Mesh, note: Callable[[Sequence[Problem]], None], *, revision: str = DEFAULT
    ) -> None:
        """`note` is called with all current problems after each check. `revision`: the revision of this control
        plane; Gateways of other revisions are ignored."""
        self._client, self._mesh, self._note, self._revision = client, mesh, note, revision
        self._made: dict[ObjectKey, _Made] = {}

    async def run(self) -> None:
        """Create and restore the objects of Gateways until cancelled."""
        try:
            while True:
                try:
                    await self.look()
                except Exception:  # a bug in weft: try again later
                    log.exception("the proxies of Gateways could not be created; trying again")
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._note(())

    async def look(self) -> None:
        """Create or restore the objects of Gateways that are new, changed, or not checked for a while."""
        wanted = {gateway.key: (gateway, ports) for gateway, ports in _deployed(self._mesh)}
        for key in self._made.keys() - wanted.keys():
            del self._made[key]
        now = asyncio.get_running_loop().time()
        for key, (gateway, ports) in wanted.items():
            state = self._made.setdefault(key, _Made())
            version = (self._mesh.revisions.get(key, ""), ports)
            if version == state.version and now < state.due:
                continue
            if version != state.version:
                state.backoff.reset()
            state.version, state.due = version, now + _AGAIN_SECONDS
            state.problem = await self._tried(gateway, ports)
            if state.problem is not None:
                state.due = now + state.backoff.next()
        self._note([state.problem for _, state in sorted(self._made.items()) if state.problem is not None])

    async def _tried(self, gateway: StandardGateway, ports: Ports) -> Problem | None:
        try:
            return await self._make(gateway, ports)
        except ApiError as error:
            if error.not_found:
                return None  # the Gateway or its namespace is gone; the watch will report it
            if error.forbidden:
                hint = (
                    "weft install --set gateways.deployments=true, "
                    "or run the pods yourself and name their Service in `spec.addresses`"
                )
                return _problem(gateway, f"weft is not allowed to create the Gateway's proxies: {error}", hint)
            return _problem(gateway, f"the Gateway's proxies cannot be created: {error}")
        except KubeError as error:
            return _problem(gateway, f"the Gateway's proxies cannot be created: {error}")

    async def _make(self, gateway: StandardGateway, ports: Ports) -> Problem | None:
        current = await self._client.get(GATEWAYS, gateway.name, _Object, namespace=gateway.namespace)
        if current.metadata.deletion_timestamp or await self._revision_of(gateway, current) != self._revision:
            return None
        kind = (current.metadata.annotations or {}).get(SERVICE_TYPE, "LoadBalancer")
        if kind not in _TYPES:
            what = f"annotation {SERVICE_TYPE}: `{kind[:64]}` is not a type of Service"
            return _problem(gateway, what, ", ".join(_TYPES))
        manifests = objects(gateway, ports, current.metadata.uid, service_type=kind, revision=self._revision)
        for resource in manifests:
            if not await self._may_write(resource, gateway, current.metadata.uid):
                what = f"{resource.kind} {gateway.namespace}/{name_of(gateway)} exists and is not owned by this Gateway"
                return _problem(
                    gateway, what, "delete that object, or name the Service of your own proxies in `spec.addresses`"
                )
        for manifest in manifests.values():
            await self._client.apply(manifest, manager=MANAGER, force=True)
        return None

    async def _revision_of(self, gateway: StandardGateway, current: _Object) -> str:
        own = (current.metadata.labels or {}).get(REVISION_LABEL)
        if own:
            return own
        namespace = await self._client.get(NAMESPACES, gateway.namespace, _Object)
        return chosen_revision(namespace.metadata.labels or {}) or DEFAULT

    async def _may_write(self, resource: ResourceKind, gateway: StandardGateway, uid: str) -> bool:
        try:
            current = await self._client.get(resource, name_of(gateway), _Object, namespace=gateway.namespace)
        except ApiError as error:
            if error.not_found:
                return True
            raise
        return any(owner.uid == uid for owner in current.metadata.owner_references or ())


def name_of(gateway: StandardGateway) -> str:
    """Return the name of the objects that are created for a Gateway, as in Istio: NAME-CLASS."""
    return f"{gateway.name}-{gateway.class_name}"


def objects(
    gateway: StandardGateway, ports: Ports, uid: str, *, service_type: str, revision: str = DEFAULT
) -> dict[ResourceKind, dict[str, Any]]:
    """Return the manifests that weft creates for a Gateway, by resource, in the order of creation. `ports`: the ports
    of its listeners and of those of its ListenerSets. `uid`: the Gateway's uid, for their ownerReferences.
    `service_type`: the type of the Service. `revision`: the revision that creates the objects. The injector adds the
    proxy to the pods."""
    name, label = name_of(gateway), {GATEWAY_NAME: gateway.name}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": gateway.namespace,
        "labels": {**dict(gateway.labels), **label, _CLASS_LABEL: gateway.class_name, REVISION_OF: revision},
        **({"annotations": dict(gateway.annotations)} if gateway.annotations else {}),
        "ownerReferences": [{"apiVersion": f"{GROUP}/v1", "kind": "Gateway", "name": gateway.name, "uid": uid}],
    }
    chosen = {} if revision == DEFAULT else {REVISION_LABEL: revision}
    pods = {
        "metadata": {
            "labels": {**_plain(gateway.labels), **label, **chosen, "sidecar.istio.io/inject": "true"},
            "annotations": {**_plain(gateway.annotations), "inject.istio.io/templates": GATEWAY_TEMPLATE},
        },
        "spec": {"serviceAccountName": name, "containers": [{"name": "istio-proxy", "image": "auto"}]},
    }
    service = {"type": service_type, "selector": label, "ports": list(_ports(ports))}
    return {
        SERVICE_ACCOUNTS: _manifest(SERVICE_ACCOUNTS, metadata),
        SERVICES: _manifest(SERVICES, metadata, spec=service),
        DEPLOYMENTS: _manifest(DEPLOYMENTS, metadata, spec={"selector": {"matchLabels": label}, "template": pods}),
    }


def _plain(written: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return those of `written`, the labels or annotations of a Gateway, that are copied to its pods. Those that
    control injection (proxy image, revision) are left out: the right to write a Gateway does not include the right to
    choose which image runs."""
    domains = ((key.partition("/")[0], key, value) for key, value in written)
    return {key: value for domain, key, value in domains if not domain.endswith(_OF_INJECTION)}


def _deployed(mesh: Mesh) -> Iterator[tuple[StandardGateway, Ports]]:
    """Yield the Gateways of weft without addresses, for which weft creates proxies, each with its ports."""
    for derived in mesh.derived():
        if derived.gateway is not None:
            for value in mesh.get(derived.gateway.gateway):
                if isinstance(value, StandardGateway) and not value.addresses:
                    yield value, ports_of(value, derived.gateways)


def ports_of(gateway: StandardGateway, served: Iterable[Gateway]) -> Ports:
    """Return the ports and protocols of a Gateway's listeners, and of the served listeners of its ListenerSets.
    `served`: the Gateways of the mesh for all listeners that are served. Listeners that share a port have the same
    protocol."""
    own = [(each.port, each.protocol) for each in gateway.listeners]
    more = [(server.port.number, server.port.protocol.value) for each in served for server in each.servers]
    return tuple(sorted(dict([*more, *reversed(own)]).items()))


def _ports(ports: Ports) -> Iterator[dict[str, Any]]:
    for port, protocol in ports:
        yield {"name": f"{_scheme(protocol)}-{port}", "port": port, "targetPort": port, "protocol": "TCP"}


def _scheme(protocol: str) -> str:
    lower = protocol.lower()
    return lower if lower in ("http", "https", "tls") else "tcp"


def _manifest(resource: ResourceKind, metadata: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": dict(metadata), **more}


def _problem(gateway: StandardGateway, what: str, hint: str = "") -> Problem:
    return Problem(Where(object=str(gateway.key)), what, hint, Severity.WARNING)
