"""`weft proxy-config`: shows the config of a pod's Envoy in the format of istioctl's tables. The commands have
istioctl's names and all of its short names."""

from __future__ import annotations

from typing import Any

import click

from weft.cli.lazy_commands import LazyGroup, Listing
from weft.cli.look.proxy_config import filters
from weft.cli.look.proxy_config.on_demand import print_on_demand
from weft.cli.look.proxy_config.provenance import provenance
from weft.cli.look.proxy_config.source import ProxySource, print_rows, print_whole, with_source
from weft.cli.print.output import fail, say

_LISTENER_GAP = 1  # as in istioctl, because these rows are the longest
ALIASES = {
    "listeners": ("listener", "l"),
    "routes": ("route", "r"),
    "clusters": ("cluster", "c"),
    "endpoints": ("endpoint", "ep", "e"),
    "secret": ("secrets", "s"),
    "bootstrap": ("b",),
    "ecds": ("ec",),
    "log": ("o",),
    "rootca-compare": ("rc",),
    "all": ("a",),
}
# For each table, the kinds of resources to query the control plane for. The kinds are kept apart, because routes and
# listeners may have equal names.
_ASKED = {
    **{kind: (kind,) for kind in ("cluster", "listener", "route", "secret")},
    "endpoint": ("cluster", "endpoints"),
}

_LISTINGS = (
    Listing(
        "listeners",
        "look.proxy_config.tables:listeners",
        "Listeners: what each filter chain matches, and its destination.",
    ),
    Listing(
        "routes",
        "look.proxy_config.tables:routes",
        "Routes: the hosts and paths, and the VirtualService behind each.",
    ),
    Listing(
        "clusters",
        "look.proxy_config.tables:clusters",
        "Clusters: the hosts that the proxy can call, and the DestinationRule behind each.",
    ),
    Listing(
        "endpoints",
        "look.proxy_config.tables:endpoints",
        "Endpoints: every address behind the proxy's clusters, and its health.",
    ),
    Listing(
        "secret",
        "look.proxy_config.tables:secret",
        "Certificates: the proxy's own and those it trusts, and how long each is valid.",
    ),
    Listing(
        "bootstrap", "look.proxy_config.tables:bootstrap", "Bootstrap: the config that the proxy was started with."
    ),
    Listing("ecds", "look.proxy_config.tables:ecds", "Filters sent by extension config discovery; weft sends none."),
    Listing(
        "log",
        "look.proxy_config.log:log",
        "Show the log levels of a proxy, or change them until the proxy restarts.",
    ),
    Listing(
        "rootca-compare",
        "look.proxy_config.rootca_compare:compare",
        "Check whether two pods trust a common root.",
    ),
    Listing(
        "all",
        "look.proxy_config.tables:all_",
        "Bootstrap, clusters, listeners, routes, secrets and endpoints; with -o json, the whole config dump.",
    ),
)


def _group(name: str) -> LazyGroup:
    return LazyGroup(
        name,
        help="Show the config of a pod's Envoy. Tables of listeners, routes, clusters and so on; pc is short for this.",
        epilog="Example: weft proxy-config clusters payments-v1",
        listings={"Commands": _LISTINGS},
        aliases={alias: name for name, aliases in ALIASES.items() for alias in aliases},
    )


GROUP, PC = _group("proxy-config"), _group("pc")


@click.command()
@with_source
@filters.address
@filters.port
@filters.listener_type
@filters.verbose
@filters.why
@filters.all_hosts
@filters.host
@filters.output
def listeners(source: ProxySource, address: str, port: int, type_: str, verbose: bool, why: bool, output: str) -> None:
    """Listeners: what each filter chain matches, and its destination.

    \b
    Example: weft proxy-config listeners deploy/payments --port 15006
             weft pc l payments-v1-0.shop --type HTTP -o json
    """
    from weft.envoy import dump_listeners
    from weft.envoy.dump import LISTENERS

    reasons = provenance(source, "listener") if why else None
    shown = dump_listeners.listeners(
        source.config(LISTENERS), dump_listeners.ListenerFilter(address=address, port=port, type=type_)
    )
    if _is_table(output):
        table = dump_listeners.table(shown, verbose=verbose, why=reasons.words if reasons else None)
        print_rows(table, gap=_LISTENER_GAP)
    else:
        print_whole(reasons.beside(shown) if reasons else shown, output)
    _tell_of_none(shown, "listener")
    print_on_demand(source)


@click.command()
@with_source
@filters.name
@filters.verbose
@filters.why
@filters.all_hosts
@filters.host
@filters.output
def routes(source: ProxySource, name: str, verbose: bool, why: bool, output: str) -> None:
    """Routes: the hosts and paths, and the VirtualService behind each.

    \b
    Example: weft proxy-config routes frontend --name 80
             weft pc r frontend --name 80 -o yaml
             weft pc r frontend --host payments
    """
    from weft.envoy import dump_routes
    from weft.envoy.dump import ROUTES

    reasons = provenance(source, "route") if why else None
    shown = dump_routes.routes(source.config(ROUTES), name)
    if _is_table(output):
        print_rows(dump_routes.table(shown, verbose=verbose, why=reasons.words if reasons else None))
    else:
        print_whole(reasons.beside(shown) if reasons else shown, output)
    _tell_of_none(shown, "route configuration")
    print_on_demand(source)


@click.command()
@with_source
@filters.fqdn
@filters.port
@filters.subset
@filters.direction
@filters.why
@filters.all_hosts
@filters.host
@filters.output
def clusters(source: ProxySource, fqdn: str, port: int, subset: str, direction: str, why: bool, output: str) -> None:
    """Clusters: the hosts that the proxy can call, and the DestinationRule behind each.

    \b
    Example: weft proxy-config clusters frontend
             weft pc c frontend --fqdn payments.shop.svc.cluster.local --subset v2 -o json
             weft pc c frontend --all
    """
    from weft.envoy import dump_clusters
    from weft.envoy.dump import CLUSTERS

    reasons = provenance(source, "cluster") if why else None
    shown = dump_clusters.clusters(
        source.config(CLUSTERS),
        dump_clusters.ClusterFilter(fqdn=fqdn, port=port, subset=subset, direction=direction),
    )
    if _is_table(output):
        print_rows(dump_clusters.table(shown, why=reasons.words if reasons else None))
    else:
        print_whole(reasons.beside(shown) if reasons else shown, output)
    _tell_of_none(shown, "cluster")
    print_on_demand(source)


@click.command()
@with_source
@filters.address
@filters.port
@filters.cluster
@filters.status
@filters.why
@filters.all_hosts
@filters.host
@filters.output
def endpoints(source: ProxySource, address: str, port: int, cluster: str, status: str, why: bool, output: str) -> None:
    """Endpoints: every address behind the proxy's clusters, and its health. --file reads the output of
    /clusters?format=json, or a whole dump (weft pc all POD -o json), which has the endpoints that the proxy was sent.

    \b
    Example: weft proxy-config endpoints frontend --status unhealthy
             weft pc ep frontend --cluster 'outbound|80||payments.shop.svc.cluster.local'
    """
    from weft.envoy import dump_endpoints

    reasons = provenance(source, "cluster", "endpoints") if why else None
    wanted = dump_endpoints.EndpointFilter(address=address, port=port, cluster=cluster, status=status)
    dump = source.clusters()
    words = reasons.words if reasons else None
    is_told = dump_endpoints.is_told(dump)
    resources = (dump_endpoints.assignments if is_told else dump_endpoints.clusters)(dump, wanted)
    if _is_table(output):
        sent = dump_endpoints.told(dump, wanted, why=words) if is_told else None
        print_rows(sent or dump_endpoints.table(resources, wanted, why=words))
    else:
        print_whole(reasons.beside(resources) if reasons else resources, output)
    _tell_of_none(resources, "endpoint")
    print_on_demand(source)


@click.command()
@with_source
@filters.why
@filters.output
def secret(source: ProxySource, why: bool, output: str) -> None:
    """Certificates: the proxy's own and those it trusts, and how long each is valid. Keys are not shown.

    \b
    Example: weft proxy-config secret payments-v1
    """
    from weft.envoy import dump_secrets
    from weft.envoy.dump import SECRETS

    reasons = provenance(source, "secret") if why else None
    section = dump_secrets.secrets(source.config(SECRETS))
    if not _is_table(output):
        with_reasons = (
            {name: reasons.beside(each) if isinstance(each, list) else each for name, each in section.items()}
            if reasons
            else {}
        )
        print_whole(with_reasons or section, output)
        return
    table = dump_secrets.table(section, why=reasons.words if reasons else None)
    print_rows(table)
    _tell_of_none(table.rows, "secret")


@click.command()
@with_source
@click.option(
    "-o",
    "--output",
    type=click.Choice(filters.FORMS),
    default="json",
    show_default=True,
    help="json or yaml: the whole bootstrap config; short or table: only the versions of Istio and Envoy in it.",
)
def bootstrap(source: ProxySource, output: str) -> None:
    """Bootstrap: the config that the proxy was started with.

    \b
    Example: weft proxy-config bootstrap frontend -o short
    """
    from weft.envoy import dump_bootstrap
    from weft.envoy.dump import BOOTSTRAP

    section = dump_bootstrap.bootstrap(source.config(BOOTSTRAP))
    if _is_table(output):
        _print_versions(section)
    else:
        print_whole(section, output)


@click.command()
@with_source
@filters.output
def ecds(source: ProxySource, output: str) -> None:
    """Filters sent by extension config discovery; weft sends none.

    \b
    Example: weft proxy-config ecds frontend
    """
    from weft.envoy import dump_extensions

    # Read the whole dump: Envoy returns an error for a section that it does not have.
    section = dump_extensions.extensions(source.everything())
    if not _is_table(output):
        print_whole(section, output)
        return
    table = dump_extensions.table(section)
    print_rows(table)
    _tell_of_none(table.rows, "filter")


@click.command("all")
@with_source
@filters.fqdn
@filters.port
@filters.subset
@filters.direction
@filters.address
@filters.listener_type
@filters.name
@filters.verbose
@click.option("--with-headers", is_flag=True, help="Print a heading before each table.")
@filters.why
@filters.output
def all_(
    source: ProxySource,
    fqdn: str,
    port: int,
    subset: str,
    direction: str,
    address: str,
    type_: str,
    name: str,
    verbose: bool,
    with_headers: bool,
    why: bool,
    output: str,
) -> None:
    """Bootstrap, clusters, listeners, routes, secrets and endpoints; with -o json, the whole config dump.

    \b
    Example: weft proxy-config all frontend --with-headers
             weft pc a frontend -o json > frontend.json
    """
    from weft.envoy import dump_bootstrap, dump_clusters, dump_endpoints, dump_listeners, dump_routes, dump_secrets

    if why and not _is_table(output):
        what = "--why cannot be added to the whole config dump, whose format is Envoy's"
        fail(what, "query one kind at a time: weft proxy-config clusters POD --why -o json", code=2)
    reasons = {kind: provenance(source, *kinds).words if why else None for kind, kinds in _ASKED.items()}
    dump = source.everything()
    if not _is_table(output):
        print_whole(dump.document, output)
        return
    by_cluster = dump_clusters.ClusterFilter(fqdn=fqdn, port=port, subset=subset, direction=direction)
    by_listener = dump_listeners.ListenerFilter(address=address, port=port, type=type_)
    by_endpoint = dump_endpoints.EndpointFilter(address=address, port=port)
    tables = [
        (
            "CLUSTER",
            dump_clusters.table(dump_clusters.clusters(dump, by_cluster), named=True, why=reasons["cluster"]),
            None,
        ),
        (
            "LISTENER",
            dump_listeners.table(
                dump_listeners.listeners(dump, by_listener), verbose=verbose, named=True, why=reasons["listener"]
            ),
            _LISTENER_GAP,
        ),
        (
            "ROUTE",
            dump_routes.table(dump_routes.routes(dump, name), verbose=verbose, named=True, why=reasons["route"]),
            None,
        ),
        ("SECRET", dump_secrets.table(dump_secrets.secrets(dump), named=True, why=reasons["secret"]), None),
        ("ENDPOINTS", dump_endpoints.told(dump, by_endpoint, why=reasons["endpoint"]), None),
    ]
    _print_heading("BOOTSTRAP", shown=with_headers)
    _print_versions(dump_bootstrap.bootstrap(dump))
    for title, table, gap in tables:
        click.echo()
        _print_heading(title, shown=with_headers)
        print_rows(table, gap=gap)
    print_on_demand(source)


def _is_table(output: str) -> bool:
    return output in ("short", "table")


def _print_versions(section: dict[str, Any]) -> None:
    from weft.envoy.dump_bootstrap import versions

    rows = versions(section)
    width = max((len(title) for title, _ in rows), default=0) + 1
    for title, version in rows:
        click.echo(f"{title:<{width}}{version}")


def _print_heading(title: str, *, shown: bool) -> None:
    if shown:
        click.echo(f"------ {title} INFO ------\n")


def _tell_of_none(shown: Any, what: str) -> None:
    if not shown:
        say(f"the proxy has no matching {what}")
