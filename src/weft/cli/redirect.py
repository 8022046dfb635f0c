"""`weft redirect`: what the first container of a pod runs where pods may not change their own network."""

from __future__ import annotations

from pathlib import Path

import typer

from weft.model.proxy import IDENTITY_MOUNT, REDIRECT_SOCKET


def redirect(
    context: typer.Context,
    socket: Path = typer.Option(
        Path(IDENTITY_MOUNT, REDIRECT_SOCKET), "--socket", help="Where the node's agent listens."
    ),
    timeout: float = typer.Option(30.0, "--timeout", help="Seconds to wait for it, as it may be starting."),
) -> None:
    """Ask the node's agent to redirect this pod's traffic to its proxy, and end when that is so. The arguments are
    those of `weft interception`. Without an answer it fails, and the pod does not start.

    \b
    Example: weft redirect -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020
    """
    import asyncio

    from weft.cli.output import fail, say
    from weft.netns.interception import Interception
    from weft.node.redirect_call import RedirectFailed, ask

    Interception.from_arguments(context.args)  # what is wrong with them is said here, too
    try:
        asyncio.run(ask(socket, tuple(context.args), timeout=timeout))
    except RedirectFailed as error:
        fail(str(error), "kubectl -n istio-system get pods -l app=weft-node -o wide")
    say("this pod's traffic is redirected to its proxy")
