"""`weft crds`: the definitions of the kinds that weft reads, for whoever installs them apart. Needs no cluster."""

from __future__ import annotations

import click


@click.command()
def crds() -> None:
    """Print the CustomResourceDefinitions of the kinds that weft reads, as YAML.

    \b
    Example: weft crds | kubectl apply --server-side -f -
    """
    from weft.install.crds import crds as definitions
    from weft.install.manifests import as_yaml

    click.echo(as_yaml(definitions()), nl=False)
