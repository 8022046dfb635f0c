"""AuthorizationPolicy: its action, the workloads it selects, and rules of sources, operations and conditions.

Within one list any entry matches (or); fields of one source or operation must all match (and). A policy without rules
matches nothing; a rule without fields matches everything.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.names import Labels, Origin


class Action(StrEnum):
    ALLOW = "ALLOW"
    DENY = "DENY"
    AUDIT = "AUDIT"
    CUSTOM = "CUSTOM"


class Source(msgspec.Struct, frozen=True):
    principals: tuple[str, ...] = ()
    not_principals: tuple[str, ...] = ()
    request_principals: tuple[str, ...] = ()
    not_request_principals: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    not_namespaces: tuple[str, ...] = ()
    ip_blocks: tuple[str, ...] = ()
    not_ip_blocks: tuple[str, ...] = ()
    remote_ip_blocks: tuple[str, ...] = ()
    not_remote_ip_blocks: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()  # NAMESPACE/NAME, in full
    not_service_accounts: tuple[str, ...] = ()
    trust_domains: tuple[str, ...] = ()  # of the caller's identity
    not_trust_domains: tuple[str, ...] = ()


class Operation(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...] = ()
    not_hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    not_ports: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    not_methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    not_paths: tuple[str, ...] = ()


class Condition(msgspec.Struct, frozen=True):
    key: str  # `source.ip`, `request.headers`, `request.auth.claims`, `experimental.envoy.filters`, …
    path: tuple[str, ...] = ()  # the part in brackets: a header, a claim and nested claims, a filter and its key
    values: tuple[str, ...] = ()
    not_values: tuple[str, ...] = ()


class AuthorizationRule(msgspec.Struct, frozen=True):
    sources: tuple[Source, ...] = ()  # (): any
    operations: tuple[Operation, ...] = ()  # (): any
    conditions: tuple[Condition, ...] = ()
    line: int = 0

    @property
    def needs_http(self) -> bool:
        """Whether the rule has a field that only HTTP requests have."""
        return (
            any(source.request_principals or source.not_request_principals for source in self.sources)
            or any(
                each.hosts or each.not_hosts or each.methods or each.not_methods or each.paths or each.not_paths
                for each in self.operations
            )
            or any(condition.key.startswith("request.") for condition in self.conditions)
        )


class AuthorizationPolicy(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    action: Action = Action.ALLOW
    selector: Labels = ()
    rules: tuple[AuthorizationRule, ...] = ()
    provider: str = ""  # CUSTOM only: the extension provider that decides
    dry_run: bool = False
    refused: bool = False  # replaces a policy that was rejected: denies everything
    targets: tuple[str, ...] = ()  # gateways or services that the policy applies to instead of workloads: KIND NAME
    created: str = ""
    origin: Origin | None = None
