"""`weft proxy-config` through the API server and a real kubelet, with the permissions of the user."""

import json
import re
import subprocess

import pytest

from e2e.looking import rows
from on_cluster import apps
from on_cluster.mesh import until
from weft.cli.reach.kubernetes import ClusterReach
from weft.envoy.dump_clusters import COLUMNS


@pytest.fixture(scope="module")
def namespace(mesh):
    """With a deployment `web` in the mesh and a pod `bare` outside of it."""
    name = mesh.namespace("config")
    wanted = apps.template("web", apps.spec(apps.python("app", apps.SERVE, "8080")))
    mesh.apply(
        apps.of_kind("apps/v1", "Deployment", name, "web", {"replicas": 2, **wanted}),
        apps.service(name, "web", ("http", 80, 8080)),
        apps.pod(name, "bare", apps.python("app", apps.SERVE, "8080"), labels={"sidecar.istio.io/inject": "false"}),
    )
    mesh.rolled_out(name)
    mesh.wait(name, "pod/bare")
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


def envoy(mesh, namespace, pod, path):
    """The response of this pod's Envoy, through exec: the reference for comparisons."""
    ask = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:15000{path}').read().decode())"
    return json.loads(mesh.kubectl("exec", f"--namespace={namespace}", pod, "-c", "app", "--", "python3", "-c", ask))


@pytest.mark.parametrize("word", ["deploy/web", "web", "svc/web", "POD"])
def test_shows_the_clusters_of_a_pod_by_any_name(mesh, namespace, word):
    pod = (
        mesh.kubectl("get", f"--namespace={namespace}", "pods", "-l", "app=web", "-o", "name")
        .split()[0]
        .removeprefix("pod/")
    )

    def shown_as_it_is():
        shown = mesh.weft(
            "proxy-config", "clusters", word.replace("POD", pod), "-n", namespace, only_output=True
        ).splitlines()
        truth = envoy(mesh, namespace, pod, "/clusters?format=json")["cluster_statuses"]
        assert len(shown) - 1 == len(truth)
        return shown

    shown = until(shown_as_it_is)
    assert re.split(r"\s{2,}", shown[0]) == list(COLUMNS)
    assert any(line.split()[:4] == [f"web.{namespace}.svc.cluster.local", "80", "-", "outbound"] for line in shown)


def test_shows_endpoints_and_certificates_and_never_a_key(mesh, namespace):
    def told(*arguments):
        return mesh.weft("pc", *arguments, f"deploy/web.{namespace}", only_output=True)

    pods = json.loads(mesh.kubectl("get", f"--namespace={namespace}", "pods", "-l", "app=web", "-o", "json"))["items"]
    addresses = {f"{pod['status']['podIP']}:8080" for pod in pods}
    cluster = f"outbound|80||web.{namespace}.svc.cluster.local"

    def shown():
        return {line.split()[0] for line in told("endpoints", "--cluster", cluster).splitlines()[1:]}

    assert len(addresses) == 2
    until(lambda: shown() == addresses)
    secrets = told("secret").splitlines()
    assert [line.split()[0] for line in secrets[1:]] == ["default", "ROOTCA"]
    assert secrets[1].split()[-1] == "cluster.local"
    assert "PRIVATE KEY" not in told("all", "-o", "json")


@pytest.mark.parametrize("command", ["clusters", "listeners", "routes", "endpoints"])
def test_istioctl_itself_reaches_the_pod_and_shows_the_same(mesh, namespace, istioctl, command):
    (pod, *_) = apps.get(mesh.cluster, "pods", namespace, selector="app=web")
    given = ["proxy-config", command, f"{pod['metadata']['name']}.{namespace}"]

    def same():
        theirs = subprocess.run(
            [istioctl, *given, f"--kubeconfig={mesh.cluster.kubeconfig}"], capture_output=True, text=True, check=False
        )
        assert theirs.returncode == 0, theirs.stderr
        expected, shown = rows(theirs.stdout), rows(mesh.weft(*given, only_output=True))
        assert shown[0] == expected[0]
        assert sorted(shown) == sorted(expected) and len(shown) > 1
        return True

    until(same)


def test_sets_what_all_pods_of_a_deployment_log(mesh, namespace):
    def levels(*arguments):
        said = mesh.weft("pc", "log", "deploy/web", "-n", namespace, "-o", "json", *arguments, only_output=True)
        return [(each["rbac"], each["http"]) for each in json.loads(said).values()]

    assert levels("--level", "rbac:debug,info") == [("debug", "info")] * 2
    assert levels("--reset") == [("warning", "warning")] * 2


def test_a_pod_without_a_proxy_is_an_error(mesh, namespace):
    with pytest.raises(AssertionError, match="`bare` has no proxy"):
        mesh.weft("pc", "clusters", "bare", "-n", namespace)


def test_a_read_only_user_gets_the_name_of_the_missing_permission(mesh, namespace, tmp_path):
    """A service account that may read pods, and nothing else."""
    subject = f"--serviceaccount={namespace}:looker"
    mesh.kubectl("create", "serviceaccount", "looker", f"--namespace={namespace}")
    mesh.kubectl("create", "rolebinding", "looker", f"--namespace={namespace}", "--clusterrole=view", subject)
    token = mesh.kubectl("create", "token", "looker", f"--namespace={namespace}").strip()
    config = tmp_path / "looker.kubeconfig"
    config.write_text(mesh.cluster.kubeconfig.read_text())
    mesh.kubectl("config", "set-credentials", "looker", f"--token={token}", f"--kubeconfig={config}")
    mesh.kubectl("config", "set-context", "--current", "--user=looker", f"--kubeconfig={config}")
    with pytest.raises(AssertionError) as refused:
        mesh.weft("pc", "clusters", "deploy/web", "-n", namespace, "--kubeconfig", str(config))
    assert "you may not connect to the Envoy of pod web-" in str(refused.value)
    assert "create pods/portforward" in str(refused.value)


def test_every_replica_of_the_control_plane_can_be_queried(mesh, namespace):
    reach = ClusterReach(mesh.cluster.kubeconfig)

    def asked():
        pods = mesh.kubectl("get", "--namespace=istio-system", "pods", "-l", "app=istiod", "-o", "name").split()
        told = reach.ask_all("syncz")
        assert sorted(told) == sorted(pod.removeprefix("pod/") for pod in pods)
        proxies = {each["proxy"] for said in told.values() for each in json.loads(said)}
        assert {f"{pod.name}.{namespace}" for pod in reach.find_all("deploy/web", namespace)} <= proxies
        return True

    try:
        until(asked)
    finally:
        reach.close()
