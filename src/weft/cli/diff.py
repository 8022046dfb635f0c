"""`weft diff`: what a change would change, before it is applied: which proxies, which of their resources, and to which
requests something else would happen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weft.cli.cluster import CONTEXT, KUBECONFIG
from weft.cli.output import TEXT_OR_JSON, TextOrJson, is_data, print_data, say
from weft.cli.reach import KUBERNETES, MESH, SYSTEM

if TYPE_CHECKING:
    from weft.control.what_if import Difference

_MOST_SHOWN = 8  # resources of one group, in the table


def diff(
    files: list[Path] = typer.Option(
        ..., "-f", "--filename", help="The change: files, directories, - for standard input."
    ),
    against: Path | None = typer.Option(
        None, "--against", metavar="DIRECTORY", help="What is there before, if nothing runs: the mesh's YAML."
    ),
    output: TextOrJson = TEXT_OR_JSON,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Show what a change would change, before it is applied. The files are laid over what is there: the mesh of this
    machine, a cluster, or --against a directory. It is said which proxies would be sent what, and to which requests
    something else would happen: those of RequestTests, and a call of every HTTP port by everybody.

    \b
    Exit codes: 0 nothing changes, 1 something does, 2 a command line that makes no sense.

    \b
    Example: weft diff -f new-route.yaml
             weft diff -f new-route.yaml --against examples/shop
    """
    from datetime import UTC, datetime

    from weft.cli.trial_source import base_of, check, laid_over, read, stage_of
    from weft.control.what_if import difference

    base = base_of(against, mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
    change = read(files)
    check(change.problems)
    before = stage_of(base.documents, base.running)
    after = stage_of(laid_over(base.documents, change.documents), base.running)
    found = difference(before, after, [*base.cases, *change.cases], datetime.now(UTC))
    if is_data(output):
        print_data(found, output)
    else:
        _tell(found)
    say(
        f"{base.name}: {len(found.proxies)} groups of proxies change, {found.untouched} do not; "
        f"{len(found.requests)} of {found.tried} requests end otherwise"
    )
    if found.proxies or found.requests:
        raise typer.Exit(1)


def _tell(found: Difference) -> None:
    for each in found.proxies:
        pods = ", ".join(each.pods[:3]) + (f" and {len(each.pods) - 3} more" if len(each.pods) > 3 else "")
        typer.echo(f"{each.group} ({pods})")
        for resource in each.resources[:_MOST_SHOWN]:
            typer.echo(f"  {resource.what} {resource.kind} {resource.name}")
        if len(each.resources) > _MOST_SHOWN:
            typer.echo(f"  and {len(each.resources) - _MOST_SHOWN} more; all of them: -o json")
    for turned in found.requests:
        place = f"  ({turned.where.file}:{turned.where.line})" if turned.where.file else ""
        typer.echo(f"{turned.request}{place}")
        for line in turned.before:
            typer.echo(f"  - {line}")
        for line in turned.after:
            typer.echo(f"  + {line}")
