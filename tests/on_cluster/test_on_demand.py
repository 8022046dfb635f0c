"""On-demand scope on a real cluster, behind a node's agent and the cluster's own DNS: proxies get the services that
their pods call, the first call arrives, and restarted components remove nothing."""

import pytest

from on_cluster import apps
from on_cluster.mesh import NAMESPACE, until
from on_cluster.traffic import Pods
from weft.api.mesh_config import ON_DEMAND

UNCALLED = tuple(f"uncalled-{number}" for number in range(10))
HTTP = (
    "web",
    "shared",
    *(f"{word}-{who}" for word in ("kept-by", "after") for who in ("agent", "discovery", "both")),
    *UNCALLED,
)

# A server-first protocol: sends a greeting, then echoes.
GREET = """
import socketserver
class Greeter(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"greetings\\n")
        while heard := self.request.recv(4096):
            self.request.sendall(heard)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
Server(("", 9001), Greeter).serve_forever()
"""

CALL = """
import socket, sys
with socket.create_connection((sys.argv[1], 9001), timeout=10) as connection, connection.makefile("rwb") as file:
    said = file.readline()
    file.write(b"hello\\n")
    file.flush()
    connection.shutdown(socket.SHUT_WR)
    print((said + file.read()).decode())
"""


class Place:
    """Two replicas of `client`, each with a proxy, and many services that only they could call. `early` is a pod
    that ran before on-demand was on, with what its proxy had."""

    def __init__(self, mesh, namespace):
        self.mesh, self.cluster, self.namespace = mesh, mesh.cluster, namespace
        (self.early,) = self.pods("early")
        self.whole = frozenset()

    def look(self):
        self.one, self.two = self.pods("client")
        self.on_node = Pods(self.mesh, client=(self.namespace, self.one))

    def pods(self, app):
        found = apps.get(self.cluster, "pods", self.namespace, selector=f"app={app}")
        return sorted(each["metadata"]["name"] for each in found)

    def switch(self, written):
        """`written` is the value of the annotation; None removes it."""
        change = f"{ON_DEMAND}={written}" if written else f"{ON_DEMAND}-"
        self.mesh.kubectl("annotate", "configmap", f"--namespace={NAMESPACE}", "istio", change, "--overwrite")

    def described(self, pod):
        return self.mesh.weft("describe", "pod", f"{pod}.{self.namespace}", "--kubernetes")

    def ask(self, pod, path):
        """Query the admin API of the pod's Envoy."""
        ((status, said),) = apps.fetch(self.cluster, self.namespace, pod, f"http://127.0.0.1:15000{path}")
        assert status == 200, said
        return said

    def listeners(self, pod):
        return {each["name"] for each in self.ask(pod, "/listeners?format=json")["listener_statuses"]}

    def clusters(self, pod):
        return {each["name"] for each in self.ask(pod, "/clusters?format=json")["cluster_statuses"]}

    def known(self, pod):
        """Services of this namespace that the proxy has."""
        hosts = {name.split("|")[-1] for name in self.clusters(pod) if name.startswith("outbound|")}
        return {host.split(".")[0] for host in hosts if host.endswith(f".{self.namespace}.svc.cluster.local")}

    def stats(self, pod, pattern):
        found = self.ask(pod, f"/stats?format=json&filter={pattern}")["stats"]
        return {each["name"]: each["value"] for each in found if "name" in each}

    def held(self, pod, service):
        """The number of connections to it that proceeded after they were held."""
        address = apps.get(self.cluster, "service", self.namespace, service)["spec"]["clusterIP"]
        return sum(self.stats(pod, rf"^cluster\.hold\|15001\|{address}\.upstream_cx_total$").values())

    def is_served(self, pod):
        """Whether the proxy is connected, and a control plane lists it."""
        if self.stats(pod, r"^control_plane\.connected_state$") != {"control_plane.connected_state": 1}:
            return False
        lines = self.mesh.weft("proxy-status", "--kubernetes", check=False).splitlines()
        return any(pod in line and "SYNCED" in line for line in lines)

    def get(self, pod, service):
        """Send one request without a retry: status and body."""
        ((status, said),) = apps.fetch(self.cluster, self.namespace, pod, f"http://{service}.{self.namespace}/")
        return status, said


@pytest.fixture(scope="module")
def place(mesh):
    namespace = mesh.namespace("demand")
    ready = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}
    serve = apps.python("app", apps.SERVE, "8080", readinessProbe=ready)
    web = apps.template("web", apps.spec(serve, apps.python("greeter", GREET)))
    caller = apps.spec(apps.python("app", apps.SERVE, "8080"))
    selected = {"selector": {"app": "web"}}

    def deployment(name, replicas, template):
        return apps.of_kind("apps/v1", "Deployment", namespace, name, {"replicas": replicas, **template})

    mesh.apply(
        apps.strict(namespace),
        deployment("web", 1, web),
        deployment("early", 1, apps.template("early", caller)),
        *(apps.service(namespace, name, ("http", 80, 8080), **selected) for name in HTTP),
        apps.service(namespace, "greeter", ("tcp", 9001, 9001), **selected),
    )
    mesh.rolled_out(namespace)
    found = Place(mesh, namespace)
    until(lambda: found.known(found.early) == {*HTTP, "greeter"})
    # Waits until the namespaces of other tests are removed: this module counts clusters.
    until(lambda: "Terminating" not in mesh.kubectl("get", "namespaces"), timeout=240)
    found.whole = found.clusters(found.early)
    try:
        found.switch("true")
        until(lambda: "virtualOutboundAgain" in found.listeners(found.early))
        mesh.apply(deployment("client", 2, apps.template("client", caller)))
        mesh.rolled_out(namespace)
        found.look()
        yield found
    finally:
        found.switch("")
        mesh.kubectl("delete", "namespace", namespace, "--wait=false")


def test_a_proxy_that_has_the_whole_config_keeps_it(place):
    assert place.whole <= place.clusters(place.early)
    assert place.get(place.early, UNCALLED[0])[0] == 200
    assert place.held(place.early, UNCALLED[0]) == 0


def test_a_proxy_has_nothing_that_its_pod_never_called(place):
    assert not place.known(place.one) & set(UNCALLED)
    assert len(place.clusters(place.one)) < len(place.whole) - len(UNCALLED)


def test_the_first_request_arrives_by_mutual_tls(place):
    assert "web" not in place.known(place.one)
    status, said = place.get(place.one, "web")
    assert (status, apps.caller_of(said)) == (200, f"spiffe://cluster.local/ns/{place.namespace}/sa/default")
    assert place.held(place.one, "web") == 1
    assert "web" in place.known(place.one)
    assert not place.known(place.one) & set(UNCALLED)
    assert place.get(place.one, "web")[0] == 200
    assert place.held(place.one, "web") == 1


def test_the_first_connection_receives_the_greeting_of_a_server_first_protocol(place):
    assert "greeter" not in place.known(place.one)
    name = f"greeter.{place.namespace}"
    words = [f"--namespace={place.namespace}", "exec", place.one, "-c", "app", "--", "python3", "-c", CALL, name]
    assert place.mesh.kubectl(*words).split() == ["greetings", "hello"]
    assert place.held(place.one, "greeter") == 1


def test_a_service_called_by_one_replica_is_sent_to_the_other(place):
    assert "shared" not in place.known(place.two)
    assert place.get(place.one, "shared")[0] == 200
    until(lambda: "shared" in place.known(place.two))
    assert place.get(place.two, "shared")[0] == 200
    assert (place.held(place.one, "shared"), place.held(place.two, "shared")) == (1, 0)


AGENT, CONTROL = ("weft-node", "agent"), ("weft-control", "discovery")


@pytest.mark.parametrize(("who", "killed"), [("agent", [AGENT]), ("discovery", [CONTROL]), ("both", [AGENT, CONTROL])])
def test_after_a_kill_proxies_keep_their_config_and_the_restarted_component_knows_the_called_services(
    place, who, killed
):
    """With both killed, only the proxies know the called services."""
    kept, after = f"kept-by-{who}", f"after-{who}"
    assert place.get(place.one, kept)[0] == 200
    until(lambda: kept in place.known(place.two))
    removed = r"_manager\.(cluster|listener)_removed$"
    before = {pod: (place.clusters(pod), place.stats(pod, removed)) for pod in (place.one, place.two)}
    gone = [(*each, place.on_node.kill(NAMESPACE, *each)) for each in killed]
    assert place.get(place.one, kept)[0] == 200  # with or without the killed component
    for each in gone:
        place.on_node.returned(NAMESPACE, *each)
    until(lambda: all(place.is_served(pod) for pod in before))
    assert place.get(place.two, after)[0] == 200
    assert place.held(place.two, after) == 1
    for pod, (clusters, count) in before.items():
        assert clusters <= place.clusters(pod)
        assert place.stats(pod, removed) == count
        assert (place.get(pod, kept)[0], place.held(pod, kept)) == (200, int(pod == place.one))


def test_turning_on_demand_off_sends_all_services_and_turning_it_on_again_removes_none(place):
    assert place.get(place.one, "web")[0] == 200
    place.switch("false")
    for pod in (place.one, place.two):
        until(lambda pod=pod: place.whole <= place.clusters(pod))
        # The remaining clusters may still be used by connections that were held.
        assert all(name.startswith("hold|") for name in place.clusters(pod) - place.whole)
        for name in ("web", *UNCALLED[:2]):
            assert place.get(pod, name)[0] == 200
    late = apps.service(place.namespace, "late", ("http", 80, 8080), selector={"app": "web"})
    place.switch("true")
    until(lambda: "weft.dev/on-demand: true" in place.described(place.one))
    place.mesh.apply(late)
    assert place.get(place.one, "late")[0] == 200
    assert place.held(place.one, "late") == 1, "what comes later is on demand"
    for pod in (place.one, place.two):
        assert place.whole <= place.clusters(pod)
