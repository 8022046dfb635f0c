"""The request that `weft explain` and `weft bisect` examine: its flags, and the `Question` for the control plane that
is built from them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.cli.flags import completions
from weft.cli.print.output import fail

F = TypeVar("F", bound=Callable[..., Any])

_caller = click.argument(
    "caller", metavar="FROM", help="The caller: a pod, a workload, deploy/NAME.", shell_complete=completions.pods
)
_to = click.option(
    "--to", metavar="URL", required=True, help="The destination: http://…, https://…, grpc://…, tcp://HOST:PORT."
)
_method = click.option(
    "-X", "--request", "method", metavar="METHOD", default="GET", show_default=True, help="HTTP method of the request."
)
_header = click.option(
    "-H", "--header", metavar="'NAME: VALUE'", multiple=True, help="A header of the request; can be repeated."
)
_jwt = click.option(
    "--jwt",
    metavar="TOKEN",
    multiple=True,
    help="A JWT of the request, @FILE with a JWT, or its claims as JSON, which count as signed by their issuer.",
)
_source = click.option(
    "--source-address",
    "source",
    metavar="ADDRESS",
    default="",
    help="The source address of a caller outside the mesh, if FROM is a gateway; default: an unassigned address.",
)


def of_request(command: F) -> F:
    """Add FROM, `--to`, `-X`, `-H`, `--jwt` and `--source-address` to a command."""
    return _caller(_to(_method(_header(_jwt(_source(command))))))


def asked(
    caller: str,
    to: str,
    namespace: str,
    method: str,
    header: Sequence[str],
    jwt: Sequence[str],
    at: str = "",
    source: str = "",
) -> dict[str, Any]:
    """Return the `Question` about a request (`weft.inspect.ask.question`), as JSON data for the control plane.
    `caller`, `to`, `method`, `header` and `jwt`: the values of FROM, --to, -X, -H and --jwt. `at`: the moment of the
    history to ask about; empty: now. `source`: the client's IP address, for a request from outside the mesh."""
    return {
        "caller": caller,
        "to": to,
        "namespace": namespace,
        "method": method,
        "headers": [_header_of(each) for each in header],
        "tokens": [_token_of(each) for each in jwt],
        "source": source,
        "when": at,
    }


def _header_of(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        fail(f"`{text}` is not a header", "for example: -H 'x-user: ann'", code=2)
    return name.strip(), value.strip()


def _token_of(text: str) -> dict[str, Any]:
    """Return one token of the request, as a dict with the fields of the `Question`'s tokens, from the text of a
    `--jwt`: a JWT, @FILE with a JWT, or claims as JSON. A JWT is marked `signed`, so that the control plane verifies
    its signature; claims count as signed by their issuer."""
    import json

    if text.startswith("@"):
        try:
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text()
        except (OSError, ValueError) as error:
            fail(f"{text[1:]} cannot be read: {error}", "the file should contain one token")
        text = text.strip()
    if not text.startswith("{"):
        return _whole(text)
    try:
        claims = json.loads(text)
    except ValueError as error:
        example = """--jwt '{"iss": "https://issuer.example", "sub": "ann"}'"""
        fail(f"the claims of the token are not JSON: {error}", f"for example: {example}", code=2)
    return {"text": "a-token", "claims": claims}


def _whole(text: str) -> dict[str, Any]:
    """Return the token for the JWT `text`: its text and its claims. For a malformed JWT, the token has the reason
    (`malformed`) instead of claims. It is not rejected here, because Envoy's response to it can be explained, too."""
    from weft.explain.token import read_token

    token = read_token(text)
    if token.malformed:
        return {"text": text, "verified": False, "malformed": token.malformed}
    return {"text": text, "claims": dict(token.claims), "signed": True}
