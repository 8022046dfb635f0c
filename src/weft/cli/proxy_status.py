"""`weft proxy-status`: how far each proxy is with what the control plane wants it to have; for one, what differs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.output import fail, print_json, say

if TYPE_CHECKING:
    from weft.control.sync_status import ProxySync
    from weft.envoy.difference import Difference


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def proxy_status(
    pod: str | None = typer.Argument(None, help="POD, POD.NAMESPACE or a workload: what differs at its proxy."),
    mesh: str | None = typer.Option(None, "--mesh", help="Which mesh of this machine, where several run."),
    namespace: str = typer.Option("", "-n", "--namespace", help="Only proxies of this namespace."),
    output: Output = typer.Option(Output.TABLE, "-o", "--output", help="table, json or yaml."),
) -> None:
    """Show how far each proxy is, or what differs at one. SYNCED: it has answered everything; STALE: not yet, for how
    long, and since which push; NOT SENT: there is nothing for it; IGNORED: it does not ask for it; ERROR: it refused
    something.

    With a POD, compare what the control plane wants its proxy to have with what Envoy says that it has, and exit with
    1 if that is not the same.

    \b
    Example: weft proxy-status
             weft proxy-status web-0.shop
    """
    from weft.cli.choose import choose_mesh

    chosen = choose_mesh(mesh)
    if pod is None:
        _all(chosen, namespace, output)
    else:
        _one(chosen, pod, namespace, output)


def _all(mesh: str, namespace: str, output: Output) -> None:
    from weft.control.sync_status import rows

    proxies = _proxies(mesh, namespace)
    if output is not Output.TABLE:
        _print(proxies, output)
        return
    if not proxies:
        say("no proxy is connected\nhint: weft ps shows the pods, and which of them have a proxy")
        return
    _print_columns(rows(proxies))
    _tell_refusals(proxies)


def _one(mesh: str, word: str, namespace: str, output: Output) -> None:
    import msgspec

    from weft.envoy.difference import differences
    from weft.local.client import fetch_admin, fetch_debug

    name, place = _pod(mesh, word, namespace)
    proxies = [each for each in _proxies(mesh, place) if each.proxy == f"{name}.{place}"]
    if not proxies:
        fail(f"the proxy of {name}.{place} is not connected to the control plane", f"weft logs {place}/{name} --proxy")
    query = {"include_eds": "true"}
    sent = msgspec.json.decode(fetch_debug(mesh, "config_dump", {"proxyID": f"{name}.{place}", **query}))
    has = msgspec.json.decode(fetch_admin(mesh, f"{place}/{name}", "/config_dump", query))
    found = differences(sent, has)
    if output is Output.TABLE:
        _print_differences(found)
        _tell_refusals(proxies)
        _tell_stale(proxies)
    else:
        _print(found, output)
    if found:
        raise typer.Exit(1)


def _proxies(mesh: str, namespace: str) -> list[ProxySync]:
    import msgspec

    from weft.control.sync_status import ProxySync
    from weft.local.client import fetch_debug

    said = fetch_debug(mesh, "syncz", {"namespace": namespace} if namespace else {})
    return msgspec.json.decode(said, type=list[ProxySync])


def _pod(mesh: str, word: str, namespace: str) -> tuple[str, str]:
    from weft.cli.choose import choose_pod
    from weft.local.client import fetch_status

    status = fetch_status(mesh)
    name, dot, last = word.rpartition(".")
    if dot and last in {pod.namespace for pod in status.pods}:
        word = f"{last}/{name}"
    elif namespace:
        word = f"{namespace}/{word}"
    found = choose_pod(status, word.removeprefix("deploy/"))
    return found.name, found.namespace


def _print_differences(found: list[Difference]) -> None:
    from weft.envoy.difference import KINDS

    for kind in KINDS:
        of_kind = [each for each in found if each.kind == kind]
        typer.echo(f"{kind} Don't Match" if of_kind else f"{kind} Match")
        for each in of_kind:
            words = {"missing": "Envoy does not have it", "unknown": "Envoy has it, and it was not sent"}
            typer.echo(f"  {each.name}: {words.get(each.what, 'not the same')}")
            if each.note:
                typer.echo(f"    {each.note}")
            for place in each.places:
                typer.echo(f"    {place.path}: sent {_short(place.sent)}, Envoy has {_short(place.has)}")


def _short(value: Any) -> str:
    import msgspec

    if value is None:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else f"{text[:99]}…"


def _tell_refusals(proxies: list[ProxySync]) -> None:
    from weft.control.sync_status import SHORT

    for proxy in proxies:
        for url, sync in proxy.resources.items():
            if sync.last_error:
                say(f"{proxy.proxy} refused {SHORT.get(url, url)} {sync.last_error}")
    if any(sync.last_error for proxy in proxies for sync in proxy.resources.values()):
        say("hint: weft status shows which object is at fault")


def _tell_stale(proxies: list[ProxySync]) -> None:
    from weft.control.sync_status import SHORT, STALE, cell

    for proxy in proxies:
        for url, sync in proxy.resources.items():
            if sync.state == STALE:
                say(f"{proxy.proxy} has not answered {SHORT.get(url, url)}: {cell(sync)}")


def _print(value: Any, output: Output) -> None:
    if output is Output.JSON:
        print_json(value)
        return
    import msgspec
    import yaml

    typer.echo(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True), nl=False)


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    """As istioctl does it: five spaces between columns, and a row is a line."""
    widths = [max(len(row[column]) for row in rows) + 5 for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
