"""A golden case: `mesh.yaml` goes in, the resources of the proxies it names come out as readable text.

The first lines of `mesh.yaml` say what to show: `# proxies: frontend` names workloads, `# show: routes clusters` the
parts that the case is about (`base` are the virtual listeners and the clusters that need no service). Envoy is asked
about all of them, shown or not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from msgspec.structs import replace

from weft.api.parse import parse
from weft.envoy.messages import as_dict
from weft.files.documents import read_documents
from weft.mesh.mesh import Mesh
from weft.model.group import Group, ProxyKind, group_of
from weft.model.instance import Instance, pod_of
from weft.model.names import ObjectKey
from weft.model.workload import Workload
from weft.translate import listeners, routes
from weft.translate.built import Built
from weft.translate.contribution import EVERY_ROUTE
from weft.translate.endpoints import assignments
from weft.translate.findings import problems_of
from weft.translate.service import base, contribute
from weft.translate.tls import from_agent
from weft.translate.view import group_view, service_view
from weft.xds.types import SECRET

CASES = Path(__file__).parent
_ADDRESSES = "weft.dev/golden-addresses"  # annotation: the addresses of a workload's one instance


@dataclass
class Resources:
    clusters: list[Cluster] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    routes: list[RouteConfiguration] = field(default_factory=list)
    endpoints: list[ClusterLoadAssignment] = field(default_factory=list)


def cases() -> list[Path]:
    return sorted(path.parent for path in CASES.glob("*/mesh.yaml"))


def render(case: Path) -> tuple[str, dict[str, Resources]]:
    """The text of `resources.yaml`, and everything that each proxy gets."""
    text = (case / "mesh.yaml").read_text()
    mesh, problems = load(text)
    shown: dict[str, object] = {}
    everything: dict[str, Resources] = {}
    for name in _header(text, "proxies"):
        group = _group(mesh, name)
        everything[name], warnings = compile_group(mesh, group)
        problems |= dict.fromkeys(warnings)
        shown[name] = _readable(everything[name], _header(text, "show"))
    document = ({"problems": list(problems)} if problems else {}) | shown
    return yaml.dump(document, sort_keys=False, width=120, Dumper=_Plain), everything


def load(text: str) -> tuple[Mesh, dict[str, None]]:
    reading = read_documents(text.encode(), "mesh.yaml")
    mesh = Mesh()
    problems = dict.fromkeys(str(problem) for problem in reading.problems)
    place = 0
    for document in reading.documents:
        parsed = parse(document, mesh.settings.domain)
        problems |= dict.fromkeys(str(problem) for problem in parsed.problems)
        mesh.apply(document.key, parsed.values)
        for value in parsed.values:
            if isinstance(value, Workload):
                for instance in _instances(value, place):
                    mesh.apply(ObjectKey("Instance", instance.namespace, instance.name), (instance,))
                    place += 1
    return mesh, problems


def compile_group(mesh: Mesh, group: Group, *, judge: bool = True) -> tuple[Resources, list[str]]:
    """Everything one group gets, joined as the control plane joins it; and, unless nobody asks, what is wrong."""
    view, scope = group_view(mesh, group), mesh.scope(group)
    clusters: dict[str, Built] = {}
    own: dict[str, Built] = {}
    hosts: dict[str, list] = defaultdict(list)
    chains: dict[int, list] = defaultdict(list)
    answering: list[Built] = []
    problems: list[str] = []
    contributions = [base(view)]
    seen_hosts = {*mesh.hosts(), *mesh.routed_hosts()} if scope.servers is None else mesh.edge(scope).hosts
    for host in sorted(seen_hosts):
        seen = service_view(mesh, group, scope, host)
        if seen is None:
            continue
        contributions.append(contribute(seen, view.settings))
        problems += (str(problem) for problem in problems_of(seen, mesh)) if judge else ()
        if seen.service is not None:
            for port in (*seen.ports, *seen.behind):
                answering += assignments(
                    seen.service,
                    port,
                    seen.rule,
                    mesh.endpoints(seen.service, port),
                    group.kind,
                    seen.caller.whereabouts,
                    mesh.settings.locality,
                )
    for contribution in contributions:
        clusters |= {built.name: built for built in contribution.clusters}
        own = {built.name: built for built in contribution.listeners} | own
        for name, host in contribution.hosts:
            hosts[name].append(host)
        for number, chain in contribution.chains:
            chains[number].append(chain)
    everywhere = hosts.pop(EVERY_ROUTE, [])
    configurations = [
        routes.configuration(name, (*found, *(everywhere if name.isdigit() else ())), view.policy)
        for name, found in sorted(hosts.items())
    ]
    if group.kind is ProxyKind.SIDECAR:
        for number in sorted({int(name) for name in hosts if name.isdigit()} | set(chains)):
            http = str(number) in hosts
            built = listeners.shared_port(number, chains[number], view.policy, view.settings, http=http)
            own[built.name] = built
    return Resources(
        [Cluster.FromString(built.body) for _, built in sorted(clusters.items()) if built.type_url != SECRET],
        [Secret.FromString(built.body) for _, built in sorted(clusters.items()) if built.type_url == SECRET],
        [Listener.FromString(built.body) for _, built in sorted(own.items())],
        [RouteConfiguration.FromString(built.body) for built in configurations],
        [ClusterLoadAssignment.FromString(built.body) for built in answering],
    ), problems


def _group(mesh: Mesh, name: str) -> Group:
    if name.startswith("grpc:"):
        return Group(ProxyKind.GRPC, name.removeprefix("grpc:"))
    found = [value for _, values in mesh.values() for value in values if isinstance(value, Workload)]
    workload = next(value for value in found if value.name == name.removeprefix("gateway:"))
    own = group_of(workload)
    return replace(own, kind=ProxyKind.GATEWAY) if name.startswith("gateway:") else own


def _instances(workload: Workload, place: int) -> list[Instance]:
    written = dict(workload.annotations).get(_ADDRESSES)
    return [
        pod_of(
            workload,
            f"{workload.name}-{number}",
            tuple(written.split(",")) if written else (f"10.244.0.{place + number + 1}",),
        )
        for number in range(workload.replicas)
    ]


def _header(text: str, name: str) -> list[str]:
    found = re.search(rf"^# {name}: (.*)$", text, re.MULTILINE)
    return found[1].replace(",", " ").split() if found else []


def _readable(resources: Resources, parts: list[str]) -> dict[str, object]:
    def is_base(name: str) -> bool:
        return name.startswith(("virtual", "inbound|")) or name.endswith("Cluster")

    result: dict[str, object] = {}
    for part in ("clusters", "secrets", "listeners", "routes", "endpoints"):
        messages = getattr(resources, part)
        if part in ("clusters", "listeners"):
            messages = [m for m in messages if ("base" if is_base(m.name) else part) in parts]
        elif part not in parts and part != "secrets":
            messages = []
        if messages:
            result[part] = [_sorted(as_dict(m)) for m in messages]
    return result


def _sorted(value):
    """Names first, then by key: the order of map entries means nothing. What stands in every TLS context alike is not
    repeated: `tests/translate/test_tls.py` knows it."""
    if isinstance(value, dict):
        if "tls_params" in value:
            value = {key: held for key, held in value.items() if key != "tls_params"}
        if value.get("sds_config") == _FROM_AGENT:
            return {"from_agent": value["name"]}
        first = ("@type", "name", "cluster_name")
        ordered = sorted(value, key=lambda key: (first.index(key) if key in first else len(first), key))
        return {key: "…" if _is_pem(key, value[key]) else _sorted(value[key]) for key in ordered}
    if isinstance(value, list):
        return [_sorted(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_pem(key: str, value: object) -> bool:
    """A key or a certificate: nobody reads it, and a key should not be told even if it opens nothing."""
    return key == "inline_bytes" and str(value).startswith("LS0t")


_FROM_AGENT = as_dict(from_agent())


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True
