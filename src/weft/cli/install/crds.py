"""`weft crds`: prints the CRDs of the kinds that weft reads, for installing them separately. Needs no cluster."""

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
