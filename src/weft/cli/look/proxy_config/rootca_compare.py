"""`weft proxy-config rootca-compare`: whether two proxies trust a root in common, in istioctl's words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weft.cli.flags import completions
from weft.cli.print.output import fail
from weft.cli.reach.cluster import CONTEXT, KUBECONFIG
from weft.cli.reach.connect import KUBERNETES, MESH, NAMESPACE, SYSTEM

if TYPE_CHECKING:
    from weft.cli.reach.connect import Proxy, Reach


def compare(
    first: str = typer.Argument(..., metavar="POD", help="One of them.", autocompletion=completions.pods),
    second: str = typer.Argument(..., metavar="POD", help="The other.", autocompletion=completions.pods),
    namespace: str = NAMESPACE,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Whether two pods trust a root in common: without one, neither believes the other's certificate.

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
    typer.echo(f"{both} identical ROOTCA, theoretically the connectivity between them is available")


def _roots(reached: Reach, proxy: Proxy) -> frozenset[bytes]:
    from weft.envoy.dump import MASKS, SECRETS, read
    from weft.envoy.dump_secrets import roots, secrets

    found = roots(secrets(read(reached.admin(proxy, "/config_dump", {"mask": MASKS[SECRETS]}), where=str(proxy))))
    if not found:
        fail(f"{proxy} has no root certificate yet", f"see what it has: weft proxy-config secret {proxy}")
    return found
