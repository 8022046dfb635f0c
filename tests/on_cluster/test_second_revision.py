"""A second revision beside the default one, whose pods are redirected by the node's agent: which of both injects a
pod, how those pods run without an init container, and what happens to new ones while its control plane is down."""

import contextlib
import json
import os
import time
from datetime import datetime

import pytest
from tools.kube.api_server import RequestFailed
from tools.kube.process import Failed

from inject.pods import apply as patched
from inject.truth_table import CASES, ENABLED
from on_cluster import admission, apps
from on_cluster.admission import STATUS, containers, injected_by, plain_pod, post, refusal, replicas, review, tried
from on_cluster.apps import SERVE, caller_of, fetch, fetched, get, of_kind, process, python, rules
from on_cluster.mesh import NAMESPACE, until
from on_cluster.traffic import slept_until
from weft.inject.webhooks import selectors

CONTROL = "deployment/weft-control-canary"
SPECIAL = sorted({case.namespace for case in CASES if case.namespace})
MARK = "test.example.com/settings"
SETTINGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/istio-sidecar-injector"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
MERGE = "application/merge-patch+json"
AWAY_SECONDS = 62  # longer than a proxy would wait for its config


@contextlib.contextmanager
def namespace_of_mesh(mesh, word, labels, *, wait=True):
    """With `wait`, the end of the test waits for its removal: a pod needs its agent to terminate, and the agent may
    be removed next."""
    name = mesh.namespace(word, labels)
    try:
        until(lambda: mesh.cluster.api.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts")["items"])
        yield name
    finally:
        mesh.kubectl("delete", "namespace", name, f"--wait={str(wait).lower()}", "--timeout=120s")


# The truth table.


@pytest.fixture(scope="module")
def answers(mesh, canary):
    """For each case by its name: the revision that injected its pod, if one did."""
    table = _Table(mesh)
    try:
        return table.answers()
    finally:
        table.clean()


class _Table:
    """Namespaces with every set of labels in the table; pods are tried under one set of settings at a time."""

    def __init__(self, mesh):
        self._mesh, self._cluster = mesh, mesh.cluster
        self._names = {}
        for case in CASES:
            if not case.namespace:
                self._names.setdefault(_key(case), f"table-{os.getpid()}-{len(self._names)}")
        self._made = {name: dict(labels) for labels, name in self._names.items()}
        until(lambda: not _ending(self._cluster, "local-path-storage"))
        if not _namespace(self._cluster, "local-path-storage"):
            self._made["local-path-storage"] = {}

    def answers(self):
        admission.make_namespaces(self._cluster, self._made)
        found = {}
        usual = [case for case in CASES if not case.settings]
        found |= {case.name: self._ask(case) for case in usual if not (case.namespace and case.namespace_labels)}
        self._label_special(ENABLED)
        found |= {case.name: self._ask(case) for case in usual if case.name not in found}
        self._label_special(dict.fromkeys(ENABLED))
        for number, settings in enumerate(_different(case.settings for case in CASES)):
            if settings:
                self._settle(settings, f"{number}")
                found |= {case.name: self._ask(case) for case in CASES if case.settings == settings}
        return found

    def clean(self):
        """Restore the settings, and wait until every replica uses them."""
        self._label_special(dict.fromkeys(ENABLED))
        self._mesh.install("--no-wait", "--no-precheck")
        self._wait_for_mark("")
        until(lambda: not injected_by(tried(self._cluster, self._names[()], plain_pod())))
        admission.remove_namespaces(self._cluster, self._made)

    def _ask(self, case):
        pod = plain_pod(labels=case.labels, annotations=case.annotations, **case.spec)
        return injected_by(tried(self._cluster, case.namespace or self._names[_key(case)], pod))

    def _label_special(self, labels):
        for name in SPECIAL:
            if name != NAMESPACE:
                self._cluster.api.request(
                    "PATCH", f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}}, kind=MERGE
                )

    def _settle(self, settings, mark):
        """Changes the ConfigMap, as users do; the webhooks' selectors stay as installed."""
        by_default = "enableNamespacesByDefault" in settings
        if by_default:
            self._mesh.install("--no-wait", "--no-precheck", "--set", "injection.byDefault=true")
        stored = json.loads(self._cluster.api.request("GET", SETTINGS)["data"]["settings"])
        fresh = {key: value for key, value in stored.items() if key in _OF_THE_INSTALLATION}
        values = json.dumps({**fresh, **settings, "injectedAnnotations": {MARK: mark}})
        self._cluster.api.request("PATCH", SETTINGS, {"data": {"settings": values}}, kind=MERGE)
        self._wait_for_mark(mark)
        if by_default:
            until(lambda: injected_by(tried(self._cluster, self._names[()], plain_pod())))

    def _wait_for_mark(self, mark):
        asked = json.dumps(review(plain_pod(labels={"sidecar.istio.io/inject": "true"}), "any")).encode()
        for replica in replicas(self._cluster):
            until(lambda replica=replica: self._mark(replica, asked) == mark)

    def _mark(self, replica, asked):
        status, answer = post(self._cluster, replica, "/inject", asked)
        assert status == 200, answer
        operations = admission.patch_of(answer)
        annotations = patched(plain_pod(labels={"sidecar.istio.io/inject": "true"}), operations)["metadata"]
        return annotations["annotations"].get(MARK, "")


_OF_THE_INSTALLATION = (
    "clusterDomain", "driver", "image", "imagePullPolicy", "redirectBy", "revision", "rootNamespace", "trustDomain",
)  # fmt: skip


def _key(case):
    return tuple(sorted(case.namespace_labels.items()))


def _different(settings):
    found = []
    for each in settings:
        if each not in found:
            found.append(each)
    return found


def _namespace(cluster, name):
    try:
        return cluster.api.request("GET", f"/api/v1/namespaces/{name}")
    except RequestFailed:
        return None


def _ending(cluster, name):
    """A namespace removed by the previous run may still exist for a moment."""
    found = _namespace(cluster, name)
    return found and found["metadata"].get("deletionTimestamp")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_truth_table_holds_on_a_real_api_server(case, answers):
    """All revisions' webhooks are installed at once: what counts is whether the case's own revision injected."""
    assert (answers[case.name] == case.revision) is case.injected, answers[case.name] or "nobody injected"


def test_the_selectors_of_the_webhooks_match_the_injection_decision(cluster, canary):
    """They are defined in two modules that may not import each other: this test compares them."""
    for revision, name in (("default", "istio-sidecar-injector"), (canary, f"istio-sidecar-injector-{canary}")):
        asked = {
            each["name"]: (_expressions(each["namespaceSelector"]), _expressions(each["objectSelector"]))
            for each in cluster.api.request("GET", f"{WEBHOOKS}/{name}")["webhooks"]
        }
        assert asked == {
            each.name: (_requirements(each.namespaces), _requirements(each.objects)) for each in selectors(revision)
        }


def _expressions(selector):
    return {(each["key"], each["operator"], tuple(each.get("values", ()))) for each in selector["matchExpressions"]}


def _requirements(selector):
    return {(each.key, each.operator, tuple(each.values)) for each in selector.match_expressions}


# The redirect by the node.

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
NO_NATIVE = {"sidecar.istio.io/nativeSidecar": "false"}


@pytest.fixture(scope="module")
def restricted(mesh, canary):
    annotations = {"traffic.sidecar.istio.io/excludeInboundPorts": "9090"}
    outside = {"sidecar.istio.io/inject": "false"}
    with namespace_of_mesh(mesh, "restricted", {**RESTRICTED, "istio.io/rev": canary}) as name:
        mesh.apply(
            apps.strict(name),
            apps.pod(name, "web", python("app", SERVE, "8080", "9090"), annotations=annotations),
            apps.service(name, "web", ("http", 80, 8080), ("tcp-past-the-proxy", 9090, 9090)),
            apps.pod(name, "caller", python("app", SERVE, "8080")),
            apps.pod(name, "outsider", python("app", SERVE, "8080"), labels=outside),
            apps.pod(name, "regular", python("app", SERVE, "8080"), annotations=NO_NATIVE),
        )
        mesh.wait(name, "pod/web", "pod/caller", "pod/outsider", "pod/regular")
        yield name


def restricted_pod():
    pod = plain_pod()
    pod["spec"]["containers"] = [python("app", SERVE, "8080")]
    return pod


def test_a_restricted_namespace_refuses_the_init_container_by_its_name(mesh):
    with namespace_of_mesh(mesh, "refused", {**RESTRICTED, "istio-injection": "enabled"}, wait=False) as name:
        said = refusal(mesh.cluster, name, restricted_pod())
    assert 'violates PodSecurity "restricted' in said
    assert 'container "istio-init" must not include "NET_ADMIN", "NET_RAW"' in said
    assert "istio-proxy" not in said and '"app"' not in said


def test_a_restricted_namespace_admits_a_pod_redirected_by_its_node(mesh, restricted, canary):
    pod = tried(mesh.cluster, restricted, restricted_pod())
    assert injected_by(pod) == canary
    found = containers(pod)
    assert set(found) == {"istio-proxy", "app"}
    assert hook(pod)[:4] == ["weft", "wait", "--redirect", "-p"]
    for each in found.values():
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def hook(pod):
    return containers(pod)["istio-proxy"]["lifecycle"]["postStart"]["exec"]["command"]


def test_no_pod_can_replace_the_hook_that_requests_its_redirect(mesh, restricted):
    pod = restricted_pod()
    pod["metadata"]["generateName"] = "wilful-"
    own = {"name": "istio-proxy", "image": "auto", "lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}
    strict = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    pod["spec"]["containers"].append(
        {**own, "securityContext": {**strict, "seccompProfile": {"type": "RuntimeDefault"}}}
    )
    assert hook(tried(mesh.cluster, restricted, pod)) == hook(tried(mesh.cluster, restricted, restricted_pod()))


def test_without_native_sidecars_an_init_container_requests_the_redirect(cluster, restricted):
    """Because kubelet starts the application after it whether or not its hook fails."""
    pod = get(cluster, "pod", restricted, "regular")
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["istio-validation"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["istio-proxy", "app"]
    assert any("-j ISTIO_REDIRECT" in line for line in rules(cluster, pod))
    assert caller_of(fetched(cluster, restricted, "regular", f"http://web.{restricted}/"))


@pytest.mark.parametrize(("name", "statuses"), [("caller", "initContainerStatuses"), ("regular", "containerStatuses")])
def test_a_proxy_that_starts_anew_finds_its_redirect_in_place(cluster, restricted, name, statuses):
    pod = get(cluster, "pod", restricted, name)
    before = ours(rules(cluster, pod))
    cluster.holder.run("kill", "-9", str(process(cluster, pod, "istio-proxy")))

    def again():
        found = {each["name"]: each for each in get(cluster, "pod", restricted, name)["status"][statuses]}
        return found["istio-proxy"]["restartCount"] and found["istio-proxy"]["ready"]

    until(again, timeout=90)
    assert before and ours(rules(cluster, get(cluster, "pod", restricted, name))) == before
    assert caller_of(fetched(cluster, restricted, name, f"http://web.{restricted}/"))


def ours(lines):
    """The recorded arguments in the network namespace, and the rules."""
    return [line.partition(" ")[0] if line.startswith(":") else line for line in lines if "ISTIO" in line]


def test_the_agent_has_put_the_redirect_into_the_pods_network(cluster, restricted):
    found = rules(cluster, get(cluster, "pod", restricted, "web"))
    inbound = [line for line in found if line.startswith("-A ISTIO_INBOUND")]
    assert any("-j ISTIO_IN_REDIRECT" in line for line in inbound)
    assert any("--dport 9090" in line and "-j RETURN" in line for line in inbound)
    assert any("-j ISTIO_REDIRECT" in line for line in found)
    assert not [line for line in rules(cluster, get(cluster, "pod", restricted, "outsider")) if "ISTIO" in line]


def test_nothing_in_the_pod_has_any_capability(cluster, restricted):
    pod = get(cluster, "pod", restricted, "web")
    for container in ("app", "istio-proxy"):
        text = cluster.holder.run("cat", f"/proc/{process(cluster, pod, container)}/status").stdout
        found = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert {int(found[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}


def test_its_traffic_is_intercepted_and_mutual_tls(cluster, restricted):
    said = fetched(cluster, restricted, "caller", f"http://web.{restricted}/")
    assert caller_of(said) == f"spiffe://cluster.local/ns/{restricted}/sa/default"
    plain, past = fetch(cluster, restricted, "outsider", f"http://web.{restricted}/", f"http://web.{restricted}:9090/")
    assert plain[0] == 0
    assert past[0] == 200 and caller_of(past[1]) == ""


def misled_pod(cluster, namespace, name):
    """The default revision's agent is not configured to redirect: this is the pod that this revision would create,
    with the driver of the default one. `name` is its name on the cluster."""
    pod = tried(cluster, namespace, apps.pod(namespace, name, python("app", SERVE, "8080")))
    wanted = {"metadata": {"name": name, "labels": {"sidecar.istio.io/inject": "false"}}, "spec": pod["spec"]}
    (volume,) = [each for each in wanted["spec"]["volumes"] if "csi" in each]
    volume["csi"]["driver"] = "csi.weft.dev"
    command = hook(wanted)
    place = command.index("--redirect") + 1
    command[place:place] = ["--timeout", "1"]  # instead of half a minute
    cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", wanted)


def has_started(cluster, namespace, name, container):
    statuses = get(cluster, "pod", namespace, name)["status"].get("containerStatuses", ())
    (found,) = [each for each in statuses if each["name"] == container]
    return "waiting" not in found["state"] or found["lastState"]


def test_a_pod_whose_agent_does_not_redirect_fails_with_a_reason(mesh, cluster, restricted):
    misled_pod(cluster, restricted, "misled")

    def failed():
        statuses = get(cluster, "pod", restricted, "misled")["status"].get("initContainerStatuses", ())
        states = [state for each in statuses for state in (each["state"], each["lastState"])]
        return [state["terminated"].get("message", "") for state in states if "terminated" in state]

    said = until(failed)[0]
    assert "no response from the node's agent" in said and "with --redirect" in said
    assert "Traceback" not in said
    until(lambda: get(cluster, "pod", restricted, "misled")["status"]["initContainerStatuses"][0]["restartCount"])
    assert not has_started(cluster, restricted, "misled", "app")
    mesh.kubectl("delete", "pod", f"--namespace={restricted}", "misled", "--timeout=120s")


def test_a_pod_waits_for_a_missing_agent_and_its_events_show_it(mesh, cluster, restricted, canary):
    away = {"spec": {"template": {"spec": {"nodeSelector": {"example.com/nowhere": "true"}}}}}
    back = {"spec": {"template": {"spec": {"nodeSelector": {"example.com/nowhere": None}}}}}
    agents = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/weft-node-{canary}"

    def told():
        events = get(cluster, "events", restricted)
        return [each["message"] for each in events if each["involvedObject"]["name"] == "patient"]

    cluster.api.request("PATCH", agents, away, kind="application/strategic-merge-patch+json")
    try:
        until(lambda: not get(cluster, "pods", NAMESPACE, selector=f"app=weft-node,istio.io/rev={canary}"))
        mesh.apply(apps.pod(restricted, "patient", python("app", SERVE, "8080")))
        driver = f"{canary}.csi.weft.dev"
        until(lambda: [each for each in told() if "MountVolume" in each and driver in each])
        pod = get(cluster, "pod", restricted, "patient")
        assert all("running" not in each["state"] for each in pod["status"]["initContainerStatuses"])
        # Running pods continue without it.
        assert fetched(cluster, restricted, "caller", f"http://web.{restricted}/")
    finally:
        cluster.api.request("PATCH", agents, back, kind="application/strategic-merge-patch+json")
    mesh.wait(restricted, "pod/patient")
    assert caller_of(fetched(cluster, restricted, "patient", f"http://web.{restricted}/"))
    assert json.dumps(told()).count("istio-proxy")


# A control plane that is down.


@pytest.fixture(scope="module")
def unanswered(mesh, canary):
    """A namespace whose webhook has no server. `late` and `unwanted` were injected before, and start now, without
    config and certificate."""
    with namespace_of_mesh(mesh, "down", {"istio.io/rev": canary}) as name:
        held = {"schedulingGates": [{"name": "example.com/later"}]}
        mesh.apply(*(apps.pod(name, pod, python("app", SERVE, "8080"), **held) for pod in ("late", "unwanted")))
        mesh.kubectl("scale", f"--namespace={NAMESPACE}", CONTROL, "--replicas=0")
        until(lambda: not get(mesh.cluster, "pods", NAMESPACE, selector=f"app=istiod,istio.io/rev={canary}"))
        for pod in ("late", "unwanted"):
            patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
            path = f"/api/v1/namespaces/{name}/pods/{pod}"
            mesh.cluster.api.request("PATCH", path, patch, kind="application/json-patch+json")
        yield name
        answered(mesh)


def answered(mesh):
    """Starts the control plane again."""
    mesh.kubectl("scale", f"--namespace={NAMESPACE}", CONTROL, "--replicas=2")
    mesh.rolled_out(NAMESPACE, CONTROL)


def test_a_pod_is_rejected_while_the_webhook_is_unavailable(cluster, unanswered):
    wanted = apps.template("web", apps.spec(python("app", SERVE, "8080")))
    cluster.apply(of_kind("apps/v1", "Deployment", unanswered, "web", {"replicas": 1, **wanted}))

    def told():
        return [each for each in get(cluster, "events", unanswered) if each["reason"] == "FailedCreate"]

    event = until(told)[0]
    assert event["involvedObject"]["kind"] == "ReplicaSet"
    assert 'failed calling webhook "rev.namespace.sidecar-injector.istio.io"' in event["message"]
    assert not get(cluster, "pods", unanswered, selector="app=web")
    assert "istiod-canary" in refusal(cluster, unanswered, plain_pod())


def test_a_pod_that_opts_out_of_injection_needs_no_webhook(cluster, unanswered):
    pod = apps.pod(unanswered, "alone", python("app", SERVE, "8080"), labels={"sidecar.istio.io/inject": "false"})
    cluster.apply(pod)
    assert get(cluster, "pod", unanswered, "alone")


def test_with_failure_policy_ignore_a_pod_starts_without_a_proxy(mesh, cluster, unanswered, canary):
    """It is visible: no status, no proxy, no label of a meshed pod; and an audit reports it, at once and later."""
    set_failure_policy(cluster, canary, "Ignore")
    try:
        until(lambda: applied(cluster, apps.pod(unanswered, "bare", python("app", SERVE, "8080"))))
        mesh.wait(unanswered, "pod/bare")
        meanwhile = audit(mesh, unanswered, f"--revision={canary}")
    finally:
        set_failure_policy(cluster, canary, "Fail")
    pod = get(cluster, "pod", unanswered, "bare")
    assert STATUS not in pod["metadata"].get("annotations", {})
    assert "security.istio.io/tlsMode" not in pod["metadata"]["labels"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["app"]
    assert "initContainers" not in pod["spec"]
    later = audit(mesh, unanswered)
    found = f"Pod {unanswered}/bare"
    injector = f"istio-sidecar-injector-{canary}"
    assert f"webhook {injector} has failurePolicy Ignore" in meanwhile["without-proxy"][found]
    assert "the pod runs without a proxy, although a new pod would get one" in later["without-proxy"][found]
    assert "failurePolicy is Ignore" in meanwhile["namespaces"][f"MutatingWebhookConfiguration {injector}"]
    assert "failurePolicy" not in json.dumps(later)
    assert not [
        name for each in (meanwhile, later) for name in each["without-proxy"] if name.endswith(("/late", "/alone"))
    ]


def audit(mesh, namespace, *more):
    """The findings of an audit, by section and object."""
    report = json.loads(mesh.weft("audit", "-n", namespace, "-o", "json", *more, check=False, only_output=True))
    return {
        section["name"]: {found["where"]["object"]: found["what"] for found in section["findings"]}
        for section in report["sections"]
    }


def test_a_pod_created_meanwhile_waits_with_a_reason_and_starts_by_itself(mesh, cluster, unanswered):
    """However long it takes: its proxy is not started in vain with a growing back-off."""

    def waits(name):
        events = [each for each in get(cluster, "events", unanswered) if each["involvedObject"]["name"] == name]
        return [each["message"] for each in events if each["reason"] == "FailedMount"]

    for name in ("late", "unwanted"):
        said = until(lambda name=name: waits(name))[0]
        assert f"pod {unanswered}/{name} cannot start yet: the node's agent has no configuration for this pod" in said
        assert "no connection to the control plane: " in said
    # A waiting pod can be deleted.
    mesh.kubectl("delete", "pod", f"--namespace={unanswered}", "unwanted", "--timeout=120s")
    slept_until(time.monotonic() + AWAY_SECONDS - waited_for(get(cluster, "pod", unanswered, "late")))
    answered(mesh)
    mesh.wait(unanswered, "pod/late")
    pod = get(cluster, "pod", unanswered, "late")
    statuses = [*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]]
    assert {each["name"]: each["restartCount"] for each in statuses} == {
        "istio-proxy": 0,
        "app": 0,
    }


def waited_for(pod):
    """Seconds since the pod was assigned to kubelet."""
    (told,) = [each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"]
    return time.time() - datetime.fromisoformat(told["lastTransitionTime"]).timestamp()


def applied(cluster, wanted):
    """The API server uses a webhook's new policy after a moment."""
    try:
        cluster.apply(wanted)
    except Failed:
        return False
    return True


def set_failure_policy(cluster, revision, policy):
    """As `weft install --set injection.failurePolicy=…` does, without starting the control plane again."""
    path = f"{WEBHOOKS}/istio-sidecar-injector-{revision}"
    policies = [
        {"op": "replace", "path": f"/webhooks/{place}/failurePolicy", "value": policy}
        for place, _ in enumerate(cluster.api.request("GET", path)["webhooks"])
    ]
    cluster.api.request("PATCH", path, policies, kind="application/json-patch+json")
