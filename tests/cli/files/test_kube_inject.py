import json

import pytest
import yaml
from click.testing import CliRunner

from weft.cli.main import app
from weft.cluster.sidecar_arguments import arguments
from weft.inject.settings import InjectionSettings, encode
from weft.inject.workloads import inject_document

FILE = """\
# the shop's front
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: web, image: "web:1", livenessProbe: &probe {tcpSocket: {port: 80}}, readinessProbe: *probe}
--- # a job
{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
 "spec": {"template": {"spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "a"}]}}}}
"""


def run(*given, stdin=None):
    return CliRunner().invoke(app, ["kube-inject", *given], input=stdin)


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "web.yaml"
    made.write_text(FILE)
    return str(made)


def test_workloads_are_injected_and_other_objects_are_unchanged(file):
    result = run("-f", file)
    assert result.exit_code == 0
    assert result.stdout.startswith("# the shop's front\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n")
    _service, deployment, job = yaml.safe_load_all(result.stdout)
    assert [each["name"] for each in deployment["spec"]["template"]["spec"]["initContainers"]] == [
        "istio-init",
        "istio-proxy",
    ]
    probes = deployment["spec"]["template"]["spec"]["containers"][0]
    assert probes["livenessProbe"] != probes["readinessProbe"]
    assert "initContainers" not in job["spec"]["template"]["spec"]
    assert "Job default/once gets no sidecar: the pod uses hostNetwork" in result.stderr


def test_kube_inject_makes_the_same_pod_as_the_webhook(file):
    before = list(yaml.safe_load_all(FILE))[1]
    after = list(yaml.safe_load_all(run("-f", file).stdout))[1]
    assert after == inject_document(before, InjectionSettings(), arguments).document


def test_injecting_its_own_output_changes_nothing(file, tmp_path):
    once = tmp_path / "once.yaml"
    assert run("-f", file, "-o", str(once)).stdout == ""
    assert run("-f", str(once)).stdout == once.read_text()


def test_settings_revision_and_version_are_taken_from_the_flags(file, tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(encode(InjectionSettings(image="mirror.example/weft:1")))
    result = run("-f", file, "--settings", str(settings), "--revision", "canary", "--kubernetes-version", "v1.28.3")
    pod = list(yaml.safe_load_all(result.stdout))[1]["spec"]["template"]
    proxy = pod["spec"]["containers"][0]
    assert (proxy["name"], proxy["image"]) == ("istio-proxy", "mirror.example/weft:1")
    assert json.loads(pod["metadata"]["annotations"]["sidecar.istio.io/status"])["revision"] == "canary"


def test_reads_standard_input():
    assert "istio-proxy" in run("-f", "-", stdin=FILE).stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "web.yaml:1: this is not YAML"),
        (FILE + "---\nb: [\n", f"web.yaml:{FILE.count(chr(10)) + 2}: this is not YAML"),
        ("not yaml at all, but words\n", "web.yaml:1: this is not a Kubernetes object"),
        ("a: 1\n", "web.yaml:1: this is not a Kubernetes object"),
        ("- kind: Pod\n", "web.yaml:1: this is not a Kubernetes object"),
        (FILE + "---\nkind: Deployment\n", f"web.yaml:{FILE.count(chr(10)) + 2}: this is not a Kubernetes object"),
        ("", "nothing to inject in"),
        ("# nothing\n---\n", "nothing to inject in"),
        (
            FILE.replace("{labels: {app: web}}", "{annotations: {sidecar.istio.io/logLevel: x}}"),
            "`x` is not a log level",
        ),
    ],
)
def test_an_error_has_its_file_and_line_and_nothing_is_printed(tmp_path, text, words):
    file = tmp_path / "web.yaml"
    file.write_text(text)
    result = run("-f", str(file))
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stdout == ""


def test_missing_files_and_invalid_settings_are_errors(file, tmp_path):
    assert "cannot be read" in run("-f", str(tmp_path / "none")).stderr
    assert "cannot be read" in run("-f", file, "--settings", str(tmp_path / "none")).stderr
    bad = tmp_path / "bad.json"
    bad.write_text('{"imge": 1}')
    result = run("-f", file, "--settings", str(bad))
    assert (result.exit_code, "did you mean `image`?" in result.stderr) == (1, True)
    assert run("-f", file, "--kubernetes-version", "new").exit_code == 2
