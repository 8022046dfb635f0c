from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from weft.cli.main import app

SHOP = Path(__file__).parents[3] / "examples" / "shop"


def export(*arguments):
    return CliRunner().invoke(app, ["kube-export", *map(str, arguments)])


def by_key(text):
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def test_the_shop_is_exported_as_written():
    result = export(SHOP, "--image", "shop:1")
    assert "the image shop:1 must contain these programs: perl, python3" in result.stderr
    assert "apply to the whole mesh" in result.stderr
    made = by_key(result.stdout)
    written = {
        (each["kind"], each["metadata"]["name"]): each
        for file in SHOP.glob("*.yaml")
        for each in yaml.safe_load_all(file.read_text())
    }
    for key, each in written.items():
        if key[0] not in ("Workload", "Namespace"):
            assert made[key] == each
    workloads = {name for kind, name in written if kind == "Workload"}
    assert workloads == {name for kind, name in made if kind in ("Deployment", "Job")}
    assert ("Job", "migrate") in made
    assert made[("Namespace", "shop")]["metadata"]["labels"]["istio-injection"] == "enabled"
    deployment = made[("Deployment", "frontend")]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "shop:1"
    [volume] = deployment["spec"]["template"]["spec"]["volumes"]
    assert made[("ConfigMap", volume["configMap"]["name"])]["data"]["frontend.py"] == (
        SHOP / "programs" / "frontend.py"
    ).read_text(encoding="utf-8")
    assert ("ServiceAccount", "frontend") in made


def test_an_invalid_object_is_an_error_and_nothing_is_printed(tmp_path):
    (tmp_path / "wrong.yaml").write_text(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x}\nspec: {hosts: [a], http: 7}\n"
    )
    result = export(tmp_path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "wrong.yaml:4" in result.stderr


def test_a_missing_directory_is_an_error(tmp_path):
    result = export(tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "nowhere" in result.stderr


def test_a_gateway_is_exported_as_a_deployment_that_the_injector_completes():
    result = export(SHOP.parent / "edge")
    assert result.exit_code == 0, result.stderr
    made = by_key(result.stdout)
    template = made[("Deployment", "edge")]["spec"]["template"]
    assert template["metadata"]["annotations"]["inject.istio.io/templates"] == "gateway"
    assert made[("Service", "edge-published")]["spec"]["ports"][0]["targetPort"] == 80


@pytest.mark.parametrize("encoding", [serialization.Encoding.PEM, serialization.Encoding.DER])
def test_a_private_key_never_becomes_part_of_a_config_map(tmp_path, encoding):
    key = ec.generate_private_key(ec.SECP256R1())
    content = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "web.py").write_text("print('web')\n")
    (programs / "My Edge.key").write_bytes(content)
    (tmp_path / "web.yaml").write_text(
        "apiVersion: weft.dev/v1alpha1\nkind: Workload\nmetadata: {name: web, namespace: shop}\n"
        "spec: {command: [python3, web.py], workingDirectory: programs}\n"
    )
    result = export(tmp_path, "--image", "x:1")
    assert result.exit_code == 0, result.stderr
    (data,) = [each["data"] for each in yaml.safe_load_all(result.stdout) if each["kind"] == "ConfigMap"]
    assert [*data] == ["web.py"] and "PRIVATE" not in result.stdout
    assert f"{programs / 'My Edge.key'} contains a private key, so it is not exported" in result.stderr
    assert f"kubectl create secret generic my-edge --from-file='{programs / 'My Edge.key'}'" in result.stderr
