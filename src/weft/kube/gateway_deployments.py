"""Proxies for the Gateway API's Gateways: for each one of ours that names no address, a Deployment, a Service and a
ServiceAccount `NAME-CLASS`, as Istio makes them. The mesh comes in; the leader's writes leave.

Rule: what is not the Gateway's own is never touched, and nothing is deleted here: what was made belongs to the Gateway,
and Kubernetes removes it with that. Fields that others add, such as `replicas`, stay theirs.
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
from weft.model.gateway_api import GATEWAY_NAME, GROUP, StandardGateway
from weft.model.names import ObjectKey
from weft.model.proxy import GATEWAY_TEMPLATE

log = logging.getLogger("weft.kube")

MANAGER = "weft-gateways"  # the owner of what we write, in the objects' managedFields
REVISION_OF = "gateway.weft.dev/revision"  # label of what we make: whose it is, for whoever takes that revision away
SERVICE_TYPE = "networking.istio.io/service-type"  # Istio's annotation of a Gateway
GATEWAYS = ResourceKind(GROUP, "v1", "gateways", "Gateway")

_CLASS_LABEL = "gateway.networking.k8s.io/gateway-class-name"
_OF_INJECTION = ("istio.io", "weft.dev")  # as a label's or an annotation's domain ends
_TYPES = ("ClusterIP", "LoadBalancer", "NodePort")
_LOOK_SECONDS = 1.0  # between looks at which Gateways there are
_AGAIN_SECONDS = 60.0  # until something that somebody deleted or changed is made anew
_FIRST_DELAY = 2.0  # after a refusal


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


class _Made:
    """What is known of one Gateway's objects: of which version of it they were made, and when to look again."""

    def __init__(self) -> None:
        self.version = ""
        self.due = 0.0
        self.backoff = Backoff(_FIRST_DELAY, _AGAIN_SECONDS)
        self.problem: Problem | None = None


class GatewayDeployments:
    def __init__(
        self, client: Client, mesh: Mesh, note: Callable[[Sequence[Problem]], None], *, revision: str = DEFAULT
    ) -> None:
        """`note`: is told what could not be made, each time all of it. `revision`: whose proxies they get; Gateways of
        others are left to them."""
        self._client, self._mesh, self._note, self._revision = client, mesh, note, revision
        self._made: dict[ObjectKey, _Made] = {}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                try:
                    await self.look()
                except Exception:  # a defect of ours: the others are looked at again
                    log.exception("what Gateways need could not be made; it is tried again")
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._note(())

    async def look(self) -> None:
        """Make what is missing, changed, or has not been looked at for a while."""
        wanted = {gateway.key: gateway for gateway in _deployed(self._mesh)}
        for key in self._made.keys() - wanted.keys():
            del self._made[key]
        now = asyncio.get_running_loop().time()
        for key, gateway in wanted.items():
            made = self._made.setdefault(key, _Made())
            version = self._mesh.revisions.get(key, "")
            if version == made.version and now < made.due:
                continue
            if version != made.version:
                made.backoff.reset()
            made.version, made.due = version, now + _AGAIN_SECONDS
            made.problem = await self._tried(gateway)
            if made.problem is not None:
                made.due = now + made.backoff.next()
        self._note([made.problem for _, made in sorted(self._made.items()) if made.problem is not None])

    async def _tried(self, gateway: StandardGateway) -> Problem | None:
        try:
            return await self._make(gateway)
        except ApiError as error:
            if error.not_found:
                return None  # the Gateway or its namespace is gone, and the watch is about to say so
            if error.forbidden:
                hint = "weft install --set gateways.deployments=true, or run its pods and name them in `spec.addresses`"
                return _problem(gateway, f"weft may not make its proxies: {error}", hint)
            return _problem(gateway, f"its proxies cannot be made: {error}")
        except KubeError as error:
            return _problem(gateway, f"its proxies cannot be made: {error}")

    async def _make(self, gateway: StandardGateway) -> Problem | None:
        found = await self._client.get(GATEWAYS, gateway.name, _Object, namespace=gateway.namespace)
        if found.metadata.deletion_timestamp or await self._revision_of(gateway, found) != self._revision:
            return None
        kind = (found.metadata.annotations or {}).get(SERVICE_TYPE, "LoadBalancer")
        if kind not in _TYPES:
            what = f"annotation {SERVICE_TYPE}: `{kind[:64]}` is not a type of Service"
            return _problem(gateway, what, ", ".join(_TYPES))
        manifests = objects(gateway, found.metadata.uid, service_type=kind, revision=self._revision)
        for resource in manifests:
            if not await self._may_write(resource, gateway, found.metadata.uid):
                what = f"{resource.kind} {gateway.namespace}/{name_of(gateway)} is there, and is not this Gateway's"
                return _problem(gateway, what, "delete it, or name whom you run in `spec.addresses`")
        for manifest in manifests.values():
            await self._client.apply(manifest, manager=MANAGER, force=True)
        return None

    async def _revision_of(self, gateway: StandardGateway, found: _Object) -> str:
        own = (found.metadata.labels or {}).get(REVISION_LABEL)
        if own:
            return own
        namespace = await self._client.get(NAMESPACES, gateway.namespace, _Object)
        return chosen_revision(namespace.metadata.labels or {}) or DEFAULT

    async def _may_write(self, resource: ResourceKind, gateway: StandardGateway, uid: str) -> bool:
        try:
            found = await self._client.get(resource, name_of(gateway), _Object, namespace=gateway.namespace)
        except ApiError as error:
            if error.not_found:
                return True
            raise
        return any(owner.uid == uid for owner in found.metadata.owner_references or ())


def name_of(gateway: StandardGateway) -> str:
    """Istio's way to call what it makes for a Gateway."""
    return f"{gateway.name}-{gateway.class_name}"


def objects(
    gateway: StandardGateway, uid: str, *, service_type: str, revision: str = DEFAULT
) -> dict[ResourceKind, dict[str, Any]]:
    """In the order of making. The injector completes the pods."""
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
    service = {"type": service_type, "selector": label, "ports": list(_ports(gateway))}
    return {
        SERVICE_ACCOUNTS: _manifest(SERVICE_ACCOUNTS, metadata),
        SERVICES: _manifest(SERVICES, metadata, spec=service),
        DEPLOYMENTS: _manifest(DEPLOYMENTS, metadata, spec={"selector": {"matchLabels": label}, "template": pods}),
    }


def _plain(written: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Without those that say how a pod is injected, with which image or by whom: who may write a Gateway may not say
    what runs."""
    domains = ((key.partition("/")[0], key, value) for key, value in written)
    return {key: value for domain, key, value in domains if not domain.endswith(_OF_INJECTION)}


def _deployed(mesh: Mesh) -> Iterator[StandardGateway]:
    """Those that are ours and leave it to us who serves them."""
    for derived in mesh.derived():
        if derived.gateway is not None:
            for value in mesh.get(derived.gateway.gateway):
                if isinstance(value, StandardGateway) and not value.addresses:
                    yield value


def _ports(gateway: StandardGateway) -> Iterator[dict[str, Any]]:
    """One for each port; listeners that share one speak the same."""
    first = {listener.port: listener.protocol for listener in reversed(gateway.listeners)}
    for port, protocol in sorted(first.items()):
        yield {"name": f"{_scheme(protocol)}-{port}", "port": port, "targetPort": port, "protocol": "TCP"}


def _scheme(protocol: str) -> str:
    lower = protocol.lower()
    return lower if lower in ("http", "https", "tls") else "tcp"


def _manifest(resource: ResourceKind, metadata: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": dict(metadata), **more}


def _problem(gateway: StandardGateway, what: str, hint: str = "") -> Problem:
    return Problem(Where(object=str(gateway.key)), what, hint, Severity.WARNING)
