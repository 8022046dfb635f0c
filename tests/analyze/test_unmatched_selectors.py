import pytest

from analyze.meshes import WEB, said

KINDS = {
    "AuthorizationPolicy": ("{action: DENY, rules: [{to: [{operation: {ports: ['8080']}}]}]}", "the policy has no effect"),
    "PeerAuthentication": ("{mtls: {mode: STRICT}}", "the PeerAuthentication has no effect"),
}  # fmt: skip


def policy(kind, namespace):
    return (
        f"---\napiVersion: security.istio.io/v1\nkind: {kind}\n"
        f"metadata: {{name: x, namespace: {namespace}}}\nspec: {KINDS[kind][0]}\n"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("namespace", "hint"),
    [
        ("shpo", "did you mean `shop`?"),
        ("istio-sytem", "did you mean `istio-system`?"),
        ("default", "an object without `metadata.namespace` is in namespace default; known here: istio-system, shop"),
    ],
)
def test_a_policy_in_a_namespace_without_workloads_is_reported(kind, namespace, hint):
    (line,) = said(WEB + policy(kind, namespace))
    assert line == (
        f"{kind} {namespace}/x: metadata.namespace: warning: no workload runs in namespace {namespace}: "
        f"{KINDS[kind][1]} (hint: {hint})"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_for_its_namespace_or_the_mesh_has_no_findings(kind):
    assert said(WEB + policy(kind, "shop")) == []
    assert said(WEB + policy(kind, "istio-system")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_without_any_workload_selectors_are_not_checked(kind):
    assert said(policy(kind, "shpo")) == []
