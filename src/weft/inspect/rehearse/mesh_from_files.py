"""Build a mesh from YAML files without running it, with a pod for every replica, each with a different address.
Rejected objects are left out and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address
from itertools import count

import msgspec

from weft.api.document import Document
from weft.api.parse import OF_PODS, Parsed, parse
from weft.base.problem import Problem, Severity
from weft.mesh.mesh import Mesh
from weft.model.instance import pod_of
from weft.model.names import ObjectKey
from weft.model.settings import Settings
from weft.model.value import Admit, Value, as_it_is
from weft.model.workload import Workload

# The first address of generated pods, in the benchmark range (RFC 2544), which no mesh uses.
_FIRST = IPv4Address("198.18.0.1")
_MOST_REPLICAS = 20  # per workload: more replicas would not add an outcome


class WrittenMesh(msgspec.Struct, frozen=True):
    mesh: Mesh
    problems: tuple[Problem, ...]  # errors; their objects are left out, or replaced by their fail-closed form


def written_mesh(
    documents: Iterable[Document],
    domain: str = "cluster.local",
    admit: Admit = as_it_is,
    *,
    running: Iterable[tuple[ObjectKey, tuple[Value, ...]]] | None = None,
    read: Callable[[Document, str], Parsed] = parse,
) -> WrittenMesh:
    """Build a mesh from documents. Never raises, whatever the documents contain. `admit`: completes each value, for
    example with an address for a service that has none. `running`: pods and EndpointSlices of a cluster, which
    are used instead of generated pods. `read`: parses a document."""
    mesh = Mesh(Settings(domain=domain))
    problems: list[Problem] = []
    written = {document.key: document for document in documents}
    with mesh.together():
        for document in written.values():
            parsed = read(document, domain)
            problems += (problem for problem in parsed.problems if problem.severity is Severity.ERROR)
            mesh.apply(document.key, tuple(admit(value) for value in parsed.values or parsed.closed))
    mesh.settle()
    addresses = (str(_FIRST + number) for number in count())
    workloads = [value for _, values in mesh.values() for value in values if isinstance(value, Workload)]
    for workload in workloads:
        for number in range(min(workload.replicas, _MOST_REPLICAS)):
            name = f"{workload.name}-{number}"
            pod = pod_of(workload, name, (next(addresses),))
            mesh.apply(ObjectKey("Pod", workload.namespace, name), (pod,))
    for key, values in running or ():
        mesh.apply(key, values)
    if running is None and any(key.kind in OF_PODS for key in written):
        from weft.inspect.rehearse.pods_from_templates import (
            written_pods,  # imported late: a local mesh does not need the injector
        )

        for key, pod in written_pods(written.values()):
            # There are no EndpointSlices, so selectors decide which pods are endpoints.
            mesh.apply(key, (msgspec.structs.replace(pod, addresses=(next(addresses),), by_slice=False),))
    return WrittenMesh(mesh, tuple(problems))
