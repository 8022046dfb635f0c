"""`weft redirect`: requests the redirect from the node's agent, for pods that may not change their own network. The
init container istio-validation runs it. In a native sidecar, `weft wait` makes the same request when the proxy
starts."""

from __future__ import annotations

import sys
from pathlib import Path

from weft.model.proxy import IDENTITY_MOUNT, REDIRECT_SOCKET

_HELP = """Usage: weft redirect [--socket PATH] [--timeout SECONDS] ARGUMENTS

  Have the node's agent redirect this pod's traffic to its proxy, and wait until it has done so. The arguments are those
  of `weft iptables`. If the agent does not respond, the command fails, and the pod does not start.

    --socket PATH      socket of the node's agent ({socket})
    --timeout SECONDS  how long to wait for the agent, which may be starting (30)

  Example: weft redirect -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020
"""
_SOCKET = str(Path(IDENTITY_MOUNT, REDIRECT_SOCKET))


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(_HELP.format(socket=_SOCKET), end="")
        return 0
    from weft.netns.interception import Interception
    from weft.netns.namespace import NetworkError

    wanted = list(arguments)
    for option in ("--socket", "--timeout"):
        _taken(wanted, option, "")
    try:
        Interception.from_arguments(wanted)  # reports invalid arguments before the agent is called
    except NetworkError as error:
        return _fail(f"{error.problem.where}: {error.problem.what}", error.problem.hint)
    return have_redirected(arguments)


def have_redirected(arguments: list[str]) -> int:
    """Request from the node's agent that this pod's traffic is redirected to its proxy, and return the exit code.
    `arguments`: the arguments of istio-iptables, and the options `--socket` and `--timeout`. The arguments of
    istio-iptables are not checked, which saves time while the pod's start waits: the injector wrote them."""
    from weft.node.redirect_call import RedirectFailed, ask

    rest = list(arguments)
    socket = _taken(rest, "--socket", _SOCKET)
    try:
        timeout = float(_taken(rest, "--timeout", "30"))
    except ValueError:
        return _fail("--timeout needs a number of seconds", "for example: --timeout 30", code=2)
    try:
        ask(Path(socket), tuple(rest), timeout=timeout)
    except RedirectFailed as error:
        return _fail(str(error), "kubectl -n istio-system get pods -l app=weft-node -o wide")
    print("this pod's traffic is redirected to its proxy", file=sys.stderr)
    return 0


def _taken(arguments: list[str], name: str, default: str) -> str:
    """Return the value of the option `name`, or `default` if it is not given. The option is removed from
    `arguments`."""
    for place, argument in enumerate(arguments):
        if argument.startswith(f"{name}="):
            del arguments[place]
            return argument.partition("=")[2]
        if argument == name and place + 1 < len(arguments):
            value = arguments[place + 1]
            del arguments[place : place + 2]
            return value
    return default


def _fail(what: str, hint: str, *, code: int = 1) -> int:
    print(f"error: {what}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code
