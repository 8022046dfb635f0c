"""The part of an audit that reads a cluster, with the user's credentials: namespaces, webhooks, pods and the mesh's
objects from the API server; certificates and memory from each pod's Envoy, if it can be reached."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft.analyze.templates import PodTemplate, template_of
from weft.base.problem import Problem, Severity, Where
from weft.inject.quantity import amount
from weft.inspect.audit import proxy_memory as audit_memory
from weft.inspect.audit import report as audit
from weft.kube import port_forward
from weft.kube.error import KubeError
from weft.kube.inventory import Inventory, take
from weft.kube.resource import CONFIG_MAPS, MUTATING_WEBHOOKS
from weft.kube.revisions import INJECTION_LABEL, REVISION_LABEL
from weft.model.proxy import ADMIN_PORT, ROOT_CONFIG_MAP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.kube.client import Client

MOST_ASKED = 200  # the most proxies to query: each query is a connection through the API server
_AT_ONCE = 8
_PATIENCE = 10.0  # seconds for one proxy
_NOTICE = timedelta(days=30)  # how long before a root expires it is reported
_INJECTORS = ".sidecar-injector.istio.io"  # suffix of the names of webhooks that inject proxies
_PROXY = "istio-proxy"


class InjectingWebhook(msgspec.Struct, frozen=True):
    configuration: str
    name: str
    failure_policy: str


class ProxyReadings(msgspec.Struct, frozen=True):
    certificates: tuple[audit.Certificate, ...] = ()
    memory: int | None = None
    error: str = ""


def look_over(
    kubeconfig: Path | None, context: str | None, *, system: str, revision: str, namespace: str = ""
) -> audit.AuditReport:
    from weft.cli.reach.cluster import client
    from weft.cli.read.cluster_state import running
    from weft.inspect.rehearse.examination import examine

    async def read() -> tuple[Inventory, list[InjectingWebhook], dict[str, ProxyReadings], list[Problem], str]:
        async with client(kubeconfig, context) as cluster:
            inventory = await take(cluster, root_namespace=system, revision=revision)
            webhooks = await injecting(cluster)
            pods = [each for each in _pods(inventory, namespace) if each.proxy is not None]
            readings = await _ask(cluster, pods[:MOST_ASKED])
            return inventory, webhooks, readings, await _roots(cluster, system), cluster.connection.server

    inventory, webhooks, readings, roots, server = asyncio.run(read())
    examined = examine(inventory.documents, running=running(inventory))
    problems = [each for each in examined.problems if _is_in(each, namespace)]
    pods = _pods(inventory, namespace)
    costs = audit_memory.costs(memory_of(pod, readings.get(_named(pod))) for pod in pods if pod.proxy is not None)
    plaintext = audit.plaintext(examined.facts, namespace) if examined.facts is not None else None
    sections = (
        audit.errors(problems),
        _namespaces(inventory, pods, webhooks, problems, namespace),
        without_proxy(pods, webhooks, problems),
        *((plaintext,) if plaintext is not None else ()),
        _certificates(readings, sum(pod.proxy is not None for pod in pods), roots),
        audit.policies(problems),
        audit.Section(
            "memory",
            "Memory of proxies (the 20 % rule)",
            (audit_memory.AMBIENT,) if costs else (),
            audit_memory.findings(costs),
        ),
    )
    return audit.AuditReport(f"cluster {server}", sections, costs)


async def injecting(client: Client) -> list[InjectingWebhook]:
    """Return the webhooks that inject proxies, of weft and of any other installation with Istio's names. The list is
    empty if the user may not read them; the inventory reports that."""
    try:
        configurations = (await client.list(MUTATING_WEBHOOKS, dict)).items
    except KubeError:
        return []
    return [
        InjectingWebhook(
            each["metadata"]["name"], str(webhook.get("name", "")), str(webhook.get("failurePolicy", "Fail"))
        )
        for each in configurations
        for webhook in each.get("webhooks") or ()
        if str(webhook.get("name", "")).endswith(_INJECTORS)
    ]


def without_proxy(
    pods: Iterable[PodTemplate], webhooks: list[InjectingWebhook], problems: list[Problem]
) -> audit.Section:
    """Return the section about pods that should have a proxy and have none. For each of these pods, the section has the
    likely reason, and the command that creates the pod again. `webhooks`: the webhooks that inject proxies. `problems`:
    all findings about the cluster."""
    by_name = {str(pod.document.key): pod for pod in pods}
    ignoring = sorted({each.configuration for each in webhooks if each.failure_policy == "Ignore"})
    silent = {each.where.object for each in problems if each.code == "WFT0815"}
    findings = []
    for problem in audit.of_codes(problems, audit.OF_PROXIES):
        pod = by_name.get(problem.where.object)
        if problem.code == "WFT0804" and pod is not None:
            why = "the pod is older than the label or the webhook"
            if ignoring:
                down = [name for name in ignoring if f"MutatingWebhookConfiguration {name}" in silent]
                why = f"webhook {ignoring[0]} has failurePolicy Ignore, and did not respond when the pod was created"
                why += "; it still does not respond" if down else ", or the pod is older than the label"
            what = f"the pod runs without a proxy, although a new pod would get one. Likely reason: {why}"
            problem = msgspec.structs.replace(problem, what=what, hint=_restart(pod))
        findings.append(problem)
    return audit.Section("without-proxy", "Workloads without a proxy", findings=tuple(findings))


def memory_of(pod: PodTemplate, readings: ProxyReadings | None) -> audit_memory.PodMemory:
    """Return the memory of a pod's proxy and of its application. The proxy's memory is the value that Envoy reports.
    Without such a value, it is the memory request of the proxy's container, else its limit. The application's memory is
    the memory limit of its containers, else their request. `readings`: what the pod's Envoy reports; None if it cannot
    be reached."""
    spec = pod.body().get("spec") or {}
    stay = [*(spec.get("containers") or ()), *(each for each in spec.get("initContainers") or () if _stays(each))]
    proxies = [each for each in stay if each.get("name") == _PROXY]
    applications = [each for each in stay if each.get("name") != _PROXY]
    measured = readings.memory if readings is not None else None
    proxy, proxy_from = (measured, "measured") if measured else _declared_memory(proxies, ("request", "limit"))
    limit, is_limit = _declared_memory(proxies, ("limit",))
    if proxy_from == "request" and limit is not None:
        proxy_from = f"request; {is_limit} {limit / 1e6:.1f} MB"
    application, application_from = _declared_memory(applications, ("limit", "request"))
    return audit_memory.PodMemory(
        _workload(pod), pod.namespace, str(spec.get("nodeName", "")), proxy, proxy_from, application, application_from
    )


def _declared_memory(containers: list[Mapping[str, Any]], kinds: tuple[str, ...]) -> tuple[int | None, str]:
    """Return the total declared memory of the containers in bytes, and which declaration was used: the first of
    `kinds` (`request`, `limit`) that every container has. Return None and `no limit` if there is no such kind."""
    for kind in kinds:
        amounts = [
            amount(str(((each.get("resources") or {}).get(f"{kind}s") or {}).get("memory", ""))) for each in containers
        ]
        if amounts and all(each is not None for each in amounts):
            return int(sum(each for each in amounts if each is not None)), kind
    return None, "no limit"


def _namespaces(
    inventory: Inventory,
    pods: list[PodTemplate],
    webhooks: list[InjectingWebhook],
    problems: list[Problem],
    namespace: str,
) -> audit.Section:
    counted: dict[str, list[bool]] = defaultdict(list)
    for pod in pods:
        counted[pod.namespace].append(pod.proxy is not None)
    policies = sorted({(each.configuration, each.failure_policy) for each in webhooks})
    notes = [f"webhook {name}: failurePolicy {policy}" for name, policy in policies]
    notes = notes or ["no webhook injects proxies"]
    for document in sorted(inventory.documents, key=lambda each: each.key.name):
        name = document.key.name
        if document.key.kind != "Namespace" or (namespace and name != namespace):
            continue
        labels = (document.body.get("metadata") or {}).get("labels") or {}
        with_proxy = counted.get(name, [])
        if with_proxy or INJECTION_LABEL in labels or REVISION_LABEL in labels:
            notes.append(f"{name}: {_injection(labels)}; {sum(with_proxy)} of {len(with_proxy)} pods with a proxy")
    ignored = [
        Problem(
            Where(object=f"MutatingWebhookConfiguration {name}"),
            "failurePolicy is Ignore: pods that are created while the webhook is down run without a proxy, unnoticed",
            "weft install --set injection.failurePolicy=Fail",
            Severity.WARNING,
        )
        for name in sorted({each.configuration for each in webhooks if each.failure_policy == "Ignore"})
    ]
    findings = (*audit.of_codes(problems, audit.OF_NAMESPACES), *ignored)
    return audit.Section("namespaces", "Webhooks and namespaces", tuple(notes), findings)


def _injection(labels: Mapping[str, str]) -> str:
    present = [f"{label}: {labels[label]}" for label in (INJECTION_LABEL, REVISION_LABEL) if label in labels]
    injects = labels[INJECTION_LABEL] == "enabled" if INJECTION_LABEL in labels else REVISION_LABEL in labels
    return f"{'injects' if injects else 'does not inject'} ({', '.join(present) or 'no label'})"


async def _roots(client: Client, system: str) -> list[Problem]:
    """Return the problems of the published roots that expire soon. Empty if no roots are published or the user may not
    read them."""
    try:
        published = await client.get(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace=system)
    except KubeError:
        return []
    return ending_roots(str((published.get("data") or {}).get("root-cert.pem", "")), datetime.now(UTC))


def ending_roots(pem: str, now: datetime) -> list[Problem]:
    from cryptography.x509 import load_pem_x509_certificates

    where, problems = Where(object="CA"), []
    try:
        roots = load_pem_x509_certificates(pem.encode()) if pem else []
    except ValueError as error:
        return [Problem(where, f"the published roots are not certificates: {error}", "weft ca show --kubernetes")]
    for each in roots:
        ends = each.not_valid_after_utc
        if ends - now < _NOTICE:
            severity = Severity.ERROR if ends <= now else Severity.WARNING
            named = f"root {each.subject.rfc4514_string()!a}"
            what = f"{named} expires at {ends:%Y-%m-%d %H:%M:%S} UTC, and no certificate is valid longer than its root"
            problems.append(Problem(where, what, "weft ca rotate --kubernetes", severity))
    return problems


def _certificates(readings: Mapping[str, ProxyReadings], proxies: int, roots: list[Problem]) -> audit.Section:
    certificates = [certificate for each in readings.values() for certificate in each.certificates]
    silent = sorted(name for name, each in readings.items() if each.error)
    findings = [*roots]
    if silent:
        what = f"{len(silent)} of {proxies} proxies could not be queried; the first error: {readings[silent[0]].error}"
        hint = "this needs the permission to create pods/portforward; see: kubectl auth can-i create pods/portforward"
        findings.append(Problem(Where(object=f"Proxy {silent[0]}"), what, hint, Severity.INFO))
    if proxies > len(readings):
        what = f"only {len(readings)} of {proxies} proxies were queried"
        hint = "audit one namespace at a time: weft audit -n NAMESPACE"
        findings.append(Problem(Where(), what, hint, Severity.INFO))
    return audit.certificates(certificates, findings)


async def _ask(client: Client, pods: list[PodTemplate]) -> dict[str, ProxyReadings]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def read(pod: PodTemplate) -> tuple[str, ProxyReadings]:
        async with places:
            return _named(pod), await _readings(client, pod)

    return dict(await asyncio.gather(*map(read, pods)))


async def _readings(client: Client, pod: PodTemplate) -> ProxyReadings:
    try:
        async with asyncio.timeout(_PATIENCE):
            certs = await port_forward.ask(client, pod.namespace, pod.name, ADMIN_PORT, "/certs")
            memory = await port_forward.ask(client, pod.namespace, pod.name, ADMIN_PORT, "/memory")
        return ProxyReadings(tuple(audit.certificates_of(_named(pod), certs.body)), _envoys_memory(memory.body))
    except KubeError as error:
        return ProxyReadings(error=error.problem.what)
    except TimeoutError:
        return ProxyReadings(error=f"no response within {_PATIENCE:g} s")
    except (OSError, ValueError) as error:
        return ProxyReadings(error=str(error))


def _envoys_memory(answer: bytes) -> int | None:
    """Return the bytes of memory that Envoy's allocator holds from the kernel, read from `answer`, the response of
    Envoy's /memory; None if the response does not contain them."""
    figures = msgspec.json.decode(answer, type=dict[str, str])
    size = figures.get("total_physical_bytes") or figures.get("heap_size") or ""
    return int(size) if size.isdigit() else None


def _pods(inventory: Inventory, namespace: str) -> list[PodTemplate]:
    """Return the pods of the cluster's `inventory` that have started and have not ended: those in `namespace`, or in
    all namespaces if it is empty."""
    pods = [template_of(each) for each in inventory.documents if each.key.kind == "Pod"]
    return [pod for pod in pods if pod and pod.runs and not pod.over and (not namespace or pod.namespace == namespace)]


def _workload(pod: PodTemplate) -> str:
    kind, name = pod.owner
    replica_hash = dict(pod.labels).get("pod-template-hash", "")
    return name.removesuffix(f"-{replica_hash}") if kind == "ReplicaSet" and replica_hash else name or pod.name


def _restart(pod: PodTemplate) -> str:
    kind = "deployment" if pod.owner[0] == "ReplicaSet" else pod.owner[0].lower()
    if kind in ("deployment", "statefulset", "daemonset"):
        return f"kubectl rollout restart {kind}/{_workload(pod)} -n {pod.namespace}"
    return f"kubectl delete pod {pod.name} -n {pod.namespace}, and create it again"


def _named(pod: PodTemplate) -> str:
    return f"{pod.name}.{pod.namespace}"


def _stays(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _is_in(problem: Problem, namespace: str) -> bool:
    place, slash, _ = problem.where.object.partition(" ")[2].partition("/")
    if problem.where.object.startswith("Namespace "):
        return not namespace or problem.where.object == f"Namespace {namespace}"
    return not namespace or not slash or place == namespace
