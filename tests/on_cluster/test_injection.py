"""Injected pods on a real cluster: probes succeed under STRICT, Jobs complete, StatefulSets are called by name, and
the annotations of a pod take effect in its kernel."""

import pytest

from on_cluster import apps
from on_cluster.admission import IMAGE
from on_cluster.apps import ASK, SERVE, SERVE_GRPC, SERVE_TLS, caller_of, fetch, fetched, get, of_kind, python, rules
from on_cluster.mesh import until

TUNED = {
    "sidecar.istio.io/proxyCPU": "30m",
    "sidecar.istio.io/proxyMemory": "70Mi",
    "sidecar.istio.io/proxyCPULimit": "1500m",
    "sidecar.istio.io/proxyMemoryLimit": "300Mi",
    "sidecar.istio.io/logLevel": "info",
    "proxy.istio.io/config": "concurrency: 1\nterminationDrainDuration: 3s\nproxyMetadata: {ISTIO_META_COLOR: blue}",
    "traffic.sidecar.istio.io/excludeOutboundPorts": "8081",
    "traffic.sidecar.istio.io/excludeOutboundIPRanges": "192.0.2.0/24",
}
OVERRIDE = {"name": "istio-proxy", "image": "auto", "env": [{"name": "TASTE", "value": "sweet"}]}


def web(namespace):
    """All kinds of probes of kubelet."""
    app = python(
        "app", SERVE, "8080", "9090",
        ports=[{"name": "http", "containerPort": 8080}],
        startupProbe={"tcpSocket": {"port": "http"}, "periodSeconds": 1, "failureThreshold": 100},
        readinessProbe={"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "timeoutSeconds": 5},
        livenessProbe={"exec": {"command": ["python3", "-c", ""]}, "periodSeconds": 20, "timeoutSeconds": 20},
    )  # fmt: skip
    rpc = python("rpc", SERVE_GRPC, "9000", readinessProbe={"grpc": {"port": 9000}, "periodSeconds": 1})
    secure = {"path": "/", "port": 8443, "scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": "web.test"}]}
    tls = python("tls", SERVE_TLS, "8443", "web.test", readinessProbe={"httpGet": secure, "periodSeconds": 1})
    annotations = {"traffic.sidecar.istio.io/excludeInboundPorts": "9090"}
    wanted = apps.template("web", apps.spec(app, rpc, tls, shareProcessNamespace=True), annotations)
    return of_kind("apps/v1", "Deployment", namespace, "web", {"replicas": 1, **wanted})


def tuned(namespace):
    before = python("before", ASK, f"http://web.{namespace}/")
    return apps.pod(
        namespace, "tuned", python("app", SERVE, "8080"), OVERRIDE, annotations=TUNED, initContainers=[before]
    )


def older(namespace):
    """As on clusters without native sidecars."""
    annotations = {
        "sidecar.istio.io/nativeSidecar": "false",
        "proxy.istio.io/config": "holdApplicationUntilProxyStarts: true",
    }
    before = python("before", ASK, f"http://outsider.{namespace}:8080/")
    app = python("app", SERVE, "8080")
    return apps.pod(namespace, "older", app, annotations=annotations, initContainers=[before])


def sick(namespace):
    """A TCP probe of a closed port, and a gRPC probe of a service that is not serving."""
    probes = {"tcpSocket": {"port": 1}}, {"grpc": {"port": 9000, "service": "sick"}}, {"grpc": {"port": 9000}}
    often = {"periodSeconds": 1, "failureThreshold": 1}
    closed, unwell, well = ({**probe, **often} for probe in probes)
    return apps.pod(
        namespace,
        "sick",
        python("closed", SERVE, "8080", readinessProbe=closed),
        python("unwell", SERVE_GRPC, "9000", readinessProbe=unwell),
        python("well", SERVE, "8081", readinessProbe=well),
    )


def store(namespace):
    """Listens only on its pod's address: neither callers nor kubelet may be redirected to loopback."""
    bind = [{"name": "BIND", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    ready = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}
    wanted = apps.template("store", apps.spec(python("app", SERVE, "8080", env=bind, readinessProbe=ready)))
    whole = {"replicas": 2, "serviceName": "store", "podManagementPolicy": "Parallel", **wanted}
    return of_kind("apps/v1", "StatefulSet", namespace, "store", whole)


def job(namespace):
    wanted = apps.spec(python("app", ASK, f"http://web.{namespace}/"), restartPolicy="Never")
    return {"backoffLimit": 0, "template": {"metadata": {"labels": {"app": "once"}}, "spec": wanted}}


def objects(namespace):
    outside = {"sidecar.istio.io/inject": "false"}
    schedule = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job(namespace)}}
    return [
        apps.strict(namespace),
        web(namespace),
        apps.service(namespace, "web", ("http", 80, 8080), ("tcp-past-the-proxy", 9090, 9090)),
        of_kind("batch/v1", "CronJob", namespace, "yearly", schedule),
        of_kind("batch/v1", "Job", namespace, "once", job(namespace)),
        tuned(namespace),
        older(namespace),
        sick(namespace),
        store(namespace),
        apps.service(namespace, "store", ("http", 8080, 8080), clusterIP="None"),
        apps.pod(namespace, "outsider", python("app", SERVE, "8080", "8081"), labels=outside),
        apps.service(namespace, "outsider", ("http", 8080, 8080), ("http-alt", 8081, 8081)),
        apps.pod(namespace, "host", python("app", SERVE, "8089"), hostNetwork=True),
    ]


@pytest.fixture(scope="module")
def namespace(mesh):
    name = mesh.namespace("inject")
    mesh.apply(*objects(name))
    mesh.wait(name, "pod/tuned", "pod/outsider", "pod/older")
    mesh.rolled_out(name, "deployment/web", "statefulset/store")
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def pods(cluster, namespace):
    """By their label `app`, or by their name if several have the same."""
    found = get(cluster, "pods", namespace)
    return {each["metadata"]["labels"].get("app", ""): each for each in found} | {
        each["metadata"]["name"]: each for each in found
    }


def statuses(pod):
    both = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
    return {each["name"]: each for each in both}


def proxy(pod):
    (found,) = [each for each in pod["spec"]["initContainers"] if each["name"] == "istio-proxy"]
    return found


def variables(pod):
    return {each["name"]: each.get("value") for each in proxy(pod)["env"]}


def me(namespace):
    return f"spiffe://cluster.local/ns/{namespace}/sa/default"


def test_the_redirect_container_starts_first_then_the_proxy_then_the_applications_init_containers(pods):
    pod = pods["tuned"]
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["istio-init", "istio-proxy", "before"]
    assert proxy(pod)["restartPolicy"] == "Always"
    found = statuses(pod)
    assert found["istio-init"]["state"]["terminated"]["exitCode"] == 0
    began = [
        found["istio-init"]["state"]["terminated"]["finishedAt"],
        found["istio-proxy"]["state"]["running"]["startedAt"],
        found["before"]["state"]["terminated"]["startedAt"],
        found["before"]["state"]["terminated"]["finishedAt"],
        found["app"]["state"]["running"]["startedAt"],
    ]
    assert began == sorted(began)
    assert all(each["restartCount"] == 0 for each in found.values())


def test_an_init_container_of_the_application_is_in_the_mesh_already(pods, namespace):
    """With native sidecars, the proxy runs before it: it calls a STRICT service with its pod's identity."""
    said = statuses(pods["tuned"])["before"]["state"]["terminated"]["message"]
    assert f"URI={me(namespace)}" in said


def test_without_native_sidecars_an_init_container_of_the_application_has_the_plain_network(pods):
    """There the redirect is the last init container, because no proxy runs yet."""
    pod = pods["older"]
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["before", "istio-init"]
    assert statuses(pod)["before"]["state"]["terminated"]["message"] == "nobody"


def test_without_native_sidecars_the_application_still_starts_behind_its_proxy(cluster, pods, namespace):
    pod = pods["older"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["istio-proxy", "app"]
    found = statuses(pod)
    assert found["istio-proxy"]["state"]["running"]["startedAt"] <= found["app"]["state"]["running"]["startedAt"]
    assert found["istio-proxy"]["restartCount"] == found["app"]["restartCount"] == 0
    assert caller_of(fetched(cluster, namespace, "older", f"http://web.{namespace}/")) == me(namespace)


def test_the_proxys_environment_identifies_its_workload(cluster, pods, namespace):
    found = variables(pods["web"])
    owner = f"kubernetes://apis/apps/v1/namespaces/{namespace}/deployments/web"
    assert found["ISTIO_META_OWNER"] == owner
    assert found["ISTIO_META_WORKLOAD_NAME"] == "web"
    assert found["ISTIO_META_CLUSTER_ID"] == "Kubernetes"
    assert found["ISTIO_META_INTERCEPTION_MODE"] == "REDIRECT"
    assert found["ISTIO_META_APP_CONTAINERS"] == "app,rpc,tls"
    assert found["ISTIO_META_MESH_ID"] == found["TRUST_DOMAIN"] == "cluster.local"
    running = environment(cluster, pods["web"])
    assert running["ISTIO_META_POD_NAME"] == pods["web"]["metadata"]["name"]
    assert running["ISTIO_META_NAMESPACE"] == namespace
    assert running["ISTIO_META_NODE_NAME"] == cluster.node.name
    assert running["INSTANCE_IP"] == pods["web"]["status"]["podIP"]
    assert running["SERVICE_ACCOUNT"] == "default"


def environment(cluster, pod, container="istio-proxy"):
    number = apps.process(cluster, pod, container)
    text = cluster.holder.run("cat", f"/proc/{number}/environ").stdout
    return dict(each.partition("=")[::2] for each in text.split("\0") if each)


def test_the_init_containers_arguments_are_istios(pods):
    (init,) = [each for each in pods["web"]["spec"]["initContainers"] if each["name"] == "istio-init"]
    words = "iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x  -b * -d 15090,15021,15020,9090"
    assert init["args"] == words.split(" ")
    assert init["securityContext"]["capabilities"] == {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}
    assert init["resources"]["limits"] and init["resources"]["requests"]


def test_only_the_init_container_has_capabilities(cluster, pods):
    for container in ("istio-proxy", "app"):
        number = apps.process(cluster, pods["tuned"], container)
        text = cluster.holder.run("cat", f"/proc/{number}/status").stdout
        found = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert {int(found[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
        assert found["NoNewPrivs"] == "1" and found["Seccomp"] == "2"
    assert apps.process(cluster, pods["tuned"], "istio-proxy")
    assert found["Uid"].split() == ["1000"] * 4


def test_annotations_about_traffic_are_rules_in_the_pods_kernel(cluster, pods):
    inbound = [line for line in rules(cluster, pods["web"]) if line.startswith("-A ISTIO_INBOUND")]
    assert any("--dport 9090" in line and "-j RETURN" in line for line in inbound)
    assert any("-j ISTIO_IN_REDIRECT" in line for line in inbound)
    outbound = [line for line in rules(cluster, pods["tuned"]) if line.startswith("-A ISTIO_OUTPUT")]
    assert any("--dport 8081" in line and "-j RETURN" in line for line in outbound)
    assert any("192.0.2.0/24" in line and "-j RETURN" in line for line in outbound)
    assert not [line for line in rules(cluster, pods["outsider"]) if "ISTIO" in line]


def test_a_service_is_called_by_mutual_tls_and_not_otherwise(cluster, namespace):
    said = fetched(cluster, namespace, "tuned", f"http://web.{namespace}/")
    assert caller_of(said) == me(namespace)
    ((status, _),) = fetch(cluster, namespace, "outsider", f"http://web.{namespace}/")
    assert status == 0


def test_a_port_that_is_excluded_passes_by_the_proxy(cluster, namespace):
    """Inbound 9090 of web, which an outsider may call despite STRICT; and outbound 8081 of tuned."""
    assert caller_of(fetched(cluster, namespace, "outsider", f"http://web.{namespace}:9090/")) == ""
    through = fetched(cluster, namespace, "tuned", f"http://outsider.{namespace}:8080/")
    past = fetched(cluster, namespace, "tuned", f"http://outsider.{namespace}:8081/")
    assert "x-request-id" in through["headers"]
    assert "x-request-id" not in past["headers"]


def test_resource_annotations_of_a_pod_apply_to_its_proxy(cluster, pods):
    assert proxy(pods["tuned"])["resources"] == {
        "requests": {"cpu": "30m", "memory": "70Mi"},
        "limits": {"cpu": "1500m", "memory": "300Mi"},
    }
    assert proxy(pods["web"])["resources"] == {
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"cpu": "2", "memory": "1Gi"},
    }


def test_a_pods_own_settings_for_its_proxy_apply(cluster, pods):
    running = environment(cluster, pods["tuned"])
    assert running["TASTE"] == "sweet"
    assert running["ISTIO_META_COLOR"] == "blue"
    found = proxy(pods["tuned"])
    assert found["image"] == IMAGE and found["imagePullPolicy"] == "Never"
    assert found["args"][found["args"].index("--concurrency") + 1] == "1"
    assert found["lifecycle"]["preStop"]["exec"]["command"] == ["weft", "drain", "3s"]
    assert [each["name"] for each in pods["tuned"]["spec"]["containers"]] == ["app"]


def test_kubelet_gets_the_applications_responses_under_strict(pods):
    """HTTP, HTTPS, TCP, gRPC and exec probes of this pod, none of which failed."""
    found = statuses(pods["web"])
    assert found["app"]["ready"] and found["rpc"]["ready"] and found["tls"]["ready"]
    assert all(each["restartCount"] == 0 for each in found.values())
    app, rpc, tls = pods["web"]["spec"]["containers"]
    assert app["startupProbe"]["httpGet"]["path"] == "/app-health/app/startupz"
    assert app["readinessProbe"]["httpGet"]["path"] == "/app-health/app/readyz"
    assert app["livenessProbe"]["exec"]["command"] == ["python3", "-c", ""]
    assert rpc["readinessProbe"]["httpGet"]["path"] == "/app-health/rpc/readyz"
    assert tls["readinessProbe"]["httpGet"]["scheme"] == "HTTP"


def test_a_probe_that_fails_behind_the_proxy_fails_for_kubelet(cluster, pods, namespace):
    """The gRPC health service is one server of the pod, whichever container's probe uses it."""

    def judged():
        found = statuses(get(cluster, "pod", namespace, "sick"))
        return found if found["well"]["ready"] else None

    found = until(judged, timeout=60)
    assert not found["closed"]["ready"]
    assert not found["unwell"]["ready"]
    events = get(cluster, "events", namespace)
    said = {each["message"] for each in events if each["involvedObject"]["name"] == "sick"}
    assert any("Readiness probe failed: HTTP probe failed with statuscode: 503" in each for each in said)


def test_an_application_that_is_not_ready_is_no_endpoint(cluster, pods, namespace):
    def ready():
        (found,) = get(cluster, "endpointslices", namespace, selector="kubernetes.io/service-name=web")
        return [each["conditions"]["ready"] for each in found["endpoints"]]

    name = pods["web"]["metadata"]["name"]
    assert ready() == [True]
    fetch(cluster, namespace, name, "http://127.0.0.1:8080/switch/off")
    until(lambda: ready() == [False])
    ((status, said),) = fetch(cluster, namespace, "tuned", f"http://web.{namespace}/")
    assert status == 503, said
    fetch(cluster, namespace, name, "http://127.0.0.1:8080/switch/on")
    until(lambda: ready() == [True])
    assert fetched(cluster, namespace, "tuned", f"http://web.{namespace}/")


def test_containers_that_share_their_processes_do_not_share_the_redirect_of_the_proxy(cluster, pods, namespace):
    """One process namespace for all containers: the application sees Envoy, and is still intercepted because of its
    own user."""
    assert pods["web"]["spec"]["shareProcessNamespace"] is True
    name = pods["web"]["metadata"]["name"]
    said = fetched(cluster, namespace, name, f"http://store-0.store.{namespace}:8080/")
    assert caller_of(said) == me(namespace)


def test_pods_of_a_stateful_set_are_called_by_their_names(cluster, namespace, pods):
    for name in ("store-0", "store-1"):
        said = fetched(cluster, namespace, "tuned", f"http://{name}.store.{namespace}.svc.cluster.local:8080/")
        assert caller_of(said) == me(namespace)
        assert said["headers"]["host"] == f"{name}.store.{namespace}.svc.cluster.local:8080"
    assert variables(pods["store-0"])["ISTIO_META_WORKLOAD_NAME"] == "store"


def test_a_job_completes_though_it_has_a_proxy(mesh, cluster, namespace):
    mesh.wait(namespace, "job/once", condition="condition=complete")
    (pod,) = get(cluster, "pods", namespace, selector="job-name=once")
    assert f"URI={me(namespace)}" in statuses(pod)["app"]["state"]["terminated"]["message"]
    assert pod["status"]["phase"] == "Succeeded"
    assert variables(pod)["ISTIO_META_WORKLOAD_NAME"] == "once"


def test_a_pod_on_the_nodes_network_is_left_alone(pods):
    assert "initContainers" not in pods["host"]["spec"]
    assert "sidecar.istio.io/status" not in pods["host"]["metadata"].get("annotations", {})


def test_a_cron_jobs_job_completes_too(mesh, cluster, namespace):
    """Created by hand, with the CronJob as its owner, as for a scheduled one."""
    name = "yearly-12345678"  # as Kubernetes names them: the scheduled minute
    mesh.kubectl("create", "job", f"--namespace={namespace}", "--from=cronjob/yearly", name)
    mesh.wait(namespace, f"job/{name}", condition="condition=complete")
    (pod,) = get(cluster, "pods", namespace, selector=f"job-name={name}")
    assert variables(pod)["ISTIO_META_WORKLOAD_NAME"] == "yearly"
    assert variables(pod)["ISTIO_META_OWNER"].endswith("/cronjobs/yearly")
