import json

from typer.testing import CliRunner

from weft.cli import shop
from weft.cli.main import app

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


def run(*arguments):
    return CliRunner().invoke(app, ["validate", *map(str, arguments)])


def test_the_shop_is_well():
    result = run(shop.source())
    assert (result.exit_code, result.stdout) == (0, "")
    assert "objects, 0 errors, 0 warnings" in result.stderr


def test_even_its_fault_is_well_given_as_a_file():
    result = run(shop.source() / "fault.yaml.example")
    assert (result.exit_code, result.stderr) == (0, "1 object, 0 errors, 0 warnings\n")


def test_a_problem_has_file_line_and_hint_and_the_exit_code_is_1(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    result = run(tmp_path)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{tmp_path}/bad.yaml:7: VirtualService shop/payments: ")
    assert line.endswith("error: unknown field `retires` (hint: did you mean `retries`?)")
    assert result.stderr == "2 objects, 1 error, 0 warnings\n"


def test_garbage_is_said_and_hides_nothing_else(tmp_path):
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


def test_several_files_are_read_in_one_go(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(BAD)
    assert run(tmp_path / "a.yaml", tmp_path / "b.yaml").stderr.startswith("2 objects, 1 error")


def test_the_current_directory_is_the_default(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert run().exit_code == 0


def test_what_is_not_there_or_holds_nothing_is_an_error(tmp_path):
    missing = run(tmp_path / "no.yaml")
    assert missing.exit_code == 1
    assert "does not exist" in missing.stderr
    empty = run(tmp_path)
    assert empty.exit_code == 1
    assert "hint: YAML files end in .yaml" in empty.stderr
