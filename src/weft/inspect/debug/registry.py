"""Write services and their endpoints in the format of Istio's `/debug/registryz` and `/debug/endpointz`. The names
of fields are those of Istio's Go structs and must not change, since Istio's tools read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from weft.mesh.mesh import Mesh
from weft.model.endpoint import Endpoint
from weft.model.identity import Identity
from weft.model.instance import TLS_MODE_LABEL
from weft.model.service import Protocol, Resolution, Service, ServicePort

CLUSTER = "Kubernetes"

_AT_ONCE = 100
_RESOLUTION = {
    Resolution.STATIC: 0,
    Resolution.DNS: 1,
    Resolution.NONE: 2,
    Resolution.DNS_ROUND_ROBIN: 3,
    Resolution.DYNAMIC_DNS: 5,
}
_PROTOCOL = {
    Protocol.GRPC_WEB: "GRPC-Web",
    Protocol.MONGO: "Mongo",
    Protocol.MYSQL: "MySQL",
    Protocol.REDIS: "Redis",
    Protocol.UNDECLARED: "UnsupportedProtocol",
}


async def services(mesh: Mesh) -> list[dict[str, Any]]:
    ordered = sorted(mesh.services(), key=lambda each: (each.host, each.namespace))
    return [_service(each) async for each in _in_turn(ordered)]


async def endpoints(mesh: Mesh) -> dict[str, dict[str, Any]]:
    """Return the endpoints of each service, by host and namespace. Each service has one shard, because weft has only
    one registry."""
    hosts: dict[str, dict[str, Any]] = {}
    async for service in _in_turn(mesh.services()):
        shard, accounts = [], set()
        for port in service.ports:
            for endpoint in mesh.endpoints(service, port):
                shard.append(_endpoint(service, port, endpoint))
                if endpoint.service_account and endpoint.instance:
                    namespace = endpoint.instance.partition("/")[0]
                    accounts.add(str(Identity(mesh.settings.trust_domain, namespace, endpoint.service_account)))
        hosts.setdefault(service.host, {})[service.namespace] = {
            "Shards": {f"{_registry(service)}/{CLUSTER}": shard},
            "ServiceAccounts": {account: {} for account in sorted(accounts)},
        }
    return hosts


async def _in_turn(every: Iterable[Service]) -> AsyncIterator[Service]:
    """Iterate over the services, and yield to the event loop now and then: a large mesh has tens of thousands of
    services."""
    for number, service in enumerate(tuple(every)):
        yield service
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)


def _service(service: Service) -> dict[str, Any]:
    return {
        "Attributes": {
            "ServiceRegistry": _registry(service),
            "Name": service.name,
            "Namespace": service.namespace,
            "Labels": dict(service.labels),
            "ExportTo": {name: {} for name in service.export_to},
            "LabelSelectors": dict(service.selector or ()),
        },
        "ports": [
            {"name": port.name, "port": port.number, "protocol": _PROTOCOL.get(port.protocol, port.protocol.upper())}
            for port in service.ports
        ],
        "creationTime": service.created or None,
        "hostname": service.host,
        "clusterVIPs": {"Addresses": {CLUSTER: list(service.addresses)} if service.addresses else None},
        "defaultAddress": service.addresses[0] if service.addresses else "0.0.0.0",
        "Resolution": _RESOLUTION[service.resolution],
        "MeshExternal": service.external,
        "ResourceVersion": service.origin.version if service.origin is not None else "",
    }


def _endpoint(service: Service, port: ServicePort, endpoint: Endpoint) -> dict[str, Any]:
    namespace, _, name = endpoint.instance.rpartition("/")
    return {
        "Labels": dict(endpoint.labels),
        "Addresses": [endpoint.address, *endpoint.extra_addresses],
        "ServicePortName": port.name,
        "ServiceAccount": endpoint.service_account,
        "Network": "",
        "Locality": {"Label": endpoint.locality, "ClusterID": CLUSTER},
        "EndpointPort": endpoint.port,
        "LbWeight": endpoint.weight,
        "TLSMode": "istio" if endpoint.tls else dict(endpoint.labels).get(TLS_MODE_LABEL, "disabled"),
        "Namespace": namespace or service.namespace,
        "WorkloadName": name,
        "HostName": "",
        "SubDomain": "",
        "HealthStatus": 1,  # Istio's number for healthy; the mesh has no other endpoints
        "NodeName": "",
    }


def _registry(service: Service) -> str:
    is_entry = service.origin is not None and service.origin.key.kind == "ServiceEntry"
    return "External" if is_entry else "Kubernetes"
