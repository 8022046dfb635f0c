"""`weft interception`: Istio's init container as a command. It prints the iptables rules, applies or removes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from weft.netns.interception import Interception

_PROCESS_ONE = Path("/proc/1/ns/net")


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "help_option_names": ["--help"],  # all short options are Istio's
    }
)
@click.option("--apply", is_flag=True, help="Apply the rules in the network namespace this command runs in.")
@click.option("--remove", is_flag=True, help="Remove the rules from the network namespace this command runs in.")
@click.option("--force", is_flag=True, help="Change the rules even in the machine's own network namespace.")
@click.pass_context
def interception(context: click.Context, apply: bool, remove: bool, force: bool) -> None:
    """Print the iptables rules of a pod. The rules are those of Istio's init container, with its arguments:

    \b
      -p PORT    outbound traffic goes to this port of the proxy (15001)
      -z PORT    inbound traffic goes to this port of the proxy (15006)
      -u UID     the proxy's user, whose own connections are not redirected (1337); -g GID likewise
      -m MODE    REDIRECT
      -i RANGES  outbound ranges to intercept, '*' for all; -x RANGES to leave alone
      -b PORTS   inbound ports to intercept, '*' for all; -d PORTS to leave alone
      -q PORTS   outbound ports to intercept regardless of the ranges; -o PORTS to leave alone
      -k, -c     interfaces of virtual machines; interfaces to leave alone

    \b
    Example: weft interception -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x 10.9.0.0/16 -b '*' -d 15090,15021,15020
    """
    from weft.cli.print.output import fail, say
    from weft.netns.interception import Interception

    wanted = Interception.from_arguments(context.args)
    if not (apply or remove):
        click.echo(wanted.printed(), nl=False)
        return
    if apply and remove:
        fail("--apply and --remove exclude each other", "leave one of them out", code=2)
    if _is_machines_own() and not force:
        fail(
            "this is the machine's own network namespace, not a pod's: all of its traffic would be intercepted",
            "ip netns exec NAME weft interception …, or add --force to do so",
        )
    _change(wanted if apply else None)
    say("the rules are in place" if apply else "the rules are gone")


def _is_machines_own() -> bool:
    """Return whether this is the machine's own network namespace: that of process 1, unless this process is process 1,
    as in an init container. True if that cannot be determined."""
    import os

    from weft.netns.namespace import OWN, is_kernels_first

    here = OWN
    if is_kernels_first():
        return True
    if os.getpid() == 1:
        return False
    try:
        return here.stat().st_ino == _PROCESS_ONE.stat().st_ino
    except OSError:  # the namespace of a protected process 1 is unreadable even for root
        return not _is_named(here)


def _is_named(namespace: Path) -> bool:
    """Return whether `ip netns` lists the namespace, which means that it was created by a user."""
    try:
        named = list(Path("/run/netns").iterdir())
    except OSError:
        return False
    return any(each.stat().st_ino == namespace.stat().st_ino for each in named)


def _change(wanted: Interception | None) -> None:
    from weft.netns import iptables
    from weft.netns.namespace import own

    here = own()
    if wanted is None:
        iptables.remove(here)
    else:
        iptables.apply(here, wanted)
