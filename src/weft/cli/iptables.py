"""`weft iptables`: what istio-init runs. Istio's arguments come in, and the redirect of the pod that it runs in is in
place when it ends; the rules are on standard output, for whoever looks at the container's log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.netns.interception import Interception

_HELP = """Usage: weft iptables [--dry-run] ARGUMENTS

  Redirect the traffic of the pod that this runs in to its proxy, and print the rules. What istio-init runs; may be
  run again. The arguments are Istio's:

    -p PORT    outbound traffic goes to this port of the proxy (15001)
    -z PORT    inbound traffic goes to this one (15006)
    -u UID     the proxy's user, whose own connections are let through (1337); -g GID likewise
    -m MODE    REDIRECT
    -i RANGES  outbound ranges to intercept, '*' for all; -x RANGES to leave alone
    -b PORTS   inbound ports to intercept, '*' for all; -d PORTS to leave alone
    -q PORTS   outbound ports to intercept whatever the ranges say; -o PORTS to leave alone
    -k, -c     interfaces of virtual machines; interfaces to leave alone
    --dry-run  only print the rules

  Example: weft iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x '' -b '*' -d 15090,15021,15020
"""
_MACHINES_OWN = 0xEFFFFFF9  # the inode of the namespace that the kernel began with; older kernels have no fixed one


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(_HELP, end="")
        return 0
    from weft.netns.interception import Interception
    from weft.netns.namespace import NetworkError

    try:
        wanted = Interception.from_arguments([each for each in arguments if each not in ("--dry-run", "-n")])
    except NetworkError as error:
        return _fail(str(error.problem.where), error.problem.what, error.problem.hint, code=2)
    print(f"# iptables-restore\n{wanted.rules(4)}\n# ip6tables-restore\n{wanted.rules(6)}", end="", flush=True)
    if "--dry-run" in arguments or "-n" in arguments:
        return 0
    here = Path("/proc/self/ns/net")
    if here.stat().st_ino == _MACHINES_OWN:
        what = "this is the machine's own network, not a pod's: all of its traffic would be redirected"
        return _fail("", what, "to see the rules only: weft iptables --dry-run …")
    return _apply(wanted, here)


def _apply(wanted: Interception, here: Path) -> int:
    from weft.netns import iptables
    from weft.netns.loopback import carry_inbound_source
    from weft.netns.namespace import NetworkError, NetworkNamespace

    namespace = NetworkNamespace(str(here))  # an absolute path stands for itself
    try:
        carry_inbound_source(namespace)
        iptables.apply(namespace, wanted)
    except NetworkError as error:
        return _fail(str(error.problem.where), error.problem.what, error.problem.hint)
    except OSError as error:
        return _fail(
            "", f"the network cannot be changed: {error.strerror or error}", "it takes the capability NET_ADMIN"
        )
    print("the redirect is in place", file=sys.stderr)
    return 0


def _fail(place: str, what: str, hint: str, *, code: int = 1) -> int:
    print(f"error: {place}: {what}" if place else f"error: {what}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code
