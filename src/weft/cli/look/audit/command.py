"""`weft audit`: checks a whole mesh, section by section, and prints the next command for each finding that needs
action. It changes nothing. What cannot be read is reported, and the other sections continue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import is_data, print_data, print_line, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.base.problem import Problem
    from weft.inspect.audit.proxy_memory import Cost
    from weft.inspect.audit.report import AuditReport

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_MANY = 10  # a share of at least 10 times the application's memory is shown as a factor, not as a percentage


@click.command()
@shared.only_namespace
@shared.table_or_data
@shared.which_mesh
@shared.system
@shared.settings_revision
def audit(
    namespace: str,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
    revision: str,
) -> None:
    """Check a whole mesh for what needs action. It reports rejected objects, which webhooks inject proxies into which
    namespaces, workloads without a proxy, plaintext that is still accepted, certificates near expiry, policies that
    match nothing, and the memory of proxies.

    \b
    Exit codes: 0 nothing to do, 1 something to do, 2 an invalid command line.

    \b
    Example: weft audit
             weft audit -n shop -o json
    """
    from weft.cli.reach.connect import reach
    from weft.cli.reach.control import only_pods
    from weft.cli.reach.local import LocalReach

    reached = reach(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
    try:
        only_pods(reached, "an audit")
        if isinstance(reached, LocalReach):
            from weft.cli.look.audit.local import look_over

            report = look_over(reached, namespace)
        else:
            from weft.cli.look.audit.kubernetes import look_over as look_over_cluster

            report = look_over_cluster(kubeconfig, context, system=system, revision=revision, namespace=namespace)
    finally:
        reached.close()
    if is_data(output):
        print_data(report, output)
    else:
        for line in _lines(report):
            print_line(line)
    _summary(report)
    if report.must_act:
        raise Exit(1)


def _lines(report: AuditReport) -> Iterator[str]:
    for section in report.sections:
        yield click.style(section.title, bold=True)
        yield from (f"  {line}" for line in section.told)
        if section.name == "memory":
            yield from (f"  {line}" for line in _memory(report.memory))
        if not section.findings and not section.told:
            yield "  nothing found"
        for finding in section.findings:
            yield from _finding(finding)
        yield ""


def _finding(problem: Problem) -> Iterator[str]:
    level = click.style(problem.level, fg=_COLOURS[problem.severity])
    place = f"{problem.where}: " if str(problem.where) else ""
    yield f"  {level}: {place}{problem.what}"
    if problem.hint:
        yield f"      next: {problem.hint}"


def _memory(rows: tuple[Cost, ...]) -> list[str]:
    from weft.cli.print.columns import lines

    if not rows:
        return []
    header = ("WORKLOAD", "PODS", "PROXY", "APPLICATION", "SHARE", "PROXIES ON ITS NODE", "AMBIENT (ESTIMATE)")
    return lines(
        header,
        [
            (
                f"{row.namespace}/{row.workload}",
                str(row.pods),
                _bytes(row.proxy, row.proxy_from),
                _bytes(row.application, row.application_from),
                _share(row.share),
                str(row.sharing),
                f"{row.ambient / 1e6:.1f} MB" if row.ambient is not None else "-",
            )
            for row in rows
        ],
    )


def _share(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.0f} ×" if share >= _MANY else f"{share:.0%}"


def _bytes(amount: int | None, source: str) -> str:
    if amount is None:
        return source or "-"
    return f"{amount / 1e6:.1f} MB ({source})"


def _summary(report: AuditReport) -> None:
    severities = [each.severity.value for section in report.sections for each in section.findings]
    count = ", ".join(
        f"{severities.count(name)} {name}{'s' * (name != 'info' and severities.count(name) != 1)}"
        for name in ("error", "warning", "info")
    )
    say(f"{report.mesh}: {count}")
