"""`weft analyze` as a user types it: files, output, exit codes."""

import json

import pytest
import yaml
from click.testing import CliRunner

from analyze import meshes
from weft.analyze.checks import CHECKS
from weft.cli.main import app
from weft.demo import shop

ROUTES = """\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
    - route: [{destination: {host: wbe}}]
"""
UNNAMED = """\
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""


def run(*arguments, **more):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)], **more)


@pytest.fixture
def wrong(tmp_path):
    (tmp_path / "mesh.yaml").write_text(meshes.WEB)
    (tmp_path / "routes.yaml").write_text(ROUTES)
    return tmp_path


def test_the_shop_is_well():
    result = run(shop.source())
    assert (result.exit_code, result.stdout) == (0, "")
    assert "files: 26 objects, 0 errors, 0 warnings, 0 info" in result.stderr


def test_a_finding_has_its_file_line_code_and_hint_and_the_exit_code_is_1(wrong):
    result = run(wrong)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{wrong}/routes.yaml:7: VirtualService shop/web: warning [WFT0104]: destination wbe.shop")
    assert line.endswith("(hint: did you mean `web.shop.svc.cluster.local`?)")
    assert "4 objects, 0 errors, 1 warning, 0 info" in result.stderr


def test_verbose_describes_the_check(wrong):
    line, more = run(wrong, "-v").stdout.splitlines()
    assert line == run(wrong, "--verbose=false").stdout.strip()
    assert more == f"  {CHECKS['WFT0104'].title}. {CHECKS['WFT0104'].more}"


def test_colours_are_used_if_requested(wrong):
    assert "\x1b[33m" in run(wrong, "--color").stdout
    for plain in ((), ("--color=false",), ("--no-color",)):
        assert "\x1b" not in run(wrong, *plain).stdout


def test_a_given_mesh_config_replaces_the_existing_one(wrong, tmp_path_factory):
    held = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'bogus: 1'}\n"
    )
    (wrong / "settings.yaml").write_text(held)
    own = tmp_path_factory.mktemp("own") / "mesh-config"
    own.write_text("outboundTrafficPolicy: {mode: NOBODY}\n")
    assert "bogus" in run(wrong).stdout
    said = run(wrong, "--meshConfigFile", own).stdout
    assert "bogus" not in said and f"{own}:1: ConfigMap istio-system/istio" in said and "NOBODY" in said
    own.write_text("outboundTrafficPolicy: {mode: ALLOW_ANY}\n")
    assert run(wrong, "--meshConfigFile", own).stdout.count("\n") == 1
    missing = run(wrong, "--meshConfigFile", own.parent / "no")
    assert missing.exit_code == 2 and "cannot be read" in missing.stderr


def test_istioctls_flag_to_use_no_cluster_is_accepted(wrong):
    assert run("--use-kube=false", wrong).stdout == run(wrong).stdout


def test_files_may_be_given_one_by_one_and_as_options(wrong):
    assert run("-f", wrong / "mesh.yaml", wrong / "routes.yaml").stdout == run(wrong).stdout


def test_files_and_directories_are_together_one_mesh(wrong, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "wbe.yaml").write_text(
        meshes.WEB.replace("name: web", "name: wbe").replace("app: web", "app: wbe")
    )
    assert run(wrong / "mesh.yaml", wrong / "routes.yaml", tmp_path / "more").exit_code == 0


def test_the_thresholds_decide_what_fails_and_what_is_shown(tmp_path):
    (tmp_path / "mesh.yaml").write_text(f"{meshes.WEB}---\n{UNNAMED}")
    usual = run(tmp_path)
    assert (usual.exit_code, "info [WFT0307]" in usual.stdout) == (0, True)
    assert run(tmp_path, "--failure-threshold", "info").exit_code == 1
    assert run(tmp_path, "--failure-threshold", "Info").exit_code == 1
    assert run(tmp_path, "--output-threshold", "Warning").stdout == ""
    (tmp_path / "routes.yaml").write_text(ROUTES)
    assert run(tmp_path, "--failure-threshold", "Error").exit_code == 0


@pytest.mark.parametrize(
    "suppressed",
    ["WFT0104=VirtualService web.shop", "WFT0104=VirtualService shop/web", "WFT0104=*.shop", "*=VirtualService *"],
)
def test_a_finding_can_be_suppressed_by_code_and_object(wrong, suppressed):
    result = run(wrong, "--suppress", suppressed)
    assert (result.exit_code, result.stdout) == (0, "")


def test_another_code_or_object_is_not_suppressed_and_an_invalid_value_is_an_error(wrong):
    assert run(wrong, "-S", "WFT0101=VirtualService web.shop", "-S", "WFT0104=VirtualService *.bank").exit_code == 1
    for nonsense in ("WFT0104", "WFT9999=*", "=*"):
        result = run(wrong, "--suppress", nonsense)
        assert (result.exit_code, "hint: " in result.stderr) == (2, True), nonsense


def test_programs_get_json_or_yaml_with_istioctls_names(wrong):
    (row,) = json.loads(run(wrong, "-o", "json").stdout)
    assert row == yaml.safe_load(run(wrong, "-o", "yaml").stdout)[0]
    assert (row["code"], row["level"], row["origin"]) == ("WFT0104", "Warning", "VirtualService web.shop")
    assert row["reference"] == f"{wrong}/routes.yaml:7"
    assert row["message"].startswith("destination wbe.shop")
    assert json.loads(run(shop.source(), "-o", "json").stdout) == []


def test_only_findings_of_the_named_namespace_are_shown(wrong):
    assert run(wrong, "-n", "shop").exit_code == 1
    assert run(wrong, "-n", "bank").exit_code == 0


def test_files_that_hold_no_objects_are_an_error_that_can_be_passed_over(wrong):
    (wrong / "values.yaml").write_text("replicas: 3\n")
    assert "error [WFT0001]" in run(wrong).stdout
    assert "WFT0001" not in run(wrong, "--ignore-unknown").stdout


def test_every_check_can_be_listed_and_one_explained():
    for flag in ("--list", "--list-analyzers", "-L"):
        assert len(run(flag).stdout.splitlines()) == len(CHECKS)
    told = run("--explain", "wft0104").stdout
    assert told.startswith("WFT0104 (warning): A route leads to a host that does not exist\n")
    assert "In istioctl: IST0101" in told
    assert "Documentation: docs/reference/checks.md#wft0104" in told
    assert run("--explain", "WFT9999").exit_code == 2


@pytest.mark.parametrize("asked", [("--explain", "ist0116"), ("--suppress", "IST0116=Service web.shop")])
def test_a_code_of_istioctl_gets_the_corresponding_check(asked):
    told = run(*asked)
    assert (told.exit_code, told.stderr.splitlines()[1]) == (2, "hint: istioctl's IST0116 corresponds to WFT0308")
    assert "no check corresponds to istioctl's IST9999" in run("--explain", "IST9999").stderr


def test_standard_input_can_be_a_file():
    result = run("-", input=f"{meshes.WEB}---\n{ROUTES}")
    assert result.stdout.startswith("stdin:23: VirtualService shop/web: warning [WFT0104]")


def test_without_files_or_a_mesh_the_error_has_a_hint(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    result = run()
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no mesh is running\nhint: ")


def test_a_file_that_is_not_there_is_no_finding(wrong):
    missing = run(wrong / "no.yaml")
    assert missing.exit_code == 2 and "does not exist" in missing.stderr


def test_two_places_at_once_are_a_usage_error(wrong):
    assert run(wrong, "--mesh", "demo", "--use-kube").exit_code == 2


def test_a_missing_program_is_reported_for_a_mesh_of_this_machine(tmp_path):
    (tmp_path / "mesh.yaml").write_text(meshes.WEB.replace("[sleep, infinity]", "[slepe]", 1))
    assert "there is no program `slepe`" in run(tmp_path).stdout


@pytest.mark.root
def test_a_mesh_of_this_machine_is_analyzed_and_files_can_replace_its_objects(weft, mesh, wrong):
    well = weft("analyze", "--mesh", mesh)
    assert (well.returncode, well.stdout) == (0, ""), well.stderr
    assert f"mesh {mesh}: 2 objects" in well.stderr
    over = weft("analyze", wrong / "routes.yaml", "--mesh", mesh)
    assert over.returncode == 1
    assert "WFT0101" in over.stdout and "WFT0104" in over.stdout
    without = weft("analyze", wrong / "mesh.yaml", wrong / "routes.yaml", "--mesh", mesh)
    assert [line.partition("warning ")[2][:9] for line in without.stdout.splitlines()] == ["[WFT0104]"]
    assert "mesh" in without.stderr


def test_a_cluster_is_analyzed_and_files_replace_its_objects(api_server, weft, tmp_path):
    from kube.cluster import put
    from kube.manifests import definition, pod, service

    put(api_server, definition("VirtualService"))
    shop = api_server.make_namespace("analyze-shop", labels={"istio-injection": "enabled"})
    put(api_server, service("web", shop), pod("web-0", shop, "10.0.8.1", proxy=False))
    kube = ("--kubeconfig", api_server.kubeconfig)
    alone = weft("analyze", "-n", shop, *kube)
    assert alone.returncode == 1
    assert alone.stdout.startswith(f"Pod {shop}/web-0: warning [WFT0804]: the pod has no proxy")
    assert f", namespace {shop}: " in alone.stderr
    assert f"Pod {shop}/web-0" in weft("analyze", "-A", *kube).stdout
    assert f"Pod {shop}/web-0" not in weft("analyze", *kube).stdout  # the context's own namespace
    (tmp_path / "routes.yaml").write_text(ROUTES.replace("namespace: shop", f"namespace: {shop}"))
    over = weft("analyze", "-f", tmp_path / "routes.yaml", "--use-kube", "-n", shop, *kube, "-S", "WFT0804=*")
    assert [line.partition("warning ")[2][:9] for line in over.stdout.splitlines()] == ["[WFT0104]"]
    assert f"{tmp_path}/routes.yaml:7: " in over.stdout
