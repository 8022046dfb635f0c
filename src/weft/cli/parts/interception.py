"""`weft interception`: prints the iptables rules that Istio's init container would apply, or applies or removes
them."""

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
        "help_option_names": ["--help"],  # short names are all Istio's
    }
)
@click.option("--apply", is_flag=True, help="Apply the rules in the network namespace this command runs in.")
@click.option("--remove", is_flag=True, help="Remove the rules from the network namespace this command runs in.")
@click.option("--force", is_flag=True, help="Apply or remove the rules even in the machine's own network namespace.")
@click.pass_context
def interception(context: click.Context, apply: bool, remove: bool, force: bool) -> None:
    """Print the iptables rules of a pod. Istio's init container would apply the same rules for the same arguments:

    \b
      -p PORT    outbound traffic goes to this port of the proxy (15001)
      -z PORT    inbound traffic goes to this port of the proxy (15006)
      -u UID     the proxy's user, whose connections are not intercepted (1337); -g GID: the same for its group
      -m MODE    REDIRECT
      -i RANGES  outbound ranges to intercept, '*' for all; -x RANGES: not to intercept
      -b PORTS   inbound ports to intercept, '*' for all; -d PORTS: not to intercept
      -q PORTS   outbound ports to intercept in all ranges; -o PORTS: not to intercept
      -k NAMES   interfaces of virtual machines; -c NAMES: interfaces not to intercept

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
        fail("--apply and --remove exclude each other", "give only --apply, or only --remove", code=2)
    if _is_machines_own() and not force:
        fail(
            "this is the machine's own network namespace, not a pod's: all of its traffic would be intercepted",
            "run it in a pod's namespace: ip netns exec NAME weft interception …; to do it here anyway: --force",
        )
    _change(wanted if apply else None)
    say("the rules are in place" if apply else "the rules are removed")


def _is_machines_own() -> bool:
    """Return whether this command runs in the machine's own network namespace, which is the kernel's first one, or
    that of process 1. If this command is itself process 1, as in an init container, it runs in its pod's
    namespace. If process 1 cannot be inspected, every namespace without a name in `ip netns` counts as the
    machine's own."""
    import os

    from weft.netns.namespace import OWN, is_kernels_first

    here = OWN
    if is_kernels_first():
        return True
    if os.getpid() == 1:
        return False
    try:
        return here.stat().st_ino == _PROCESS_ONE.stat().st_ino
    except OSError:  # in some sandboxes, even root may not inspect process 1
        return not _is_named(here)


def _is_named(namespace: Path) -> bool:
    """Return whether `ip netns` lists the network namespace. A namespace with a name was created by a user or
    program, so it is not the machine's own."""
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
