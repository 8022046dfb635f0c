"""An audit of a cluster: a real API server, which creates pods without a proxy because its webhook does not respond."""

import itertools
import json
from datetime import timedelta

import pytest
from cryptography import x509

from authority import Authority
from weft.analyze.templates import template_of
from weft.api.document import Document
from weft.cli.look.audit.kubernetes import ProxyReadings, _envoys_memory, ending_roots, memory_of
from weft.kube.resource import MUTATING_WEBHOOKS, NAMESPACES
from weft.model.names import ObjectKey
from weft.model.proxy import ROOT_CONFIG_MAP

WEBHOOK = "audit-injector"
_numbers = itertools.count()


def webhooks(namespace, policy="Ignore"):
    asked = {"service": {"name": "istiod", "namespace": namespace, "path": "/inject"}, "caBundle": ""}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK, "labels": {"app.kubernetes.io/name": "weft"}},
        "webhooks": [
            {
                "name": "namespace.sidecar-injector.istio.io",
                "clientConfig": asked,
                "failurePolicy": policy,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 2,
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}},
            }
        ],
    }


def container(name, limit="", request=""):
    resources = {}
    if limit:
        resources["limits"] = {"memory": limit}
    if request:
        resources["requests"] = {"memory": request}
    return {"name": name, "image": "x", "resources": resources}


def pod(name, *containers, owner="", labels=None):
    metadata = {"name": name, "labels": {"app": name, **(labels or {})}}
    if owner:
        kind, _, owned_by = owner.partition("/")
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": owned_by, "uid": "1", "controller": True}
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers)}}


@pytest.fixture
def place(cluster_cli):
    server = cluster_cli.server
    name = server.make_namespace(f"audit-{next(_numbers)}")
    server.make_default_account(name)
    server.request("POST", MUTATING_WEBHOOKS.path(), webhooks(name))
    server.request(
        "PATCH",
        NAMESPACES.path(name=name),
        {"metadata": {"labels": {"istio-injection": "enabled", "istio.io/rev": "canary"}}},
        kind="application/merge-patch+json",
    )
    proxied = container("istio-proxy", limit="1Gi", request="128Mi")
    for each in (
        pod("bare-7d9-x", container("app"), owner="ReplicaSet/bare-7d9", labels={"pod-template-hash": "7d9"}),
        pod("web-a", container("app", limit="256Mi"), proxied),
    ):
        server.request("POST", f"/api/v1/namespaces/{name}/pods", each)
    yield name
    server.request("DELETE", MUTATING_WEBHOOKS.path(name=WEBHOOK))
    server.request("DELETE", NAMESPACES.path(name=name))


def test_pods_made_while_an_ignored_webhook_was_down_are_found(cluster_cli, place):
    done = cluster_cli("audit", "-n", place)
    assert done.returncode == 1, done.stderr
    bare = next(line for line in done.stdout.splitlines() if f"Pod {place}/bare-7d9-x" in line)
    assert (
        "WFT0804" in bare
        and f"webhook {WEBHOOK} has failurePolicy Ignore" in bare
        and "it still does not respond" in bare
    )
    assert f"next: kubectl rollout restart deployment/bare -n {place}" in done.stdout
    assert f"Pod {place}/web-a" not in done.stdout
    assert f"{place}: injects (istio-injection: enabled, istio.io/rev: canary); 1 of 2 pods with a proxy" in done.stdout
    assert f"webhook {WEBHOOK}: failurePolicy Ignore" in done.stdout and "WFT0801" in done.stdout
    assert "WFT0815" in done.stdout and "next: weft install --set injection.failurePolicy=Fail" in done.stdout


def test_memory_that_cannot_be_measured_is_what_is_written(cluster_cli, place):
    said = json.loads(cluster_cli("audit", "-n", place, "-o", "json").stdout)
    (row,) = said["memory"]
    assert (row["workload"], row["proxy"], row["application"], row["share"]) == ("web-a", 128 << 20, 256 << 20, 0.5)
    assert (row["proxy_from"], row["application_from"]) == ("request; limit 1073.7 MB", "limit")
    certificates = next(each for each in said["sections"] if each["name"] == "certificates")
    assert "1 of 1 proxies could not be queried" in certificates["findings"][0]["what"]


def test_a_root_that_ends_soon_is_found():
    pem = Authority().issue("x").root.decode()
    ends = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    assert ending_roots(pem, ends - timedelta(days=31)) == [] and ending_roots("", ends) == []
    (soon,) = ending_roots(pem, ends - timedelta(days=29))
    (ended,) = ending_roots(pem, ends)
    assert (soon.severity, ended.severity) == ("warning", "error") and f"{ends:%Y-%m-%d}" in soon.what
    assert "are not certificates" in ending_roots("-----BEGIN CERTIFICATE-----\nx", ends)[0].what


def test_the_published_root_of_a_cluster_is_checked(cluster_cli, place):
    """The root is read from the control plane's namespace, here the namespace of the test."""
    data = {"root-cert.pem": "no certificate"}
    body = {"metadata": {"name": ROOT_CONFIG_MAP}, "data": data}
    cluster_cli.server.request("POST", f"/api/v1/namespaces/{place}/configmaps", body)
    done = cluster_cli("audit", "-n", place, "-i", place)
    assert done.returncode == 1 and "error: CA: the published roots are not certificates" in done.stdout


def test_the_measured_memory_is_preferred_over_the_request():
    body = pod("web", container("app", limit="100M"), container("istio-proxy", request="50M"))
    template = template_of(Document(ObjectKey("Pod", "shop", "web"), "v1", body))
    found = memory_of(template, ProxyReadings(memory=30_000_000))
    assert (found.proxy, found.proxy_from, found.application) == (30_000_000, "measured", 100_000_000)
    assert memory_of(template, ProxyReadings(error="away")).proxy_from == "request"


def test_an_application_of_which_one_container_has_no_limit_has_none():
    body = pod("web", container("app", limit="100M"), container("helper"), container("istio-proxy"))
    found = memory_of(template_of(Document(ObjectKey("Pod", "shop", "web"), "v1", body)), None)
    assert (found.application, found.application_from, found.proxy) == (None, "no limit", None)


def test_what_envoy_has_from_the_kernel_counts():
    assert _envoys_memory(b'{"allocated": "1", "heap_size": "5", "total_physical_bytes": "7"}') == 7
    assert _envoys_memory(b'{"heap_size": "5"}') == 5
    assert _envoys_memory(b"{}") is None
