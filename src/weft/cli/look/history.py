"""`weft history`: what has changed in a mesh while its control plane ran, moment by moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from weft.cli.print.output import TABLE_OR_DATA, TableOrData, is_data, print_data, say
from weft.cli.reach.cluster import CONTEXT, KUBECONFIG
from weft.cli.reach.connect import KUBERNETES, MESH, SYSTEM

_MOST_SHOWN = 3  # objects of one moment on its line


def history(
    number: int = typer.Option(20, "-l", "--last", metavar="NUMBER", min=0, help="How many moments; 0 for all."),
    every: bool = typer.Option(False, "-A", "--all", help="Also when only pods came, went, or became ready."),
    output: TableOrData = TABLE_OR_DATA,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Show what has changed in a mesh, and when. Each moment has a number, by which weft diff and weft explain --at
    find it again, and a digest of all that was written then: the same digest, the same words. The control plane
    remembers the last thousand, since it was started; weft up --history DIRECTORY keeps them for the next one, as does
    weft control.

    \b
    Example: weft history
             weft diff @-1
             weft explain frontend --to http://payments/ --at @-1
             weft up examples/shop --history past
    """
    from weft.cli.print.columns import lines
    from weft.cli.reach.connect import answered

    past = answered("history", mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
    moments = [each for each in past["moments"] if every or not _of_endpoints(each)][-number:]
    if is_data(output):
        print_data({"begun": past["begun"], "digest": past["digest"], "moments": moments}, output)
        return
    if not moments:
        say(f"nothing has changed since {told_time(past['begun'])}" if past["begun"] else "nothing has been read yet")
        return
    for line in lines(("MOMENT", "TIME", "DIGEST", "WHAT CHANGED"), [told_moment(each) for each in moments]):
        typer.echo(line)
    say(f"the control plane has been there since {told_time(past['begun'])}")


def told_moment(moment: dict[str, Any]) -> tuple[str, str, str, str]:
    return f"@{moment['number']}", told_time(moment["at"]), moment["digest"] or "-", _told(moment["changes"])


def _of_endpoints(moment: dict[str, Any]) -> bool:
    return all(each["object"]["kind"] in ("Pod", "EndpointSlice") for each in moment["changes"])


def _told(changes: list[dict[str, Any]]) -> str:
    shown = [f"{name_of(each['object'])} {each['what']}{place_of(each['where'])}" for each in changes[:_MOST_SHOWN]]
    rest = len(changes) - len(shown)
    return ", ".join(shown) + (f", and {rest} more" if rest else "")


def name_of(key: dict[str, str]) -> str:
    return f"{key['kind']} {key['namespace']}/{key['name']}" if key["namespace"] else f"{key['kind']} {key['name']}"


def place_of(where: dict[str, Any]) -> str:
    return f" ({where['file']}:{where['line']})" if where.get("file") else ""


def told_time(at: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
