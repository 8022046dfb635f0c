"""`weft demo`: copies the example shop to a directory where it can be edited, and runs it. With `--check` it runs
unattended and checks the results."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import fail, print_table, say


@click.command()
@click.argument(
    "directory",
    type=click.Path(path_type=Path),
    default=Path("weft-demo"),
    help="The directory to copy the shop to, by default weft-demo; an existing one is used as it is.",
)
@click.option("--check", is_flag=True, help="Run the shop unattended, check it, and exit with 0 or 1.")
@click.option("--name", "own_name", help="The mesh's name, for a second demo beside the first.")
@shared.no_live
def demo(directory: Path, check: bool, own_name: str | None, no_live: bool) -> None:
    """Run the example shop and watch its traffic.

    Nine small workloads, three protocols, two versions behind one name, a job, and steady requests. All traffic uses
    mutual TLS, with certificates that are valid for seconds, and a policy denies one of the nine workloads. The shop is
    copied to a directory where you can edit it, and four things to try are shown.

    \b
    Example: weft demo
             weft demo --check
    """
    from weft.cli.run.foreground import refuse_without_privileges, run_foreground
    from weft.demo import shop
    from weft.local.identities import Trust
    from weft.local.run_directory import find
    from weft.local.status import MeshStatus

    # Before the shop is copied: a copy that was never run would get in the way of the next demo.
    refuse_without_privileges()
    name = own_name or ("demo" if not check else f"check-{os.getpid()}")
    record = find(name)
    if record is not None and record.running:
        again = "--check" if check else directory
        fail(
            f"a mesh named `{name}` is running already ({record.directory})",
            f"end it with: weft down {name}\nor run another beside it: weft demo {again} --name {name}-2",
        )
    if check:
        raise Exit(_check(name))
    if directory.exists():
        say(f"using {directory} as it is (remove it for a fresh copy)")
    else:
        try:
            shop.copy_to(directory)
        except OSError as error:
            fail(f"the shop cannot be copied to {directory}: {error}", "give another directory: weft demo DIRECTORY")
        say(f"copied the shop to {directory}; edit it while it runs")

    def tips(status: MeshStatus) -> list[tuple[str, list[str]]]:
        pids = [pod.pid for each in status.workloads if each.name == "catalog" for pod in each.pods if pod.pid]
        return shop.things_to_try(directory, pids[0] if pids else 0)

    trust = Trust(certificate_ttl=shop.CERTIFICATE_TTL)
    run_foreground(directory, name=name, live=not no_live, tips=tips, trust=trust)


def _check(name: str) -> int:
    """Run the check and return the exit code: 0 if every step passed."""
    import sys

    from weft.cli.print.demo_steps import is_one_place, steps_table
    from weft.demo.check import run

    report = run(name, say)
    count = len(report.steps)
    # Each step was printed on standard error. If standard output is the same terminal or file, a table would repeat
    # them.
    if is_one_place(sys.stdout, sys.stderr):
        say(f"{count - report.failed} of {count} steps passed")
    else:
        print_table(steps_table(report.steps))
    if not report.failed:
        return 0
    say(f"\n{report.failed} of {count} steps failed; the end of weft's own log ({report.log}):")
    say("\n".join(report.log_end))
    return 1
