"""`weft explain`: explains what would happen to a request, decision by decision, with the object behind each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from weft.cli.flags import shared
from weft.cli.flags.request import asked, of_request
from weft.cli.print.output import fail, from_here, is_data, print_data, print_line, say


@click.command()
@of_request
@shared.files_option("Read the mesh from these files or directories instead of a running one.")
@click.option(
    "--at", metavar="TIME", default="", help="The mesh at an earlier moment: 14:03, 2026-11-16T14:03, @17, @-1."
)
@shared.namespace
@shared.text_or_data
@shared.which_mesh
@shared.system
def explain(
    caller: str,
    to: str,
    method: str,
    header: tuple[str, ...],
    jwt: tuple[str, ...],
    source: str,
    files: tuple[Path, ...],
    at: str,
    namespace: str,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Explain what would happen to a request. Nothing is sent: weft follows the request through the config of the
    proxies, from the caller's connection to the workload that gets it or the proxy that rejects it. Each line is a
    decision, with the object that causes it; the last line is the result. If the outcome is random, as with weighted
    routes, every outcome is listed with its probability.

    \b
    Example: weft explain frontend --to http://payments/charge -X POST
             weft explain frontend --to http://orders/ -H 'x-user: ann' --at 14:03
             weft explain frontend --to http://payments/ -f examples/shop
             weft explain web --to http://api/ --jwt '{"iss": "https://issuer.example", "sub": "ann"}'
             weft explain edge --to https://shop.example/ --source-address 198.51.100.7
    """
    from weft.cli.reach.connect import answered

    question = asked(caller, to, namespace, method, header, jwt, at, source)
    if files:
        _print(_offline(files, question), output)
        return
    response = answered(
        "explain",
        question,
        mesh=mesh,
        kubernetes=kubernetes,
        kubeconfig=kubeconfig,
        context=context,
        system=system,
        or_files="" if at else "-f DIR",
    )
    _print(response, output)


def _offline(files: Sequence[Path], question: dict[str, Any]) -> dict[str, Any]:
    from datetime import UTC, datetime

    import msgspec

    from weft.api.parse_cache import Reading
    from weft.cli.read.mesh_files import FileAdmission
    from weft.cli.read.trial_source import check, read, stage_of, warn
    from weft.inspect.ask.answer import answer
    from weft.inspect.ask.causes import Wrong
    from weft.inspect.ask.question import Question
    from weft.inspect.rehearse.rehearsal import rehearsed

    if question["when"]:
        fail("files have no history", "leave out --at, or -f", code=2)
    given = read(files)
    (warn if given.documents else check)(given.problems)
    request = msgspec.convert(question, Question)
    reading = Reading()
    stage = stage_of(given.documents, reading)
    problems = rehearsed(given.documents, admit=FileAdmission(), read=reading).problems
    result: dict[str, Any] = msgspec.to_builtins(answer(stage, request, datetime.now(UTC), Wrong(problems)))
    return result


def _print(answer: dict[str, Any], output: str) -> None:
    if is_data(output):
        problems = answer.get("problems", [])
        print_data({"request": answer["request"], **answer["explanation"], "problems": problems}, output)
        return
    import msgspec

    from weft.base.problem import Problem

    for line in answer["lines"]:
        print_line(line)
    for problem in answer.get("problems", ()):
        say(from_here(str(msgspec.convert(problem, Problem))))
