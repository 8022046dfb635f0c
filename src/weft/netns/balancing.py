"""Virtual addresses for those without a proxy: rules on the mesh's bridge that lead a service's address to its pods.

What kube-proxy is to a cluster: a pod outside the mesh, an excluded port or a UDP service reaches a service's address
all the same. The namespace of the bridge belongs to the mesh alone, so its tables are replaced as a whole.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

import msgspec

from weft.netns.interception import Family
from weft.netns.namespace import NetworkError, NetworkNamespace, ipv6_available, run_in

_RESTORE: dict[Family, str] = {4: "iptables-restore", 6: "ip6tables-restore"}


class VirtualAddress(msgspec.Struct, frozen=True):
    """One port of one service address, and who answers there. All of one family."""

    address: str
    port: int
    targets: tuple[tuple[str, int], ...]
    protocol: str = "tcp"  # or udp

    @property
    def family(self) -> Family:
        return 4 if ip_address(self.address).version == 4 else 6


def balance(bridge: NetworkNamespace, wanted: Sequence[VirtualAddress]) -> None:
    """From now on exactly these addresses lead somewhere; connections made before keep their way."""
    families: tuple[Family, ...] = (4, 6) if ipv6_available() else (4,)

    def install() -> None:
        for family in families:
            program = shutil.which(_RESTORE[family])
            if program is None:
                raise NetworkError(f"the program `{_RESTORE[family]}` is missing", "apt-get install iptables")
            text = rules([each for each in wanted if each.family == family])
            done = subprocess.run(
                [program, "--wait", "5"], input=text, capture_output=True, text=True, check=False, timeout=30
            )
            if done.returncode != 0:
                said = " ".join(done.stderr.split())
                hint = "modprobe nf_nat xt_statistic xt_conntrack xt_MASQUERADE"
                raise NetworkError(f"{_RESTORE[family]} refused the rules of services: {said}", hint, where=str(bridge))

    run_in(bridge, install)


def rules(wanted: Sequence[VirtualAddress]) -> str:
    """The nat table of one family, as iptables-restore reads it."""
    return "\n".join(
        [
            "*nat",
            *(line for each in wanted for line in _choices(each)),
            # The answer must come back this way: both ends are on one wire and would otherwise talk past us.
            "-A POSTROUTING -m conntrack --ctstate DNAT -j MASQUERADE",
            "COMMIT",
            "",
        ]
    )


def _choices(service: VirtualAddress) -> Iterator[str]:
    """Each target is taken with the probability that makes all of them equally likely."""
    for position, (address, port) in enumerate(service.targets):
        left = len(service.targets) - position
        chance = f" -m statistic --mode random --probability {1 / left:.10f}" if left > 1 else ""
        target = f"[{address}]:{port}" if service.family == 6 else f"{address}:{port}"
        yield (
            f"-A PREROUTING -d {service.address} -p {service.protocol} --dport {service.port}{chance}"
            f" -j DNAT --to-destination {target}"
        )
