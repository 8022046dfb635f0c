from analyze.meshes import WEB, facts, istio
from weft.model.names import labels_of


def test_workloads_count_before_their_pods_exist():
    found = facts(WEB)
    assert [runner.name for runner in found.selected("shop", labels_of({"app": "web"}))] == ["web-v1", "web-v2"]
    assert [runner.name for runner in found.selected("shop", labels_of({"app": "web", "version": "v2"}))] == ["web-v2"]
    assert found.selected("other", labels_of({"app": "web"})) == ()
    assert len(found.selected("shop", ())) == 2


def test_an_instance_without_a_workload_counts_too():
    found = facts(istio("WorkloadEntry", "{address: 192.0.2.1, labels: {app: vm}}", name="vm"))
    (runner,) = found.selected("shop", labels_of({"app": "vm"}))
    assert runner.ports is None  # its own list is by service port, so it says nothing of where it listens


def test_a_host_means_its_services_those_it_covers_and_the_wildcard_that_covers_it():
    entry = "{hosts: ['*.example.com'], ports: [{number: 80, name: http, protocol: HTTP}]}"
    found = facts(WEB + istio("ServiceEntry", entry))
    hosts = {
        host: [service.host for service in found.services_of(host)] for host in ("*.local", "a.example.com", "a.b")
    }
    assert hosts == {"*.local": ["web.shop.svc.cluster.local"], "a.example.com": ["*.example.com"], "a.b": []}


def test_every_namespace_with_an_object_counts():
    assert {"shop", "istio-system"} <= facts(WEB).namespaces


def test_a_policy_bound_to_a_gateway_applies_only_to_its_proxies():
    head = "---\napiVersion: weft.dev/v1alpha1\nkind: Workload\n"
    pod = head + "metadata: {name: %s, namespace: shop, labels: {%s}}\nspec: {gateway: {}}\n"
    label = "gateway.networking.k8s.io/gateway-name"
    found = facts(WEB + pod % ("edge", f"{label}: edge") + pod % ("lobby", f"{label}: lobby"))
    assert [runner.name for _, runner in found.chosen("shop", (), ("Gateway edge",))] == ["edge"]
    assert found.chosen("shop", (), ("Gateway other",)) == []
