"""`weft proxy-config rootca-compare`: shows whether two proxies trust a common root, in istioctl's words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail

if TYPE_CHECKING:
    from weft.cli.reach.interface import MeshReach, PodProxy


@click.command()
@click.argument("first", metavar="POD", help="The first pod.", shell_complete=completions.pods)
@click.argument("second", metavar="POD", help="The second pod.", shell_complete=completions.pods)
@shared.namespace
@shared.which_mesh
@shared.system
def compare(
    first: str,
    second: str,
    namespace: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Check whether two pods trust a common root. Without one, neither pod accepts the other's certificate.

    \b
    Exit codes: 0 they do, 1 they do not.

    \b
    Example: weft proxy-config rootca-compare frontend payments-v1
    """
    from weft.cli.reach.connect import reach

    reached = reach(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
    try:
        one, other = (reached.find(word, namespace) for word in (first, second))
        in_common = _roots(reached, one) & _roots(reached, other)
    finally:
        reached.close()
    both = f"Both [{one}] and [{other}] have the"
    if not in_common:
        what = f"{both} non identical ROOTCA, theoretically the connectivity between them is unavailable"
        fail(what, f"see what each trusts: weft proxy-config secret {one}, and {other}")
    click.echo(f"{both} identical ROOTCA, theoretically the connectivity between them is available")


def _roots(reached: MeshReach, proxy: PodProxy) -> frozenset[bytes]:
    from weft.envoy.dump import MASKS, SECRETS, read
    from weft.envoy.dump_secrets import roots, secrets

    trusted = roots(secrets(read(reached.admin(proxy, "/config_dump", {"mask": MASKS[SECRETS]}), where=str(proxy))))
    if not trusted:
        fail(f"{proxy} has no root certificate yet", f"see what it has: weft proxy-config secret {proxy}")
    return trusted
