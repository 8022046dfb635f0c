"""`weft exec`: runs a command in a pod in the same way as its application: with the same network, user, files and
environment."""

from __future__ import annotations

import click

from weft.cli.flags import completions, shared


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument(
    "target",
    metavar="TARGET",
    help="A pod (POD or POD.NAMESPACE), or a workload (NAME or deploy/NAME): one of its pods, preferably a ready one.",
    shell_complete=completions.pods,
)
@click.argument("command", metavar="[COMMAND]", nargs=-1, help="The command, after `--`; default: `sh`.")
@shared.namespace
@shared.mesh
def exec_(target: str, command: tuple[str, ...], namespace: str, mesh: str | None) -> None:
    """Run a command in a pod. Its input, output, terminal and exit code are passed through. If it cannot be started,
    the exit code is 127.

    \b
    Example: weft exec frontend -- python3 ask.py http://payments/pay 100 --summary
             weft exec catalog
    """
    import os
    import sys

    from weft.cli.print.output import fail
    from weft.cli.reach.choose import choose_mesh, choose_pod
    from weft.local.client import fetch_entrance, fetch_status
    from weft.local.error import CannotStart

    # Options after the target belong to the command. The `--` before them does not.
    words = list(command or ())
    if words and words[0].startswith("-") and words[0] != "--":
        fail(f"`{words[0]}` cannot be a command", "options go before the target: weft exec --mesh NAME TARGET", code=2)
    words = words[words[:1] == ["--"] :] or ["sh"]
    name = choose_mesh(mesh)
    pod = choose_pod(fetch_status(name), target, namespace)
    try:
        entrance = fetch_entrance(name, f"{pod.namespace}/{pod.name}", words)
    except CannotStart as error:
        fail(f"{error.problem.where}: {error.problem.what}", error.problem.hint, code=127)
    environment = entrance.environment
    if sys.stdin.isatty() and "TERM" in os.environ:
        environment = {"TERM": os.environ["TERM"], **environment}
    # Replace this process with the command: signals, terminal and exit code then need no forwarding.
    os.execve(entrance.argv[0], entrance.argv, environment)  # noqa: S606
