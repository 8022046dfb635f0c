"""`weft logs`: prints the output of a workload's application or of its proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.flags import completions, shared

if TYPE_CHECKING:
    from weft.local.status import PodStatus


@click.command()
@click.argument(
    "target",
    metavar="TARGET",
    help="A workload (NAME or deploy/NAME; all of its pods) or one pod (POD or POD.NAMESPACE).",
    shell_complete=completions.pods,
)
@click.option("-f", "--follow", is_flag=True, help="Follow: print new lines until Ctrl-C.")
@click.option("--proxy", is_flag=True, help="Print the log of the proxy instead of the application's.")
@click.option("--tail", type=click.IntRange(min=0), help="Print only this many lines from the end.")
@shared.namespace
@shared.mesh
def logs(target: str, follow: bool, proxy: bool, tail: int | None, namespace: str, mesh: str | None) -> None:
    """Print the output of a workload or pod.

    \b
    Example: weft logs -f loadgen
             weft logs --proxy --tail 20 payments-v1
    """
    from weft.cli.reach.choose import choose_mesh, choose_pods
    from weft.local.client import fetch_status

    name = choose_mesh(mesh)
    pods = choose_pods(fetch_status(name), target, namespace)
    read = _Reader(name, follow=follow, proxy=proxy, lines=tail)
    try:
        if len(pods) == 1:
            read.print(pods[0], prefix="")
        elif follow:
            _print_together(read, pods)
        else:
            for pod in pods:
                read.print(pod, prefix=f"{pod.name}: ")
    except KeyboardInterrupt:
        pass


class _Reader:
    def __init__(self, mesh: str, *, follow: bool, proxy: bool, lines: int | None) -> None:
        self._mesh, self._follow, self._proxy, self._lines = mesh, follow, proxy, lines

    def print(self, pod: PodStatus, prefix: str) -> None:
        from weft.local.client import read_logs

        word = f"{pod.namespace}/{pod.name}"
        for line in read_logs(self._mesh, word, follow=self._follow, proxy=self._proxy, lines=self._lines):
            click.echo(f"{prefix}{line}")


def _print_together(read: _Reader, pods: list[PodStatus]) -> None:
    """Print the logs of several pods at once with `read`, each line with the name of its pod, until the last pod has
    ended."""
    from threading import Thread

    threads = [Thread(target=read.print, args=(pod, f"{pod.name}: "), daemon=True) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
