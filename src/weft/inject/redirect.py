"""Reads a pod's annotations `traffic.sidecar.istio.io/*`, which choose the connections that are redirected to its
proxy, and returns the arguments for istio-iptables.

The arguments are the same whether the pod's init container installs the redirect or the node's agent does. Ports,
ranges and interfaces are checked here, so that no pod is created that could not start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network

import msgspec

from weft.model.proxy import INBOUND_PORT, METRICS_PORT, OUTBOUND_PORT, PROMETHEUS_PORT, PROXY_UID, READINESS_PORT

PREFIX = "traffic.sidecar.istio.io/"
MODE = "sidecar.istio.io/interceptionMode"
STATUS_PORT = "status.sidecar.istio.io/port"
NONE, REDIRECT, TPROXY = "NONE", "REDIRECT", "TPROXY"
EVERYTHING = "*"


class Redirection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which connections are redirected. Values are comma-separated lists, as in the annotations; `*` means everything
    where the annotation allows it."""

    include_outbound_ranges: str = msgspec.field(default=EVERYTHING, name="includeOutboundIPRanges")
    exclude_outbound_ranges: str = msgspec.field(default="", name="excludeOutboundIPRanges")
    include_inbound_ports: str = EVERYTHING
    exclude_inbound_ports: str = ""
    include_outbound_ports: str = ""
    exclude_outbound_ports: str = ""
    kubevirt_interfaces: str = ""
    exclude_interfaces: str = ""


# By field of Redirection: the argument of istio-iptables, and the kind of list (`*`: also accepts everything).
_FIELDS = {
    "include_outbound_ranges": ("-i", "ranges*"),
    "exclude_outbound_ranges": ("-x", "ranges"),
    "include_inbound_ports": ("-b", "ports*"),
    "exclude_inbound_ports": ("-d", "ports"),
    "include_outbound_ports": ("-q", "ports*"),
    "exclude_outbound_ports": ("-o", "ports"),
    "kubevirt_interfaces": ("-k", "interfaces"),
    "exclude_interfaces": ("-c", "interfaces"),
}
_NAMES = dict(zip(Redirection.__struct_fields__, Redirection.__struct_encode_fields__, strict=True))
ANNOTATIONS = tuple(PREFIX + name for name in _NAMES.values())


def of_pod(annotations: Mapping[str, str], defaults: Redirection) -> Redirection:
    """Return the pod's redirection: its annotations, and `defaults` for the annotations that it does not have."""
    overrides = {field: annotations[PREFIX + name] for field, name in _NAMES.items() if PREFIX + name in annotations}
    return msgspec.structs.replace(defaults, **overrides)


def problems_of_redirection(wanted: Redirection) -> Iterator[tuple[str, str]]:
    """Yield (field, problem) for each invalid value of `wanted`. The field's name is that of the annotation, without
    the prefix."""
    for field, (_, kind) in _FIELDS.items():
        value = getattr(wanted, field)
        if kind.endswith("*") and value.strip() == EVERYTHING:
            continue
        for part in _split(value):
            if what := _CHECKS[kind.rstrip("*")](part):
                yield _NAMES[field], what


def arguments(wanted: Redirection, *, status_port: int = METRICS_PORT) -> list[str]:
    """Return the arguments for istio-iptables, as Istio's injector writes them: optional ones only if they are set.
    `status_port`: the port of the proxy for probes and metrics, which is not redirected; 0 if there is none."""
    own_ports = [str(PROMETHEUS_PORT), str(READINESS_PORT), *([str(status_port)] if status_port else [])]
    excluded = [*own_ports, *(port for port in _split(wanted.exclude_inbound_ports) if port not in own_ports)]
    values = {field: ",".join(_split(getattr(wanted, field))) for field in _FIELDS}
    values["exclude_inbound_ports"] = ",".join(excluded)
    result = ["-p", str(OUTBOUND_PORT), "-z", str(INBOUND_PORT), "-u", str(PROXY_UID)]
    result += ["-m", REDIRECT]
    for field, (flag, _) in _FIELDS.items():
        if flag in ("-i", "-x", "-b", "-d") or values[field]:
            result += [flag, values[field]]
    return result


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _port_problem(text: str) -> str:
    if text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536:
        return ""
    return f"`{text[:64]}` is not a port: write numbers from 1 to 65535, separated by commas"


def _range_problem(text: str) -> str:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return f"`{text[:64]}` is not an address range: write ranges as 10.0.0.0/8,fd00::/8"
    return ""


def _interface_problem(text: str) -> str:
    # The kernel's rule for interface names. It also prevents a name from adding more arguments to an iptables rule.
    if len(text) > 15 or "/" in text or text.startswith(("-", "!")) or not text.isprintable() or " " in text:
        return f"`{text[:64]}` cannot be an interface's name"
    return ""


_CHECKS = {"ports": _port_problem, "ranges": _range_problem, "interfaces": _interface_problem}
