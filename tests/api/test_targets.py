import pytest

from api.reading import istio, told


def policy(targets):
    return istio("AuthorizationPolicy", f"targetRefs: [{targets}]").replace("networking", "security", 1)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "{kind: Gateway, group: gateway.networking.k8s.io, name: a, sectionName: b}",
            "`sectionName` is not supported",
        ),
        ("{kind: Gateway, group: gateway.networking.k8s.io, name: a, namespace: b}", "`namespace` is not supported"),
        ("{kind: Gateway, group: networking.istio.io, name: a}", "Gateway is of the group `gateway.networking.k8s.io`"),
        ("{kind: Gateway, group: gateway.networking.k8s.io}", "`name` is required"),
        ("{kind: GatewayClass, group: gateway.networking.k8s.io, name: a}", "the policy is NOT enforced"),
    ],
)
def test_targets_that_would_not_be_enforced_are_rejected(target, said):
    assert any(said in line for line in told(policy(target)))


def test_gateways_are_named_with_their_group():
    assert told(policy("{kind: Gateway, group: gateway.networking.k8s.io, name: a}")) == []
