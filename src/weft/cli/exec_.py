"""`weft exec`: run a command in a pod, as its app runs: the same network, user, files and environment."""

from __future__ import annotations

import typer


def exec_(
    target: str = typer.Argument(..., metavar="TARGET", help="A pod, or a workload: one of its ready pods."),
    command: list[str] = typer.Argument(..., metavar="COMMAND", help="The command, after two dashes."),
    mesh: str | None = typer.Option(None, "--mesh", help="Which mesh, where several run."),
) -> None:
    """Run a command in a pod. Its input, output, terminal and exit code are passed through.

    \b
    Example: weft exec loadgen -- python3 ask.py http://payments/pay 100 --summary
             weft exec catalog -- sh
    """
    import os
    import sys

    from weft.cli.choose import choose_mesh, choose_pod
    from weft.local.client import fetch_entrance, fetch_status

    name = choose_mesh(mesh)
    pod = choose_pod(fetch_status(name), target)
    # Options after the target are the command's own; the two dashes that say so are not.
    entrance = fetch_entrance(name, f"{pod.namespace}/{pod.name}", command[command[0] == "--" :])
    environment = entrance.environment
    if sys.stdin.isatty() and "TERM" in os.environ:
        environment = {"TERM": os.environ["TERM"], **environment}
    # Becoming the command, instead of starting it, passes signals, terminal and exit code on without a word of code.
    os.execve(entrance.argv[0], entrance.argv, environment)  # noqa: S606
