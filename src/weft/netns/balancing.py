"""Service addresses that work without a proxy: iptables rules on the mesh's bridge that forward a service's virtual
address to its pods.

The rules do what kube-proxy does in a cluster: with them, a pod outside the mesh, an excluded port or a UDP service
can still use a service's address. The bridge's namespace is used by the mesh alone, so its nat table is replaced as
a whole.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_network

import msgspec

from weft.netns.interception import Family
from weft.netns.namespace import NetworkError, NetworkNamespace, ipv6_available, run_in

_RESTORE: dict[Family, str] = {4: "iptables-restore", 6: "ip6tables-restore"}


class VirtualAddress(msgspec.Struct, frozen=True):
    """One port of one service address, and the pods to which it is forwarded (`targets`: pairs of a pod's address and
    port). `protocol`: tcp or udp. The service's and the pods' addresses are of the same IP family."""

    address: str
    port: int
    targets: tuple[tuple[str, int], ...]
    protocol: str = "tcp"  # or udp

    @property
    def family(self) -> Family:
        return 4 if ip_address(self.address).version == 4 else 6


class WayOut(msgspec.Struct, frozen=True):
    """Where TCP connections to hosts outside the mesh are redirected: the `addresses` of the bridge, one per IP family,
    and `port`. `inside`: the mesh's own ranges, which are not redirected. `interface`: where pods' packets arrive."""

    addresses: tuple[str, ...]
    port: int
    inside: tuple[str, ...]
    interface: str

    def rules(self, family: Family) -> Iterator[str]:
        arriving = f"-A PREROUTING -i {self.interface}"
        for each in self.inside:
            if ip_network(each).version == family:
                yield f"{arriving} -d {each} -j RETURN"
        for address in self.addresses:
            if ip_address(address).version == family:
                target = f"[{address}]:{self.port}" if family == 6 else f"{address}:{self.port}"
                yield f"{arriving} -p tcp -j DNAT --to-destination {target}"


def balance(bridge: NetworkNamespace, wanted: Sequence[VirtualAddress], way_out: WayOut | None = None) -> None:
    """Replace the nat table of the namespace `bridge`, so that exactly the addresses in `wanted` are forwarded, and
    connections that leave the mesh are redirected to `way_out`, if there is one. Established connections keep their
    target."""
    families: tuple[Family, ...] = (4, 6) if ipv6_available() else (4,)

    def install() -> None:
        for family in families:
            program = shutil.which(_RESTORE[family])
            if program is None:
                raise NetworkError(f"the program `{_RESTORE[family]}` is missing", "apt-get install iptables")
            leaving = way_out.rules(family) if way_out is not None else ()
            text = rules([each for each in wanted if each.family == family], leaving)
            done = subprocess.run(
                [program, "--wait", "5"], input=text, capture_output=True, text=True, check=False, timeout=30
            )
            if done.returncode != 0:
                reason = " ".join(done.stderr.split())
                hint = "modprobe nf_nat xt_statistic xt_conntrack xt_MASQUERADE"
                raise NetworkError(
                    f"{_RESTORE[family]} rejected the rules for service addresses: {reason}", hint, where=str(bridge)
                )

    run_in(bridge, install)


def rules(wanted: Sequence[VirtualAddress], leaving: Iterable[str] = ()) -> str:
    """Return the nat table that forwards `wanted`, as input of iptables-restore. All of `wanted` must be of one IP
    family. `leaving`: the rules for connections that leave the mesh."""
    return "\n".join(
        [
            "*nat",
            *(line for each in wanted for line in _choices(each)),
            *leaving,
            # Replies must pass the bridge's NAT: caller and target are on the same link, and would otherwise reply
            # directly.
            "-A POSTROUTING -m conntrack --ctstate DNAT -j MASQUERADE",
            "COMMIT",
            "",
        ]
    )


def _choices(service: VirtualAddress) -> Iterator[str]:
    """Yield one DNAT rule per target, with probabilities that make all targets equally likely."""
    for position, (address, port) in enumerate(service.targets):
        left = len(service.targets) - position
        chance = f" -m statistic --mode random --probability {1 / left:.10f}" if left > 1 else ""
        target = f"[{address}]:{port}" if service.family == 6 else f"{address}:{port}"
        yield (
            f"-A PREROUTING -d {service.address} -p {service.protocol} --dport {service.port}{chance}"
            f" -j DNAT --to-destination {target}"
        )
