"""The config of one viewer, stored as one contribution per host and joined into complete Envoy resources.

A viewer is a group of proxies, or a viewpoint: a set of groups that have most of their config in common. When a host
changes, only its contribution is replaced and only the resources that contain it are joined again. The differences
are returned as an `Update` for the snapshot. The common config is stored once, in the `Compiled` of the viewpoint.
The `Compiled` of a group refers to it as `under`, and stores only what is specific to the group. A resource to which
both contribute is stored with the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeVar
from weakref import WeakValueDictionary

from weft.control.push.contribute import NOTHING
from weft.control.push.viewpoints import ViewpointKey
from weft.translate import hold, names, routes
from weft.translate.blame import put_back
from weft.translate.built import Built
from weft.translate.contribution import EVERY_ROUTE, Chain, Contribution, VirtualHost
from weft.translate.listeners import http_port, shared_port
from weft.translate.view import GroupView
from weft.xds.types import CLUSTER, LISTENER, ROUTE

Update = dict[str, dict[str, Built | None]]  # type URL → name → resource, None if it is removed
Outlook = GroupView | ViewpointKey  # input of joining beside the contributions: `policy`, `settings`, `telling`
Configure = Callable[[str, tuple[VirtualHost, ...], Outlook], Built]  # builds a route configuration

_EVERY_ADDRESS = "0.0.0.0"
_GROUP = ""  # key of the group's own contribution: no host has this name


class RouteConfigurations:
    """A cache of route configurations: equal ones are built once, and cached while any viewer has them."""

    def __init__(self) -> None:
        self._built: WeakValueDictionary[tuple[object, ...], Built] = WeakValueDictionary()

    def get(self, name: str, hosts: tuple[VirtualHost, ...], outlook: Outlook) -> Built:
        key = (name, outlook.policy, *hosts)
        built = self._built.get(key)
        if built is None:
            built = self._built[key] = routes.configuration(name, hosts, outlook.policy)
        return built


class Compiled:
    def __init__(self, outlook: Outlook, configure: Configure, under: Compiled | None = None) -> None:
        """`outlook`: the settings, outbound policy and on-demand state on which joining depends, besides contributions.
        `configure`: builds a route configuration. `under`: the config that a group shares with the other groups of its
        viewpoint; None for a viewpoint. Each host contributes either to `under` or to this config."""
        self._outlook = outlook
        self._under = under
        self._configure = configure
        self._contributions: dict[str, Contribution] = {}
        self._assignments: dict[str, tuple[Built, ...]] = {}
        self._claims: dict[str, dict[str, Built]] = defaultdict(dict)  # listener name → host → listener
        self._chains: dict[int, dict[str, tuple[Chain, ...]]] = defaultdict(dict)  # port → host → chains
        self._routes: dict[str, dict[str, VirtualHost]] = defaultdict(dict)  # route name → host → virtual host
        self._suspended: dict[tuple[str, str], VirtualHost | None] = {}  # (route, host) → replacement
        self._resources: dict[str, dict[str, Built]] = defaultdict(dict)  # type → name → current resource

    def resource(self, type_url: str, name: str) -> Built | None:
        resource = self._resources.get(type_url, {}).get(name)
        return self._under.resource(type_url, name) if resource is None and self._under else resource

    def routes_of(self, host: str) -> list[tuple[str, bytes]]:
        return [(route, built.fragment) for route, built in self._contributions.get(host, NOTHING).hosts]

    def renew(
        self,
        outlook: Outlook,
        contributions: Mapping[str, Contribution],
        assignments: Mapping[str, tuple[Built, ...]],
    ) -> tuple[Update, frozenset[str]]:
        """Replace the outlook (the settings that joining depends on), and the contributions and load assignments of
        these hosts. Returns the resources that differ from before, and the hosts whose routes changed."""
        joined = self.look_from(outlook)
        update, rerouted = self._replace(contributions)
        return merged((joined, update, self.assign(assignments))), rerouted

    def contribute(self, contributions: Mapping[str, Contribution]) -> Update:
        """Replace the contributions of these hosts. A host whose new contribution is `NOTHING` is removed. Returns
        the resources that differ."""
        return self._replace(contributions)[0]

    def _replace(self, contributions: Mapping[str, Contribution]) -> tuple[Update, frozenset[str]]:
        rerouted: set[str] = set()
        update: Update = defaultdict(dict)
        stale_routes: set[str] = set()
        stale_listeners: set[str] = set()
        for host, new in contributions.items():
            old = self._contributions.pop(host, NOTHING)
            if new is not NOTHING:
                self._contributions[host] = new
            if new is old:
                continue
            # If the routes are unchanged, the host stays suspended: they would be rejected again.
            if _routes(old) != _routes(new):
                rerouted.add(host)
                stale_routes |= self._forget_suspended({host})
            for cluster in old.clusters:
                update[cluster.type_url][cluster.name] = None
            for cluster in new.clusters:
                update[cluster.type_url][cluster.name] = cluster
            stale_listeners |= self._claim_listeners(host, old, new)
            stale_routes |= self._claim_routes(host, old, new)
        stale_listeners |= {_shared(int(route)) for route in self._stale(stale_routes) if route.isdigit()}
        for name in stale_listeners:
            self._join_listener(name, update)
        for route in self._stale(stale_routes):
            self._join_route(route, update)
        return self._changed(update), frozenset(rerouted)

    def contribute_group(self, outlook: Outlook, contribution: Contribution) -> Update:
        """Replace the outlook (the settings that joining depends on) and the group's own contribution, after a
        change of the group's ports, its policy or the settings. Returns the resources that differ from before."""
        update = self.contribute({_GROUP: contribution})
        return merged((update, self.look_from(outlook)))

    def look_from(self, outlook: Outlook) -> Update:
        before, self._outlook = self._outlook, outlook
        if _joined_by(before) == _joined_by(outlook):
            return {}
        return self._rejoin_all()

    def rest_upon(self, under: Compiled) -> Update:
        """Use `under` as the config that this group shares with other groups, instead of the previous one. Returns the
        resources that differ from before."""
        if self._under is under:
            return {}
        before, self._under = self._under, under
        changed = {host for _, host in self._suspended if not before or before.routes_of(host) != under.routes_of(host)}
        return self.rejoin(changed)

    def rejoin(self, changed: Set[str]) -> Update:
        """Join the group's resources again after the shared config (`under`) has changed. `changed`: the hosts whose
        routes changed in the shared config. Returns the resources that differ from before."""
        stale = self._forget_suspended(changed)
        has_own = bool(self._contributions.keys() - {_GROUP})
        if not (stale or has_own or self._suspended or any(self._routes.values())):
            return {}
        update: Update = defaultdict(dict)
        for route in stale:
            self._join_route(route, update)
        return merged((self._changed(update), self._rejoin_all()))

    def answer(self, held: Iterable[str]) -> Update:
        """Add the clusters with the names `held`: each releases the calls that wait for it (`translate/hold.py`),
        and is never removed again. Returns the resources that differ."""
        return self._changed({CLUSTER: {name: hold.answer(name) for name in held}})

    def assign(self, assignments: Mapping[str, tuple[Built, ...]]) -> Update:
        """Replace the load assignments of these hosts. Returns the resources that differ."""
        update: Update = defaultdict(dict)
        for host, new in assignments.items():
            old = self._assignments.pop(host, ())
            if new:
                self._assignments[host] = new
            if new is old:
                continue
            for assignment in old:
                update[assignment.type_url][assignment.name] = None
            for assignment in new:
                update[assignment.type_url][assignment.name] = assignment
        return self._changed(update)

    def suspend(self, route: str, accepted: bytes) -> tuple[dict[str, VirtualHost], Update]:
        """Suspend the virtual hosts in which a rejected route configuration differs from the accepted one: each is
        replaced by its accepted version, or left out if there is none, until its host changes or `resume` is
        called. Returns the suspended virtual hosts as they were rejected, and the resources that differ."""
        current = {host: built for host, built in self._hosts_of(route).items() if (route, host) not in self._suspended}
        before = put_back(current.items(), accepted)
        self._suspended |= {(route, host): stand_in for host, stand_in in before.items()}
        return {host: current[host] for host in before}, self._rejoin(route)

    def resume(self, route: str, hosts: Iterable[str]) -> Update:
        for host in hosts:
            self._suspended.pop((route, host), None)
        return self._rejoin(route)

    def is_suspended(self, route: str, host: str) -> bool:
        return (route, host) in self._suspended

    def _rejoin(self, route: str) -> Update:
        update: Update = defaultdict(dict)
        if self._has_route(route):
            self._join_route(route, update)
        return self._changed(update)

    def _hosts_of(self, route: str) -> dict[str, VirtualHost]:
        """Return the virtual hosts of a route configuration, by host, in their order there."""
        own = self._all_routes(route)
        everywhere = self._all_routes(EVERY_ROUTE) if route.isdigit() else {}
        return {host: hosts[host] for hosts in (own, everywhere) for host in sorted(hosts)}

    def _stale(self, routes: set[str]) -> Iterable[str]:
        if EVERY_ROUTE in routes:
            return sorted(self._route_names() | routes - {EVERY_ROUTE})
        return sorted(routes)

    def _forget_suspended(self, hosts: Set[str]) -> set[str]:
        """End the suspension of these hosts (see `suspend`). Returns the names of the route configurations in which one
        of them was suspended."""
        suspended = {key for key in self._suspended if key[1] in hosts} if self._suspended else ()
        for key in suspended:
            del self._suspended[key]
        return {route for route, _ in suspended}

    # Contributions of this config together with those of the shared config under it

    def _all_routes(self, route: str) -> Mapping[str, VirtualHost]:
        return _both(self._under._routes.get(route) if self._under else None, self._routes.get(route))

    def _all_claims(self, name: str) -> Mapping[str, Built]:
        return _both(self._under._claims.get(name) if self._under else None, self._claims.get(name))

    def _all_chains(self, port: int) -> Mapping[str, tuple[Chain, ...]]:
        return _both(self._under._chains.get(port) if self._under else None, self._chains.get(port))

    def _route_names(self) -> set[str]:
        return {*self._routes, *(self._under._routes if self._under else ())} - {EVERY_ROUTE}

    def _has_route(self, route: str) -> bool:
        return bool(self._all_routes(route))

    def _has_host_without_listener(self, route: str) -> bool:
        """Whether the port of the route configuration `route` needs the HTTP listener `0.0.0.0_PORT`. It does in three
        cases: a host in the routes has no listener on its own address; some host has routes on every port; or the group
        must keep its listeners `0.0.0.0_PORT`."""
        hosts = self._all_routes(route)
        stays = self._outlook.telling.shared or bool(self._all_routes(EVERY_ROUTE))
        return bool(hosts and stays) or any(route not in self._contribution(host).addressed for host in hosts)

    def _contribution(self, host: str) -> Contribution:
        contribution = self._contributions.get(host)
        return self._under._contribution(host) if contribution is None and self._under else contribution or NOTHING

    def _has_part_in_route(self, route: str) -> bool:
        return (
            bool(self._routes.get(route))
            or (route.isdigit() and bool(self._routes.get(EVERY_ROUTE)))
            or any(route == each for each, _ in self._suspended)
        )

    def _has_part_in_port(self, port: int) -> bool:
        return bool(self._routes.get(str(port)) or self._chains.get(port) or self._claims.get(_shared(port)))

    def _claim_listeners(self, host: str, old: Contribution, new: Contribution) -> set[str]:
        for listener in old.listeners:
            self._claims[listener.name].pop(host, None)
        for port, _ in old.chains:
            self._chains[port].pop(host, None)
        for listener in new.listeners:
            self._claims[listener.name][host] = listener
        for port, chain in new.chains:
            self._chains[port][host] = (*self._chains[port].get(host, ()), chain)
        stale = {listener.name for listener in (*old.listeners, *new.listeners)}
        return stale | {_shared(port) for port, _ in (*old.chains, *new.chains)}

    def _claim_routes(self, host: str, old: Contribution, new: Contribution) -> set[str]:
        for route, _ in old.hosts:
            self._routes[route].pop(host, None)
        for route, virtual_host in new.hosts:
            self._routes[route][host] = virtual_host
        return {route for route, _ in (*old.hosts, *new.hosts)}

    def _join_listener(self, name: str, update: Update) -> None:
        """Join the listener `name`, and add it to `update`. If several services claim one address, the first by name
        gets it, regardless of the order in which they were added. A port's HTTP services, and those without an address,
        share the listener of the port."""
        address, _, port = name.rpartition("_")
        if address == _EVERY_ADDRESS and self._join_shared(int(port), update):
            return
        claims = self._all_claims(name) if self._claims.get(name) else {}
        update[LISTENER][name] = claims[min(claims)] if claims else None
        if not claims:
            self._claims.pop(name, None)

    def _join_shared(self, port: int, update: Update) -> bool:
        if not self._chains.get(port):
            self._chains.pop(port, None)
        if not self._has_part_in_port(port):
            return False
        by_host = self._all_chains(port)
        chains = tuple(chain for host in sorted(by_host) for chain in by_host[host])
        http = self._has_host_without_listener(str(port))
        if not chains and not http:
            return False
        seen = (self._outlook.policy, self._outlook.settings, self._outlook.telling.ranges)
        built = shared_port(port, chains, *seen, http=http) if chains else http_port(port, *seen)
        update[LISTENER][built.name] = built
        return True

    def _join_route(self, route: str, update: Update) -> None:
        if not self._routes.get(route):
            self._routes.pop(route, None)
        if self._has_route(route) and self._has_part_in_route(route):
            hosts = (self._suspended.get((route, host), built) for host, built in self._hosts_of(route).items())
            update[ROUTE][route] = self._configure(
                route, tuple(host for host in hosts if host is not None), self._outlook
            )
        else:
            update[ROUTE][route] = None

    def _rejoin_all(self) -> Update:
        update: Update = defaultdict(dict)
        ports = {*self._chains, *(int(route) for route in self._routes if route.isdigit())}
        for port in ports:
            self._join_listener(_shared(port), update)
        for name in tuple(self._claims):
            self._join_listener(name, update)
        for route in sorted(self._route_names()):
            if self._has_part_in_route(route):
                self._join_route(route, update)
        for route in self._resources.get(ROUTE, {}).keys() - update[ROUTE].keys():
            update[ROUTE][route] = None
        return self._changed(update)

    def _changed(self, update: Update) -> Update:
        """Reduce the update to resources that really differ, and store them as current."""
        changed: Update = {}
        for type_url, resources in update.items():
            current = self._resources[type_url]
            different: dict[str, Built | None] = {}
            for name, built in resources.items():
                before = current.get(name)
                if before is built or (before and built and before.version == built.version):
                    continue
                if built is None:
                    del current[name]
                else:
                    current[name] = built
                different[name] = built
            if different:
                changed[type_url] = different
        return changed


def merged(updates: Iterable[Update]) -> Update:
    result: Update = {}
    for update in updates:
        for type_url, resources in update.items():
            result.setdefault(type_url, {}).update(resources)
    return result


_Piece = TypeVar("_Piece")


def _both(under: Mapping[str, _Piece] | None, here: Mapping[str, _Piece] | None) -> Mapping[str, _Piece]:
    return {**under, **here} if under and here else under or here or {}


def _routes(contribution: Contribution) -> list[tuple[str, bytes]]:
    return [(route, virtual_host.fragment) for route, virtual_host in contribution.hosts]


def _joined_by(outlook: Outlook) -> tuple[object, ...]:
    return outlook.policy, outlook.settings, outlook.telling.ranges, outlook.telling.shared


def _shared(port: int) -> str:
    return names.listener(_EVERY_ADDRESS, port)
