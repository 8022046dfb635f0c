"""`weft manifest`: what an installation would put on a cluster, and what can be chosen about it. Needs no cluster."""

from __future__ import annotations

import typer

from weft.cli.lazy_commands import Command, Group
from weft.cli.reach.cluster import ASSIGNMENTS, FILES, REVISION

GROUP = Group(
    "What an installation is made of: its objects, its values.",
    "Example: weft manifest generate --set control.replicas=3 | kubectl apply --server-side -f -",
    (
        Command(
            "generate",
            "install.manifest:generate",
            "Print every object of an installation as YAML, in the order of applying.",
        ),
        Command(
            "values",
            "install.manifest:values",
            "Print all values, as they would be used: the defaults, and what was given over them.",
        ),
    ),
)


def generate(files: list[str] = FILES, assignments: list[str] = ASSIGNMENTS, revision: str = REVISION) -> None:
    """Print every object of an installation as YAML, in the order of applying.

    \b
    Example: weft manifest generate > weft.yaml
             weft manifest generate -f values.yaml --revision 0-2-0 | kubectl diff -f -
    """
    from weft.cli.reach.cluster import chosen
    from weft.install.manifests import as_yaml, manifests

    typer.echo(as_yaml(manifests(chosen(files, assignments, revision))), nl=False)


def values(files: list[str] = FILES, assignments: list[str] = ASSIGNMENTS, revision: str = REVISION) -> None:
    """Print all values, as they would be used: the defaults, and what was given over them.

    \b
    Example: weft manifest values > values.yaml
    """
    from weft.cli.reach.cluster import chosen
    from weft.install.manifests import as_yaml
    from weft.install.values import written

    typer.echo(as_yaml([written(chosen(files, assignments, revision))]).removeprefix("---\n"), nl=False)
