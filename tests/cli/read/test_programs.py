import sys
from pathlib import Path

from api.reading import document
from weft.api.parse import parse
from weft.cli.read.programs import problem_of
from weft.netns.view import POD_PATH


def said(tmp_path, spec):
    text = f"apiVersion: weft.dev/v1alpha1\nkind: Workload\nmetadata: {{name: w, namespace: shop}}\nspec:\n  {spec}"
    written = document(text, directory=str(tmp_path))
    (workload,) = parse(written).values
    problem = problem_of(workload, written)
    return str(problem) if problem else ""


def test_programs_are_looked_up_on_a_pods_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert said(tmp_path, "command: [python3]") == ""
    assert said(tmp_path, "command: [sleep, '1']") == ""
    line = said(tmp_path, "command: [slepe]")
    assert "shop.yaml:5: Workload shop/w: spec.command[0]: warning [WFT0818]: there is no program `slepe` in" in line
    assert f"there is no program `slepe` in {POD_PATH}" in line
    assert POD_PATH.startswith(f"{Path(sys.executable).parent}:/usr/local/sbin:")


def test_a_workload_may_have_a_path_of_its_own(tmp_path):
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    assert said(tmp_path, f"{{command: [mine], env: {{PATH: {tmp_path}}}}}") == ""
    assert "write ./mine" in said(tmp_path, "command: [mine]")
    assert said(tmp_path, "command: [./mine]") == ""


def test_a_missing_or_unexecutable_program_is_reported_with_its_whole_path(tmp_path):
    assert f"the program {tmp_path}/no/such does not exist" in said(tmp_path, "command: [./no/such]")
    (tmp_path / "text").write_text("x")
    assert f"chmod a+rx {tmp_path}/text" in said(tmp_path, "command: [./text]")


def test_a_missing_working_directory_is_reported_without_the_program(tmp_path):
    line = said(tmp_path, "{command: [slepe], workingDirectory: programs}")
    assert f"spec.workingDirectory: warning [WFT0818]: the working directory {tmp_path}/programs does not exist" in line
    assert f"mkdir -p {tmp_path}/programs" in line
    (tmp_path / "programs").write_text("x")
    assert "is not a directory" in said(tmp_path, "{command: [sleep], workingDirectory: programs}")


def test_a_gateway_has_no_program(tmp_path):
    assert said(tmp_path, "gateway: {}") == ""


def test_a_name_that_is_too_long_for_a_file_is_reported(tmp_path):
    long = "x" * 300
    assert "there is no program" in said(tmp_path, f"command: [{long}]")
    assert "does not exist" in said(tmp_path, f"command: [./{long}]")
    assert "the working directory" in said(tmp_path, f"{{command: [sleep], workingDirectory: {long}}}")


def test_a_missing_mount_is_reported(tmp_path):
    line = said(tmp_path, "{command: [sleep, '1'], mounts: [data]}")
    assert f"spec.mounts[0]: warning [WFT0818]: the mount {tmp_path}/data does not exist" in line
    (tmp_path / "data").mkdir()
    assert said(tmp_path, "{command: [sleep, '1'], mounts: [data]}") == ""
