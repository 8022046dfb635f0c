import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from weft.cluster.sidecar_arguments import arguments, bootstrap
from weft.envoy import binary
from weft.envoy.bootstrap import DnsAddress, Unix
from weft.inject.patch import inject
from weft.inject.settings import InjectionSettings
from weft.kube.objects import PodObject
from weft.kube.pods import record_of
from weft.model.group import ProxyKind

GOLDEN = sorted((Path(__file__).parent.parent / "inject" / "golden").iterdir())
ENVIRONMENT = {
    "POD_NAME": "web-5f6c7d8b9-x2x1z",
    "POD_NAMESPACE": "shop",
    "INSTANCE_IP": "10.0.0.7",
    "INSTANCE_IPS": "10.0.0.7,fd00::7",
    "SERVICE_ACCOUNT": "web",
    "ISTIO_META_NODE_NAME": "worker-1",
}


def by_kubelet(argument):
    return re.sub(r"\$\$|\$\(([A-Z_]+)\)", lambda found: "$" if found[0] == "$$" else ENVIRONMENT[found[1]], argument)


def arguments_in(case):
    given = yaml.safe_load((case / "pod.yaml").read_text())
    settings = msgspec.convert(given.get("settings", {}), InjectionSettings)
    found = inject(given["pod"], given["namespace"], settings, arguments, native_sidecars=True).pod
    containers = (*found["spec"].get("initContainers", ()), *found["spec"]["containers"])
    (proxy,) = [each for each in containers if each["name"] == "istio-proxy"]
    return [by_kubelet(each) for each in proxy["args"]]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_envoy_accepts_the_arguments_from_kubelet_without_warnings(case):
    command = [binary.find(), "--mode", "validate", *arguments_in(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_proxy_identifies_itself_by_values_from_kubelet():
    given = arguments_in(next(case for case in GOLDEN if case.name == "deployment-pod"))
    document = json.loads(given[given.index("--config-yaml") + 1])
    assert document["node"]["id"] == "sidecar~10.0.0.7~web-5f6c7d8b9-x2x1z.shop~shop.svc.cluster.local"
    assert document["node"]["cluster"] == "web.shop"
    assert document["node"]["metadata"]["INSTANCE_IPS"] == "10.0.0.7,fd00::7"
    assert document["node"]["metadata"]["NODE_NAME"] == "worker-1"
    # Regular expressions contain dollars that must stay.
    assert any(each["safe_regex"]["regex"].endswith("$") for each in
               document["stats_config"]["stats_matcher"]["inclusion_list"]["patterns"] if "safe_regex" in each)  # fmt: skip


@pytest.mark.parametrize(("template", "kind"), [("gateway", ProxyKind.GATEWAY), ("sidecar", ProxyKind.SIDECAR)])
def test_a_pod_keeps_its_injected_kind_whatever_its_annotations_become(template, kind):
    written = {"inject.istio.io/templates": template}
    own = {"name": "istio-proxy" if template == "gateway" else "app", "image": "auto"}
    given = {"metadata": {"name": "edge-0", "annotations": written}, "spec": {"containers": [own]}}
    made = inject(given, "shop", InjectionSettings(), arguments, native_sidecars=True).pod
    made["metadata"] |= {"namespace": "shop", "uid": "u1"}
    for later in ({}, {"inject.istio.io/templates": "gateway"}, {"inject.istio.io/templates": "sidecar"}):
        made["metadata"]["annotations"] |= later
        assert record_of(msgspec.convert(made, PodObject)).group.kind is kind


def test_without_an_agent_the_proxy_connects_to_the_control_plane_by_name():
    found = []

    def render(sidecar):
        found.append(bootstrap(sidecar))
        return []

    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    for control in ("", "istiod.istio-system.svc:15012", "istiod.istio-system.svc:15010", "[fd00::1]:15012"):
        inject(pod, "shop", InjectionSettings(control=control), render, native_sidecars=True)
    through_agent, encrypted, plaintext, by_address = (each.xds for each in found)
    assert through_agent == Unix("/var/run/secrets/workload-spiffe-uds/xds")
    assert encrypted == DnsAddress(host="istiod.istio-system.svc", port=15012, tls=True)
    assert plaintext == DnsAddress(host="istiod.istio-system.svc", port=15010, tls=False)
    assert by_address.host == "fd00::1"
