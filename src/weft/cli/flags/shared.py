"""Options that several commands share, each declared once: which mesh or cluster a command queries, which namespace it
looks at, and how it prints. Every name here is a decorator, used below `@click.command()`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.cli.flags import completions

F = TypeVar("F", bound=Callable[..., Any])

KUBERNETES_HELP = "Use the mesh of a cluster, even if a mesh runs on this machine."

mesh = click.option(
    "--mesh", help="The name of a mesh on this machine, if several run.", shell_complete=completions.meshes
)
kubernetes = click.option("--kubernetes", is_flag=True, help=KUBERNETES_HELP)
kubeconfig = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="The kubeconfig; default: $KUBECONFIG, then ~/.kube/config.",
)
context = click.option(
    "--context", help="The kubeconfig context; default: the current one.", shell_complete=completions.contexts
)
system = click.option(
    "-i",
    "--istio-namespace",
    "--istioNamespace",
    "system",
    default="istio-system",
    show_default=True,
    help="The namespace of the cluster's control plane.",
)


def which_cluster(command: F) -> F:
    """Add `--kubeconfig` and `--context` to a command."""
    return kubeconfig(context(command))


def which_mesh(command: F) -> F:
    """Add `--mesh` for a mesh on this machine, and `--kubernetes`, `--kubeconfig` and `--context` for a cluster."""
    return mesh(kubernetes(which_cluster(command)))


namespace = click.option(
    "-n",
    "--namespace",
    default="",
    help="The namespace, if the name does not contain one.",
    shell_complete=completions.namespaces,
)
only_namespace = click.option(
    "-n",
    "--namespace",
    default="",
    help="Only this namespace; default: all namespaces.",
    shell_complete=completions.namespaces,
)
installed_namespace = click.option(
    "--namespace",
    default="istio-system",
    show_default=True,
    help="With --kubernetes: the namespace that weft is installed in.",
)
settings_revision = click.option(
    "-r", "--revision", default="default", show_default=True, help="On a cluster: the revision whose settings apply."
)
selector = click.option(
    "-l", "--selector", metavar="A=B,…", default="", help="Select pods by these labels instead of by a name."
)

# Output formats. `short` is istioctl's name for the format for people.
text_or_data = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "short", "json", "yaml"]),
    default="text",
    show_default=True,
    help="text (short is the same), json or yaml.",
)
table_or_data = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "short", "json", "yaml"]),
    default="table",
    show_default=True,
    help="table (short is the same), json or yaml.",
)


def wide_table_or_data(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds `-o table|wide|json|yaml`. `help_text` states what `wide` adds."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml"]),
        default="table",
        show_default=True,
        help=help_text,
    )


# The values of an installation.
values_files = click.option(
    "-f", "--values", "files", multiple=True, help="A file of values, or - for standard input; the last one wins."
)
assignments = click.option(
    "--set", "assignments", multiple=True, help="One value, such as control.replicas=3; overrides files."
)
revision = click.option("--revision", "-r", default="", help="The revision's name, to install several side by side.")


def values(command: F) -> F:
    """Add `--values`, `--set` and `--revision` to a command."""
    return values_files(assignments(revision(command)))
