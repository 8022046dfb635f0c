"""`weft manifest`: prints the objects that an installation would create, and the values that can be set. Needs no
cluster."""

from __future__ import annotations

import click

from weft.cli.flags import shared
from weft.cli.lazy_commands import LazyGroup, Listing

GROUP = LazyGroup(
    "manifest",
    help="The objects and the values of an installation.",
    epilog="Example: weft manifest generate --set control.replicas=3 | kubectl apply --server-side -f -",
    listings={
        "Commands": (
            Listing(
                "generate",
                "install.manifest:generate",
                "Print every object of an installation as YAML, in the order in which to apply them.",
            ),
            Listing(
                "values",
                "install.manifest:values",
                "Print all effective values: the defaults, overridden by the given ones.",
            ),
        )
    },
)


@click.command()
@shared.values
def generate(files: tuple[str, ...], assignments: tuple[str, ...], revision: str) -> None:
    """Print every object of an installation as YAML, in the order in which to apply them.

    \b
    Example: weft manifest generate > weft.yaml
             weft manifest generate -f values.yaml --revision 0-2-0 | kubectl diff -f -
    """
    from weft.cli.install.chosen_values import chosen
    from weft.install.manifests import as_yaml, manifests

    click.echo(as_yaml(manifests(chosen(files, assignments, revision))), nl=False)


@click.command()
@shared.values
def values(files: tuple[str, ...], assignments: tuple[str, ...], revision: str) -> None:
    """Print all effective values: the defaults, overridden by the given ones.

    \b
    Example: weft manifest values > values.yaml
    """
    from weft.cli.install.chosen_values import chosen
    from weft.install.manifests import as_yaml
    from weft.install.values import written

    click.echo(as_yaml([written(chosen(files, assignments, revision))]).removeprefix("---\n"), nl=False)
