"""`weft diff`: what a change would change, before it is applied, or what has changed between two moments: which
objects, which proxies, which of their resources, and to which requests something else would happen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.cluster import CONTEXT, KUBECONFIG
from weft.cli.output import TEXT_OR_JSON, TextOrJson, fail, is_data, print_data, say
from weft.cli.reach import KUBERNETES, MESH, SYSTEM

if TYPE_CHECKING:
    from weft.control.recent import Seen
    from weft.control.trial import Turned
    from weft.control.what_if import Difference

_MOST_SHOWN = 8  # resources of one group, in the table
_MOST_SENT = 1_000  # kinds of recent requests that a control plane is asked about


def diff(
    moments: list[str] = typer.Argument(
        None, metavar="[@MOMENT [@MOMENT]]", help="Of weft history: @17, @-1, @DIGEST, @14:03; one: from then to now."
    ),
    files: list[Path] = typer.Option(
        None, "-f", "--filename", help="The change: files, directories, - for standard input."
    ),
    against: Path | None = typer.Option(
        None, "--against", metavar="DIRECTORY", help="What is there before, if nothing runs: the mesh's YAML."
    ),
    output: TextOrJson = TEXT_OR_JSON,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Show what a change would change, before it is applied, or what has changed since a moment of weft history. Files
    are laid over what is there: the mesh of this machine, a cluster, or --against a directory. It is said which objects
    are others, which proxies are sent what, and to which requests something else happens: those of RequestTests, a call
    of every HTTP port by everybody, and what was really called lately, where proxies write an access log.

    \b
    Exit codes: 0 nothing changes, 1 something does, 2 a command line that makes no sense.

    \b
    Example: weft diff -f new-route.yaml
             weft diff -f new-route.yaml --against examples/shop
             weft diff @-1
             weft diff @14:03 @-1
    """
    from weft.cli.recent_traffic import NOT_RECORDED

    given = moments or []
    if bool(given) == bool(files):
        fail("say what to compare", "a change: weft diff -f FILE; or the past: weft diff @-1", code=2)
    if len(given) > 2 or (given and against is not None):
        fail("that is more than can be compared", "two moments at most, and no --against: weft diff @-3 @-1", code=2)
    place: dict[str, Any] = {
        "kubernetes": kubernetes,
        "kubeconfig": kubeconfig,
        "context": context,
        "system": system,
    }
    name, found = _past(given, mesh, place) if given else _change(files, against, mesh, place)
    if is_data(output):
        print_data(found, output)
    else:
        _tell(found)
    say(
        f"{name}: {len(found.objects)} objects and {len(found.proxies)} groups of proxies change, "
        f"{found.untouched} do not; {len(found.requests)} of {found.tried} requests end otherwise"
    )
    recent = found.recent
    if recent.judged or recent.unjudged:
        say(f"{recent.judged} recent requests judged, {recent.turned} change{_unjudged(recent.unjudged)}")
    elif against is None:
        say(NOT_RECORDED)
    if found:
        raise typer.Exit(1)


def _change(files: list[Path], against: Path | None, mesh: str | None, place: dict[str, Any]) -> tuple[str, Difference]:
    from datetime import UTC, datetime

    from weft.cli.trial_source import base_of, check, laid_over, read, stage_of
    from weft.control.what_if import difference

    base = base_of(against, mesh, **place)
    change = read(files)
    check(change.problems)
    before = stage_of(base.documents, base.running)
    after = stage_of(laid_over(base.documents, change.documents), base.running)
    return base.name, difference(before, after, [*base.cases, *change.cases], datetime.now(UTC), base.recent)


def _past(moments: list[str], mesh: str | None, place: dict[str, Any]) -> tuple[str, Difference]:
    """The control plane compares: it has both meshes."""
    import msgspec

    from weft.cli.reach import answered
    from weft.cli.trial_source import declared_and_seen
    from weft.control.questions import DiffQuestion, PastDifference

    cases, recent = declared_and_seen(mesh, **place)
    before, after = moments[0], moments[1] if len(moments) > 1 else ""
    question = DiffQuestion(before, after, tuple(cases), _most(recent))
    said = answered("diff", msgspec.to_builtins(question), mesh=mesh, **place)
    past = msgspec.convert(said, PastDifference)
    return f"from @{past.before} to @{past.after}", past.difference


def _most(recent: tuple[Seen, ...]) -> tuple[Seen, ...]:
    return recent[:_MOST_SENT]


def _unjudged(number: int) -> str:
    return f"; {number} more were answered otherwise than their URL alone would be, and are not" if number else ""


def _tell(found: Difference) -> None:
    for each in found.objects:
        typer.echo(f"{each.what} {each}")
    for proxies in found.proxies:
        pods = ", ".join(proxies.pods[:3]) + (f" and {len(proxies.pods) - 3} more" if len(proxies.pods) > 3 else "")
        typer.echo(f"{proxies.group} ({pods})")
        for resource in proxies.resources[:_MOST_SHOWN]:
            typer.echo(f"  {resource.what} {resource.kind} {resource.name}")
        if len(proxies.resources) > _MOST_SHOWN:
            typer.echo(f"  and {len(proxies.resources) - _MOST_SHOWN} more; all of them: -o json")
    for turned in (*found.requests, *found.recent.requests):
        _tell_turned(turned)


def _tell_turned(turned: Turned) -> None:
    place = f"  ({turned.where.file}:{turned.where.line})" if turned.where.file else ""
    typer.echo(f"{f'{turned.count}× ' if turned.count else ''}{turned.request}{place}")
    for line in turned.before:
        typer.echo(f"  - {line}")
    for line in turned.after:
        typer.echo(f"  + {line}")
    if turned.because:
        typer.echo(f"  by {turned.because}")
