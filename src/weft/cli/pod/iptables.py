"""`weft iptables`: the command of the init container istio-init. It takes Istio's arguments, and redirects the traffic
of the pod in which it runs to the pod's proxy. It prints the rules on standard output, so that the container's log
shows them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.netns.interception import Interception

_HELP = """Usage: weft iptables [--dry-run] ARGUMENTS

  Redirect the traffic of the pod in which this command runs to its proxy, and print the rules. istio-init runs this
  command; running it again is harmless. The arguments are Istio's:

    {arguments}
    --dry-run  only print the rules

  Example: weft iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x '' -b '*' -d 15090,15021,15020
"""


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        from weft.netns.interception import ARGUMENTS_HELP

        print(_HELP.format(arguments="\n    ".join(ARGUMENTS_HELP)), end="")
        return 0
    from weft.netns.interception import Interception
    from weft.netns.namespace import NetworkError, is_kernels_first

    try:
        wanted = Interception.from_arguments([each for each in arguments if each not in ("--dry-run", "-n")])
    except NetworkError as error:
        return _fail(str(error.problem.where), error.problem.what, error.problem.hint, code=2)
    print(wanted.printed(), end="", flush=True)
    if "--dry-run" in arguments or "-n" in arguments:
        return 0
    if is_kernels_first():
        what = "this is the machine's own network, not a pod's: all of its traffic would be redirected"
        return _fail("", what, "to see the rules only: weft iptables --dry-run …")
    return _apply(wanted)


def _apply(wanted: Interception) -> int:
    from weft.netns import iptables
    from weft.netns.loopback import carry_inbound_source
    from weft.netns.namespace import NetworkError, own

    namespace = own()
    try:
        carry_inbound_source(namespace)
        iptables.apply(namespace, wanted)
    except NetworkError as error:
        return _fail(str(error.problem.where), error.problem.what, error.problem.hint)
    except OSError as error:
        return _fail(
            "", f"the network cannot be changed: {error.strerror or error}", "this needs the capability NET_ADMIN"
        )
    print("the redirect is in place", file=sys.stderr)
    return 0


def _fail(place: str, what: str, hint: str, *, code: int = 1) -> int:
    print(f"error: {place}: {what}" if place else f"error: {what}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code
