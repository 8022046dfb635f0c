"""The chart, rendered by the real Helm, gives the same objects as `weft install` with the same values."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from weft.install.manifests import manifests
from weft.install.values import Values, values_of, written
from weft.kube.resource import named

CHART = Path(__file__).resolve().parent.parent.parent / "deploy" / "chart"

GIVEN = {
    "default": {},
    "revision": {
        "revision": "1-2-3",
        "injection": {"redirectBy": "node"},
        "gateways": {"secretsIn": ["*"], "configMapsIn": ["*"]},
    },
    "chosen": {
        "namespace": "mesh",
        "image": "example.org/weft:1",
        "imagePullPolicy": "Always",
        "imagePullSecrets": ["a", "b"],
        "crds": False,
        "control": {
            "replicas": 3,
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "annotations": {"c": "d"},
            "resources": {"requests": {"cpu": "1"}, "limits": {}},
        },
        "node": {
            "kubeletRoot": "/k",
            "certificateTtl": "1h",
            "maxUnavailable": 1,
            "annotations": {"e": "f"},
            "nodeSelector": {"g": "h"},
        },
        "injection": {
            "failurePolicy": "Ignore",
            "byDefault": True,
            "excludedNamespaces": ["kube-system"],
            "settings": {
                "concurrency": 2,
                "autoInject": False,
                "rewriteAppProbes": False,
                "meshId": "m",
                "clusterId": "one",
                "network": "east",
                "logLevel": "info",
                "componentLogLevel": "upstream:debug",
                "neverInjectSelector": [{"matchLabels": {"a": "b"}}],
                "injectedAnnotations": {"a": "b"},
            },
        },
        "validation": {"enabled": False},
        "gateways": {"secretsIn": ["edge", "shop"], "configMapsIn": ["shop"], "deployments": True},
        "ca": {"secret": "mine"},
        "mesh": {"trustDomain": "example.org", "accessLogFile": "/dev/stdout"},
    },
}


def rendered(helm, values, directory):
    chosen = written(values)
    namespace = chosen.pop("namespace")
    file = directory / "values.yaml"
    file.write_text(json.dumps(chosen))
    command = [helm, "template", "weft", CHART, "--kube-version", "1.34.3", "--namespace", namespace, "--values", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def comparable(objects):
    """Return the objects by kind and name, with the texts in ConfigMaps parsed."""
    found = {}
    for each in json.loads(json.dumps(objects)):
        if each["kind"] == "ConfigMap":
            each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
        if each["kind"] != "Namespace":  # Helm creates the namespace of a release itself
            found[named(each)] = each
    return found


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_the_chart_makes_the_same_objects(helm, tmp_path, given):
    values = values_of(given)
    ours, theirs = comparable(manifests(values)), comparable(rendered(helm, values, tmp_path))
    assert set(ours) == set(theirs)
    for who, each in ours.items():
        assert theirs[who] == each, who


def test_the_charts_values_are_the_default_values():
    defaults = written(Values())
    del defaults["namespace"]
    assert yaml.safe_load((CHART / "values.yaml").read_text()) == json.loads(json.dumps(defaults))


def test_the_chart_has_wefts_version():
    from weft import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_chart_rejects_a_control_plane_with_one_replica(helm):
    done = subprocess.run(
        [helm, "template", "weft", CHART, "--kube-version", "1.34.3", "--set", "control.replicas=1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "two replicas" in done.stderr
