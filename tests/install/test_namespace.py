"""The namespace and its two ConfigMaps."""

import json

import yaml

from weft.inject.decision import decide, required
from weft.inject.settings import read
from weft.install.namespace import config_maps, injector_settings, namespace
from weft.install.values import OURS, values_of


def test_only_the_namespace_is_privileged_and_it_belongs_to_no_revision():
    found = namespace(values_of({"revision": "a"}))
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert "istio.io/rev" not in found["metadata"]["labels"]


def test_the_mesh_config_is_what_was_given():
    mesh, _ = config_maps(values_of({"mesh": {"accessLogFile": "/dev/stdout"}}))
    assert mesh["metadata"]["name"] == "istio"
    assert yaml.safe_load(mesh["data"]["mesh"]) == {"accessLogFile": "/dev/stdout", "rootNamespace": "istio-system"}


def test_the_injector_can_read_its_settings():
    values = values_of({
        "revision": "a",
        "image": "example.org/weft:1",
        "mesh": {"trustDomain": "example.org"},
        "injection": {"redirectBy": "node", "byDefault": True, "settings": {"concurrency": 2}},
    })  # fmt: skip
    settings = read(config_maps(values)[1]["data"]["values"])
    assert (settings.image, settings.revision, settings.driver) == ("example.org/weft:1", "a", "a.csi.weft.dev")
    assert (settings.redirect_by, settings.concurrency, settings.trust_domain) == ("node", 2, "example.org")
    assert settings.enable_namespaces_by_default


def test_the_injector_leaves_the_same_namespaces_alone_as_the_webhooks():
    values = values_of({"injection": {"excludedNamespaces": ["kube-system", "theirs"]}})
    settings = read(config_maps(values)[1]["data"]["values"])
    assert settings.excluded_namespaces == ("kube-system", "theirs")
    pod = {"metadata": {"labels": {"sidecar.istio.io/inject": "true"}}, "spec": {}}
    asked = {name: decide(pod, name, {}, settings).inject for name in ("kube-system", "theirs", "kube-public", "shop")}
    assert asked == {"kube-system": False, "theirs": False, "kube-public": True, "shop": True}
    assert not required(pod, "theirs", settings).inject


def test_what_the_installation_decides_cannot_be_given_twice():
    assert set(injector_settings(values_of({}))) == OURS
    assert set(json.loads(config_maps(values_of({}))[1]["data"]["values"])) == OURS
