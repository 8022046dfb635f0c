"""Expands a route that delegates to another VirtualService: into each route of the delegate, with the matches of both
routes joined. A delegate can only narrow the match of the root route; a delegate's route that would widen the match
is left out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from weft.model.names import Origin
from weft.model.virtual_service import Headers, HttpMatch, HttpRoute, MatchKind, StringMatch, VirtualService


class DelegatedRoute(msgspec.Struct, frozen=True):
    """A route, with delegation resolved, and the objects that it comes from (`origins`). The object that contains the
    route is first, so that the route's `line` is a line of that object's file."""

    route: HttpRoute
    origins: tuple[Origin, ...] = ()


class Dropped(msgspec.Struct, frozen=True):
    """A route of the VirtualService `routing` that is left out of the config, and the reason (`why`)."""

    routing: VirtualService
    route: HttpRoute
    why: str


def written_out(
    routing: VirtualService, delegates: tuple[VirtualService, ...]
) -> tuple[tuple[DelegatedRoute, ...], tuple[Dropped, ...]]:
    resolved: list[DelegatedRoute] = []
    dropped: list[Dropped] = []
    for route in routing.http:
        if route.delegate is None:
            resolved.append(DelegatedRoute(route, (route.origin,) if route.origin else _origins(routing)))
            continue
        wanted = (route.delegate.namespace, route.delegate.name)
        delegate = next((entry for entry in delegates if (entry.namespace, entry.name) == wanted), None)
        if delegate is None:
            dropped.append(Dropped(routing, route, f"the delegate {'/'.join(wanted)} does not exist"))
            continue
        for leaf in delegate.http:
            if leaf.delegate is not None:
                dropped.append(Dropped(delegate, leaf, "a delegate cannot delegate further"))
            elif (match := _joined(route.match, leaf.match)) is None:
                dropped.append(Dropped(delegate, leaf, _why_apart(routing, route, delegate, leaf)))
            else:
                resolved.append(DelegatedRoute(_inherited(route, leaf, match), _origins(delegate, routing)))
    return tuple(resolved), tuple(dropped)


def _origins(*routings: VirtualService) -> tuple[Origin, ...]:
    return tuple(routing.origin for routing in routings if routing.origin is not None)


def _inherited(root: HttpRoute, leaf: HttpRoute, match: tuple[HttpMatch, ...]) -> HttpRoute:
    return replace(
        leaf,
        name="-".join(name for name in (root.name, leaf.name) if name),
        match=match,
        rewrite=leaf.rewrite or root.rewrite,
        timeout=root.timeout if leaf.timeout is None else leaf.timeout,
        retries=leaf.retries or root.retries,
        fault=leaf.fault or root.fault,
        mirrors=leaf.mirrors or root.mirrors,
        cors=leaf.cors or root.cors,
        headers=root.headers if leaf.headers == Headers() else leaf.headers,
    )


def _joined(roots: tuple[HttpMatch, ...], leaves: tuple[HttpMatch, ...]) -> tuple[HttpMatch, ...] | None:
    """Join the matches of a root route (`roots`) with those of a delegate's route (`leaves`): each leaf with every root
    that contains it. Return None if a leaf is not within any root."""
    if not roots or not leaves:
        return roots or leaves
    joined: list[HttpMatch] = []
    for leaf in leaves:
        within = [_merge(root, leaf) for root in roots if _lies_within(root, leaf)]
        if not within:
            return None
        joined += within
    return tuple(joined)


def _why_apart(routing: VirtualService, route: HttpRoute, delegate: VirtualService, leaf: HttpRoute) -> str:
    """Return, as text, why the matches of a root route (`route` of `routing`) and of a delegate's route (`leaf` of
    `delegate`) cannot be joined."""
    pairs = [pair for root in route.match for match in leaf.match for pair in _shared(root, match)]
    field = next((field for field, *patterns in pairs if MatchKind.REGEX in {each.kind for each in patterns}), "")
    root, part = (f"{each.namespace}/{each.name}" for each in (routing, delegate))
    if field:
        return f"{root} and its delegate {part} both match {field}, one of them with a regex, which cannot be joined"
    return f"the match in the delegate {part} is not within the match of the route in {root}"


def _shared(root: HttpMatch, leaf: HttpMatch) -> Iterator[tuple[str, StringMatch, StringMatch]]:
    """Yield each field that both matches test: its name, and the patterns of the root and of the leaf."""
    for field in ("uri", "scheme", "method", "authority"):
        wide, narrow = getattr(root, field), getattr(leaf, field)
        if wide is not None and narrow is not None:
            yield field, wide, narrow
    for field in ("headers", "without_headers", "query_params"):
        wides: dict[str, StringMatch] = dict(getattr(root, field))
        yield from ((key, wides[key], narrow) for key, narrow in getattr(leaf, field) if key in wides)


def _merge(root: HttpMatch, leaf: HttpMatch) -> HttpMatch:
    return HttpMatch(
        name="-".join(name for name in (root.name, leaf.name) if name),
        uri=leaf.uri or root.uri,
        scheme=leaf.scheme or root.scheme,
        method=leaf.method or root.method,
        authority=leaf.authority or root.authority,
        headers=tuple((dict(root.headers) | dict(leaf.headers)).items()),
        without_headers=tuple((dict(root.without_headers) | dict(leaf.without_headers)).items()),
        query_params=tuple((dict(root.query_params) | dict(leaf.query_params)).items()),
        ignore_uri_case=root.ignore_uri_case or leaf.ignore_uri_case,
        port=leaf.port or root.port,
        source_labels=tuple(sorted((dict(root.source_labels) | dict(leaf.source_labels)).items())),
        source_namespace=leaf.source_namespace or root.source_namespace,
        gateways=leaf.gateways or root.gateways,
        stat_prefix=leaf.stat_prefix or root.stat_prefix,
    )


def _lies_within(root: HttpMatch, leaf: HttpMatch) -> bool:
    return (
        all(_narrows(wide, narrow) for _, wide, narrow in _shared(root, leaf))
        and (root.uri is None or leaf.uri is None or root.ignore_uri_case == leaf.ignore_uri_case)
        and (not root.port or not leaf.port or root.port == leaf.port)
        and (not root.source_namespace or leaf.source_namespace in ("", root.source_namespace))
        and all(dict(root.source_labels).get(key, value) == value for key, value in leaf.source_labels)
    )


def _narrows(wide: StringMatch, narrow: StringMatch) -> bool:
    match (wide.kind, narrow.kind):
        case (MatchKind.REGEX, _) | (_, MatchKind.REGEX):
            return False  # as in Istio, even for equal patterns
        case _ if wide == narrow:
            return True
        case (MatchKind.PREFIX, MatchKind.PREFIX | MatchKind.EXACT):
            return narrow.value.startswith(wide.value)
        case (MatchKind.PRESENT, _):
            return True
        case _:
            return False
