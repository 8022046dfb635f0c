"""One group's config, kept in pieces: a contribution per host, joined into the resources that Envoy wants whole.

When a host changes, only its own pieces are made again and only the resources they are part of are joined again. What
differs from before leaves as an update for the snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from weft.model.group import Group
from weft.model.scope import Scope
from weft.translate import names
from weft.translate.blame import put_back
from weft.translate.built import Built
from weft.translate.contribution import EVERY_ROUTE, Chain, Contribution, VirtualHost
from weft.translate.listeners import http_port, shared_port
from weft.translate.view import GroupView
from weft.xds.types import LISTENER

Update = dict[str, dict[str, Built | None]]  # type URL → name → resource, None if it goes
Configure = Callable[[str, tuple[VirtualHost, ...], GroupView], Built]  # a route configuration out of virtual hosts

NOTHING = Contribution()
_EVERY_ADDRESS = "0.0.0.0"
_GROUP = ""  # what the group itself contributes is kept under a host that cannot exist


class Compiled:
    def __init__(self, group: Group, scope: Scope, view: GroupView, configure: Configure) -> None:
        self.group = group
        self.scope = scope
        self.view = view
        self._configure = configure
        self._contributions: dict[str, Contribution] = {}
        self._assignments: dict[str, tuple[Built, ...]] = {}
        self._claims: dict[str, dict[str, Built]] = defaultdict(dict)  # listener name → host → listener
        self._chains: dict[int, dict[str, tuple[Chain, ...]]] = defaultdict(dict)  # port → host → chains
        self._routes: dict[str, dict[str, VirtualHost]] = defaultdict(dict)  # route name → host → virtual host
        self._suspended: dict[tuple[str, str], VirtualHost | None] = {}  # (route, host) → what stands in for it
        self._resources: dict[str, dict[str, Built]] = defaultdict(dict)  # by type: all that the group has now

    @property
    def hosts(self) -> Iterable[str]:
        return self._contributions.keys() - {_GROUP}

    def resource(self, type_url: str, name: str) -> Built | None:
        return self._resources[type_url].get(name)

    def contribute(self, contributions: Mapping[str, Contribution]) -> Update:
        """Put these in the place of what the hosts contributed before; NOTHING takes a host away."""
        update: Update = defaultdict(dict)
        stale_routes: set[str] = set()
        stale_listeners: set[str] = set()
        for host, new in contributions.items():
            old = self._contributions.pop(host, NOTHING)
            if new is not NOTHING:
                self._contributions[host] = new
            if new is old:
                continue
            for cluster in old.clusters:
                update[cluster.type_url][cluster.name] = None
            for cluster in new.clusters:
                update[cluster.type_url][cluster.name] = cluster
            stale_listeners |= self._claim_listeners(host, old, new)
            stale_routes |= self._claim_routes(host, old, new)
        stale_listeners |= {_shared(int(route)) for route in stale_routes if route.isdigit()}
        for name in stale_listeners:
            self._join_listener(name, update)
        for route in self._stale(stale_routes):
            self._join_route(route, update)
        return self._changed(update)

    def contribute_group(self, view: GroupView, contribution: Contribution) -> Update:
        """What the group's own listeners read has changed: its ports, its policy, the settings."""
        before, self.view = self.view, view
        update = self.contribute({_GROUP: contribution})
        if (before.policy, before.settings) != (view.policy, view.settings):
            for type_url, resources in self._rejoin_all().items():
                update.setdefault(type_url, {}).update(resources)
        return update

    def assign(self, assignments: Mapping[str, tuple[Built, ...]]) -> Update:
        """Who answers under these hosts has changed; nothing else has."""
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
        """A proxy refused this route configuration: what is new in it is put back to what was accepted, or left out,
        until it changes or is resumed. Returns the suspended hosts."""
        current = {host: made for host, made in self._hosts_of(route).items() if (route, host) not in self._suspended}
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
        if route in self._routes:
            self._join_route(route, update)
        return self._changed(update)

    def _hosts_of(self, route: str) -> dict[str, VirtualHost]:
        """In the order in which they stand in the configuration."""
        own = self._routes.get(route, {})
        everywhere = self._routes.get(EVERY_ROUTE, {}) if route.isdigit() else {}
        return {host: hosts[host] for hosts in (own, everywhere) for host in sorted(hosts)}

    def _stale(self, routes: set[str]) -> Iterable[str]:
        if EVERY_ROUTE in routes:
            return [name for name in self._routes if name != EVERY_ROUTE]
        return sorted(routes)

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
        if self._suspended and _routes(old) != _routes(new):  # made anew and still the same, it would be refused again
            for key in [key for key in self._suspended if key[1] == host]:
                del self._suspended[key]
        for route, _ in old.hosts:
            self._routes[route].pop(host, None)
        for route, virtual_host in new.hosts:
            self._routes[route][host] = virtual_host
        return {route for route, _ in (*old.hosts, *new.hosts)}

    def _join_listener(self, name: str, update: Update) -> None:
        """Of services that claim one address the first by name has it, whatever the order of arrival. A port's HTTP
        services, and those without an address, share the listener of the port."""
        address, _, port = name.rpartition("_")
        if address == _EVERY_ADDRESS and self._join_shared(int(port), update):
            return
        claims = self._claims[name]
        update[LISTENER][name] = claims[min(claims)] if claims else None
        if not claims:
            del self._claims[name]

    def _join_shared(self, port: int, update: Update) -> bool:
        by_host = self._chains.get(port, {})
        chains = tuple(chain for host in sorted(by_host) for chain in by_host[host])
        http = bool(self._routes.get(str(port)))
        if not chains:
            self._chains.pop(port, None)
            if not http:
                return False
        policy, settings = self.view.policy, self.view.settings
        built = shared_port(port, chains, policy, settings, http=http) if chains else http_port(port, policy, settings)
        update[LISTENER][built.name] = built
        return True

    def _join_route(self, route: str, update: Update) -> None:
        hosts = (self._suspended.get((route, host), made) for host, made in self._hosts_of(route).items())
        built = self._configure(route, tuple(host for host in hosts if host is not None), self.view)
        is_empty = not self._routes[route]
        update[built.type_url][route] = None if is_empty else built
        if is_empty:
            del self._routes[route]

    def _rejoin_all(self) -> Update:
        update: Update = defaultdict(dict)
        routes = sorted(name for name in self._routes if name != EVERY_ROUTE)
        for port in {*self._chains, *(int(route) for route in routes if route.isdigit())}:
            self._join_shared(port, update)
        for route in routes:
            self._join_route(route, update)
        return self._changed(update)

    def _changed(self, update: Update) -> Update:
        """Keep only what is really different, and remember it."""
        changed: Update = {}
        for type_url, resources in update.items():
            here = self._resources[type_url]
            different: dict[str, Built | None] = {}
            for name, built in resources.items():
                before = here.get(name)
                if before is built or (before and built and before.version == built.version):
                    continue
                if built is None:
                    del here[name]
                else:
                    here[name] = built
                different[name] = built
            if different:
                changed[type_url] = different
        return changed


def _routes(contribution: Contribution) -> list[tuple[str, bytes]]:
    return [(route, virtual_host.fragment) for route, virtual_host in contribution.hosts]


def _shared(port: int) -> str:
    return names.listener(_EVERY_ADDRESS, port)
