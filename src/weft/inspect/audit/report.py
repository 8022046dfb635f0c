"""What an audit of a mesh finds, section by section: facts, pods, certificates and memory come in as they were read,
on one machine or from a cluster, and a report leaves. It asks nobody and measures nothing itself.

Rule: what somebody should act upon is a warning or worse; what is merely worth knowing is told as such.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from weft.base.problem import Problem, Severity, Where
from weft.inspect.audit.proxy_memory import Cost
from weft.model.names import selects, where_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode

if TYPE_CHECKING:  # a command that only prints a report needs none of it
    from weft.analyze.facts import Facts, Runner

# Checks of `weft analyze`, by the section in which an audit tells of them.
OF_NAMESPACES = ("WFT0801", "WFT0802", "WFT0803", "WFT0815", "WFT0816", "WFT0817")
OF_PROXIES = ("WFT0804", "WFT0805", "WFT0806", "WFT0808")
OF_POLICIES = (
    *("WFT0502", "WFT0503", "WFT0504", "WFT0505", "WFT0506", "WFT0511", "WFT0514", "WFT0515", "WFT0518", "WFT0519"),
    *("WFT0521", "WFT0522", "WFT0523", "WFT0524", "WFT0531", "WFT0532", "WFT0541", "WFT0544", "WFT0545"),
    *("WFT0403", "WFT0603"),
)
NOT_RENEWED = 0.15  # of a certificate's life is left: weft renews when a fifth is, so something is in the way
_LISTED = 5  # workloads in one line


class Section(msgspec.Struct, frozen=True):
    name: str
    title: str
    told: tuple[str, ...] = ()  # how things are
    findings: tuple[Problem, ...] = ()


class AuditReport(msgspec.Struct, frozen=True):
    mesh: str
    sections: tuple[Section, ...]
    memory: tuple[Cost, ...] = ()

    @property
    def must_act(self) -> bool:
        return any(each.severity is not Severity.INFO for section in self.sections for each in section.findings)


class LookedOver(msgspec.Struct, frozen=True):
    """What a control plane says of its own mesh."""

    plaintext: Section
    problems: tuple[Problem, ...]


class Certificate(msgspec.Struct, frozen=True):
    """Of a proxy, as its Envoy says it."""

    proxy: str  # POD.NAMESPACE
    not_before: datetime
    expires: datetime
    serial: str = ""
    names: tuple[str, ...] = ()  # for whom it stands, if that is no workload: somebody else than weft renews it


def of_codes(problems: Iterable[Problem], codes: Iterable[str]) -> tuple[Problem, ...]:
    wanted = frozenset(codes)
    return tuple(problem for problem in problems if problem.code in wanted)


def errors(problems: Iterable[Problem]) -> Section:
    """What the mesh itself refuses, or cannot do. Of the authority it is told among the certificates."""
    found = [each for each in problems if each.severity is Severity.ERROR and each.where.object != "CA"]
    told = () if found else ("nothing is refused",)
    return Section("errors", "Refused objects and other errors", told, tuple(dict.fromkeys(found)))


def policies(problems: Iterable[Problem]) -> Section:
    """Of one object and field once, whoever has found it: while it was read, or beside the others."""
    found = {(each.code, each.where.object, each.where.field): each for each in of_codes(problems, OF_POLICIES)}
    return Section("policies", "Policies that match nothing", findings=tuple(found.values()))


def plaintext(facts: Facts, namespace: str = "") -> Section:
    """Who lets callers in that prove nothing, and which policy, or no policy, has decided that."""
    accepting: dict[tuple[str, TlsMode, str], list[str]] = defaultdict(list)
    deciding: dict[str, PeerAuthentication] = {}
    at_ports: list[Problem] = []
    total = 0
    for place, runner in _with_proxy(facts, namespace):
        total += 1
        modes = facts.modes(place, runner.labels)
        decider = _decider(facts, place, runner)
        named = str(decider.origin.key) if decider is not None and decider.origin is not None else ""
        if decider is not None:
            deciding[named] = decider
        if modes.mode is not TlsMode.STRICT:
            accepting[place, modes.mode, named].append(_workload(runner))
        for port, mode in modes.ports:
            if mode is not TlsMode.STRICT and modes.mode is TlsMode.STRICT:
                narrowest = _narrowest(facts, place, runner)
                what = f"port {port} of {place}/{_workload(runner)} accepts plaintext: {mode}, by portLevelMtls"
                hint = "remove the port there once nobody calls it in plaintext"
                origin = narrowest.origin if narrowest is not None else None
                at_ports.append(Problem(where_of(origin, field="spec.portLevelMtls"), what, hint,
                                        Severity.WARNING))  # fmt: skip
    findings = [
        _accepts(place, mode, deciding.get(named), sorted(set(workloads)))
        for (place, mode, named), workloads in sorted(accepting.items())
    ]
    return Section(
        "plaintext",
        "Plaintext still accepted",
        () if findings or at_ports or not total else ("only mutual TLS is accepted, everywhere",),
        tuple(dict.fromkeys((*findings, *at_ports))),
    )


def certificates(held: Iterable[Certificate], authority: Iterable[Problem], now: datetime | None = None) -> Section:
    """`authority`: what is wrong with what signs."""
    now = now or datetime.now(UTC)
    held = sorted(held, key=lambda each: each.expires)
    findings = [*authority]
    for each in held:
        left, life = each.expires - now, each.expires - each.not_before
        where = Where(object=f"Proxy {each.proxy}")
        if each.names:
            whose, refused = f"its certificate for {', '.join(each.names[:_LISTED])}", "whoever calls by TLS refuses it"
            hint = f"renew it where it is from, which is told by: weft proxy-config secret {each.proxy} --why"
        else:
            whose, refused = "its certificate", "its calls are refused"
            hint = f"look at it: weft proxy-config secret {each.proxy}; why it is not renewed, its node's agent says"
        if left <= timedelta():
            findings.append(Problem(where, f"{whose} expired at {_time(each.expires)}: {refused}", hint))
        elif left < life * NOT_RENEWED:
            what = f"{whose} ends at {_time(each.expires)}, in {_span(left)}, and should have been renewed"
            findings.append(Problem(where, what, hint, Severity.WARNING))
    told: tuple[str, ...] = ()
    if held:
        count = f"{len(held)} certificate{'s' * (len(held) != 1)} of proxies"
        told = (f"{count}, the first ends at {_time(held[0].expires)}, in {_span(held[0].expires - now)}",)
    return Section("certificates", "Certificates near expiry", told, tuple(findings))


def certificates_of(proxy: str, answer: bytes) -> Iterator[Certificate]:
    """From what Envoy says at /certs. Of a chain, the first is the proxy's own."""
    said = msgspec.json.decode(answer, type=_Certs)
    seen = set()
    for each in said.certificates:
        for own in each.cert_chain[:1]:
            if own.serial_number not in seen:
                seen.add(own.serial_number)
                yield Certificate(proxy, own.valid_from, own.expiration_time, own.serial_number, _names(own))


def _names(own: _Cert) -> tuple[str, ...]:
    if any(str(each.get("uri", "")).startswith("spiffe://") for each in own.subject_alt_names):
        return ()
    return tuple(str(name) for each in own.subject_alt_names for name in each.values())


class _Cert(msgspec.Struct, frozen=True):
    valid_from: datetime
    expiration_time: datetime
    serial_number: str = ""
    subject_alt_names: tuple[dict[str, Any], ...] = ()  # each a kind and a name


class _Chain(msgspec.Struct, frozen=True):
    cert_chain: tuple[_Cert, ...] = ()


class _Certs(msgspec.Struct, frozen=True):
    certificates: tuple[_Chain, ...] = ()


def _with_proxy(facts: Facts, namespace: str) -> Iterator[tuple[str, Runner]]:
    for place, runners in sorted(facts.runners.items()):
        if not namespace or place == namespace:
            yield from ((place, runner) for runner in runners if runner.instance.proxied)


def _workload(runner: Runner) -> str:
    return runner.instance.workload or runner.name


def _levels(facts: Facts, place: str, runner: Runner) -> Iterator[PeerAuthentication]:
    """Those that hold, the widest first; as `facts.modes` has taken them."""
    policies: Mapping[str, tuple[PeerAuthentication, ...]] = facts.peer_authentications
    for key in facts.modes(place, runner.labels).sources:
        for each in policies.get(key.namespace, ()):
            if each.name == key.name and selects(each.selector, runner.labels):
                yield each


def _decider(facts: Facts, place: str, runner: Runner) -> PeerAuthentication | None:
    return next((each for each in reversed([*_levels(facts, place, runner)]) if each.mode is not None), None)


def _narrowest(facts: Facts, place: str, runner: Runner) -> PeerAuthentication | None:
    return next(reversed([*_levels(facts, place, runner)]), None)


def _accepts(place: str, mode: TlsMode, decider: PeerAuthentication | None, workloads: list[str]) -> Problem:
    listed = ", ".join(workloads[:_LISTED]) + (f" and {len(workloads) - _LISTED} more" * (len(workloads) > _LISTED))
    ending = "s" if len(workloads) == 1 else ""
    does = f"take{ending} only plaintext" if mode is TlsMode.DISABLE else f"accept{ending} plaintext beside mutual TLS"
    see = f"see: weft describe pod {workloads[0]}.{place}"
    if decider is None:
        what = f"{listed} {does}: {mode} is the default, and no PeerAuthentication says otherwise"
        hint = f"once nobody calls in plaintext, write a PeerAuthentication of mode STRICT for namespace {place}; {see}"
        return Problem(Where(object=f"Namespace {place}"), what, hint, Severity.WARNING)
    what = f"{listed} of namespace {place} {does}: {mode}, decided here"
    hint = f"write mode: STRICT there once nobody calls in plaintext; {see}"
    return Problem(where_of(decider.origin, field="spec.mtls.mode"), what, hint, Severity.WARNING)


def _time(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _span(left: timedelta) -> str:
    minutes = int(left.total_seconds() // 60)
    for unit, size in (("days", 1440), ("hours", 60)):
        if minutes >= 2 * size:
            return f"{minutes // size} {unit}"
    return f"{minutes} minutes"
