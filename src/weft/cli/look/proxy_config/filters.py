"""Options of `weft proxy-config` that filter the output by address, port, name and so on, and the output format."""

from __future__ import annotations

import click

from weft.cli.flags import completions
from weft.cli.flags.choices import HIGHEST_PORT, OneOf

_TYPES = ("HTTP", "TCP", "HTTP+TCP", "UNKNOWN")
_DIRECTIONS = ("inbound", "outbound")
_STATUSES = ("healthy", "unhealthy", "draining", "timeout", "degraded", "unknown")  # Envoy's health statuses

address = click.option("--address", default="", help="Only listeners and endpoints with this address.")
port = click.option(
    "--port",
    type=click.IntRange(min=0, max=HIGHEST_PORT),
    default=0,
    show_default=True,
    help="Only resources with this port; 0 for all.",
)
listener_type = click.option(
    "--type", "type_", default="", type=OneOf(*_TYPES), help="Only listeners of this type: HTTP, TCP, HTTP+TCP."
)
verbose = click.option(
    "--verbose/--brief",
    default=True,
    show_default=True,
    help="--verbose: one line per filter chain or route; --brief: one line per listener or route configuration.",
)
name = click.option(
    "--name", default="", help="Only the route configuration of this name.", shell_complete=completions.routes
)
fqdn = click.option(
    "--fqdn", default="", help="Only clusters whose host contains this.", shell_complete=completions.hosts
)
subset = click.option("--subset", default="", help="Only clusters whose subset contains this.")
direction = click.option(
    "--direction", default="", type=OneOf(*_DIRECTIONS), help="Only clusters of this direction: inbound, outbound."
)
cluster = click.option(
    "--cluster", default="", help="Only endpoints of this cluster.", shell_complete=completions.clusters
)
status = click.option(
    "--status",
    default="",
    type=OneOf(*_STATUSES),
    help="Only endpoints of this status: healthy, unhealthy, draining, timeout, degraded, unknown.",
)
why = click.option("--why", is_flag=True, help="Show the objects, with file and line, and the rules behind each row.")
all_hosts = click.option(
    "--all", "all_hosts", is_flag=True, help="Show what an on-demand proxy would have if its pod called every service."
)
host = click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="Show what an on-demand proxy would have after a first call to this service; may be repeated.",
    shell_complete=completions.hosts,
)
FORMS = ("short", "table", "json", "yaml")  # short and table are equal
output = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMS),
    default="short",
    show_default=True,
    help="short or table: one line per resource; json or yaml: everything that Envoy reports.",
)
