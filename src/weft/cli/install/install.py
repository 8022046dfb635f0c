"""`weft install`: installs one revision of weft on a cluster with the given values. Running it again changes or updates
the revision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from datetime import timedelta

    from weft.install.values import Values
    from weft.kube.client import Client

_LOOK_SECONDS = 0.5


@click.command()
@shared.values
@click.option("--dry-run", is_flag=True, help="Ask the API server what would change; change nothing.")
@click.option("--precheck/--no-precheck", default=True, show_default=True, help="Check the cluster first.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until everything runs.")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait.")
@click.option(
    "-y", "--yes", "--skip-confirmation", is_flag=True, help="No effect: this command never asks for confirmation."
)
@shared.which_cluster
def install(
    files: tuple[str, ...],
    assignments: tuple[str, ...],
    revision: str,
    dry_run: bool,
    precheck: bool,
    wait: bool,
    timeout: str,
    yes: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Install weft on a Kubernetes cluster, or change what is installed.

    Running it twice changes nothing the second time. Objects of an older version of the same revision are removed if
    this version no longer has them. The CA's root and the resources of the mesh are never changed.

    \b
    Example: weft install
             weft install --set image=REGISTRY/weft:0.1.0 --set control.replicas=3
             weft install -f values.yaml --dry-run
             weft install --revision 0-2-0
    See also: weft x precheck, weft manifest values, docs/kubernetes.md
    """
    import asyncio

    from weft.cli.flags.duration import duration_of
    from weft.cli.install.chosen_values import chosen

    values = chosen(files, assignments, revision)
    patience = duration_of(timeout, "--timeout 5m")

    async def run() -> None:
        from weft.cli.reach.cluster import client

        async with client(kubeconfig, context) as cluster:
            if precheck:
                await _check(cluster, values)
            await put(cluster, values, dry_run=dry_run)
            if not dry_run and wait:
                await wait_for(cluster, values, patience)

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        say("interrupted; run the same command again to continue")
        raise Exit(130) from None
    if not dry_run:
        _say_next(values)


async def put(cluster: Client, values: Values, *, dry_run: bool) -> None:
    """Apply the objects of a revision, and remove objects that the revision no longer has. `dry_run`: write nothing,
    and only show what would change."""
    from collections import Counter

    from weft.cli.print.progress import progress
    from weft.install.manifests import manifests
    from weft.install.names import InstallationNames
    from weft.kube.apply import ApplyOutcome, apply, remove

    objects = manifests(values)
    counted: Counter[ApplyOutcome] = Counter()
    with progress() as shown:
        for step in (
            apply(cluster, objects, dry_run=dry_run),
            remove(cluster, InstallationNames.of(values).selector, keep=objects, dry_run=dry_run),
        ):
            async for done in step:
                counted[done.outcome] += 1
                if done.outcome is not ApplyOutcome.UNCHANGED:
                    shown.now(f"{'would be ' if dry_run else ''}{done.outcome}: {done.what}")
    summary = ", ".join(f"{counted[outcome]} {outcome}" for outcome in ApplyOutcome if counted[outcome])
    say(f"{'dry run: ' if dry_run else ''}revision {values.revision} in {values.namespace}: {summary}")


async def wait_for(cluster: Client, values: Values, patience: timedelta) -> None:
    """Wait until the control plane and every agent run and the webhooks respond. After `patience`, fail."""
    import asyncio

    from weft.cli.print.progress import progress
    from weft.install.names import InstallationNames
    from weft.kube.resource import DAEMON_SETS, DEPLOYMENTS
    from weft.kube.rollout import follow
    from weft.kube.webhooks import unanswered

    names = InstallationNames.of(values)
    last = ""
    try:
        with progress() as shown:
            async with asyncio.timeout(patience.total_seconds()):
                for resource, name, what in (
                    (DEPLOYMENTS, names.control, "control plane"),
                    (DAEMON_SETS, names.node, "node agents"),
                ):
                    async for state in follow(cluster, resource, values.namespace, name):
                        last = f"{what}: {state}"
                        shown.now(last)
                while problems := await unanswered(cluster, names.selector):
                    last = f"{problems[0].where}: {problems[0].what}"
                    shown.now(last)
                    await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        fail(
            f"weft is not running yet: {last}",
            f"see its pods: kubectl get pods -n {values.namespace} -l app.kubernetes.io/name=weft\n"
            "wait longer: weft install --timeout 15m",
        )


async def _check(cluster: Client, values: Values) -> None:
    from weft.base.problem import Severity
    from weft.cli.install.precheck import plan_of
    from weft.kube.precheck import check

    errors = 0
    async for _, problems in check(cluster, plan_of(values)):
        for problem in problems:
            say(str(problem))
            errors += problem.severity is Severity.ERROR
    if errors:
        fail("nothing was installed", "fix the problems above, or install anyway: --no-precheck")


def _say_next(values: Values) -> None:
    from weft.install.names import InstallationNames

    label = "istio-injection=enabled" if InstallationNames.of(values).is_default else f"istio.io/rev={values.revision}"
    say("enable injection for a namespace, then restart its pods:")
    say(f"  kubectl label namespace NAMESPACE {label}")
    say("  kubectl rollout restart deployment -n NAMESPACE")
