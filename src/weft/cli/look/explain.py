"""`weft explain`: what would happen to a request, decision by decision, and who decided it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from weft.cli.flags import completions
from weft.cli.print.output import TEXT_OR_DATA, TextOrData, fail, is_data, print_data, say
from weft.cli.reach.cluster import CONTEXT, KUBECONFIG
from weft.cli.reach.connect import KUBERNETES, MESH, NAMESPACE, SYSTEM

FROM = typer.Argument(
    ..., metavar="FROM", help="Who calls: a pod, a workload, deploy/NAME.", autocompletion=completions.pods
)
TO = typer.Option(..., "--to", metavar="URL", help="Whom: http://…, https://…, grpc://…, tcp://HOST:PORT.")
METHOD = typer.Option("GET", "-X", "--request", metavar="METHOD", help="Of the request.")
HEADER = typer.Option([], "-H", "--header", metavar="'NAME: VALUE'", help="Of the request; repeat it.")
JWT = typer.Option(
    [],
    "--jwt",
    metavar="TOKEN",
    help="A token that it carries; @FILE reads one. Or its claims as JSON, as if their issuer had signed them.",
)
SOURCE = typer.Option(
    "",
    "--source-address",
    metavar="ADDRESS",
    help="Where a caller from outside is, if FROM is a gateway. Without, it is an address that nobody has.",
)


def explain(
    caller: str = FROM,
    to: str = TO,
    method: str = METHOD,
    header: list[str] = HEADER,
    jwt: list[str] = JWT,
    source: str = SOURCE,
    files: list[Path] = typer.Option(
        [], "-f", "--filename", help="Of a mesh that is only written: files, directories."
    ),
    at: str = typer.Option("", "--at", metavar="TIME", help="As it was: 14:03, 2026-11-16T14:03, @17, @-1."),
    namespace: str = NAMESPACE,
    output: TextOrData = TEXT_OR_DATA,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Explain what would happen to a request. Nothing is sent: the config that the proxies have is read, from the
    caller's connection to the workload that gets it, or to whoever stops it. Each line is a decision, with the object
    that made it; the last is how it ends. Where chance decides, every way is told with its odds.

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
    said = answered(
        "explain",
        question,
        mesh=mesh,
        kubernetes=kubernetes,
        kubeconfig=kubeconfig,
        context=context,
        system=system,
        or_files="" if at else "-f DIR",
    )
    _print(said, output)


def asked(
    caller: str, to: str, namespace: str, method: str, header: list[str], jwt: list[str], at: str = "", source: str = ""
) -> dict[str, Any]:
    """The question (`weft.inspect.ask.question`), as it goes over a socket."""
    return {
        "caller": caller,
        "to": to,
        "namespace": namespace,
        "method": method,
        "headers": [_header(each) for each in header],
        "tokens": [_token(each) for each in jwt],
        "source": source,
        "when": at,
    }


def _offline(files: list[Path], question: dict[str, Any]) -> dict[str, Any]:
    from datetime import UTC, datetime

    import msgspec

    from weft.api.parse_cache import Reading
    from weft.cli.read.mesh_files import Admission
    from weft.cli.read.trial_source import check, read, stage_of, warn
    from weft.inspect.ask.answer import answer
    from weft.inspect.ask.causes import Wrong
    from weft.inspect.ask.question import Question
    from weft.inspect.rehearse.rehearsal import rehearsed

    if question["when"]:
        fail("files have no past", "leave out --at, or -f", code=2)
    found = read(files)
    (warn if found.documents else check)(found.problems)
    asked = msgspec.convert(question, Question)
    reading = Reading()
    stage = stage_of(found.documents, reading)
    problems = rehearsed(found.documents, admit=Admission(), read=reading).problems
    made: dict[str, Any] = msgspec.to_builtins(answer(stage, asked, datetime.now(UTC), Wrong(problems)))
    return made


def _print(answer: dict[str, Any], output: TextOrData) -> None:
    if is_data(output):
        problems = answer.get("problems", [])
        print_data({"request": answer["request"], **answer["explanation"], "problems": problems}, output)
        return
    import msgspec

    from weft.base.problem import Problem

    for line in answer["lines"]:
        typer.echo(line)
    for problem in answer.get("problems", ()):
        say(str(msgspec.convert(problem, Problem)))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        fail(f"`{text}` is no header", "for example: -H 'x-user: ann'", code=2)
    return name.strip(), value.strip()


def _token(text: str) -> dict[str, Any]:
    """A whole one is verified by whoever has the keys in the config (`signed`)."""
    import json

    if text.startswith("@"):
        try:
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text()
        except (OSError, ValueError) as error:
            fail(f"{text[1:]} cannot be read: {error}", "it should hold one token")
        text = text.strip()
    if not text.startswith("{"):
        return _whole(text)
    try:
        claims = json.loads(text)
    except ValueError as error:
        example = """--jwt '{"iss": "https://issuer.example", "sub": "ann"}'"""
        fail(f"the claims of the token are no JSON: {error}", f"for example: {example}", code=2)
    return {"text": "a-token", "claims": claims}


def _whole(text: str) -> dict[str, Any]:
    """What is no token is sent all the same, to see what Envoy says to it."""
    from weft.explain.token import read_token

    token = read_token(text)
    if token.malformed:
        return {"text": text, "verified": False, "malformed": token.malformed}
    return {"text": text, "claims": dict(token.claims), "signed": True}
