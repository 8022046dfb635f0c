"""`weft proxy-status`: shows whether each proxy has acknowledged the config that the control plane sent; for one
proxy, how its Envoy's config differs from the config that was sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail, is_data, print_data, say, with_same_mesh

if TYPE_CHECKING:
    from weft.cli.reach.interface import MeshReach
    from weft.control.sync_status import ProxySync
    from weft.envoy.difference import ResourceDifference


@click.command()
@click.argument(
    "pod",
    metavar="[POD]",
    required=False,
    help="POD, POD.NAMESPACE, deploy/NAME or a workload, to compare its proxy's config.",
    shell_complete=completions.pods,
)
@shared.namespace
@click.option("--file", metavar="DUMP", help="With a POD: read its Envoy's config dump from this file.")
@shared.table_or_data
@shared.which_mesh
@shared.system
def proxy_status(
    pod: str | None,
    namespace: str,
    file: str | None,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Show the sync state of each proxy, or what differs in one proxy's config. SYNCED: the proxy has acknowledged
    everything. STALE: it has not yet acknowledged a push; the number of the push, and the time since the push, are
    shown. NOT SENT: there is nothing to send to it. IGNORED: it does not subscribe to this type. ERROR: it rejected
    something.

    With a POD, compare the config that its proxy should have with the config that Envoy has, and exit with 1 if they
    differ.

    \b
    Example: weft proxy-status
             weft proxy-status web-0.shop
    """
    from weft.cli.reach.connect import reach

    if file is not None and pod is None:
        fail("--file needs a pod", "name its pod: weft proxy-status POD --file DUMP", code=2)
    reached = reach(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
    try:
        if pod is None:
            _all(reached, namespace, output)
        else:
            _one(reached, pod, namespace, output, file)
    finally:
        reached.close()


def _all(reached: MeshReach, namespace: str, output: str) -> None:
    from weft.cli.print.columns import lines
    from weft.control.sync_status import rows

    proxies = _proxies(reached, namespace)
    if is_data(output):
        print_data(proxies, output)
        return
    if not proxies:
        say("no proxy is connected\nhint: weft ps, or kubectl get pods, shows the pods")
        return
    header, *table_rows = rows(proxies)
    for line in lines(header, table_rows):
        click.echo(line)
    _tell_refusals(reached, proxies)


def _one(reached: MeshReach, word: str, namespace: str, output: str, file: str | None) -> None:
    import msgspec

    from weft.envoy.difference import differences
    from weft.envoy.dump import CLUSTERS, read

    proxy = reached.find(word, namespace)
    proxies = [each for each in _proxies(reached, proxy.namespace) if each.proxy == str(proxy)]
    if not proxies:
        here = f"weft logs {proxy.namespace}/{proxy.name} --proxy"
        there = f"kubectl logs -n {proxy.namespace} {proxy.name} -c istio-proxy"
        hint = f"see its log: {here if reached.runs_pods else there}"
        fail(f"the proxy of {proxy} is not connected to the control plane", hint)
    query = {"include_eds": "true"}
    parameters = {"proxyID": str(proxy), **query}
    sent = msgspec.json.decode(reached.ask("config_dump", parameters, replica=proxies[-1].istiod))
    config = reached.admin(proxy, "/config_dump", query) if file is None else _contents(file)
    dump = read(config, where=file or str(proxy))
    dump.section(CLUSTERS)  # without clusters, the file is not a config dump
    differing = differences(sent, dump.document)
    if is_data(output):
        print_data(differing, output)
    else:
        _print_differences(differing)
        _tell_refusals(reached, proxies)
        _tell_stale(proxies)
    if differing:
        raise Exit(1)


def _proxies(reached: MeshReach, namespace: str) -> list[ProxySync]:
    """Return the proxies in `namespace` (empty: in all namespaces) that are connected to any replica. A proxy that has
    just reconnected from one replica to another is listed once, with its newest connection."""
    import msgspec

    from weft.control.sync_status import ProxySync

    query = {"namespace": namespace} if namespace else {}
    pages = reached.ask_all("syncz", query).values()
    every = [proxy for each in pages for proxy in msgspec.json.decode(each, type=list[ProxySync])]
    latest = {each.proxy: each for each in sorted(every, key=lambda each: each.connected_at)}
    return sorted(latest.values(), key=lambda each: each.proxy)


def _contents(file: str) -> bytes:
    import sys

    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        fail(f"{file}: {error.strerror}", "give the output of Envoy's /config_dump, or - for stdin")


def _print_differences(differing: list[ResourceDifference]) -> None:
    from weft.envoy.difference import KINDS

    for kind in KINDS:
        of_kind = [each for each in differing if each.kind == kind]
        click.echo(f"{kind} Don't Match" if of_kind else f"{kind} Match")
        for each in of_kind:
            words = {
                "missing": "Envoy does not have it",
                "unknown": "Envoy has it, but the control plane did not send it",
            }
            click.echo(f"  {each.name}: {words.get(each.what, 'differs')}")
            if each.note:
                click.echo(f"    {each.note}")
            for place in each.places:
                click.echo(f"    {place.path}: sent {_short(place.sent)}, Envoy has {_short(place.has)}")


def _short(value: Any) -> str:
    import msgspec

    if value is None:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else f"{text[:99]}…"


def _tell_refusals(reached: MeshReach, proxies: list[ProxySync]) -> None:
    from weft.control.sync_status import SHORT

    for proxy in proxies:
        for url, sync in proxy.resources.items():
            if sync.last_error:
                say(f"{proxy.proxy} rejected {SHORT.get(url, url)} {sync.last_error}")
    if any(sync.last_error for proxy in proxies for sync in proxy.resources.values()):
        faulty = next(each.proxy for each in proxies if any(sync.last_error for sync in each.resources.values()))
        command = "weft status" if reached.runs_pods else f"weft describe pod {faulty}"
        say(with_same_mesh(f"hint: the object at fault is shown by: {command}"))


def _tell_stale(proxies: list[ProxySync]) -> None:
    from weft.control.sync_status import SHORT, STALE, cell

    for proxy in proxies:
        for url, sync in proxy.resources.items():
            if sync.state == STALE:
                say(f"{proxy.proxy} has not acknowledged {SHORT.get(url, url)}: {cell(sync)}")
