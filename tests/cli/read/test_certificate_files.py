import os

from click.testing import CliRunner

from weft.cli.main import app

MESH = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {{name: caller, namespace: shop}}
spec: {{command: [sleep, infinity], workingDirectory: /}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: bank, namespace: shop}}
spec: {{hosts: [bank.example.com], ports: [{{number: 443, name: https, protocol: HTTPS}}], resolution: DNS, addresses: [240.9.9.9]}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: bank, namespace: shop}}
spec:
  host: bank.example.com
  trafficPolicy:
    tls:
      mode: SIMPLE
      sni: bank.example.com
      caCertificates: {file}
"""


def said(directory, file, text=MESH):
    (directory / "mesh.yaml").write_text(text.format(file=file))
    result = CliRunner().invoke(app, ["validate", str(directory)])
    return [line for line in result.output.splitlines() if "caCertificates" in line]


def test_a_missing_certificate_file_is_reported_with_its_line(tmp_path):
    (line,) = said(tmp_path, "/nowhere/ca.pem")
    assert "mesh.yaml:21: DestinationRule shop/bank: spec.trafficPolicy.tls.caCertificates: warning [WFT0214]:" in line
    assert "/nowhere/ca.pem does not exist" in line


def test_a_directory_instead_of_a_file_is_reported(tmp_path):
    (line,) = said(tmp_path, str(tmp_path))
    assert "is not a file" in line


def test_an_existing_file_is_no_problem(tmp_path):
    (tmp_path / "ca.pem").write_text("x")
    assert said(tmp_path, str(tmp_path / "ca.pem")) == []


def test_files_are_not_checked_if_the_proxies_run_elsewhere(tmp_path):
    assert said(tmp_path, "/nowhere/ca.pem", MESH.partition("---")[2]) == []


def test_an_invalid_path_does_not_crash(tmp_path):
    (line,) = said(tmp_path, "/" + "x" * (os.pathconf("/", "PC_NAME_MAX") + 9))
    assert "cannot be checked" in line or "does not exist" in line
