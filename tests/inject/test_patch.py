import copy
import json
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inject.pods import apply, container, injected, names, pod, variables
from weft.cluster.sidecar_arguments import arguments
from weft.inject.annotations import InjectionRefused
from weft.inject.json_patch import difference
from weft.inject.owner import WorkloadOwner
from weft.inject.patch import inject, patch
from weft.inject.settings import InjectionSettings

GOLDEN = Path(__file__).parent / "golden"
SIDECAR = "sidecar.istio.io/"
PROBED = {"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 8080}],
          "readinessProbe": {"httpGet": {"port": "http", "path": "/ready"}}}  # fmt: skip


def status(result):
    return json.loads(result["metadata"]["annotations"][f"{SIDECAR}status"])


def bootstrap(result):
    given_arguments = container(result)["args"]
    return json.loads(given_arguments[given_arguments.index("--config-yaml") + 1])


# --- the injected pod


def test_a_native_sidecar_comes_before_every_other_init_container():
    result = injected(pod(initContainers=[{"name": "migrate", "image": "m"}]))
    assert names(result, "initContainers") == ["istio-init", "istio-proxy", "migrate"]
    assert names(result) == ["web"]
    proxy = container(result)
    assert proxy["restartPolicy"] == "Always"
    assert proxy["lifecycle"]["postStart"] == {"exec": {"command": ["weft", "wait"]}}
    assert "startupProbe" not in proxy  # kubelet would notice its result up to a second later
    assert status(result)["initContainers"] == ["istio-init", "istio-proxy"]


def test_elsewhere_the_proxy_is_first_and_the_app_waits_for_it():
    result = injected(pod(initContainers=[{"name": "migrate", "image": "m"}]), native=False)
    assert names(result, "initContainers") == ["migrate", "istio-init"]
    assert names(result) == ["istio-proxy", "web"]
    proxy = container(result)
    assert proxy["lifecycle"]["postStart"] == {"exec": {"command": ["weft", "wait"]}}
    assert not {"restartPolicy", "startupProbe"} & set(proxy)
    assert status(result)["containers"] == ["istio-proxy"]
    assert result["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "web"


def test_without_waiting_the_proxy_is_last():
    config = {"proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"}
    result = injected(pod(annotations=config), native=False)
    assert names(result) == ["web", "istio-proxy"]
    assert "postStart" not in container(result)["lifecycle"]


@pytest.mark.parametrize(
    ("setting", "cluster", "annotation", "native"),
    [
        ("auto", True, None, True),
        ("auto", False, None, False),
        ("on", False, None, True),
        ("off", True, None, False),
        ("off", True, "true", True),
        ("auto", True, "false", False),
    ],
)
def test_pod_installation_and_cluster_decide_whether_the_sidecar_is_native(setting, cluster, annotation, native):
    said = {f"{SIDECAR}nativeSidecar": annotation} if annotation else {}
    result = injected(pod(annotations=said), InjectionSettings(native_sidecars=setting), native=cluster)
    assert ("istio-proxy" in names(result, "initContainers")) is native


@pytest.mark.parametrize(("redirect_by", "first"), [("init", "istio-init"), ("node", "istio-validation")])
def test_without_native_sidecars_other_init_containers_come_before_the_redirect(redirect_by, first):
    """Because no proxy runs yet that they could be redirected to."""
    wanted = pod(initContainers=[{"name": "migrate", "image": "web:1"}])
    settings = InjectionSettings(redirect_by=redirect_by)
    assert names(injected(wanted, settings, native=False), "initContainers") == ["migrate", first]
    before = [first] if redirect_by == "init" else []
    assert names(injected(wanted, settings), "initContainers") == [*before, "istio-proxy", "migrate"]


def test_nothing_but_istio_init_keeps_it_out_of_a_restricted_namespace():
    result = injected(pod())
    init = container(result, "istio-init")["securityContext"]
    assert init["capabilities"] == {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}
    assert (init["runAsUser"], init["privileged"], init["allowPrivilegeEscalation"]) == (0, False, False)
    by_node = injected(pod(), InjectionSettings(redirect_by="node"))
    assert names(by_node, "initContainers") == ["istio-proxy"]
    for each in by_node["spec"]["initContainers"]:
        context = each["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == 1337 and context["runAsGroup"] == 1337
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert each["volumeMounts"][0]["mountPath"] == "/var/run/secrets/workload-spiffe-uds"


# --- where the node's agent sets up the redirect

BY_NODE = InjectionSettings(redirect_by="node")


def hook(result):
    return container(result)["lifecycle"]["postStart"]["exec"]["command"]


def warnings_of(wanted):
    return inject(wanted, "shop", BY_NODE, arguments, native_sidecars=True).warnings


def test_a_node_that_redirects_needs_no_init_container_beside_a_native_sidecar():
    native = injected(pod(), BY_NODE)
    assert (names(native, "initContainers"), names(native)) == (["istio-proxy"], ["web"])
    assert (status(native)["initContainers"], status(native)["containers"]) == (["istio-proxy"], None)


def test_without_native_sidecars_an_init_container_requests_the_redirect_before_the_application_starts():
    other = injected(pod(), BY_NODE, native=False)
    assert (names(other, "initContainers"), names(other)) == (["istio-validation"], ["istio-proxy", "web"])
    assert hook(other) == ["weft", "wait"]


def test_the_proxys_hook_requests_the_redirect_that_an_init_container_would_set_up():
    wanted = pod(annotations={"traffic.sidecar.istio.io/excludeOutboundPorts": "3306"})
    by_init = container(injected(wanted), "istio-init")["args"]
    assert hook(injected(wanted, BY_NODE)) == ["weft", "wait", "--redirect", *by_init[1:]]
    assert container(injected(wanted, BY_NODE, native=False), "istio-validation")["args"][1:] == by_init[1:]
    assert hook(injected(wanted)) == ["weft", "wait"]


def test_without_interception_no_redirect_is_requested():
    wanted = pod(annotations={f"{SIDECAR}interceptionMode": "NONE"})
    assert hook(injected(wanted, BY_NODE)) == ["weft", "wait"]
    unheld = {**wanted["metadata"]["annotations"], "proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"}
    result = injected(pod(annotations=unheld), BY_NODE, native=False)
    assert names(result) == ["web", "istio-proxy"] and "postStart" not in container(result)["lifecycle"]


@pytest.mark.parametrize(
    "lifecycle",
    [
        {"postStart": {"exec": {"command": ["true"]}}},
        {"postStart": {"httpGet": {"port": 80}}, "preStop": {"sleep": {"seconds": 1}}},
        {"postStart": {}},
        {"postStart": "nothing"},
    ],
)
def test_no_pod_can_override_the_hook_that_requests_its_redirect(lifecycle):
    wish = {"name": "istio-proxy", "image": "auto", "lifecycle": lifecycle}
    wanted = pod(containers=[{"name": "web", "image": "w"}, wish])
    result = injected(wanted, BY_NODE)
    assert hook(result) == hook(injected(pod(), BY_NODE))
    if "preStop" in lifecycle:
        assert container(result)["lifecycle"]["preStop"] == lifecycle["preStop"]
    (warning,) = warnings_of(wanted)
    assert "lifecycle.postStart of istio-proxy is ignored" in warning
    assert not warnings_of(pod(containers=[{"name": "web", "image": "w"}, {**wish, "lifecycle": {"preStop": {}}}]))


@pytest.mark.parametrize("lifecycle", [None, {}, {"postStart": {"exec": {"command": ["true"]}}}, "none"])
def test_later_changes_of_the_hook_are_reverted(lifecycle):
    first = injected(pod(), BY_NODE)
    changed = copy.deepcopy(first)
    container(changed)["lifecycle"] = lifecycle
    assert hook(injected(changed, BY_NODE)) == hook(first)


def test_an_obsolete_redirect_container_is_removed():
    first = injected(pod(), BY_NODE)
    first["spec"]["initContainers"].insert(0, {"name": "istio-validation", "image": "weft:0"})
    assert names(injected(first, BY_NODE), "initContainers") == ["istio-proxy"]


def test_the_arguments_of_the_redirect_can_be_read_off_the_pod():
    result = injected(pod(annotations={"traffic.sidecar.istio.io/excludeOutboundPorts": "3306"}))
    given_arguments = container(result, "istio-init")["args"]
    assert given_arguments[0] == "iptables"
    assert given_arguments[-2:] == ["-o", "3306"]


def test_where_nothing_is_redirected_nothing_is_set_up_and_no_probe_changed():
    result = injected(pod(annotations={f"{SIDECAR}interceptionMode": "NONE"}, containers=[PROBED]))
    assert names(result, "initContainers") == ["istio-proxy"]
    assert container(result, "web") == PROBED
    assert variables(result)["ISTIO_META_INTERCEPTION_MODE"] == "NONE"


def test_requests_and_limits_are_always_there():
    for each in injected(pod())["spec"]["initContainers"]:
        assert set(each["resources"]["requests"]) == set(each["resources"]["limits"]) == {"cpu", "memory"}


def test_the_identity_comes_from_a_read_only_volume():
    result = injected(pod(), InjectionSettings(driver="canary.csi.weft.dev"))
    (volume,) = result["spec"]["volumes"]
    assert volume == {"name": "workload-socket", "csi": {"driver": "canary.csi.weft.dev", "readOnly": True}}
    (mount,) = container(result)["volumeMounts"]
    assert mount["readOnly"] is True
    assert "volumeMounts" not in container(result, "web")


def test_the_proxys_arguments_and_variables_name_its_workload():
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d", "controller": True}
    wanted = pod(labels={"app": "web", "pod-template-hash": "7d"}, containers=[PROBED])
    wanted["metadata"]["ownerReferences"] = [owner]
    result = injected(wanted, InjectionSettings(cluster_id="east", network="n1", trust_domain="td", mesh_id="m"))
    found = variables(result)
    assert found["ISTIO_META_WORKLOAD_NAME"] == "web"
    assert found["ISTIO_META_OWNER"] == "kubernetes://apis/apps/v1/namespaces/shop/deployments/web"
    assert found["ISTIO_META_CLUSTER_ID"] == "east"
    assert found["ISTIO_META_NETWORK"] == "n1"
    assert found["ISTIO_META_MESH_ID"] == "m"
    assert found["TRUST_DOMAIN"] == "td"
    assert found["ISTIO_META_APP_CONTAINERS"] == "web"
    assert json.loads(found["ISTIO_META_POD_PORTS"]) == [{"name": "http", "containerPort": 8080}]
    assert {"POD_NAME", "POD_NAMESPACE", "INSTANCE_IP", "INSTANCE_IPS", "HOST_IP", "SERVICE_ACCOUNT"} <= set(found)
    assert {"ISTIO_META_NODE_NAME", "ISTIO_META_POD_NAME", "ISTIO_META_NAMESPACE"} <= set(found)
    node = bootstrap(result)["node"]
    assert node["id"] == "sidecar~$(INSTANCE_IP)~$(POD_NAME).$(POD_NAMESPACE)~$(POD_NAMESPACE).svc.cluster.local"
    assert node["metadata"]["LABELS"]["app"] == "web"
    assert node["metadata"]["NODE_NAME"] == "$(ISTIO_META_NODE_NAME)"


def test_metadata_of_the_pod_reaches_the_proxy_whatever_is_written_in_it():
    config = yaml.safe_dump({"proxyMetadata": {"ISTIO_META_DNS": 'a"b$(POD_NAME)', "PLAIN": "$(POD_NAME)"}})
    result = injected(pod(annotations={"proxy.istio.io/config": config}))
    assert variables(result)["PLAIN"] == "$(POD_NAME)"
    assert bootstrap(result)["node"]["metadata"]["DNS"] == 'a"b$$(POD_NAME)'


def test_labels_and_annotations_record_the_injection():
    result = injected(pod(labels={"app": "web", "version": "v2"}), InjectionSettings(revision="canary"))
    labels, annotations = result["metadata"]["labels"], result["metadata"]["annotations"]
    assert labels["security.istio.io/tlsMode"] == "istio"
    assert labels["service.istio.io/canonical-name"] == "web"
    assert labels["service.istio.io/canonical-revision"] == "v2"
    assert annotations["istio.io/rev"] == "canary"
    # Injection must not change which webhook selects the pod.
    assert not {"istio.io/rev", f"{SIDECAR}inject"} & set(labels)
    assert status(result) == {
        "initContainers": ["istio-init", "istio-proxy"],
        "containers": None,
        "volumes": ["workload-socket"],
        "imagePullSecrets": None,
        "revision": "canary",
    }


def test_labels_and_annotations_of_the_pod_are_kept():
    own = {"security.istio.io/tlsMode": "disabled", "service.istio.io/canonical-name": "mine"}
    annotations = {"kubectl.kubernetes.io/default-container": "other", "prometheus.io.scrape": "false"}
    result = injected(pod(labels=own, annotations=annotations))
    assert own.items() <= result["metadata"]["labels"].items()
    assert annotations.items() <= result["metadata"]["annotations"].items()
    assert "prometheus.io/port" not in result["metadata"]["annotations"]


def test_a_pod_without_prometheus_annotations_gets_the_proxys():
    found = injected(pod())["metadata"]["annotations"]
    assert (found["prometheus.io/port"], found["prometheus.io/path"]) == ("15020", "/stats/prometheus")
    assert (
        "prometheus.io/port"
        not in injected(pod(), InjectionSettings(prometheus_annotations=False))["metadata"]["annotations"]
    )


@pytest.mark.parametrize(
    ("config", "restart", "command"),
    [
        ("", None, ["weft", "drain", "5s"]),
        ("terminationDrainDuration: 1m", None, ["weft", "drain", "60s"]),
        ("", "Never", ["weft", "drain", "0s"]),
        ("", "OnFailure", ["weft", "drain", "0s"]),
        ("proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: true}", None, ["weft", "drain", "--until-idle", "5s"]),
        (
            "proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true', MINIMUM_DRAIN_DURATION: 2s}",
            None,
            ["weft", "drain", "--until-idle", "2s"],
        ),
    ],
)
def test_connections_finish_before_the_proxy_does(config, restart, command):
    more = {"restartPolicy": restart} if restart else {}
    result = injected(pod(annotations={"proxy.istio.io/config": config}, **more))
    assert container(result)["lifecycle"]["preStop"] == {"exec": {"command": command}}


def test_a_pod_changes_its_own_proxy_by_a_container_of_its_name():
    wish = {
        "name": "istio-proxy",
        "image": "auto",
        "resources": {"limits": {"cpu": "4"}},
        "env": [{"name": "EXTRA", "value": "1"}],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
    }
    result = injected(pod(containers=[{"name": "web", "image": "w"}, wish]))
    assert names(result) == ["web"]
    proxy = container(result)
    assert proxy["image"] == InjectionSettings().image
    assert proxy["resources"]["limits"] == {"cpu": "4", "memory": "1Gi"}
    assert variables(result)["EXTRA"] == "1"
    assert proxy["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "1"]
    assert json.loads(result["metadata"]["annotations"]["proxy.istio.io/overrides"]) == {"initContainers": [wish]}
    assert variables(result)["ISTIO_META_APP_CONTAINERS"] == "web"


def test_annotations_add_volumes_mounts_and_secrets():
    said = {
        f"{SIDECAR}userVolume": '{"certs": {"secret": {"secretName": "x"}}}',
        f"{SIDECAR}userVolumeMount": '{"certs": {"mountPath": "/certs", "readOnly": true}}',
    }
    result = injected(
        pod(annotations=said, imagePullSecrets=[{"name": "a"}]), InjectionSettings(image_pull_secrets=("a", "b"))
    )
    assert [each["name"] for each in result["spec"]["volumes"]] == ["workload-socket", "certs"]
    assert container(result)["volumeMounts"][1] == {"name": "certs", "mountPath": "/certs", "readOnly": True}
    assert result["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_probes_are_rewritten_to_the_proxy_and_the_proxy_has_the_original_targets():
    result = injected(pod(containers=[PROBED], initContainers=[
        {"name": "cache", "image": "c", "restartPolicy": "Always", "startupProbe": {"tcpSocket": {"port": 6379}}},
        {"name": "once", "image": "o"},
    ]))  # fmt: skip
    assert container(result, "web")["readinessProbe"]["httpGet"]["path"] == "/app-health/web/readyz"
    assert container(result, "cache")["startupProbe"]["httpGet"]["path"] == "/app-health/cache/startupz"
    clusters = {each["name"] for each in bootstrap(result)["static_resources"]["clusters"]}
    assert {"probe|/app-health/web/readyz", "probe|/app-health/cache/startupz"} <= clusters
    kept = injected(pod(containers=[PROBED], annotations={f"{SIDECAR}rewriteAppHTTPProbers": "false"}))
    assert container(kept, "web").items() >= PROBED.items()


# --- rejections and warnings


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (pod(annotations={f"{SIDECAR}interceptionMode": "TPROXY"}), "TPROXY is not supported"),
        (
            pod(volumes=[{"name": "workload-socket", "emptyDir": {}}]),
            "the volume name workload-socket is reserved for the proxy",
        ),
        (
            pod(containers=[{"name": "w"}, {"name": "istio-proxy", "securityContext": {"runAsUser": 0}}]),
            "cannot run as user 0",
        ),
        (pod(containers=[{"name": "istio-proxy", "image": "auto"}]), "no application container"),
        ({"metadata": {}, "spec": {"containers": []}}, "no application container"),
        ({"metadata": {}, "spec": {}}, "spec.containers: error: it is required"),
        ({"metadata": {}, "spec": {"containers": [{}]}}, r"spec.containers\[0\].name: error: it is required"),
        (
            {"metadata": {}, "spec": {"containers": [{"name": "a", "ports": 1}]}},
            r"spec.containers\[0\].ports: error: it must be a list, not a whole number",
        ),
        (
            {"metadata": {}, "spec": {"containers": [{"name": "a"}], "volumes": {}}},
            "spec.volumes: error: it must be a list, not an object",
        ),
        (
            {"metadata": {"labels": {"a": 1}}, "spec": {"containers": [{"name": "a"}]}},
            "metadata.labels: error: it must be a string, not a whole number",
        ),
        ({"metadata": None, "spec": {}}, "metadata: error: it must be an object, not null"),
        ({"metadata": {}}, "spec: error: it is required"),
    ],
)
def test_a_pod_that_cannot_be_injected_is_rejected_with_the_reason(wanted, words):
    before = copy.deepcopy(wanted)
    with pytest.raises(InjectionRefused, match=words):
        injected(wanted)
    assert wanted == before


def test_warnings_have_the_pods_name():
    app = {"name": "web", "image": "w", "securityContext": {"runAsUser": 1337}, "ports": [{"containerPort": 15006}]}
    found = inject(pod(containers=[app]), "shop", InjectionSettings(), arguments, native_sidecars=True).warnings
    assert found == (
        "Pod shop/web-7d4b9c-x2x1z: container web runs as user 1337, as the proxy does: its traffic is not redirected",
        "Pod shop/web-7d4b9c-x2x1z: container web has port 15006, which the proxy uses",
    )


@pytest.mark.parametrize(
    ("of_pod", "of_container", "who"),
    [
        ({"runAsUser": 1337}, {}, "user 1337"),
        ({"runAsUser": 1337}, {"runAsUser": 1000}, None),
        ({"runAsUser": 1000}, {"runAsGroup": 1337}, "group 1337"),
        ({"runAsGroup": 1337}, None, "group 1337"),
        ({"fsGroup": 1337}, {}, None),
    ],
)
def test_a_container_that_runs_as_the_proxys_user_or_group_gets_a_warning(of_pod, of_container, who):
    wanted = pod(containers=[{"name": "web", "image": "w", "securityContext": of_container}])
    wanted["spec"]["securityContext"] = of_pod
    warnings = inject(wanted, "shop", InjectionSettings(), arguments, native_sidecars=True).warnings
    assert [each.partition("container ")[2] for each in warnings] == (
        [f"web runs as {who}, as the proxy does: its traffic is not redirected"] if who else []
    )


# --- repeated injection, and any order of webhooks


def defaulted(result):
    """Apply some of the API server's defaults, as between two webhooks."""
    result = copy.deepcopy(result)
    for each in [*result["spec"]["containers"], *result["spec"].get("initContainers", ())]:
        each["terminationMessagePath"] = "/dev/termination-log"
        for variable in each.get("env", ()):
            if "valueFrom" in variable:
                variable["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
        for field in ("readinessProbe", "livenessProbe", "startupProbe"):
            if field in each:
                each[field].setdefault("successThreshold", 1)
    result["spec"].setdefault("dnsPolicy", "ClusterFirst")
    return result


def other_webhook(result):
    """Imitate another sidecar injector: it adds a container with a probe, a variable to every other container, and a
    volume."""
    result = copy.deepcopy(result)
    added = {"name": "agent", "image": "a", "ports": [{"containerPort": 9}],
             "readinessProbe": {"httpGet": {"port": 9, "path": "/a"}}}  # fmt: skip
    result["spec"]["containers"].append(added)
    for each in result["spec"]["containers"]:
        if each["name"] != "istio-proxy":
            each.setdefault("env", []).append({"name": "AGENT", "value": "1"})
    result["spec"].setdefault("volumes", []).append({"name": "agent", "emptyDir": {}})
    return result


PROBES = st.sampled_from(
    [
        {"httpGet": {"port": 80, "path": "/x"}},
        {"httpGet": {"port": "http", "scheme": "HTTPS"}},
        {"tcpSocket": {"port": 81}},
        {"grpc": {"port": 82, "service": "s"}},
        {"exec": {"command": ["true"]}},
    ]
)
CONTAINERS = st.builds(
    lambda name, more: {"name": name, "image": "i", "ports": [{"name": "http", "containerPort": 8080}], **more},
    st.sampled_from(["a", "b", "c", "d"]),
    st.fixed_dictionaries(
        {},
        optional={"readinessProbe": PROBES, "livenessProbe": PROBES, "startupProbe": PROBES, "args": st.just(["$(X)"])},
    ),
)
OVERRIDE = {"name": "istio-proxy", "image": "auto", "env": [{"name": "MINE", "value": "1"}], "args": ["--mine"]}
PODS = st.builds(
    lambda containers, init, override, more: pod(
        containers=[*containers, *([OVERRIDE] if override else [])],
        initContainers=[{**each, "name": f"init-{each['name']}"} for each in init],
        **more,
    ),
    st.lists(CONTAINERS, min_size=1, max_size=3, unique_by=lambda each: each["name"]),
    st.lists(CONTAINERS, max_size=2, unique_by=lambda each: each["name"]),
    st.booleans(),
    st.fixed_dictionaries({}, optional={"volumes": st.just([{"name": "v", "emptyDir": {}}])}),
)
MODES = st.builds(
    lambda by, hold: InjectionSettings(redirect_by=by, hold_application_until_proxy_starts=hold),
    st.sampled_from(["init", "node"]),
    st.booleans(),
)


@settings(deadline=None, max_examples=30)
@given(PODS, MODES, st.booleans())
def test_a_second_time_changes_nothing(wanted, mode, native):
    first = injected(wanted, mode, native=native)
    assert difference(first, injected(first, mode, native=native)) == []
    later = defaulted(first)
    assert difference(later, injected(later, mode, native=native)) == []


@settings(deadline=None, max_examples=30)
@given(PODS, MODES, st.booleans())
def test_the_patch_is_the_whole_difference(wanted, mode, native):
    found = inject(wanted, "shop", mode, arguments, native_sidecars=native)
    assert apply(wanted, patch(wanted, found)) == found.pod


@settings(deadline=None, max_examples=30)
@given(PODS, MODES, st.booleans())
def test_the_order_of_webhooks_does_not_change_the_result(wanted, mode, native):
    def ours(result):
        return injected(result, mode, native=native)

    before = ours(other_webhook(wanted))
    after = ours(other_webhook(ours(wanted)))
    for result in (before, after):
        for each in [*result["spec"]["containers"], *result["spec"].get("initContainers", ())]:
            each.get("env", []).sort(key=lambda one: one["name"])
        result["spec"]["volumes"].sort(key=lambda one: one["name"])
    assert before == after


def test_a_container_that_came_later_gets_its_probe_rewritten_and_its_wait_and_nothing_else_changes():
    first = injected(pod(containers=[PROBED]))
    later = defaulted(other_webhook(first))
    container(later)["resources"]["limits"]["cpu"] = "8"  # changed by another webhook
    container(later)["image"] = "mirror.example/weft:1"
    found = difference(later, injected(later))
    assert {each["path"].rpartition("/")[0] for each in found} == {
        "/spec/containers/1",  # the preStop hook
        "/spec/containers/1/readinessProbe/httpGet",
        "/spec/initContainers/1/args",
        *{each["path"].rpartition("/")[0] for each in found if "/env/" in each["path"]},
    }
    result = injected(later)
    assert container(result)["image"] == "mirror.example/weft:1"
    assert container(result)["resources"]["limits"]["cpu"] == "8"
    assert variables(result)["ISTIO_META_APP_CONTAINERS"] == "web,agent"
    assert "probe|/app-health/agent/readyz" in json.dumps(bootstrap(result))
    assert "probe|/app-health/web/readyz" in json.dumps(bootstrap(result))


def test_a_removed_container_of_weft_is_added_again():
    first = injected(pod())
    del first["spec"]["initContainers"][0]
    assert names(injected(first), "initContainers") == ["istio-init", "istio-proxy"]


def test_another_revision_injects_from_scratch():
    first = injected(pod(containers=[PROBED]), InjectionSettings(image="weft:old"))
    again = injected(first, InjectionSettings(image="weft:new", revision="canary"))
    assert container(again)["image"] == "weft:new"
    assert names(again, "initContainers") == ["istio-init", "istio-proxy"]
    assert container(again, "web")["readinessProbe"] == container(first, "web")["readinessProbe"]


def test_the_pod_that_came_in_stays_as_it_is():
    wanted = pod(containers=[PROBED])
    before = copy.deepcopy(wanted)
    injected(wanted)
    assert wanted == before


def test_empty_fields_that_people_write_are_no_fields():
    wanted = pod()
    wanted["metadata"] |= {"labels": None, "annotations": None}
    wanted["spec"] |= {"initContainers": None, "volumes": None}
    assert names(injected(wanted), "initContainers") == ["istio-init", "istio-proxy"]


def test_the_owner_of_a_template_may_be_given():
    owner = WorkloadOwner("apps/v1", "Deployment", "shop")
    result = inject(pod(), "shop", InjectionSettings(), arguments, native_sidecars=True, owner=owner).pod
    assert variables(result)["ISTIO_META_WORKLOAD_NAME"] == "shop"


@pytest.mark.parametrize("case", sorted(each.name for each in GOLDEN.iterdir()))
def test_golden(case):
    """A change here is a change in every pod of a cluster. `make bless` writes the files again."""
    from inject.bless import written

    assert (GOLDEN / case / "injected.yaml").read_text() == written(GOLDEN / case)


def test_settings_are_values():
    assert msgspec.structs.replace(InjectionSettings(), revision="x") != InjectionSettings()


def test_annotations_beyond_kubernetes_own_limit_are_not_parsed():
    with pytest.raises(InjectionRefused, match="the annotations are longer than 262144 bytes"):
        injected(pod(annotations={"sidecar.istio.io/userVolume": "[" * 300_000}))


def test_a_pod_that_the_kernel_could_not_start_is_rejected_with_the_reason():
    """One argument of a program may have 128 KiB; more is an error that only the node's log would show."""
    asked = {"httpGet": {"path": "/" + "x" * 500, "port": 80}}
    many = [{"name": f"c{number}", "image": "x", "readinessProbe": asked} for number in range(200)]
    with pytest.raises(InjectionRefused, match=r"make a proxy argument or variable [0-9]+ bytes long"):
        injected(pod(containers=many))
    assert injected(pod(containers=many[:20]))


def test_another_revision_that_takes_over_a_pod_brings_its_own_driver():
    """The old revision's driver is uninstalled with the old revision; a pod that uses it would never start."""
    before = injected(pod(), InjectionSettings(driver="csi.weft.dev"))
    after = injected(before, InjectionSettings(revision="canary", driver="canary.csi.weft.dev"))
    assert [each["csi"]["driver"] for each in after["spec"]["volumes"]] == ["canary.csi.weft.dev"]
    assert after == injected(after, InjectionSettings(revision="canary", driver="canary.csi.weft.dev"))
