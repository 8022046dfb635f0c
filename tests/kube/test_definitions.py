import msgspec
import pytest

from kube.manifests import definition
from weft.install.crds import crds
from weft.kube.definitions import WANTED, served
from weft.kube.objects import DefinitionObject
from weft.kube.resource import ResourceKind

READY = {"conditions": [{"type": "Established", "status": "True"}]}


def read(manifest, status=READY):
    return served(msgspec.convert({**manifest, "status": status}, DefinitionObject))


def test_every_kind_that_is_installed_is_watched_in_its_preferred_version():
    found = {each.resource.kind: each for each in map(read, crds())}
    assert found.keys() == {kind for kind, (group, _) in WANTED.items() if group.endswith(".istio.io")}
    assert found["VirtualService"].resource == ResourceKind(
        "networking.istio.io", "v1", "virtualservices", "VirtualService"
    )
    assert all(each.has_status and each.conditions_apart for each in found.values())


@pytest.mark.parametrize(
    ("offered", "version"),
    [(("v1alpha3", "v1beta1"), "v1beta1"), (("v1alpha3",), "v1alpha3"), (("v1", "v1alpha3"), "v1"), (("v7",), None)],
)
def test_the_preferred_served_version_is_watched(offered, version):
    manifest = definition("VirtualService")
    manifest["spec"]["versions"] = [{"name": name, "served": True} for name in offered] + [
        {"name": "v1", "served": False}
    ]
    if "v1" in offered:
        manifest["spec"]["versions"].pop()
    found = read(manifest)
    assert (found.resource.version if found else None) == version
    assert found is None or not (found.has_status or found.conditions_apart)


def test_a_definition_that_is_not_established_is_not_watched():
    assert read(definition("Sidecar"), {}) is None
    assert read(definition("Sidecar"), {"conditions": [{"type": "Established", "status": "False"}]}) is None


def test_a_kind_of_the_same_name_in_another_group_is_ignored():
    manifest = definition("Gateway")
    manifest["spec"]["group"] = "example.com"
    assert read(manifest) is None


def test_the_gateway_apis_gateway_differs_from_istios():
    manifest = definition("Gateway")
    manifest["spec"]["group"] = "gateway.networking.k8s.io"
    assert read(manifest).resource == ResourceKind("gateway.networking.k8s.io", "v1", "gateways", "Gateway")


def test_core_kinds_and_wefts_own_kinds_are_not_wanted():
    assert not {"Service", "Namespace", "ConfigMap", "Workload"} & WANTED.keys()
