"""`weft diff`: shows the effect of a change, either before the change is applied, or between two moments of the
history. It shows which objects, which proxies and which of the proxies' resources differ, and which requests have
another result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import counted, fail, is_data, print_data, print_line, say, trouble_is_no_answer

_MOST_SHOWN = 8  # resources listed for one group of proxies
_MOST_SENT = 1_000  # kinds of recent requests sent to the control plane


@click.command()
@click.argument(
    "moments",
    metavar="[@MOMENT [@MOMENT]]",
    nargs=-1,
    help="Moments of weft history: @17, @-1, @DIGEST, @14:03; with one, the changes since then.",
)
@shared.files_option("The change: files, directories, - for standard input.")
@click.option(
    "--against",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path),
    help="The mesh's YAML before the change, if no mesh runs.",
)
@shared.text_or_data
@shared.which_mesh
@shared.system
def diff(
    moments: tuple[str, ...],
    files: tuple[Path, ...],
    against: Path | None,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Show what a change would change, before it is applied. With a moment of weft history: what has changed since
    then. Files are applied over the mesh of this machine, of a cluster, or of --against DIRECTORY. The output lists the
    objects that differ, the resources that each proxy would be sent, and the requests with another result: those of
    RequestTests, a call of every HTTP port by every workload, one from outside for every host and path of the gateways,
    and recent traffic, if proxies write an access log.

    \b
    Exit codes: 0 nothing changes, 1 something does, 2 no result: no such file or moment, an invalid command line.

    \b
    Example: weft diff -f new-route.yaml
             weft diff -f new-route.yaml --against examples/shop
             weft diff @-1
             weft diff @14:03 @-1
    """
    given = list(moments)
    if given and files:
        hint = f"without {given[0]}, the files are applied over the mesh as it is now: weft diff -f {files[0]}"
        fail("files (-f) cannot be applied to a moment of the past", hint, code=2)
    for word in given:
        if not word.startswith("@") and Path(word).exists():
            fail(f"{word} is a file, not a moment", f"to see what the file would change: weft diff -f {word}", code=2)
    if not given and not files:
        fail("nothing to compare is given", "give a change: weft diff -f FILE; or a moment: weft diff @-1", code=2)
    if len(given) > 2 or (given and against is not None):
        fail(
            "too many moments are given, or a moment together with --against",
            "give one or two moments, such as weft diff @-3 @-1; --against is only for files (-f)",
            code=2,
        )
    place: dict[str, Any] = {
        "kubernetes": kubernetes,
        "kubeconfig": kubeconfig,
        "context": context,
        "system": system,
    }
    with trouble_is_no_answer():
        name, difference = _past(given, mesh, place) if given else _change(files, against, mesh, place)
    if is_data(output):
        print_data(difference, output)
    else:
        _tell(difference)
    _sum_up(name, difference, records=against is None)
    changes = (
        difference["objects"],
        difference["proxies"],
        difference["retold"],
        difference["requests"],
        difference["recent"]["requests"],
    )
    if any(changes):
        raise Exit(1)


# `weft.inspect.compare.what_if.Difference` as plain data: for moments of the past, the control plane sends it as JSON.
Found = dict[str, Any]


def _change(files: Sequence[Path], against: Path | None, mesh: str | None, place: dict[str, Any]) -> tuple[str, Found]:
    from datetime import UTC, datetime

    import msgspec

    from weft.analyze.finding import coded
    from weft.api.parse_cache import Reading
    from weft.cli.read.mesh_files import FileAdmission
    from weft.cli.read.trial_source import base_of, check, laid_over, read, staged, warn_of_base
    from weft.inspect.compare.what_if import difference
    from weft.inspect.rehearse.rehearsal import rehearsed

    base = base_of(against, mesh, **place)
    change = read(files)
    check(change.problems)
    documents, reading = laid_over(base.documents, change.documents), Reading()
    before, refused = staged(base.documents, reading, base.running)
    after, _ = staged(documents, reading, base.running)
    given = {str(document.key) for document in change.documents}
    others = [each for each in (*base.problems, *refused) if each.where.object not in given]
    warn_of_base(base.name, others, runs=base.runs)
    problems = rehearsed(documents, admit=FileAdmission(), others=base.running or (), read=reading).problems
    own = [each for each in problems if each.where.object in given]
    check(own)
    for problem in dict.fromkeys(map(coded, (*change.problems, *own))):
        say(str(problem))
    if any(stage.mesh.on_demand(stage.mesh.scope(group)).on for stage in (before, after) for group in stage.groups()):
        say(
            "note: some proxies get config on demand; their calls are not known here, so their config for all services "
            "is compared"
        )
    result = difference(before, after, [*base.cases, *change.cases], datetime.now(UTC), base.recent)
    return base.name, msgspec.to_builtins(result)


def _past(moments: Sequence[str], mesh: str | None, place: dict[str, Any]) -> tuple[str, Found]:
    """Return a name for the two compared moments, and the difference between the meshes at these moments. The
    control plane computes the difference, because only it has both meshes. `place` are the flags that name a
    cluster."""
    import msgspec

    from weft.cli.reach.connect import answered
    from weft.cli.read.trial_source import declared_and_seen

    cases, recent = declared_and_seen(mesh, **place)
    question = {
        "before": moments[0],
        "after": moments[1] if len(moments) > 1 else "",
        "cases": msgspec.to_builtins(cases),
        "recent": msgspec.to_builtins(recent[:_MOST_SENT]),
    }
    past = answered("diff", question, mesh=mesh, **place)
    for number in past["deserted"]:
        say(f"note: at @{number} there was no workload or pod yet; list the moments: weft history -A")
    return f"from @{past['before']} to @{past['after']}", past["difference"]


def _sum_up(name: str, difference: Found, *, records: bool) -> None:
    """Print a summary of the difference. `name` names the mesh or the moments that were compared. `records`: whether a
    running mesh was compared, which could have recorded recent traffic. If it has recorded none, a note is printed."""
    from weft.cli.read.recent_traffic import NOT_RECORDED

    say(
        f"{name}: {counted(len(difference['objects']), 'object')} and the config of "
        f"{counted(len(difference['proxies']), 'group')} of proxies change, "
        f"that of {difference['untouched']} does not; "
        f"{len(difference['requests'])} of {difference['tried']} requests have another result"
    )
    recent = difference["recent"]
    if recent["judged"] or recent["unjudged"]:
        turned = sum(each["count"] for each in recent["requests"])
        judged = f"{counted(recent['judged'], 'recent request')} compared, {turned} with another result"
        more = f"; {recent['unjudged']} were not compared, because their result did not depend on the URL alone"
        say(judged + (more if recent["unjudged"] else ""))
    elif records:
        say(NOT_RECORDED)


def _tell(difference: Found) -> None:
    from weft.cli.print.moments import name_of, place_of

    for each in difference["objects"]:
        print_line(f"{each['what']} {name_of(each['object'])}{place_of(each['where'])}")
    for proxies in difference["proxies"]:
        pods, resources = proxies["pods"], proxies["resources"]
        more = f" and {len(pods) - 3} more" if len(pods) > 3 else ""
        print_line(f"{proxies['group']} ({', '.join(pods[:3])}{more})")
        for resource in resources[:_MOST_SHOWN]:
            print_line(f"  {resource['what']} {resource['kind']} {resource['name']}")
        if len(resources) > _MOST_SHOWN:
            print_line(f"  and {len(resources) - _MOST_SHOWN} more; all of them: -o json")
    for retold in difference["retold"]:
        groups = retold["groups"]
        more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
        becomes = (
            "get config on demand from now on, and keep the config that they have"
            if retold["on_demand"]
            else "no longer get config on demand"
        )
        print_line(f"{', '.join(groups[:3])}{more} {becomes}: {retold['why']}")
    for turned in (*difference["requests"], *difference["recent"]["requests"]):
        times, place = f"{turned['count']}× " if turned["count"] else "", place_of(turned["where"])
        print_line(f"{times}{turned['request']}{place}")
        for mark, ways in (("-", turned["before"]), ("+", turned["after"])):
            for line in ways:
                print_line(f"  {mark} {line}")
        if turned["because"]:
            print_line(f"  by {turned['because']}")
