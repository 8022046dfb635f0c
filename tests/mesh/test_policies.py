from __future__ import annotations

from weft.mesh.policies import Policies
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.peer_authentication import PeerAuthentication
from weft.model.telemetry import Telemetry

ROOT = "istio-system"
PAYMENTS = (("app", "payments"),)


def _policies(*held):
    policies = Policies()
    for policy in held:
        policies.add(policy)
    return policies


def test_a_policy_applies_to_the_workloads_it_selects_in_its_namespace() -> None:
    policies = _policies(
        AuthorizationPolicy("all", "shop"),
        AuthorizationPolicy("payments", "shop", selector=PAYMENTS),
        AuthorizationPolicy("other", "bank"),
        PeerAuthentication("all", "shop"),
    )

    def names(labels, namespace="shop"):
        return [policy.name for policy in policies.of(AuthorizationPolicy, namespace, labels, ROOT)]

    assert names(PAYMENTS) == ["all", "payments"]
    assert names(()) == ["all"]
    assert names((), "bank") == ["other"]


def test_a_telemetry_with_targets_applies_only_to_the_proxies_of_its_gateway() -> None:
    policies = _policies(Telemetry("edge", "shop", targets=("Gateway edge",)), Telemetry("all", "shop"))
    edge = (("gateway.networking.k8s.io/gateway-name", "edge"),)

    def names(labels, *, gateway):
        return [policy.name for policy in policies.of(Telemetry, "shop", labels, ROOT, gateway=gateway)]

    assert names(edge, gateway=True) == ["all", "edge"]
    assert names(edge, gateway=False) == names((), gateway=True) == ["all"]


def test_the_root_namespaces_policies_apply_everywhere_and_come_first() -> None:
    policies = _policies(AuthorizationPolicy("own", "shop"), AuthorizationPolicy("mesh", ROOT))
    assert [policy.name for policy in policies.of(AuthorizationPolicy, "shop", (), ROOT)] == ["mesh", "own"]
    assert [policy.name for policy in policies.of(AuthorizationPolicy, ROOT, (), ROOT)] == ["mesh"]


def test_the_oldest_policy_comes_first_and_a_removed_one_no_longer_applies() -> None:
    old = AuthorizationPolicy("b", "shop", created="2026-01-01T00:00:00Z")
    policies = _policies(AuthorizationPolicy("a", "shop"), old)
    assert [policy.name for policy in policies.of(AuthorizationPolicy, "shop", (), ROOT)] == ["b", "a"]
    policies.remove(old)
    assert [policy.name for policy in policies.of(AuthorizationPolicy, "shop", (), ROOT)] == ["a"]
