"""The real istioctl on a cluster with weft: every command that changes nothing, as `tools/istioctl_commands.py` lists
them, and the ports that they connect to."""

import json
import re
import subprocess
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml
from tools.istioctl_commands import COMMANDS

from on_cluster import apps
from on_cluster.mesh import NAMESPACE, until
from weft import __version__

DENIED = {"action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/nothing"]}}]}]}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "more"},
    "spec": {
        "selector": {"matchLabels": {"app": "more"}},
        "template": {
            "metadata": {"labels": {"app": "more"}},
            "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        },
    },
}
ROUTES = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "VirtualService",
    "metadata": {"name": "web"},
    "spec": {"hosts": ["web"], "http": [{"route": [{"destination": {"host": "web"}}]}]},
}


@pytest.fixture(scope="module")
def places(mesh, tmp_path_factory):
    """What the placeholders in the arguments of commands stand for."""
    name = mesh.namespace("istioctl")
    directory = tmp_path_factory.mktemp("istioctl")
    wanted = apps.template("web", apps.spec(apps.python("app", apps.SERVE, "8080")))
    mesh.apply(
        apps.of_kind("apps/v1", "Deployment", name, "web", {"replicas": 2, **wanted}),
        apps.service(name, "web", ("http", 80, 8080)),
        apps.of_kind("security.istio.io/v1", "AuthorizationPolicy", name, "nobody", DENIED),
    )
    (directory / "deployment.yaml").write_text(yaml.safe_dump(DEPLOYMENT))
    (directory / "objects.yaml").write_text(yaml.safe_dump(ROUTES))
    mesh.rolled_out(name)
    pod, other = _pods(mesh, name, "app=web")
    yield {
        "{namespace}": name,
        "{pod}": pod,
        "{other}": other,
        "{control}": _replicas(mesh)[0],
        "{control_pattern}": r"weft-control-\S+",
        "{version}": __version__,
        "{directory}": str(directory),
        "{deployment}": str(directory / "deployment.yaml"),
        "{objects}": str(directory / "objects.yaml"),
    }
    mesh.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def run(mesh, istioctl, tmp_path):
    """Run istioctl in an empty directory: commands such as bug-report write files into the current one."""

    def run(*words):
        return subprocess.run(
            [istioctl, *words, f"--kubeconfig={mesh.cluster.kubeconfig}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


def _pods(mesh, namespace, labels):
    said = mesh.kubectl("get", f"--namespace={namespace}", "pods", "-l", labels, "-o", "json")
    return sorted(each["metadata"]["name"] for each in json.loads(said)["items"])


def _replicas(mesh):
    """The replicas of the default revision, once no other ones are left: istioctl also asks those that end."""

    def settled():
        pods = _pods(mesh, NAMESPACE, "app=istiod,istio.io/rev=default")
        return pods if len(pods) == 2 else None

    return until(settled, timeout=120)


def _filled(text, places):
    for placeholder, value in places.items():
        text = text.replace(placeholder, value)
    return text


_RUN = [each for each in COMMANDS if each.outcome != "not applicable" and not each.serves]
_SERVING = [each for each in COMMANDS if each.serves]


@pytest.mark.parametrize("command", _RUN, ids=lambda each: each.name)
def test_a_command_that_changes_nothing_behaves_as_listed(run, places, command):
    words = (*command.name.split(), *_filled(command.arguments, places).split())

    def as_listed():
        done = run(*words)
        shown = done.stdout + done.stderr
        assert "panic:" not in shown
        assert done.returncode == command.code, shown
        assert re.search(_filled(command.prints, places), shown), shown
        return True

    until(as_listed)


@pytest.mark.parametrize("command", _SERVING, ids=lambda each: each.name)
def test_a_command_that_serves_a_page_behaves_as_listed(mesh, istioctl, places, tmp_path, command):
    words = (*command.name.split(), *_filled(command.arguments, places).split())
    serving = subprocess.Popen(
        [istioctl, *words, f"--kubeconfig={mesh.cluster.kubeconfig}"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        address = next(line for line in serving.stdout if "http://" in line).strip()
        base = re.match(r"http://[^/]+", address)[0]
        try:
            with urllib.request.urlopen(base + command.serves, timeout=30) as response:
                shown = response.read().decode()
        except HTTPError as error:
            shown = error.read().decode()
    finally:
        serving.kill()
        serving.wait()
    assert re.search(command.prints, shown), shown


def test_admin_log_changes_the_levels_of_one_replica(mesh, run, places):
    replica = places["{control}"]

    def level():
        scopes = json.loads(run("admin", "log", replica, "-o", "json").stdout)
        return next(each["log_level"] for each in scopes if each["scope_name"] == "xds")

    assert run("admin", "log", replica, "--level", "xds:debug").returncode == 0
    assert level() == "debug"
    assert run("admin", "log", replica, "--reset").returncode == 0
    assert level() == "info"
    done = run("admin", "log", replica, "--stack-trace-level", "xds:debug")
    assert done.returncode == 1 and "400" in done.stderr


def test_the_templates_of_the_config_map_name_the_other_ways_to_inject(mesh, run, places):
    """istioctl would execute them with its own code."""
    config_map = json.loads(
        mesh.kubectl("get", f"--namespace={NAMESPACE}", "configmap", "istio-sidecar-injector", "-o", "json")
    )
    directory = places["{directory}"]
    for key in ("config", "values"):
        Path(directory, key).write_text(config_map["data"][key])
    done = run(
        "kube-inject", "-f", places["{deployment}"],
        "--injectConfigFile", f"{directory}/config", "--valuesFile", f"{directory}/values",
    )  # fmt: skip
    assert done.returncode == 1 and "run weft kube-inject" in done.stderr, done.stderr


# Prints the address and port of each socket that listens, in hexadecimal as the kernel does.
LISTENING = """
for file in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(file).readlines()[1:]:
        if line.split()[3] == "0A":
            print(line.split()[1])
"""


def test_the_service_of_the_control_plane_lists_exactly_the_open_ports(mesh):
    said = mesh.kubectl("get", f"--namespace={NAMESPACE}", "service", "istiod", "-o", "json")
    listed = {each["targetPort"] for each in json.loads(said)["spec"]["ports"]}
    for replica in _replicas(mesh):
        shown = mesh.kubectl("exec", f"--namespace={NAMESPACE}", replica, "--", "python3", "-c", LISTENING).split()
        sockets = {(address, int(port, 16)) for address, port in (each.split(":") for each in shown)}
        assert {port for address, port in sockets if address.endswith("0100007F")} == {9876, 15010}
        assert {port for address, port in sockets if not address.strip("0")} == listed
        assert all(address.endswith("0100007F") or not address.strip("0") for address, _ in sockets)
