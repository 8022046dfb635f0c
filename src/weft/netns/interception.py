"""Interception: which connections of a pod are redirected to its proxy, as a value, as command-line arguments, and as
iptables rules.

The arguments are those of Istio's init container, the chains have its names, and the rules have its effect, for IPv4
and IPv6. This module only generates the rules; `netns/iptables.py` installs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, Literal

import msgspec

from weft.base.suggest import did_you_mean
from weft.model.proxy import INBOUND_PORT, MARKS, OPEN_PORTS, OUTBOUND_PORT, PROXY_GID, PROXY_UID, TUNNEL_PORT
from weft.netns.namespace import NetworkError

Family = Literal[4, 6]

EVERYTHING: Final = "*"
CHAINS = ("ISTIO_INBOUND", "ISTIO_IN_REDIRECT", "ISTIO_OUTPUT", "ISTIO_REDIRECT")


# The arguments of `Interception.from_arguments`, for the help of commands.
ARGUMENTS_HELP = (
    "-p PORT    outbound traffic goes to this port of the proxy (15001)",
    "-z PORT    inbound traffic goes to this port of the proxy (15006)",
    "-u UID     the proxy's user, whose connections are not intercepted (1337); -g GID: the same for its group",
    "-m MODE    REDIRECT",
    "-i RANGES  outbound ranges to intercept, '*' for all; -x RANGES: not to intercept",
    "-b PORTS   inbound ports to intercept, '*' for all; -d PORTS: not to intercept",
    "-q PORTS   outbound ports to intercept in all ranges; -o PORTS: not to intercept",
    "-k NAMES   interfaces of virtual machines; -c NAMES: interfaces not to intercept",
)


class Interception(msgspec.Struct, frozen=True, kw_only=True):
    """Which connections of one pod are redirected to its proxy, and to which of the proxy's ports (`outbound_port`,
    `inbound_port`). `EVERYTHING` as the value of a field means all ports or ranges, an empty tuple means none. As in
    Istio, the fields `…_excluded` have an effect only beside `EVERYTHING`. `outbound_ports` are redirected whatever the
    destination address is. Inbound connections to `tunnel_port` are not redirected. `proxy_uid` and `proxy_gid`: the
    user and group of the proxy, by which its own connections are recognized. `virtual_interfaces`: traffic that arrives
    from these interfaces counts as outbound, because a virtual machine inside the pod sends it."""

    outbound_port: int = OUTBOUND_PORT
    inbound_port: int = INBOUND_PORT
    tunnel_port: int = TUNNEL_PORT
    proxy_uid: int = PROXY_UID
    proxy_gid: int = PROXY_GID
    inbound_ports: tuple[int, ...] | Literal["*"] = EVERYTHING
    # As in Istio, exclusions apply only if the included ports or ranges are `*`.
    inbound_ports_excluded: tuple[int, ...] = OPEN_PORTS
    outbound_ranges: tuple[IPv4Network | IPv6Network, ...] | Literal["*"] = EVERYTHING
    outbound_ranges_excluded: tuple[IPv4Network | IPv6Network, ...] = ()
    # Redirected regardless of `outbound_ranges`.
    outbound_ports: tuple[int, ...] | Literal["*"] = ()
    outbound_ports_excluded: tuple[int, ...] = ()
    # Traffic that arrives from these interfaces is treated as outbound: a virtual machine inside the pod sends it.
    virtual_interfaces: tuple[str, ...] = ()
    interfaces_excluded: tuple[str, ...] = ()

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> Interception:
        """Parse the command line of istio-iptables. For an omitted argument, istio-iptables' default is used: the
        usual ports and user of the proxy, but no ports and no ranges to redirect."""
        values = dict(_pairs(arguments))
        mode = values.get("-m", "")
        if mode == "TPROXY":
            hint = "use -m REDIRECT; the proxy sees the caller's address in both modes, the app only in TPROXY"
            raise NetworkError("interception mode TPROXY is not supported", hint, where="-m")
        if mode not in ("", "REDIRECT"):
            raise NetworkError(f"unknown interception mode `{mode}`", "use -m REDIRECT", where="-m")
        uid = _number("-u", values.get("-u") or str(PROXY_UID), most=2**32 - 2)
        return cls(
            outbound_port=_port("-p", values.get("-p") or str(OUTBOUND_PORT)),
            inbound_port=_port("-z", values.get("-z") or str(INBOUND_PORT)),
            tunnel_port=_port("-e", values.get("-e") or str(TUNNEL_PORT)),
            proxy_uid=uid,
            proxy_gid=_number("-g", values.get("-g") or str(uid), most=2**32 - 2),
            inbound_ports=_ports_or_everything("-b", values.get("-b", "")),
            inbound_ports_excluded=_ports("-d", values.get("-d", "")),
            outbound_ranges=_ranges_or_everything("-i", values.get("-i", "")),
            outbound_ranges_excluded=_ranges("-x", values.get("-x", "")),
            outbound_ports=_ports_or_everything("-q", values.get("-q", "")),
            outbound_ports_excluded=_ports("-o", values.get("-o", "")),
            virtual_interfaces=_interfaces("-k", values.get("-k", "")),
            interfaces_excluded=_interfaces("-c", values.get("-c", "")),
        )

    def arguments(self) -> list[str]:
        """Return the command line of istio-iptables that `from_arguments` parses into this value."""
        return [
            *("-p", str(self.outbound_port), "-z", str(self.inbound_port), "-e", str(self.tunnel_port)),
            *("-u", str(self.proxy_uid), "-g", str(self.proxy_gid), "-m", "REDIRECT"),
            *("-i", _join(self.outbound_ranges), "-x", _join(self.outbound_ranges_excluded)),
            *("-b", _join(self.inbound_ports), "-d", _join(self.inbound_ports_excluded)),
            *("-q", _join(self.outbound_ports), "-o", _join(self.outbound_ports_excluded)),
            *("-k", _join(self.virtual_interfaces), "-c", _join(self.interfaces_excluded)),
        ]

    def rules(self, family: Family) -> str:
        """Return the rules of one IP family as the input of iptables-restore: a nat table, for a namespace in which
        none of its chains exists yet."""
        chains = [f"-N {chain}" for chain in CHAINS]
        rules = [*_redirects(self), *_inbound(self, family), *_outbound(self, family)]
        return "\n".join(["*nat", *chains, *rules, "COMMIT", ""])

    def printed(self) -> str:
        """Return the rules of both families as text, for commands that print them."""
        return f"# iptables-restore\n{self.rules(4)}\n# ip6tables-restore\n{self.rules(6)}"


def _redirects(wanted: Interception) -> Iterator[str]:
    yield f"-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports {wanted.outbound_port}"
    yield f"-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports {wanted.inbound_port}"


def _inbound(wanted: Interception, family: Family) -> Iterator[str]:
    if wanted.inbound_ports or wanted.virtual_interfaces:
        yield "-A PREROUTING -p tcp -j ISTIO_INBOUND"
    # Istio puts these into PREROUTING and OUTPUT. In the ISTIO_* chains they have the same effect and can be removed
    # again.
    yield from (f"-A ISTIO_INBOUND -i {interface} -j RETURN" for interface in wanted.interfaces_excluded)
    for interface in wanted.virtual_interfaces:
        for match in _range_matches(wanted, family):
            yield f"-A ISTIO_INBOUND -i {interface}{match} -j ISTIO_REDIRECT"
        yield f"-A ISTIO_INBOUND -i {interface} -j RETURN"
    yield f"-A ISTIO_INBOUND -p tcp --dport {wanted.tunnel_port} -j RETURN"
    if wanted.inbound_ports == EVERYTHING:
        yield from (f"-A ISTIO_INBOUND -p tcp --dport {port} -j RETURN" for port in wanted.inbound_ports_excluded)
        yield "-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT"
    else:
        yield from (f"-A ISTIO_INBOUND -p tcp --dport {port} -j ISTIO_IN_REDIRECT" for port in wanted.inbound_ports)


def _outbound(wanted: Interception, family: Family) -> Iterator[str]:
    loopback, inbound_source = ("127.0.0.1/32", "127.0.0.6/32") if family == 4 else ("::1/128", "::6/128")
    owners = f"--uid-owner {wanted.proxy_uid}", f"--gid-owner {wanted.proxy_gid}"
    yield "-A OUTPUT -p tcp -j ISTIO_OUTPUT"
    # A call that was on hold continues on a new connection of the proxy to the original destination, and must be
    # redirected to the proxy again. These rules come first: any other rule that lets the proxy's own connections pass
    # would let this one leave without protection.
    for mark, port in MARKS.values():
        for owner in owners:
            yield f"-A ISTIO_OUTPUT -p tcp -m dscp --dscp {mark} -m owner {owner} -j REDIRECT --to-ports {port}"
    yield from (f"-A ISTIO_OUTPUT -o {interface} -j RETURN" for interface in wanted.interfaces_excluded)
    yield from (f"-A ISTIO_OUTPUT -p tcp --dport {port} -j RETURN" for port in wanted.outbound_ports_excluded)
    # Connections from the proxy's inbound side to the app must not be redirected to the proxy again.
    yield f"-A ISTIO_OUTPUT -o lo -s {inbound_source} -j RETURN"
    for owner in owners:
        # The pod calls its own service: the proxy's outbound side chose this pod, so the connection goes to its inbound
        # side.
        yield (
            f"-A ISTIO_OUTPUT -o lo ! -d {loopback} -p tcp ! --dport {wanted.tunnel_port} "
            f"-m owner {owner} -j ISTIO_IN_REDIRECT"
        )
        # The app calls itself by its own address: not intercepted, unless a range includes the loopback address.
        if not _includes_loopback(wanted):
            yield f"-A ISTIO_OUTPUT -o lo -m owner ! {owner} -j RETURN"
        # The proxy's own connections are not redirected, which prevents loops.
        yield f"-A ISTIO_OUTPUT -m owner {owner} -j RETURN"
    yield f"-A ISTIO_OUTPUT -d {loopback} -j RETURN"
    for network in wanted.outbound_ranges_excluded:
        if network.version == family:
            yield f"-A ISTIO_OUTPUT -d {network} -j RETURN"
    if wanted.outbound_ports == EVERYTHING:
        yield "-A ISTIO_OUTPUT -p tcp -j ISTIO_REDIRECT"
    else:
        yield from (f"-A ISTIO_OUTPUT -p tcp --dport {port} -j ISTIO_REDIRECT" for port in wanted.outbound_ports)
    for match in _range_matches(wanted, family):
        yield f"-A ISTIO_OUTPUT{match} -j ISTIO_REDIRECT"


def _range_matches(wanted: Interception, family: Family) -> list[str]:
    if isinstance(wanted.outbound_ranges, str):
        return [""]
    return [f" -d {network}" for network in wanted.outbound_ranges if network.version == family]


def _includes_loopback(wanted: Interception) -> bool:
    ranges = wanted.outbound_ranges
    return not isinstance(ranges, str) and any(network.network_address.is_loopback for network in ranges)


_LONG_NAMES = {
    "--envoy-port": "-p",
    "--inbound-capture-port": "-z",
    "--inbound-tunnel-port": "-e",
    "--proxy-uid": "-u",
    "--proxy-gid": "-g",
    "--istio-inbound-interception-mode": "-m",
    "--istio-service-cidr": "-i",
    "--istio-service-exclude-cidr": "-x",
    "--istio-inbound-ports": "-b",
    "--istio-local-exclude-ports": "-d",
    "--istio-outbound-ports": "-q",
    "--istio-local-outbound-ports-exclude": "-o",
    "--kube-virt-interfaces": "-k",
    "--istio-exclude-interfaces": "-c",
    # Istio's injection template always passes it; it does not affect traffic.
    "--log_output_level": "--log_output_level",
}


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    remaining = iter(arguments)
    for argument in remaining:
        flag, equals, value = argument.partition("=")
        short = _LONG_NAMES.get(flag, flag)
        if short not in _LONG_NAMES.values():
            known = (*_LONG_NAMES, *_LONG_NAMES.values())
            raise NetworkError(f"unknown argument `{argument}`", did_you_mean(flag, known), where="interception")
        if not equals:
            following = next(remaining, None)
            if following is None:
                raise NetworkError(f"`{flag}` needs a value", f"for an empty value: {flag} ''", where="interception")
            value = following
        yield short, value.strip()


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _number(flag: str, text: str, *, most: int, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise NetworkError(f"`{text}` is not a number from {least} to {most}", where=f"interception {flag}")
    return int(text)


def _port(flag: str, text: str) -> int:
    return _number(flag, text, least=1, most=65535)


def _ports(flag: str, value: str) -> tuple[int, ...]:
    return tuple(_port(flag, part) for part in _split(value))


def _ports_or_everything(flag: str, value: str) -> tuple[int, ...] | Literal["*"]:
    return EVERYTHING if value == EVERYTHING else _ports(flag, value)


def _ranges(flag: str, value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    ranges = []
    for part in _split(value):
        try:
            ranges.append(ip_network(part, strict=False))
        except ValueError as error:
            what, hint = f"`{part}` is not an address range: {error}", "write ranges as 10.0.0.0/8,fd00::/8"
            raise NetworkError(what, hint, where=f"interception {flag}") from None
    return tuple(ranges)


def _ranges_or_everything(flag: str, value: str) -> tuple[IPv4Network | IPv6Network, ...] | Literal["*"]:
    return EVERYTHING if value == EVERYTHING else _ranges(flag, value)


def _interfaces(flag: str, value: str) -> tuple[str, ...]:
    names = tuple(_split(value))
    for name in names:
        # The kernel's rule for interface names. It also prevents a name from adding more arguments to an iptables rule.
        if len(name) > 15 or "/" in name or name.startswith(("-", "!")) or not name.isprintable() or " " in name:
            raise NetworkError(f"`{name}` cannot be an interface's name", where=f"interception {flag}")
    return names


def _join(values: Sequence[object]) -> str:
    return ",".join(str(value) for value in values)
