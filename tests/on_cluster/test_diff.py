"""`weft diff` on a cluster: a change evaluated with the access logs of the callers' proxies, and past changes from
the control plane."""

import json
from datetime import UTC, datetime

import pytest

from on_cluster import apps
from on_cluster.mesh import until


@pytest.fixture(scope="module")
def namespace(mesh):
    name = mesh.namespace("diff")
    wanted = apps.template("web", apps.spec(apps.python("app", apps.SERVE, "8080")))
    logged = {"accessLogging": [{"providers": [{"name": "envoy"}]}]}
    mesh.apply(
        apps.of_kind("telemetry.istio.io/v1", "Telemetry", name, "logged", logged),
        apps.of_kind("apps/v1", "Deployment", name, "web", {"replicas": 1, **wanted}),
        apps.service(name, "web", ("http", 80, 8080)),
    )
    mesh.rolled_out(name)
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


def said(mesh, *arguments):
    """Exit code 1 means a difference or an error; errors are not JSON."""
    shown = mesh.weft("diff", *arguments, "--kubernetes", "-o", "json", check=False, only_output=True)
    return json.loads(shown)


def test_a_change_is_judged_by_what_pods_have_called(mesh, namespace, tmp_path):
    nobody = apps.of_kind("security.istio.io/v1", "AuthorizationPolicy", namespace, "nobody", {})
    change = tmp_path / "change.json"
    change.write_text(json.dumps(nobody))
    wanted = f"web.{namespace} GET http://web/orders/* (200)"

    def seen():
        # Its first calls may be in the log as failures: web may be ready a moment before its proxy has the endpoint.
        apps.fetch(mesh.cluster, namespace, "deployment/web", "http://web/orders/17?token=s3cr3t")
        found = said(mesh, "-f", str(change))
        known = {each["request"]: each for each in found["recent"]["requests"]}
        return (found, known[wanted]) if wanted in known else None

    found, turned = until(seen, timeout=120)
    assert turned["after"][0].startswith("denied 403")
    assert turned["because"].startswith(f"AuthorizationPolicy {namespace}/nobody")
    assert "s3cr3t" not in json.dumps(found)


def test_two_moments_of_a_cluster_are_compared(mesh, namespace):
    """By time, because other tests add and remove namespaces."""
    before = f"@{datetime.now(UTC).isoformat()}"
    route = {"hosts": ["web"], "http": [{"directResponse": {"status": 418}}]}
    mesh.apply(apps.of_kind("networking.istio.io/v1", "VirtualService", namespace, "web", route))

    def compared():
        found = said(mesh, before)
        return found if any(each["object"]["namespace"] == namespace for each in found["objects"]) else None

    found = until(compared, timeout=120)
    (changed,) = [each for each in found["objects"] if each["object"]["namespace"] == namespace]
    assert (changed["what"], changed["object"]["kind"]) == ("added", "VirtualService")
    assert any(
        each["after"][0].startswith("answered 418") and each["because"] == f"VirtualService {namespace}/web"
        for each in found["requests"]
    )
