import pytest

from analyze import meshes
from analyze.meshes import WEB
from analyze.test_policies import policy

CALLER = """
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: curl, namespace: bar}
spec: {command: [sleep, infinity], serviceAccount: curl}
"""
ALIAS = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "{trustDomain: new.org, trustDomainAliases: [old.org]}"}
"""


def said(source, more="", when=""):
    rule = f"{{when: [{when}]}}" if when else f"{{from: [{{source: {source}}}]}}"
    lines = meshes.said(WEB + CALLER + more + policy(f"{{rules: [{rule}]}}"))
    return [line.partition(": warning: ")[2] for line in lines if "matches no caller" in line]


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("{principals: [cluster.local/ns/bar/sa/crul]}", "no workload of namespace bar runs as service account crul (hint: did you mean `curl`?)"),
        ("{principals: [cluster.local/ns/nosuch/sa/x]}", "no workload runs in namespace nosuch (hint: known here: bar, shop)"),
        ("{principals: [wrong.org/ns/bar/sa/curl]}", "no workload has the trust domain wrong.org (hint: known here: cluster.local)"),
        ("{principals: ['cluster.local/ns/baz/*']}", "no workload has such an identity"),
        ("{principals: [curl]}", "a principal is TRUST_DOMAIN/ns/NAMESPACE/sa/ACCOUNT"),
        ("{trustDomains: [wrong.org]}", "no workload has the trust domain wrong.org (hint: known here: cluster.local)"),
        ("{namespaces: [barr]}", "no workload runs in such a namespace (hint: did you mean `bar`?)"),
        ("{namespaces: ['barr*']}", "no workload runs in such a namespace"),
        ("{serviceAccounts: [bar/crul]}", "no workload of namespace bar runs as service account crul"),
    ],
)  # fmt: skip
def test_a_caller_that_does_not_exist_is_reported(source, outcome):
    (line,) = said(source)
    assert outcome in line


@pytest.mark.parametrize(
    "source",
    [
        "{principals: [cluster.local/ns/bar/sa/curl, 'cluster.local/ns/bar/*', '*/sa/curl', '*']}",
        "{principals: [cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account]}",
        "{namespaces: [bar, 'b*', '*', 's*o*p', istio-system]}",
        "{serviceAccounts: [bar/curl, default]}",
        "{requestPrincipals: [nobody], ipBlocks: [10.0.0.0/8]}",
    ],
)
def test_existing_callers_and_those_of_the_root_namespace_have_no_findings(source):
    assert said(source) == []


def test_former_trust_domains_count():
    for domain in ("new.org", "old.org", "cluster.local"):
        assert said(f"{{principals: [{domain}/ns/bar/sa/curl]}}", ALIAS) == []
    assert len(said("{principals: [older.org/ns/bar/sa/curl]}", ALIAS)) == 1


@pytest.mark.parametrize("key", ["source.principal", "source.namespace", "source.serviceAccount"])
@pytest.mark.parametrize("side", ["values", "notValues"])
def test_callers_in_conditions_are_checked_too(key, side):
    assert len(said("", when=f"{{key: {key}, {side}: [nosuch]}}")) == 1


def test_a_declared_service_account_without_workloads_is_not_reported():
    account = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: later, namespace: bar}\n"
    assert said("{serviceAccounts: [bar/later]}", account) == []
    assert said("{principals: [cluster.local/ns/bar/sa/later]}", account) == []


def test_a_double_star_in_a_namespace_matches_in_order_only():
    assert len(said("{namespaces: ['p*o*s']}")) == 1


def test_a_namespace_with_only_policies_is_no_known_caller():
    misspelled = policy("{}", namespace="barr").replace("name: x", "name: y")
    assert len(said("{namespaces: [barr]}", misspelled)) == 1
    declared = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: barr}\n"
    assert said("{namespaces: [barr]}", declared) == []
