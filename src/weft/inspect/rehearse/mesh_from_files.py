"""A mesh that is only written: YAML comes in, and the mesh leaves that would be there if it ran, with a pod for every
replica, each at an address of its own. What is refused is not in it, and is told."""

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

_FIRST = IPv4Address("198.18.0.1")  # of a range for measurements (RFC 2544), which no mesh has
_MOST_REPLICAS = 20  # of one workload: more would make the same choice likelier, and none different


class WrittenMesh(msgspec.Struct, frozen=True):
    mesh: Mesh
    problems: tuple[Problem, ...]  # errors: what they are about is not in the mesh, or in its closed form


def written_mesh(
    documents: Iterable[Document],
    domain: str = "cluster.local",
    admit: Admit = as_it_is,
    *,
    running: Iterable[tuple[ObjectKey, tuple[Value, ...]]] | None = None,
    read: Callable[[Document, str], Parsed] = parse,
) -> WrittenMesh:
    """Never raises, whatever the documents hold. `admit`: gives services their addresses, where nobody wrote any.
    `running`: the pods of a cluster and who answers there, in the place of those that would be."""
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
            written_pods,  # on one machine nobody has to know the injector
        )

        for key, pod in written_pods(written.values()):
            # Nobody has written who answers for which service, so labels decide.
            mesh.apply(key, (msgspec.structs.replace(pod, addresses=(next(addresses),), by_slice=False),))
    return WrittenMesh(mesh, tuple(problems))
