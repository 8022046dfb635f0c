"""A real API server checks the permissions: the control plane may do everything that it needs, and nothing else."""

import pytest

from weft.install.crds import DEFINITIONS
from weft.install.rbac import cluster_rules, namespace_rules, roles
from weft.install.values import ValuesError, values_of

CONTROL = "system:serviceaccount:istio-system:weft-control"
NODE = "system:serviceaccount:istio-system:weft-node"
ADMISSION = "admissionregistration.k8s.io"

READ = [
    ("", "namespaces"),
    ("", "nodes"),
    ("", "pods"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("discovery.k8s.io", "endpointslices"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    *((definition.group, definition.plural) for definition in DEFINITIONS),
]

NEEDED = [
    ("create", "tokenreviews", {"group": "authentication.k8s.io"}),
    ("create", "configmaps", {"namespace": "shop"}),
    ("patch", "configmaps", {"namespace": "shop", "name": "istio-ca-root-cert"}),
    ("watch", "configmaps", {"name": "istio-ca-root-cert"}),
    ("watch", "configmaps", {"namespace": "istio-system", "name": "istio"}),
    ("get", "configmaps", {"namespace": "istio-system", "name": "istio-sidecar-injector"}),
    ("watch", "configmaps", {"namespace": "istio-system", "name": "weft-refusals"}),
    ("patch", "configmaps", {"namespace": "istio-system", "name": "weft-refusals"}),
    ("create", "secrets", {"namespace": "istio-system"}),
    ("watch", "secrets", {"namespace": "istio-system", "name": "istio-ca-secret"}),
    ("patch", "secrets", {"namespace": "istio-system", "name": "istio-ca-secret"}),
    ("create", "leases", {"group": "coordination.k8s.io", "namespace": "istio-system"}),
    ("get", "leases", {"group": "coordination.k8s.io", "namespace": "istio-system", "name": "weft-leader"}),
    ("patch", "leases", {"group": "coordination.k8s.io", "namespace": "istio-system", "name": "weft-leader"}),
    ("watch", "mutatingwebhookconfigurations", {"group": ADMISSION, "name": "istio-sidecar-injector"}),
    ("patch", "mutatingwebhookconfigurations", {"group": ADMISSION, "name": "istio-sidecar-injector"}),
    ("patch", "validatingwebhookconfigurations", {"group": ADMISSION, "name": "istio-validator-istio-system"}),
]

DENIED = [
    ("get", "secrets", {"namespace": "shop", "name": "x"}),
    ("list", "secrets", {}),
    ("list", "secrets", {"namespace": "istio-system"}),
    ("get", "secrets", {"namespace": "istio-system", "name": "cacerts"}),
    ("delete", "secrets", {"namespace": "istio-system", "name": "istio-ca-secret"}),
    ("create", "secrets", {"namespace": "shop"}),
    ("list", "configmaps", {}),
    ("list", "configmaps", {"namespace": "istio-system"}),
    ("patch", "configmaps", {"namespace": "kube-system", "name": "coredns"}),
    ("delete", "configmaps", {"namespace": "shop", "name": "istio-ca-root-cert"}),
    ("create", "pods", {"namespace": "shop"}),
    ("create", "pods", {"namespace": "istio-system"}),
    ("patch", "pods", {"namespace": "shop", "name": "x"}),
    ("create", "pods", {"namespace": "shop", "name": "x", "subresource": "exec"}),
    ("get", "pods", {"namespace": "shop", "name": "x", "subresource": "log"}),
    ("create", "serviceaccounts", {"namespace": "shop", "name": "x", "subresource": "token"}),
    ("patch", "namespaces", {"name": "shop"}),
    ("patch", "nodes", {"name": "x"}),
    ("get", "nodes", {"name": "x", "subresource": "proxy"}),
    ("patch", "services", {"namespace": "shop", "name": "x"}),
    ("delete", "services", {"namespace": "shop", "name": "x"}),
    ("delete", "serviceaccounts", {"namespace": "shop", "name": "x"}),
    ("patch", "customresourcedefinitions", {"group": "apiextensions.k8s.io", "name": "x"}),
    ("patch", "virtualservices", {"group": "networking.istio.io", "namespace": "shop", "name": "x"}),
    ("create", "virtualservices", {"group": "networking.istio.io", "namespace": "shop"}),
    ("delete", "authorizationpolicies", {"group": "security.istio.io", "namespace": "shop", "name": "x"}),
    ("list", "mutatingwebhookconfigurations", {"group": ADMISSION}),
    ("patch", "mutatingwebhookconfigurations", {"group": ADMISSION, "name": "another"}),
    ("create", "mutatingwebhookconfigurations", {"group": ADMISSION}),
    ("create", "clusterroles", {"group": "rbac.authorization.k8s.io"}),
    ("create", "clusterrolebindings", {"group": "rbac.authorization.k8s.io"}),
    ("create", "subjectaccessreviews", {"group": "authorization.k8s.io"}),
    ("impersonate", "users", {}),
    ("patch", "leases", {"group": "coordination.k8s.io", "namespace": "kube-system", "name": "weft-leader"}),
    ("patch", "deployments", {"group": "apps", "namespace": "istio-system", "name": "weft-control"}),
    ("create", "deployments", {"group": "apps", "namespace": "shop"}),
    ("list", "deployments", {"group": "apps"}),
    ("delete", "deployments", {"group": "apps", "namespace": "shop", "name": "edge-weft"}),
    ("patch", "daemonsets", {"group": "apps", "namespace": "istio-system", "name": "weft-node"}),
]


@pytest.mark.parametrize(("group", "resource"), READ, ids=lambda each: each)
def test_the_control_plane_may_read_everywhere_what_it_watches(judge, group, resource):
    for verb in ("get", "list", "watch"):
        assert judge.may(CONTROL, verb, resource, group=group)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.kind)
def test_it_may_write_the_status_of_the_meshs_kinds(judge, definition):
    assert judge.may(
        CONTROL, "patch", definition.plural, group=definition.group, namespace="shop", name="x", subresource="status"
    )


@pytest.mark.parametrize(("verb", "resource", "more"), NEEDED, ids=str)
def test_the_control_plane_has_the_permissions_it_needs(judge, verb, resource, more):
    assert judge.may(CONTROL, verb, resource, **more)


@pytest.mark.parametrize(("verb", "resource", "more"), DENIED, ids=str)
def test_the_control_plane_has_no_other_permission(judge, verb, resource, more):
    assert not judge.may(CONTROL, verb, resource, **more)


@pytest.mark.parametrize("resource", ["pods", "secrets", "configmaps", "nodes", "namespaces", "services"])
def test_the_agent_may_do_nothing_at_all(judge, resource):
    for verb in ("get", "list", "create", "patch"):
        assert not judge.may(NODE, verb, resource)
        assert not judge.may(NODE, verb, resource, namespace="istio-system")


@pytest.mark.parametrize("rules", [cluster_rules, namespace_rules])
def test_no_rule_has_a_star(rules):
    assert not any("*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in rules(values_of({})))


def test_a_revision_may_touch_only_its_own_names():
    names = [name for rule in (*cluster_rules(values_of({"revision": "a"})), *namespace_rules(values_of({"revision": "a"})))
             for name in rule.get("resourceNames", ())]  # fmt: skip
    shared = {"istio-ca-root-cert", "istio-ca-secret"}
    assert all("a" in name.split("-") for name in set(names) - shared), names


ASKED = [("secretsIn", "secrets"), ("configMapsIn", "configmaps")]


@pytest.mark.parametrize(("setting", "kind"), ASKED)
def test_secrets_and_configmaps_are_read_only_in_configured_namespaces(setting, kind):
    named = roles(values_of({"gateways": {setting: ["edge"]}}))
    (role,) = [each for each in named if each["metadata"].get("namespace") == "edge" and each["kind"] == "Role"]
    assert role["rules"] == [{"apiGroups": [""], "resources": [kind], "verbs": ["get", "list", "watch"]}]
    (binding,) = [each for each in named if each["kind"] == "RoleBinding" and each["metadata"]["namespace"] == "edge"]
    assert binding["subjects"][0]["name"] == "weft-control"
    everywhere = values_of({"gateways": {setting: ["edge", "*"]}})
    assert _reads_all(cluster_rules(everywhere), kind) and not _reads_all(cluster_rules(values_of({})), kind)
    assert not [each for each in roles(everywhere) if each["metadata"].get("namespace") == "edge"]


def test_without_gateway_deployments_no_deployment_can_be_created_or_changed():
    def written(values):
        return {
            resource
            for rule in cluster_rules(values)
            if {"create", "patch"} & set(rule["verbs"])
            for resource in rule["resources"]
        }

    made = {"deployments", "serviceaccounts", "services"}
    assert made <= written(values_of({"gateways": {"deployments": True}}))
    assert not made & written(values_of({}))


def _reads_all(rules, kind):
    return any(
        each["resources"] == [kind] and "list" in each["verbs"] and "resourceNames" not in each for each in rules
    )


@pytest.mark.parametrize(("setting", "kind"), ASKED)
def test_a_namespace_of_gateways_must_be_one(setting, kind):
    with pytest.raises(ValuesError, match="`Edge` is not a namespace"):
        values_of({"gateways": {setting: ["Edge"]}})


def test_it_may_write_the_status_of_gateway_api_policies(judge):
    more = {"group": "gateway.networking.k8s.io", "namespace": "shop", "name": "x", "subresource": "status"}
    assert judge.may(CONTROL, "update", "backendtlspolicies", **more)
