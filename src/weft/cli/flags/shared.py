"""Options that several commands share, each declared once: which mesh or cluster a command queries, which namespace it
looks at, which files it reads, and how it prints. Every name here is a decorator, used below `@click.command()`, or,
where the help differs between commands, a function that takes the help text and returns the decorator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.cli.flags import completions

F = TypeVar("F", bound=Callable[..., Any])

KUBERNETES_HELP = "Use the mesh of a cluster, even if a mesh runs on this machine."


def mesh_option(help_text: str) -> Callable[[F], F]:
    return click.option("--mesh", help=help_text, shell_complete=completions.meshes)


def kubernetes_flag(help_text: str, *aliases: str) -> Callable[[F], F]:
    return click.option("--kubernetes", *aliases, is_flag=True, help=help_text)


def kubeconfig_option(help_text: str) -> Callable[[F], F]:
    return click.option("--kubeconfig", type=click.Path(path_type=Path), help=help_text)


mesh = mesh_option("The name of a mesh on this machine, if several run.")
mesh_as_option = mesh_option("The same as NAME.")  # for commands that take the mesh's name as an argument
kubernetes = kubernetes_flag(KUBERNETES_HELP)
kubeconfig = kubeconfig_option("The kubeconfig; default: $KUBECONFIG, then ~/.kube/config.")
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


def namespace_option(help_text: str) -> Callable[[F], F]:
    return click.option("-n", "--namespace", default="", help=help_text, shell_complete=completions.namespaces)


namespace = namespace_option("The namespace, if the name does not contain one.")
only_namespace = namespace_option("Only this namespace; default: all namespaces.")
default_namespace = click.option(
    "-n", "--namespace", default="default", show_default=True, help="The namespace of objects that have none."
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


def files_option(help_text: str, *, required: bool = False) -> Callable[[F], F]:
    return click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        type=click.Path(path_type=Path),
        required=required,
        help=help_text,
    )


files_as_option = files_option("The same as PATHS, as an option.")

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


no_live = click.option("--no-live", is_flag=True, help="Plain lines instead of the live view.")


def trust_domain(help_text: str = "The trust domain of identities.") -> Callable[[F], F]:
    return click.option("--trust-domain", default="cluster.local", show_default=True, help=help_text)


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
