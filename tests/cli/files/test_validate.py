import json
import os
import threading

import pytest
from click.testing import CliRunner

from analyze import meshes
from cli.files.test_test import TESTS
from weft.cli.main import app
from weft.demo import shop

GOOD = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
BAD = """\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payments, namespace: shop}
spec:
  hosts: [payments]
  http:
    - retires: {attempts: 3}
      route: [{destination: {host: payments}}]
"""


WEB = f"{meshes.WEB.lstrip()}---\n"
ROUTES = """\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
    - route: [{destination: {host: wbe}}]
"""


def run(*arguments, **more):
    return CliRunner().invoke(app, ["validate", *map(str, arguments)], **more)


def test_the_shop_is_well():
    result = run(shop.source())
    assert (result.exit_code, result.stdout) == (0, "")
    assert "objects, 0 errors, 0 warnings" in result.stderr


def test_files_may_be_given_as_options_too(tmp_path):
    for name, text in (("good.yaml", GOOD), ("bad.yaml", BAD)):
        (tmp_path / name).write_text(text)
    both = run("-f", tmp_path / "good.yaml", "-f", tmp_path / "bad.yaml")
    assert "2 objects, 1 error" in both.stderr
    assert run("-f", tmp_path / "good.yaml", tmp_path / "bad.yaml").stdout == both.stdout


def test_even_its_fault_is_well_given_as_a_file():
    result = run(shop.source() / "fault.yaml.example")
    assert result.exit_code == 0
    assert result.stderr.startswith("1 object, 0 errors, 0 warnings\n")


def test_a_problem_has_file_line_and_hint_and_the_exit_code_is_1(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    result = run(tmp_path)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{tmp_path}/bad.yaml:7: VirtualService shop/payments: ")
    assert line.endswith("error [WFT0001]: unknown field `retires` (hint: did you mean `retries`?)")
    assert result.stderr == "2 objects, 1 error, 0 warnings\n"


def test_an_unreadable_file_is_reported_and_the_others_are_read(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\x00\xff{{{")
    (tmp_path / "b.yaml").write_text(BAD)
    result = run(tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path}/a.yaml:1: " in result.stdout
    assert f"{tmp_path}/b.yaml:7: " in result.stdout


def test_problems_can_be_had_as_json(tmp_path):
    (tmp_path / "bad.yaml").write_text(BAD)
    (problem,) = json.loads(run(tmp_path, "-o", "json").stdout)
    assert (problem["where"]["line"], problem["severity"]) == (7, "error")


def test_several_files_are_read_together(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(BAD)
    assert run(tmp_path / "a.yaml", tmp_path / "b.yaml").stderr.startswith("2 objects, 1 error")


def test_the_current_directory_is_the_default(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert run().exit_code == 0


def test_a_missing_file_or_an_empty_directory_is_a_usage_error(tmp_path):
    missing = run(tmp_path / "no.yaml")
    assert missing.exit_code == 2
    assert "does not exist" in missing.stderr
    empty = run(tmp_path)
    assert empty.exit_code == 2
    assert "hint: YAML files end in .yaml" in empty.stderr


def test_references_within_a_directory_are_checked(tmp_path):
    (tmp_path / "mesh.yaml").write_text(f"{WEB}{ROUTES}")
    result = run(tmp_path)
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    assert (
        "mesh.yaml:22: VirtualService shop/web: warning [WFT0104]: destination wbe.shop.svc.cluster.local does not"
        in line
    )
    assert result.stderr == "4 objects, 0 errors, 1 warning\n"


def test_files_with_a_workload_are_a_mesh_and_files_without_are_a_part_of_one(tmp_path):
    (tmp_path / "web.yaml").write_text(WEB.removesuffix("---\n"))
    (tmp_path / "routes.yaml").write_text(ROUTES)
    together = run(tmp_path / "web.yaml", tmp_path / "routes.yaml")
    assert "destination wbe.shop.svc.cluster.local does not exist" in together.stdout
    alone = run(tmp_path / "routes.yaml")
    assert (alone.exit_code, alone.stdout) == (0, "")
    assert "references to other objects were not checked" in alone.stderr


def test_warnings_fail_only_with_strict_and_the_help_states_that(tmp_path):
    (tmp_path / "mesh.yaml").write_text(f"{WEB}{ROUTES}")
    assert run(tmp_path).exit_code == 0
    assert run(tmp_path, "--strict").exit_code == 1
    text = run("--help").stdout
    assert "Exit codes: 0 no errors, 1 an error, or with --strict a warning" in text


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_can_be_checked(name):
    result = run(name, input=BAD)
    assert result.exit_code == 1
    assert result.stdout.startswith("stdin:7: VirtualService shop/payments: ")


def test_a_pipe_can_be_checked(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(BAD,))
    writer.start()
    assert run(pipe).stdout.startswith(f"{pipe}:7: ")
    writer.join(10)


def test_paths_are_shown_without_detours(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a.yaml").write_text(BAD)
    for given in (tmp_path / "bad" / ".." / "good", tmp_path / "bad" / ".." / "good" / "a.yaml"):
        assert run(given).stdout.startswith(f"{tmp_path}/good/a.yaml:7: ")


def test_a_missing_program_is_reported(tmp_path):
    (tmp_path / "mesh.yaml").write_text(WEB.removesuffix("---\n").replace("sleep, infinity", "slepe, infinity", 1))
    (line,) = run(tmp_path).stdout.splitlines()
    assert (
        "mesh.yaml:9: Workload shop/web-v1: spec.command[0]: warning [WFT0818]: there is no program `slepe` in " in line
    )


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("weft.files.scan.look", refuse)
    assert "cannot be read: Permission denied" in run(tmp_path).stderr


def test_a_directory_and_a_file_are_one_mesh(tmp_path):
    mesh = tmp_path / "mesh"
    mesh.mkdir()
    (mesh / "web.yaml").write_text(WEB)
    extra = tmp_path / "extra.yaml"
    extra.write_text(ROUTES)
    result = run(mesh, extra)
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{extra}:7: VirtualService shop/web: ") and "[WFT0104]" in line
    assert "part of a mesh" not in result.stderr


def test_an_object_in_two_of_the_paths_is_validated_twice(tmp_path):
    for name, text in (("a", BAD), ("b", BAD.replace("retires", "retries"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "route.yaml").write_text(text)
    assert f"{tmp_path}/a/route.yaml:7: " in run(tmp_path / "a", tmp_path / "b").stdout


@pytest.mark.parametrize("command", ["validate", "analyze"])
@pytest.mark.parametrize("alone", [True, False])
def test_errors_of_a_request_test_have_file_and_line(tmp_path, command, alone):
    (tmp_path / "tests.yaml").write_text(TESTS.replace("expect: allowed", "expect: maybe"))
    given = tmp_path / "tests.yaml" if alone else tmp_path
    result = CliRunner().invoke(app, [command, str(given)])
    assert result.exit_code == 1
    assert f"{tmp_path}/tests.yaml:7: RequestTest shop/web: " in result.stdout and "[WFT0001]" in result.stdout
    (tmp_path / "tests.yaml").write_text(TESTS)
    assert CliRunner().invoke(app, [command, str(given)]).stdout == ""


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: app}]}}
"""


@pytest.mark.parametrize("text", [DEPLOYMENT, WEB + DEPLOYMENT])
def test_validate_and_analyze_report_the_same_for_a_deployment(tmp_path, text):
    (tmp_path / "web.yaml").write_text(text)
    said = [CliRunner().invoke(app, [command, str(tmp_path)]).stdout for command in ("validate", "analyze")]
    runs = [[line for line in each.splitlines() if "does not run a Deployment" in line] for each in said]
    assert runs[0] == runs[1] and len(runs[0]) == (text != DEPLOYMENT)
    assert "does not read" not in said[0] + said[1]


GATEWAY = """\
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: edge, namespace: shop}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  template:
    metadata:
      labels: {istio: ingressgateway, sidecar.istio.io/inject: "true"}
      annotations: {inject.istio.io/templates: gateway}
    spec: {containers: [{name: istio-proxy, image: auto}]}
---
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: shop}
spec: {selector: {istio: ingressgateway}, ports: [{name: http2, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example.com]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [shop.example.com], gateways: [edge], http: [{directResponse: {status: 418}}]}
"""


def test_a_deployment_with_the_gateway_template_is_a_gateway_for_every_command(tmp_path):
    (tmp_path / "mesh.yaml").write_text(GATEWAY)
    asked = ["--to", "http://shop.example.com/"]
    for command in (
        ["validate", tmp_path],
        ["analyze", tmp_path],
        ["explain", "-f", tmp_path, "edge.shop", *asked],
        ["diff", "-f", tmp_path, "--against", tmp_path],
    ):
        result = CliRunner().invoke(app, list(map(str, command)))
        assert result.exit_code == 0 and "WFT0708" not in result.output, (command, result.output)
        assert command[0] != "explain" or "418" in result.output


ENTRY = """\
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec:
  hosts: [a.example]
  addresses: ["10.0.0.300"]
  ports: [{number: 80, name: http, protocol: HTTP}]
"""


@pytest.mark.parametrize("command", ["validate", "analyze"])
@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (ENTRY, 6, "`10.0.0.300` is not an IP address or CIDR range"),
        (ENTRY.replace("10.0.0.300", ""), 6, "`` is not an IP address or CIDR range"),
        (WEB.replace("ports:", "clusterIP: 10.0.0.300, ports:"), 4, "`10.0.0.300` is not an IP address"),
        (WEB.replace("ports:", "clusterIPs: [10.0.0.1, x], ports:"), 4, "`x` is not an IP address"),
    ],
)
def test_an_address_that_is_none_is_a_problem_with_its_line(tmp_path, command, text, line, what):
    (tmp_path / "mesh.yaml").write_text(text)
    result = CliRunner().invoke(app, [command, str(tmp_path)])
    assert result.exit_code == 1
    assert f"mesh.yaml:{line}: " in result.stdout
    assert what in result.stdout
