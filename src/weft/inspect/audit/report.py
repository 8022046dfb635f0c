"""Build the report of `weft audit`, section by section. Input: facts, certificates and memory that the caller has
read from a local mesh or a cluster. Output: a report. This module does no I/O.

Rule: a finding that needs action is a warning or an error. Every other finding is an INFO.
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

if TYPE_CHECKING:  # not imported by a command that only prints a report
    from weft.analyze.facts import Facts, Runner

# Checks of `weft analyze`, by the section of the audit that lists them.
OF_NAMESPACES = ("WFT0801", "WFT0802", "WFT0803", "WFT0815", "WFT0816", "WFT0817")
OF_PROXIES = ("WFT0804", "WFT0805", "WFT0806", "WFT0808")
OF_POLICIES = (
    *("WFT0502", "WFT0503", "WFT0504", "WFT0505", "WFT0506", "WFT0511", "WFT0514", "WFT0515", "WFT0518", "WFT0519"),
    *("WFT0521", "WFT0522", "WFT0523", "WFT0524", "WFT0531", "WFT0532", "WFT0541", "WFT0544", "WFT0545"),
    *("WFT0403", "WFT0603"),
)
BACKDATED = timedelta(seconds=60)  # as `skew` in ca/authority.py, which is slow to import
NOT_RENEWED = 0.15  # part of a certificate's lifetime that is left: weft renews at a fifth, so below this renewal fails
_LISTED = 5  # workloads that one line lists


class Section(msgspec.Struct, frozen=True):
    name: str
    title: str
    told: tuple[str, ...] = ()  # lines about the state, beside the findings
    findings: tuple[Problem, ...] = ()


class AuditReport(msgspec.Struct, frozen=True):
    mesh: str
    sections: tuple[Section, ...]
    memory: tuple[Cost, ...] = ()

    @property
    def must_act(self) -> bool:
        return any(each.severity is not Severity.INFO for section in self.sections for each in section.findings)


class LookedOver(msgspec.Struct, frozen=True):
    """The part of an audit that a control plane computes for its own mesh: the section on workloads that accept
    plaintext, and the findings of `weft analyze`."""

    plaintext: Section
    problems: tuple[Problem, ...]


class Certificate(msgspec.Struct, frozen=True):
    """A proxy's certificate, as its Envoy reports it in /certs. `names`: the subject alternative names; () for a
    workload certificate, which weft issues and renews itself."""

    proxy: str  # POD.NAMESPACE
    not_before: datetime
    expires: datetime
    serial: str = ""
    names: tuple[str, ...] = ()  # DNS names, if it is not a workload certificate: then weft does not renew it


def of_codes(problems: Iterable[Problem], codes: Iterable[str]) -> tuple[Problem, ...]:
    wanted = frozenset(codes)
    return tuple(problem for problem in problems if problem.code in wanted)


def errors(problems: Iterable[Problem]) -> Section:
    """The section on rejected objects and other errors. Errors of the CA are left out, since the section on
    certificates has them."""
    rejected = [each for each in problems if each.severity is Severity.ERROR and each.where.object != "CA"]
    state = () if rejected else ("no object is rejected",)
    return Section("errors", "Rejected objects and other errors", state, tuple(dict.fromkeys(rejected)))


def policies(problems: Iterable[Problem]) -> Section:
    """The section on policies that match nothing. Each code, object and field is listed once, even if both parsing
    and analysis have reported it."""
    unique = {(each.code, each.where.object, each.where.field): each for each in of_codes(problems, OF_POLICIES)}
    return Section("policies", "Policies that match nothing", findings=tuple(unique.values()))


def plaintext(facts: Facts, namespace: str = "") -> Section:
    """The section on workloads that accept callers without mutual TLS, each with the PeerAuthentication that allows it,
    if there is one. With `namespace`, only workloads of that namespace."""
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
                hint = "remove the port from portLevelMtls once it gets no plaintext calls"
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
        () if findings or at_ports or not total else ("every workload accepts only mutual TLS",),
        tuple(dict.fromkeys((*findings, *at_ports))),
    )


def certificates(
    of_proxies: Iterable[Certificate], authority: Iterable[Problem], now: datetime | None = None
) -> Section:
    """The section on certificates that have expired or are not renewed in time. `of_proxies`: the certificates of
    the proxies. `authority`: the problems of the CA, which are listed too."""
    now = now or datetime.now(UTC)
    of_proxies = sorted(of_proxies, key=lambda each: each.expires)
    findings = [*authority]
    for each in of_proxies:
        left, life = each.expires - now, each.expires - each.not_before
        if not each.names:  # the CA lets workload certificates begin earlier than they are issued
            life -= min(BACKDATED, life)
        where = Where(object=f"Proxy {each.proxy}")
        if each.names:
            whose, effect = f"its certificate for {', '.join(each.names[:_LISTED])}", "TLS clients reject it"
            hint = f"renew it at its source; find the source with: weft proxy-config secret {each.proxy} --why"
        else:
            whose, effect = "its certificate", "calls of this proxy are rejected"
            hint = (
                f"show it: weft proxy-config secret {each.proxy}; the agent of the proxy's node has logged the reason"
            )
        if left <= timedelta():
            findings.append(Problem(where, f"{whose} expired at {_time(each.expires)}: {effect}", hint))
        elif left < life * NOT_RENEWED:
            what = f"{whose} expires at {_time(each.expires)}, in {_span(left)}, and should have been renewed"
            findings.append(Problem(where, what, hint, Severity.WARNING))
    state: tuple[str, ...] = ()
    if of_proxies:
        count = f"{len(of_proxies)} certificate{'s' * (len(of_proxies) != 1)} of proxies"
        state = (
            f"{count}, the first expires at {_time(of_proxies[0].expires)}, in {_span(of_proxies[0].expires - now)}",
        )
    return Section("certificates", "Certificates near expiry", state, tuple(findings))


def certificates_of(proxy: str, answer: bytes) -> Iterator[Certificate]:
    """Yield a proxy's own certificates from the response of its Envoy's /certs (`answer`): the first certificate of
    each chain, each serial number once."""
    parsed = msgspec.json.decode(answer, type=_Certs)
    seen = set()
    for each in parsed.certificates:
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
    subject_alt_names: tuple[dict[str, Any], ...] = ()  # each entry maps a kind (`uri`, `dns`) to a name


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
    """The PeerAuthentications that apply to the `runner` in the namespace `place`: the mesh's first, then the
    namespace's, then those that select the runner by its labels."""
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
    does = (
        f"accept{ending} only plaintext" if mode is TlsMode.DISABLE else f"accept{ending} plaintext beside mutual TLS"
    )
    see = f"see: weft describe pod {workloads[0]}.{place}"
    if decider is None:
        what = f"{listed} {does}: {mode} is the default, and no PeerAuthentication sets another mode"
        hint = f"once there are no plaintext calls, create a STRICT PeerAuthentication for namespace {place}; {see}"
        return Problem(Where(object=f"Namespace {place}"), what, hint, Severity.WARNING)
    what = f"{listed} of namespace {place} {does}: {mode}, decided by this PeerAuthentication"
    hint = f"set its mode to STRICT once there are no plaintext calls; {see}"
    return Problem(where_of(decider.origin, field="spec.mtls.mode"), what, hint, Severity.WARNING)


def _time(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _span(left: timedelta) -> str:
    minutes = int(left.total_seconds() // 60)
    for unit, size in (("days", 1440), ("hours", 60)):
        if minutes >= 2 * size:
            return f"{minutes // size} {unit}"
    return f"{minutes} minutes"
