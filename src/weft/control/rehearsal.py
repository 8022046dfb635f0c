"""Everything that would be wrong with a mesh if it ran: the same reading, the same analysis and the same translation
findings as a control plane has, for objects that nothing serves. Documents come in, problems leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.analyze.facts import facts_of
from weft.analyze.findings import findings
from weft.api.document import Document
from weft.api.parse import parse
from weft.base.problem import Problem
from weft.control.intake import Admit, as_it_is
from weft.model.destination_rule import DestinationRule
from weft.model.group import Group, ProxyKind, sidecar_group
from weft.model.instance import pod_of
from weft.model.mesh import Mesh, Value
from weft.model.names import ObjectKey, selects
from weft.model.settings import Settings
from weft.model.workload import Workload
from weft.translate.findings import problems_of
from weft.translate.view import service_view

_ADDRESS = "192.0.2.1"  # of pods that would be there; it is nobody's (RFC 5737)


def rehearse(
    documents: Iterable[Document], domain: str = "cluster.local", admit: Admit = as_it_is
) -> tuple[Problem, ...]:
    """Never raises, whatever the documents hold."""
    mesh = Mesh(Settings(domain=domain))
    problems: list[Problem] = []
    refused: set[ObjectKey] = set()
    for document in documents:
        parsed = parse(document, domain)
        problems += parsed.problems
        if parsed.meant:
            refused.add(document.key)
        # An object with errors is taken as it is meant: what refers to it is not wrong because of them.
        mesh.apply(document.key, tuple(admit(value) for value in parsed.values or parsed.meant))
    for workload in _workloads(mesh):
        mesh.apply(ObjectKey("Pod", workload.namespace, workload.name), (pod_of(workload, workload.name, (_ADDRESS,)),))
    silent = {str(key) for key in refused}
    problems += (problem for problem in _of_translation(mesh) if problem.where.object not in silent)
    problems += findings(facts_of(mesh.settings, (values for _, values in mesh.values())), refused)
    return tuple(dict.fromkeys(problems))


def _of_translation(mesh: Mesh) -> Iterator[Problem]:
    hosts = sorted({*mesh.hosts(), *mesh.routed_hosts()})
    for group in _groups(mesh):
        scope = mesh.scope(group)
        for host in hosts:
            view = service_view(mesh, group, scope, host)
            if view is not None:
                yield from problems_of(view, mesh)


def _groups(mesh: Mesh) -> list[Group]:
    """One for each way of seeing the mesh: as the Workloads do, or, without any, as each namespace would."""
    seen: dict[object, Group] = {}
    selecting = [rule for rule in _values(mesh) if isinstance(rule, DestinationRule) and rule.workload_selector]
    for workload in _workloads(mesh):
        if not workload.inject:
            continue
        group = sidecar_group(workload)
        ruled = tuple(selects(rule.workload_selector, group.labels) for rule in selecting)
        seen.setdefault((mesh.scope(group), ruled), group)
    if seen:
        return list(seen.values())
    return [Group(ProxyKind.SIDECAR, name) for name in sorted({service.namespace for service in mesh.services()})]


def _workloads(mesh: Mesh) -> list[Workload]:
    return [value for value in _values(mesh) if isinstance(value, Workload)]


def _values(mesh: Mesh) -> list[Value]:
    return [value for _, values in mesh.values() for value in values]
