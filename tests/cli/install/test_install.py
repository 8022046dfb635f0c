"""`weft install` on a real API server."""

import base64
import json
import subprocess
import sys

from weft.kube.resource import DAEMON_SETS, DEPLOYMENTS, ENDPOINT_SLICES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

SYSTEM = "istio-system"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def test_it_installs_and_the_second_time_changes_nothing(cluster_cli):
    first = cluster_cli.done("install", "--no-wait")
    assert "created: Deployment istio-system/weft-control" in first.stderr
    assert "kubectl label namespace NAMESPACE istio-injection=enabled" in first.stderr
    second = cluster_cli.done("install", "--no-wait")
    assert "26 unchanged" in second.stderr
    assert not [line for line in second.stderr.splitlines() if line.startswith(("created", "changed", "removed"))]


def test_what_is_no_longer_wanted_is_removed_and_other_revisions_stay(cluster_cli):
    cluster_cli.done("install", "--no-wait", "--no-precheck")
    cluster_cli.done("install", "--no-wait", "--no-precheck", "--revision", "a")
    ended = cluster_cli.done("install", "--no-wait", "--no-precheck", "--set", "validation.enabled=false")
    assert "removed: ValidatingWebhookConfiguration istio-validator-istio-system" in ended.stderr
    assert cluster_cli.names(VALIDATING_WEBHOOKS) == {"istio-validator-a-istio-system"}
    assert cluster_cli.names(DEPLOYMENTS) == {"weft-control", "weft-control-a"}


def test_a_dry_run_changes_nothing(cluster_cli):
    ended = cluster_cli.done("install", "--dry-run")
    assert "would be created: Deployment istio-system/weft-control" in ended.stderr
    assert cluster_cli.left() == set()


def test_the_root_that_the_control_plane_wrote_survives(cluster_cli):
    cluster_cli.done("install", "--no-wait", "--no-precheck")
    trust(cluster_cli)
    cluster_cli.done("install", "--no-wait", "--no-precheck", "--set", "injection.failurePolicy=Ignore")
    found = cluster_cli.server.request("GET", MUTATING_WEBHOOKS.path(name="istio-sidecar-injector"))
    assert all(each["clientConfig"]["caBundle"] for each in found["webhooks"])
    assert {each["failurePolicy"] for each in found["webhooks"]} == {"Ignore"}


def test_a_rollout_that_does_not_finish_is_reported_with_the_next_command(cluster_cli):
    ended = cluster_cli("install", "--timeout", "3s")
    assert ended.returncode == 1
    assert "weft is not running yet: control plane: 0 of 2 ready" in ended.stderr
    assert "kubectl get pods -n istio-system" in ended.stderr


def test_install_waits_until_everything_runs_and_the_webhooks_respond(cluster_cli):
    command = [sys.executable, "-m", "weft.cli", "install", "--kubeconfig", cluster_cli.server.kubeconfig]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        cluster_cli.wait_until(lambda: "istio-validator-istio-system" in cluster_cli.names(VALIDATING_WEBHOOKS))
        status(cluster_cli, DEPLOYMENTS, "weft-control", dict.fromkeys(("replicas", "updatedReplicas"), 2)
               | {"readyReplicas": 2, "availableReplicas": 2})  # fmt: skip
        numbers = ("currentNumberScheduled", "desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
        status(cluster_cli, DAEMON_SETS, "weft-node", dict.fromkeys(numbers, 1)
               | {"numberReady": 1, "numberMisscheduled": 0})  # fmt: skip
        assert running.poll() is None
        trust(cluster_cli)
        endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
        metadata = {"name": "istiod-1", "labels": {"kubernetes.io/service-name": "istiod"}}
        body = {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints}
        cluster_cli.server.request("POST", ENDPOINT_SLICES.path(SYSTEM), body)
        said = running.communicate(timeout=60)[1]
        cluster_cli.server.request("DELETE", ENDPOINT_SLICES.path(SYSTEM, "istiod-1"))
    finally:
        running.kill()
    assert running.returncode == 0, said
    assert "control plane: 2 of 2 ready" in said
    assert "node agents: 1 of 1 ready" in said


def test_a_cluster_that_is_not_fit_is_left_alone(cluster_cli):
    place = cluster_cli.server.make_namespace("taken")
    cluster_cli.server.request("POST", f"/api/v1/namespaces/{place}/services",
                               {"metadata": {"name": "istiod"}, "spec": {"ports": [{"port": 1}]}})  # fmt: skip
    ended = cluster_cli("install", "--no-wait", "--set", f"namespace={place}")
    assert ended.returncode == 1
    assert "Service taken/istiod: error: the object exists already and is not weft's" in ended.stderr
    assert cluster_cli.left() == set()


def test_a_mistyped_value_gives_no_traceback(cluster_cli, tmp_path):
    assert "hint: did you mean `replicas`?" in cluster_cli("install", "--set", "control.replica=1").stderr
    ended = cluster_cli._weft("install", "--kubeconfig", tmp_path / "none")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr


def trust(cluster_cli):
    bundle = base64.b64encode(cluster_cli.server.ca.read_bytes()).decode()
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for name in cluster_cli.names(resource):
            found = cluster_cli.server.request("GET", resource.path(name=name))
            patch = [
                {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": bundle}
                for place in range(len(found["webhooks"]))
            ]
            cluster_cli.server.request("PATCH", resource.path(name=name), patch, kind=JSON_PATCH)


def status(cluster_cli, resource, name, numbers):
    found = cluster_cli.server.request("GET", resource.path(SYSTEM, name))
    body = {"status": {"observedGeneration": found["metadata"]["generation"], **numbers}}
    cluster_cli.server.request("PATCH", resource.path(SYSTEM, name, "status"), json.loads(json.dumps(body)), kind=MERGE)


def environment():
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
