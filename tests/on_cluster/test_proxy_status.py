"""The sync status of a cluster's proxies, from every replica of its control plane, with the permissions of the user."""

import json
import re
import subprocess

import pytest

from on_cluster import apps
from on_cluster.mesh import NAMESPACE, until


@pytest.fixture(scope="module")
def namespace(mesh):
    name = mesh.namespace("status")
    wanted = apps.template("web", apps.spec(apps.python("app", apps.SERVE, "8080")))
    mesh.apply(
        apps.of_kind("apps/v1", "Deployment", name, "web", {"replicas": 2, **wanted}),
        apps.service(name, "web", ("http", 80, 8080)),
    )
    mesh.rolled_out(name)
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


def pods(mesh, namespace, labels):
    said = mesh.kubectl("get", f"--namespace={namespace}", "pods", "-l", labels, "-o", "json")
    return sorted(pod["metadata"]["name"] for pod in json.loads(said)["items"])


def test_every_proxy_is_shown_with_the_replica_that_it_is_connected_to(mesh, namespace):
    def synced():
        shown = mesh.weft("proxy-status", "-n", namespace, only_output=True).splitlines()
        rows = [re.split(r" {2,}", line) for line in shown[1:]]
        return rows if rows and all(row[2:6] == ["SYNCED"] * 4 for row in rows) else None

    rows = until(synced)
    assert [row[0] for row in rows] == [f"{pod}.{namespace}" for pod in pods(mesh, namespace, "app=web")]
    assert {row[1] for row in rows} == {"Kubernetes"}
    assert {row[7] for row in rows} <= set(pods(mesh, NAMESPACE, "app=istiod"))


def test_a_proxy_has_what_it_was_sent(mesh, namespace):
    def match():
        shown = mesh.weft("proxy-status", "deploy/web", "-n", namespace, only_output=True)
        assert shown == "Clusters Match\nListeners Match\nRoutes Match\nEndpoints Match\n"
        return True

    until(match)


def test_debug_requests_need_a_token_of_the_control_planes_namespace(mesh, namespace):
    """From a pod that can reach the port, as any pod can."""
    ask = (
        "import urllib.request, urllib.error, sys\n"
        "request = urllib.request.Request(f'http://istiod.istio-system.svc:15014{sys.argv[1]}')\n"
        "try: print(urllib.request.urlopen(request, timeout=10).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
    )
    pod = pods(mesh, namespace, "app=web")[0]
    inside = ("exec", f"--namespace={namespace}", pod, "-c", "app", "--", "python3", "-c", ask)
    assert mesh.kubectl(*inside, "/debug/syncz").strip() == "401"
    token = mesh.kubectl("create", "token", "default", f"--namespace={namespace}", "--audience=istio-ca").strip()
    shown = ask.replace("')\n", "', headers={'Authorization': 'Bearer ' + sys.argv[2]})\n", 1)
    inside = (*inside[:-1], shown)
    assert mesh.kubectl(*inside, "/debug/syncz", token).strip() == "403"
    token = mesh.kubectl("create", "token", "default", f"--namespace={NAMESPACE}", "--audience=istio-ca").strip()
    assert mesh.kubectl(*inside, "/debug/syncz", token).strip() == "200"


def test_an_unauthorized_user_gets_the_name_of_the_missing_permission(mesh, namespace, tmp_path):
    said = mesh.kubectl("config", "view", "--raw", "--flatten", "-o", "json")
    config = json.loads(said)
    for user in config["users"]:
        user["user"]["as"] = "somebody"
    (tmp_path / "config").write_text(json.dumps(config))
    with pytest.raises(AssertionError, match=r"(?s)hint: .*"):
        mesh.weft("proxy-status", "--kubeconfig", str(tmp_path / "config"))


def test_the_real_istioctl_gets_the_same_status(mesh, namespace, istioctl):
    """It creates a token for the stream with TLS, and reaches pods through the API server."""

    def asked(*words):
        command = [str(istioctl), *words, "--kubeconfig", str(mesh.cluster.kubeconfig)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    wanted = [f"{pod}.{namespace}" for pod in pods(mesh, namespace, "app=web")]

    def all_shown():
        done = asked("proxy-status", "-n", namespace)
        shown = [line.split() for line in done.stdout.splitlines()[1:]]
        assert [row[0] for row in shown] == wanted, done.stderr
        assert {row[2] for row in shown} <= set(pods(mesh, NAMESPACE, "app=istiod"))
        return True

    def match():
        done = asked("proxy-status", wanted[0])
        assert "Clusters Match" in done.stdout and "Don't Match" not in done.stdout, done.stdout + done.stderr
        return True

    until(all_shown)
    until(match)
