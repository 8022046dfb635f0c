"""`weft proxy-config` of an on-demand proxy: after the tables, prints which services the proxy has, and how to see the
config that it would get at a first call. Everything is read from the proxy itself, so this needs no access to the
control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.print.output import say

if TYPE_CHECKING:
    from weft.cli.look.proxy_config.source import ProxySource

_LISTED = 8  # services
_HOLDS = b'"odcds_config"'  # only the filter that holds first calls has this field


def print_on_demand(source: ProxySource) -> None:
    """If the source is a proxy that gets services on demand, print a note on standard error."""
    if source.file is not None or source.called is not None:
        return
    outbound = {"resource": "dynamic_listeners", "name_regex": "^virtualOutbound$"}
    if _HOLDS not in source.reach.admin(source.proxy, "/config_dump", outbound):
        return
    hosts = sorted(_hosts(source))
    listed = ", ".join(hosts[:_LISTED]) + (", …" if len(hosts) > _LISTED else "")
    known = f"{len(hosts):,} service{'s' * (len(hosts) != 1)} ({listed})" if hosts else "no service yet"
    gets = "gets the config of any other service when its pod first calls that service"
    say(f"on demand: this proxy has {known}, and {gets}")
    say("hint: --host HOST shows the config after a first call to HOST, --all after calls to every service")
    say(f"hint: how many services there are, and why the proxy is on demand: weft describe pod {source.proxy}")


def _hosts(source: ProxySource) -> set[str]:
    from weft.envoy.dump import items, text
    from weft.translate.names import called_host

    names = (text(each, "name") for each in items(source.clusters().document, "cluster_statuses"))
    return {host for name in names if (host := called_host(name))}
