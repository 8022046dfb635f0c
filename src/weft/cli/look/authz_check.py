"""`weft x authz check`: the AuthorizationPolicies that a pod's Envoy enforces, read from its config. A policy that
never reached the proxy is missing; a deleted policy that is still enforced is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from weft.cli.lazy_commands import LazyGroup, Listing
from weft.cli.look.proxy_config import filters
from weft.cli.look.proxy_config.source import ProxySource, with_source
from weft.cli.print.output import is_data, print_data, say

if TYPE_CHECKING:
    from weft.envoy.dump import Dump

COLUMNS = ("ACTION", "AuthorizationPolicy", "RULES")

_RULE = re.compile(r"ns\[(?P<namespace>[^]]*)\]-policy\[(?P<name>[^]]*)\](?:-rule\[\d+\]|-refused)(?P<more>.*)")
_ORDER = ("CUSTOM", "AUDIT", "DENY", "ALLOW")
# Actions by the prefix of their shadow rules' statistics, as in `translate/authorization.py`. Importing that module
# would take longer than the whole command.
_NOTED = {
    "istio_dry_run_allow_": "ALLOW (dry run)",
    "istio_dry_run_deny_": "DENY (dry run)",
    "istio_dry_run_custom_": "CUSTOM (dry run)",
    "istio_audit_": "AUDIT",
}
_FILTERS = ("envoy.filters.http.rbac", "envoy.filters.network.rbac")

GROUP = LazyGroup(
    "authz",
    help="Authorization: the policies in force at a pod.",
    epilog="Example: weft x authz check web-0.shop",
    listings={
        "Commands": (
            Listing(
                "check",
                "look.authz_check:check",
                "Show the AuthorizationPolicies in force at a pod, as its Envoy has them.",
            ),
        )
    },
)


@click.command()
@with_source
@filters.output
def check(source: ProxySource, output: str) -> None:
    """Show the AuthorizationPolicies in force at a pod, as its Envoy has them. They are listed in the order in which
    Envoy evaluates their actions, with the number of rules. Policies in dry run are marked: they only log.

    \b
    Example: weft x authz check web-0.shop
             weft x authz check --file dump.json
    """
    from weft.cli.print.columns import lines
    from weft.envoy.dump import LISTENERS

    listed = policies(source.config(LISTENERS))
    if is_data(output):
        print_data([{"action": action, "policy": name, "rules": rules} for action, name, rules in listed], output)
        return
    if not listed:
        say("no AuthorizationPolicy is in force: every caller is allowed")
    for line in lines(COLUMNS, [(action, name, str(len(rules))) for action, name, rules in listed], gap=3):
        click.echo(line)


def policies(dump: Dump) -> list[tuple[str, str, list[str]]]:
    """Return, for each policy in a dump, its action, its NAME.NAMESPACE, and the names of its rules. A policy that
    applies to several ports is listed once."""
    from weft.envoy.dump_listeners import listeners

    rules_of: dict[tuple[str, str], dict[str, None]] = {}
    for listener in listeners(dump):
        for config in _configs(listener):
            for action, rule in _rules(config):
                named = _RULE.fullmatch(rule)
                name = f"{named['name']}.{named['namespace']}" if named else rule
                custom = named is not None and named["more"].startswith("-provider[")
                rules_of.setdefault(("CUSTOM" if custom else action, name), {})[rule] = None
    ordered = sorted(rules_of.items(), key=lambda item: (_place(item[0][0]), item[0][1]))
    return [(action, name, list(rules)) for (action, name), rules in ordered]


def _configs(listener: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the config of every RBAC filter of a listener, for connections (network) and for requests (HTTP)."""
    from weft.envoy.dump import at, items, text

    default = at(listener, "default_filter_chain")
    for chain in (*items(listener, "filter_chains"), *([default] if isinstance(default, dict) else [])):
        for each in items(chain, "filters"):
            for http_filter in (each, *items(each, "typed_config", "http_filters")):
                config = at(http_filter, "typed_config")
                if text(http_filter, "name") in _FILTERS and isinstance(config, dict):
                    yield config


def _rules(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (action, rule name) for each rule of an RBAC filter with this config. For a shadow rule, which only logs,
    the action is AUDIT if the rule comes from an AUDIT policy; otherwise it is the policy's action followed by `(dry
    run)`."""
    from weft.envoy.dump import at, text

    for field in ("rules", "shadow_rules"):
        action = text(config, field, "action") or "ALLOW"  # the default value, which JSON omits
        if field == "shadow_rules":
            action = _NOTED.get(text(config, "shadow_rules_stat_prefix"), f"{action} (dry run)")
        elif action == "LOG":
            action = "AUDIT"
        rules = at(config, field, "policies")
        yield from ((action, rule) for rule in rules or {})


def _place(action: str) -> int:
    first = action.partition(" ")[0]
    return _ORDER.index(first) if first in _ORDER else len(_ORDER)
