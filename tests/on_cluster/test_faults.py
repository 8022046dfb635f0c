"""Faults of a cluster, made on purpose, while pods of the mesh call each other.

Running traffic must continue: no request fails. Invalid requests must be rejected with a readable reason.
"""

import base64
import json
import os
import sys
import threading
import time

import jwt
import pytest
from tools.kube.process import Failed

from on_cluster.mesh import NAMESPACE, until
from on_cluster.traffic import deployment, logs, on_node, peer, slept_until, started

CONTROL, AGENT = "app=istiod,istio.io/rev=default", "app=weft-node,istio.io/rev=default"
AWAY_SECONDS = 62


@pytest.fixture(scope="module")
def namespace(mesh):
    name = mesh.namespace("faults")
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def traffic(mesh, namespace):
    return started(mesh, namespace)


@pytest.fixture
def held(mesh, namespace):
    """A pod that never runs, only as an object that tokens can be bound to."""
    manifest = {**peer(namespace, "held"), "apiVersion": "v1"}
    manifest["spec"]["schedulingGates"] = [{"name": "weft.dev/never"}]
    mesh.apply(manifest)
    yield "held"
    mesh.kubectl("delete", "pod", f"--namespace={namespace}", "held", "--ignore-not-found", "--force")


def token(mesh, namespace, pod, account="default", audience="istio-ca"):
    bound = ["--bound-object-kind=Pod", f"--bound-object-name={pod}"] if pod else []
    asked = [account, f"--namespace={namespace}", f"--audience={audience}", *bound]
    return mesh.kubectl("create", "token", *asked).strip()


def expired(mesh, good):
    """The same token as of yesterday, signed with the API server's key, which the test cluster's owner has."""
    claims = jwt.decode(good, options={"verify_signature": False})
    for claim in ("iat", "nbf", "exp"):
        claims[claim] -= 86_400
    key = (mesh.cluster.api.keys / "service-account.key").read_text()
    headers = {"kid": jwt.get_unverified_header(good)["kid"]}
    return jwt.encode(claims, key, algorithm="RS256", headers=headers)


@pytest.fixture(scope="module")
def control(mesh):
    """The address and roots of the TLS port, for use while there is no API server."""
    found = mesh.cluster.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/services/istiod")
    return {"address": f"{found['spec']['clusterIP']}:15012", "name": f"istiod.{NAMESPACE}.svc", "roots": roots(mesh)}


def roots(mesh):
    jsonpath = "jsonpath={.data.root-cert\\.pem}"
    return mesh.kubectl("get", "configmap", f"--namespace={NAMESPACE}", "istio-ca-root-cert", "-o", jsonpath)


def ask(mesh, control, **questions):
    """Connect to port 15012 from the node: see caller.py."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return on_node(mesh.cluster, "on_cluster.caller", {**control, "questions": questions}, environment)


def identity_of(namespace, account="default"):
    return f"spiffe://cluster.local/ns/{namespace}/sa/{account}"


def names(mesh, labels, namespace=NAMESPACE):
    return mesh.kubectl("get", "pods", f"--namespace={namespace}", f"--selector={labels}", "-o", "name").split()


def written_by(mesh, labels, *words, begun):
    """The logs of weft's own pods since then, once they contain all of these words: logs arrive with a delay."""

    def found():
        written = logs(mesh, NAMESPACE, labels, since=f"{int(time.monotonic() - begun) + 1}s")
        assert not [each for each in words if each not in written]
        return written

    return until(found)


def leader(mesh):
    lease = mesh.kubectl("get", "lease", f"--namespace={NAMESPACE}", "weft-leader", "-o", "json")
    return json.loads(lease)["spec"].get("holderIdentity", "")


def test_invalid_tokens_are_rejected_and_both_sides_log_the_reason(mesh, control, namespace, held):
    begun, good = time.monotonic(), token(mesh, namespace, held)
    tokens = {
        "good": good,
        "expired": expired(mesh, good),
        "for_others": token(mesh, namespace, held, audience="vault"),
        "of_no_pod": token(mesh, namespace, ""),
        "forged": good[:-20] + ("A" * 20),
        "none": "",
    }
    identity = identity_of(namespace)
    answers = ask(mesh, control, **{name: {"token": each, "identity": identity} for name, each in tokens.items()})
    mesh.kubectl("delete", "pod", f"--namespace={namespace}", held, "--force")
    of_the_dead = {"token": good, "identity": identity}
    # The API server caches token reviews for some seconds.
    answers |= until(lambda: "refused" in (found := ask(mesh, control, gone=of_the_dead))["gone"] and found)
    assert answers.pop("good") == {"issued": [identity]}
    assert {name: answer["refused"] for name, answer in answers.items()} == {
        "expired": "token-expired",
        "for_others": "token-audience",
        "of_no_pod": "token-not-bound-to-a-pod",
        "forged": "token-signature",
        "none": "token-missing",
        "gone": "token-revoked",
    }
    assert "token has expired" in answers["expired"]["why"]
    refusals = [f"{each['why']} ({each['refused']})" for each in answers.values()]
    written = written_by(mesh, CONTROL, *refusals, begun=begun)
    for each in filter(None, tokens.values()):
        assert each not in written


def test_no_caller_gets_the_certificate_of_another_identity(mesh, control, traffic, namespace):
    """Neither with a CSR for another identity, nor as an agent, nor as the agent of another node."""
    begun, (agent,) = time.monotonic(), names(mesh, AGENT)
    agents, workloads = token(mesh, NAMESPACE, agent.removeprefix("pod/"), "weft-node"), token(mesh, namespace, "spare")
    uid = traffic.pod("spare")["metadata"]["uid"]
    mesh.apply({**(elsewhere := peer(namespace, "elsewhere")), "spec": {**elsewhere["spec"], "nodeName": "node-2"}})
    other = traffic.pod("elsewhere")["metadata"]["uid"]
    as_agent, as_workload = identity_of(NAMESPACE, "weft-node"), identity_of(namespace)

    def stream(certified_by, shown, node="node-1", expected=()):
        identity = as_agent if certified_by == agents else as_workload
        return {"certified_by": certified_by, "identity": identity, "token": shown, "node": node,
                "pods": [uid, other], "expected": expected}  # fmt: skip

    answers = ask(
        mesh,
        control,
        another={"token": workloads, "identity": as_agent},
        workload=stream(workloads, workloads),
        mixed=stream(workloads, agents),
        nothing=stream("", ""),
        no_certificate=stream("", agents),
        another_node=stream(agents, agents, "node-2"),
        own_node=stream(agents, agents, expected=[uid]),
    )
    mesh.kubectl("delete", "pod", f"--namespace={namespace}", "elsewhere", "--force")
    assert answers.pop("another") == {"issued": [as_workload]}
    assert answers.pop("own_node") == {"trouble": "", "served": [uid]}
    who, agent = f"{namespace}/default (pod spare)", f"{NAMESPACE}/weft-node (pod {agent.removeprefix('pod/')})"
    said = {
        "workload": f"{who} is not an agent of this mesh",
        "mixed": f"the certificate is for {as_workload}, but the token is for {agent}",
        "nothing": "a certificate of the mesh or a bearer token is required",
        "no_certificate": f"{agent} is not an agent of this mesh",
        "another_node": f"{agent} runs on node-1, but claims to run on node-2",
    }
    denied = {"mixed": "UNAUTHENTICATED", "nothing": "UNAUTHENTICATED"}
    assert answers == {
        name: {"trouble": f"{why} ({denied.get(name, 'PERMISSION_DENIED')})", "served": []}
        for name, why in said.items()
    }
    written_by(mesh, CONTROL, *said.values(), begun=begun)


def test_deleted_webhook_roots_and_the_deleted_root_are_restored(mesh, control, traffic, namespace):
    kinds = {"mutating": "istio-sidecar-injector", "validating": f"istio-validator-{NAMESPACE}"}

    def bundles(kind):
        path = "jsonpath={.webhooks[*].clientConfig.caBundle}"
        return set(mesh.kubectl("get", f"{kind}webhookconfiguration", kinds[kind], "-o", path).split())

    good = {base64.b64encode(roots(mesh).encode()).decode()}
    with traffic.undisturbed():
        for kind, name in kinds.items():
            mesh.kubectl("patch", f"{kind}webhookconfiguration", name, "--type=json", "--patch",
                         '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]')  # fmt: skip
            until(lambda kind=kind: bundles(kind) == good)
        secret = f"--namespace={NAMESPACE}", "secret", "istio-ca-secret"
        mesh.kubectl("delete", *secret)
        asked = {"token": token(mesh, namespace, "spare"), "identity": identity_of(namespace)}
        assert ask(mesh, control, still=asked)["still"] == {"issued": [identity_of(namespace)]}
        until(lambda: "istio-ca-secret" in mesh.kubectl("get", *secret, "-o", "name", "--ignore-not-found"))
    kept = json.loads(mesh.kubectl("get", *secret, "-o", "json"))["data"]["ca-cert.pem"]
    assert {kept} == good
    assert roots(mesh) == control["roots"]


def test_the_death_of_any_control_plane_replica_disturbs_no_traffic(mesh, traffic):
    first = leader(mesh)
    (other,) = [each for each in names(mesh, CONTROL) if each != f"pod/{first}"]
    with traffic.undisturbed(least=100):
        killed = traffic.kill(NAMESPACE, other.removeprefix("pod/"), "discovery")
        traffic.returned(NAMESPACE, other.removeprefix("pod/"), "discovery", killed)
        mesh.wait(NAMESPACE, other)
        mesh.kubectl("delete", f"--namespace={NAMESPACE}", "pod", first, "--force")
        now = until(lambda: leader(mesh) != first and leader(mesh), timeout=60)
        assert f"pod/{now}" in names(mesh, CONTROL)
        mesh.rolled_out(NAMESPACE, "deployment/weft-control")


def test_without_a_control_plane_new_pods_wait_and_traffic_continues(mesh, traffic, namespace):
    with traffic.undisturbed(least=100):
        # Killed containers would be back in a moment; new pods must first be created.
        traffic.kill(NAMESPACE, "weft-control", "discovery")
        mesh.kubectl("delete", f"--namespace={NAMESPACE}", "pods", f"--selector={CONTROL}", "--force")
        with pytest.raises(Failed, match=r"failed calling webhook .*istio-system.svc"):
            mesh.cluster.apply(peer(namespace, "refused"))
        mesh.cluster.apply(deployment(peer(namespace, "waiting")))
        events = ("events", f"--namespace={namespace}", "-o", "jsonpath={.items[*].message}")
        said = until(lambda: "failed calling webhook" in (found := mesh.kubectl("get", *events)) and found)
        assert "Error creating" in said
        assert not names(mesh, "app=waiting", namespace)
        mesh.rolled_out(NAMESPACE, "deployment/weft-control")
        mesh.rolled_out(namespace, "deployment/waiting")
    (waited,) = names(mesh, "app=waiting", namespace)
    assert "istio-proxy" in json.dumps(traffic.pod(waited.removeprefix("pod/"))["status"])
    mesh.kubectl("delete", f"--namespace={namespace}", "deployment", "waiting")


def add_by_hand(mesh, namespace, name, address):
    """A Service whose endpoint does not depend on a controller of Kubernetes."""
    labels = {"kubernetes.io/service-name": name}
    mesh.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"name": "http", "port": 80}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": [{"name": "http", "port": 8080}],
        },
    )


def has_by_hand(traffic, namespace, name):
    """Whether the client's proxy has that endpoint."""
    known = f"{name}.{namespace}.svc.cluster.local::{traffic.addresses['spare']}:8080::"
    return known in traffic.admin("client", "/clusters")


def test_objects_deleted_during_an_api_server_outage_are_removed_from_every_proxy(mesh, traffic, namespace):
    """The restarted API server no longer has the changes in between: it returns 410, and everything is listed again."""
    add_by_hand(mesh, namespace, "vanishing", traffic.addresses["spare"])

    def has_endpoint():
        return has_by_hand(traffic, namespace, "vanishing")

    until(has_endpoint)
    begun = time.monotonic()
    with traffic.undisturbed():
        mesh.cluster.api.api.stop(kill=True)
        mesh.cluster.api.lose(f"/registry/endpointslices/{namespace}/vanishing")
        mesh.cluster.compact()
        assert has_endpoint()
        mesh.cluster.api.start_api()
        until(lambda: not has_endpoint())
    written_by(mesh, CONTROL, "listing again", begun=begun)


def test_a_kubelet_restart_disturbs_no_traffic_and_kubelet_finds_the_agent_again(mesh, traffic, namespace):
    def containers():
        # Pods of the previous tests may still be terminating.
        proxies = [traffic.pids(namespace, f"{pod}$", "istio-proxy") for pod in traffic.addresses]
        return [*proxies, traffic.pids(NAMESPACE, "weft-node", "agent")]

    before = containers()
    with traffic.undisturbed():
        mesh.cluster.restart_kubelet(kill=True)
        # Until the control plane's pods are ready again, no pod is injected or admitted.
        mesh.apply(peer(namespace, "later"))
        mesh.wait(namespace, "pod/later")
        mesh.kubectl("delete", f"--namespace={namespace}", "pod", "later")
        assert containers() == before


@pytest.fixture
def api_server_returns(mesh):
    """A failed test must not leave the cluster without its API server: every test after it would fail, too."""
    yield
    if not mesh.cluster.api.ready():
        mesh.cluster.restart_api(kill=True)


@pytest.mark.usefixtures("api_server_returns")
def test_an_api_server_outage_of_a_minute_removes_nothing_from_any_proxy(mesh, control, traffic, namespace):
    (agent,) = json.loads(mesh.kubectl("get", "pods", f"--namespace={NAMESPACE}", f"-l={AGENT}", "-o", "json"))["items"]
    address, spare = agent["status"]["podIP"], traffic.pod("spare")["metadata"]["uid"]
    asked = {"token": token(mesh, namespace, "spare"), "identity": identity_of(namespace)}
    serials = {name: traffic.serial(name) for name in traffic.addresses}
    with traffic.undisturbed(least=200):
        mesh.cluster.api.api.stop(kill=True)
        away_since = time.monotonic()
        # An Envoy that dies comes back with the config and the certificate that the agent has.
        killed = traffic.kill(namespace, "spare", "istio-proxy")
        traffic.returned(namespace, "spare", "istio-proxy", killed)
        until(lambda: traffic.fetch("spare", f"http://fresh.{namespace}/")["status"] == 200)
        assert traffic.serial("spare") == serials["spare"]
        # The token cannot be reviewed, and that is not a rejection.
        unavailable = ask(mesh, control, now=asked)["now"]["unavailable"]
        assert "a token cannot be reviewed" in unavailable
        # An agent that cannot renew a certificate reports it, and keeps the old ones.
        lose_certificate(traffic, spare)
        killed = traffic.kill(NAMESPACE, "weft-node", "agent")
        traffic.returned(NAMESPACE, "weft-node", "agent", killed)
        until(lambda: failing(traffic, address) == 1)
        assert traffic.fetch("spare", f"http://fresh.{namespace}/")["status"] == 200
        slept_until(away_since + AWAY_SECONDS)
    with traffic.undisturbed():
        mesh.cluster.api.start_api()
        until(lambda: failing(traffic, address) == 0)
        add_by_hand(mesh, namespace, "after", traffic.addresses["spare"])
        until(lambda: has_by_hand(traffic, namespace, "after"))
    now = {name: traffic.serial(name) for name in serials}
    assert now.pop("spare") != serials.pop("spare")
    assert now == serials
    again = f"{namespace}/spare: has a new certificate, after "
    written_by(mesh, AGENT, "a token cannot be reviewed", again, begun=away_since)


def lose_certificate(traffic, uid):
    """Delete the certificate of a pod that an agent has kept for its successor."""
    script = """
import json, pathlib, sys
file = pathlib.Path(sys.argv[1])
file.write_text(json.dumps({name: held for name, held in json.loads(file.read_text()).items() if name not in ("chain", "key")}))
"""
    traffic.holder.run(sys.executable, "-c", script, f"/run/weft/default/{uid}.json")


def failing(traffic, address):
    """The number of identities that an agent cannot get or renew; None while it does not respond."""
    try:
        return traffic.metrics(address)["weft_node_identities_failing"]
    except ConnectionError:
        return None


def test_a_restarted_agent_has_all_the_state_of_the_killed_one(mesh, traffic, namespace):
    serials = {name: traffic.serial(name) for name in traffic.addresses}
    with traffic.undisturbed(least=100):
        agent = traffic.kill(NAMESPACE, "weft-node", "agent")
        proxy = traffic.kill(namespace, "spare", "istio-proxy")
        traffic.returned(namespace, "spare", "istio-proxy", proxy)
        traffic.returned(NAMESPACE, "weft-node", "agent", agent, timeout=120)
        until(lambda: traffic.fetch("spare", f"http://fresh.{namespace}/")["status"] == 200)
    assert {name: traffic.serial(name) for name in serials} == serials
    mesh.wait(NAMESPACE, names(mesh, AGENT)[0])


def test_while_the_control_plane_is_rolled_out_every_pod_is_admitted(mesh, namespace):
    """A terminating replica still gets webhook calls for a while: if it closed at once, pods would be rejected."""
    manifest, path = peer(namespace, "admitted"), f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    done, refused, asked = threading.Event(), [], 0

    def create():
        nonlocal asked
        while not done.is_set():
            asked += 1
            try:
                made = mesh.cluster.api.request("POST", path, manifest)
                assert "istio-proxy" in json.dumps(made["spec"])
            except Exception as error:
                refused.append(error)

    creating = threading.Thread(target=create)
    creating.start()
    try:
        mesh.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", "deployment/weft-control")
        mesh.rolled_out(NAMESPACE, "deployment/weft-control")
        until(lambda: len(names(mesh, CONTROL)) == 2)  # the last old replica has ended
    finally:
        done.set()
        creating.join()
    assert asked > 20 and not refused
