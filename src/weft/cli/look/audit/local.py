"""The part of an audit that reads a mesh on this machine: its status, its control plane's audit page, the certificates
of each Envoy, and from the kernel the memory of proxies and applications."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from weft.base.problem import Problem, Severity, Where
from weft.inspect.audit import proxy_memory as audit_memory
from weft.inspect.audit import report as audit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.cli.reach.local import LocalReach
    from weft.local.status import PodStatus


def look_over(reached: LocalReach, namespace: str = "") -> audit.AuditReport:
    import msgspec

    from weft.local.client import fetch_status

    status = fetch_status(reached.mesh)
    pods = [pod for pod in status.pods if (not namespace or pod.namespace == namespace) and not _is_over(pod)]
    query = {"namespace": namespace} if namespace else {}
    looked = msgspec.json.decode(reached.ask("audit", query), type=audit.LookedOver)
    problems = [each for each in looked.problems if _is_in(each, namespace)]
    costs = audit_memory.costs(map(_memory, filter(_has_proxy, pods)))
    reported = [each for each in status.problems if _is_in(each, namespace)]
    sections = (
        audit.errors(reported),
        _namespaces(pods, problems),
        _without_proxy(pods),
        looked.plaintext,
        _certificates(reached, pods, [each for each in status.problems if each.where.object == "CA"]),
        audit.policies((*reported, *problems)),
        audit.Section(
            "memory",
            "Memory of proxies (the 20 % rule)",
            (audit_memory.AMBIENT,) if costs else (),
            audit_memory.findings(costs),
        ),
    )
    return audit.AuditReport(f"mesh {reached.mesh}", sections, costs)


def _namespaces(pods: list[PodStatus], problems: list[Problem]) -> audit.Section:
    counted: dict[str, list[bool]] = defaultdict(list)
    for pod in pods:
        counted[pod.namespace].append(_has_proxy(pod))
    notes = [
        f"{namespace}: {sum(with_proxy)} of {len(with_proxy)} pods with a proxy; no webhook, each Workload decides"
        for namespace, with_proxy in sorted(counted.items())
    ]
    return audit.Section(
        "namespaces", "Webhooks and namespaces", tuple(notes), audit.of_codes(problems, audit.OF_NAMESPACES)
    )


def _without_proxy(pods: list[PodStatus]) -> audit.Section:
    workloads = sorted({(pod.namespace, pod.workload) for pod in pods if not _has_proxy(pod)})
    findings = [
        Problem(
            Where(object=f"Workload {namespace}/{name}"),
            "the workload has no proxy (sidecar.istio.io/inject is false): it has no identity and enforces no policy",
            "unless this is intended, remove the label or annotation sidecar.istio.io/inject",
            Severity.INFO,
        )
        for namespace, name in workloads
    ]
    return audit.Section("without-proxy", "Workloads without a proxy", findings=tuple(findings))


def _certificates(reached: LocalReach, pods: list[PodStatus], authority: list[Problem]) -> audit.Section:
    from weft.cli.reach.interface import PodProxy
    from weft.local.error import LocalError

    certificates: list[audit.Certificate] = []
    silent: list[Problem] = []
    for pod in filter(_has_proxy, pods):
        proxy = PodProxy(pod.name, pod.namespace)
        try:
            certificates += audit.certificates_of(str(proxy), reached.admin(proxy, "/certs"))
        except (LocalError, ValueError) as error:
            hint = f"see its log: weft logs {pod.namespace}/{pod.name} --proxy"
            what = f"the pod's Envoy does not respond: {_words(error)}"
            silent.append(Problem(Where(object=f"Proxy {proxy}"), what, hint))
    return audit.certificates(certificates, (*authority, *silent))


def _words(error: Exception) -> str:
    """Return the message of an error without its place and hint. It becomes part of the message of a problem that
    has a place and a hint of its own."""
    problem = getattr(error, "problem", None)
    return problem.what if isinstance(problem, Problem) else str(error)


def _memory(pod: PodStatus) -> audit_memory.PodMemory:
    application = sum(map(_private, _family(pod.pid)))
    return audit_memory.PodMemory(
        pod.workload,
        pod.namespace,
        node="this machine",
        proxy=pod.proxy_memory or None,
        proxy_from="measured" if pod.proxy_memory else "does not run yet",
        application=application or None,
        application_from="measured" if application else "does not run",
    )


def _private(pid: int) -> int:
    """Return the bytes of memory that only this process uses. Shared memory is left out, because it would be counted
    once for each process; the proxy's memory is counted in the same way."""
    try:
        lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()]
    except OSError:
        return 0
    return sum(int(words[1]) * 1024 for words in lines if words[0] in ("Private_Clean:", "Private_Dirty:"))


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all of its descendants that still run."""
    if not pid:
        return
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _has_proxy(pod: PodStatus) -> bool:
    return pod.sync.value != "-"


def _is_over(pod: PodStatus) -> bool:
    return pod.phase.value in ("Completed", "Failed", "Ending")


def _is_in(problem: Problem, namespace: str) -> bool:
    place, slash, _ = problem.where.object.partition(" ")[2].partition("/")
    return not namespace or not slash or place == namespace
