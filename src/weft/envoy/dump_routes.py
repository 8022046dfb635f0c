"""Route configurations of a dump as table rows: one for each route, with the VirtualService or HTTPRoute that
created it."""

from __future__ import annotations

from typing import Any

from weft.envoy.dump import ROUTES, WHY, Dump, DumpTable, Told, at, digits, items, managed_by, text, words

COLUMNS = ("NAME", "VHOST NAME", "DOMAINS", "MATCH", "VIRTUAL SERVICE")
BRIEF = ("NAME", "VIRTUAL HOSTS")
_SHOWN_DOMAINS = 2
_PASSTHROUGH = "PassthroughCluster"


def routes(dump: Dump, name: str = "") -> list[dict[str, Any]]:
    """Return the route configurations as complete messages, or only the one named `name`. Names that are ports come
    first, in numeric order."""
    messages = dump.messages(
        ROUTES, ("dynamic_route_configs", "route_config"), ("static_route_configs", "route_config")
    )
    return sorted((each for each in messages if name in ("", text(each, "name"))), key=_order)


def table(
    configurations: list[dict[str, Any]], *, verbose: bool = True, named: bool = False, why: Told | None = None
) -> DumpTable:
    """Return the table of the route configurations. `verbose`: one row for each route instead of each configuration.
    `named`: names begin with `route/`. `why`: returns the object that created a row's route, which becomes the last
    column; None: no such column."""
    prefix = "route/" if named else ""
    rows: list[tuple[str, ...]] = []
    for each in configurations:
        name = text(each, "name")
        placed_rows = _rows(each, prefix + name) if verbose else [("", (prefix + name, str(len(_hosts(each)))))]
        rows += [(*row, *((why(name, place),) if why else ())) for place, row in placed_rows]
    return DumpTable((*(COLUMNS if verbose else BRIEF), *(WHY if why else ())), tuple(rows))


def match(route: dict[str, Any]) -> str:
    """Return the match of a route's path as text. Matches of headers are not shown."""
    wanted = at(route, "match")
    parts = []
    if prefix := text(wanted, "prefix"):
        parts.append(f"{prefix}*")
    if prefix := text(wanted, "path_separated_prefix"):
        parts.append(f"PathPrefix:{prefix}")
    if path := text(wanted, "path"):
        parts.append(path)
    if at(wanted, "safe_regex") is not None:
        parts.append(f"regex {text(wanted, 'safe_regex', 'regex')}")
    return " ".join(parts)


def _order(route_configuration: dict[str, Any]) -> tuple[bool, int, str]:
    name = text(route_configuration, "name")
    return (not name.isdecimal(), digits(name), name)


def _hosts(route_configuration: dict[str, Any]) -> list[dict[str, Any]]:
    return items(route_configuration, "virtual_hosts")


def _rows(route_configuration: dict[str, Any], name: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return a tuple for each route of a route configuration: the path of the route in the configuration, and the
    route's table row. `name` is the configuration's name in the table."""
    rows: list[tuple[str, tuple[str, ...]]] = []
    for place, host in enumerate(_hosts(route_configuration)):
        beginning = (name, text(host, "name"), _domains(words(host, "domains")))
        routes = items(host, "routes")
        if not routes:
            rows.append((f"virtual_hosts[{place}]", (*beginning, "/*", "404")))
        for position, route in enumerate(routes):
            if text(route, "route", "cluster") != _PASSTHROUGH:
                where = f"virtual_hosts[{place}].routes[{position}]"
                rows.append((where, (*beginning, match(route), managed_by(route) or _attached(route))))
    return rows


def _attached(route: dict[str, Any]) -> str:
    """Return the kind, name and namespace of the Gateway API route that `route` was generated from, or "". Istio's
    metadata has no field for it, so weft's own metadata is read."""
    for source in items(route, "metadata", "filter_metadata", "weft", "sources"):
        if text(source, "kind").endswith("Route"):
            return f"{text(source, 'kind')} {text(source, 'name')}.{text(source, 'namespace')}"
    return ""


def _domains(domains: list[str]) -> str:
    """Return the domains of a virtual host as text. A single domain is returned unchanged. If there are several, those
    with a port and the longer names of a service are left out, and at most two are shown, with the number of the
    others."""
    if len(domains) == 1:
        return domains[0]
    short = _without_longer([domain for domain in domains if _is_without_port(domain)])
    rest = len(short) - _SHOWN_DOMAINS
    return ", ".join(short[:_SHOWN_DOMAINS]) + (f" + {rest} more..." if rest > 0 else "")


def _is_without_port(domain: str) -> bool:
    return ":" not in domain or (domain.count(":") > 2 and domain.endswith("]"))


def _without_longer(domains: list[str]) -> list[str]:
    names = set(domains)
    endings = (".svc.cluster.local", ".svc")
    return [
        domain
        for domain in domains
        if not any(domain.endswith(ending) and domain.removesuffix(ending) in names for ending in endings)
    ]
