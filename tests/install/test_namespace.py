"""The namespace and its two ConfigMaps."""

import yaml

from weft.install.namespace import config_maps, namespace
from weft.install.values import values_of


def test_only_the_namespace_is_privileged_and_it_belongs_to_no_revision():
    found = namespace(values_of({"revision": "a"}))
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert "istio.io/rev" not in found["metadata"]["labels"]


def test_the_mesh_config_is_what_was_given():
    mesh, _ = config_maps(values_of({"mesh": {"accessLogFile": "/dev/stdout"}}))
    assert mesh["metadata"]["name"] == "istio"
    assert yaml.safe_load(mesh["data"]["mesh"]) == {"accessLogFile": "/dev/stdout", "rootNamespace": "istio-system"}
