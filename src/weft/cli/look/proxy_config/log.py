"""`weft proxy-config log`: shows the log levels of a proxy, or changes them until the proxy restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.flags import completions, shared
from weft.cli.look.proxy_config import filters
from weft.cli.look.proxy_config.source import ProxySource, with_source
from weft.cli.print.output import fail, is_data, print_data

if TYPE_CHECKING:
    from weft.cli.reach.interface import MeshReach, PodProxy


@click.command()
@with_source
@click.option(
    "--level", default="", help="[LOGGER:]LEVEL,…, such as rbac:debug,info.", shell_complete=completions.levels
)
@shared.selector
@click.option("-r", "--reset", is_flag=True, help="Reset to the levels that the proxy was started with.")
@filters.output
def log(source: ProxySource, level: str, selector: str, reset: bool, output: str) -> None:
    """Show the log levels of a proxy, or change them until the proxy restarts. With deploy/NAME or -l, this applies to
    the proxies of all selected pods.

    Levels are trace, debug, info, warning, error, critical and off. A level without a logger applies to all loggers.
    The proxy's log is in `weft logs --proxy`, or on a cluster in `kubectl logs POD -c istio-proxy`.

    \b
    Example: weft proxy-config log payments-v1 --level rbac:debug,info
             weft proxy-config log payments-v1 --reset
             weft proxy-config log -l app=payments --level rbac:debug
    """
    from weft.envoy import log_levels

    if source.file is not None:
        fail("a file has no log levels", "name a pod: weft proxy-config log POD", code=2)
    if selector and source.target:
        fail("both a pod and labels are given", "give one of them: POD, or -l app=payments", code=2)
    if level and reset:
        fail("both --level and --reset are given", "give only --level, or only --reset", code=2)
    wanted = log_levels.parse(level) if level else []
    proxies = (
        source.reach.find_labelled(selector, source.namespace)
        if selector
        else source.reach.find_all(source.target, source.namespace)
    )
    for proxy in proxies:  # check all proxies before any is changed
        log_levels.check(wanted, log_levels.read(_ask(source.reach, proxy)))
    answers = {str(proxy): _set(source.reach, proxy, wanted, reset=reset) for proxy in proxies}
    if is_data(output):
        print_data({name: log_levels.read(levels) for name, levels in answers.items()}, output)
        return
    for name, levels in answers.items():
        click.echo(f"{name}:\n{levels.decode(errors='replace').rstrip()}")


def _set(reach: MeshReach, proxy: PodProxy, wanted: list[tuple[str, str]], *, reset: bool) -> bytes:
    if reset:
        import msgspec

        from weft.envoy.log_levels import started_with

        wanted = started_with(msgspec.json.decode(reach.admin(proxy, "/server_info"), type=dict))
    for logger, level in wanted:
        reach.admin(proxy, "/logging", {logger: level}, method="POST")
    return _ask(reach, proxy)


def _ask(reach: MeshReach, proxy: PodProxy) -> bytes:
    return reach.admin(proxy, "/logging", method="POST")
