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


def test_a_certificate_file_that_is_not_there_is_said_with_its_line(tmp_path):
    (line,) = said(tmp_path, "/nowhere/ca.pem")
    assert "mesh.yaml:21: DestinationRule shop/bank: spec.trafficPolicy.tls.caCertificates: warning [WFT0214]:" in line
    assert "/nowhere/ca.pem does not exist" in line


def test_a_directory_in_its_place_is_said(tmp_path):
    (line,) = said(tmp_path, str(tmp_path))
    assert "is not a file" in line


def test_a_file_that_is_there_is_well(tmp_path):
    (tmp_path / "ca.pem").write_text("x")
    assert said(tmp_path, str(tmp_path / "ca.pem")) == []


def test_whose_proxies_run_elsewhere_is_not_asked_about_files_here(tmp_path):
    assert said(tmp_path, "/nowhere/ca.pem", MESH.partition("---")[2]) == []


def test_a_path_that_no_system_takes_harms_nobody(tmp_path):
    (line,) = said(tmp_path, "/" + "x" * (os.pathconf("/", "PC_NAME_MAX") + 9))
    assert "cannot be checked" in line or "does not exist" in line
