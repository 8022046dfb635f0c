import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from weft.demo import shop


@pytest.fixture
def copy(tmp_path):
    shop.copy_to(tmp_path / "shop")
    return tmp_path / "shop"


def weights(directory: Path) -> list[int]:
    documents = yaml.safe_load_all((directory / "payments.yaml").read_text())
    (route,) = [each for each in documents if each["kind"] == "VirtualService"]
    return [destination["weight"] for destination in route["spec"]["http"][0]["route"]]


def test_the_copy_can_be_read_by_the_users_its_programs_run_as(tmp_path):
    before = os.umask(0o077)
    try:
        shop.copy_to(tmp_path / "shop")
    finally:
        os.umask(before)
    paths = [tmp_path / "shop", *(tmp_path / "shop").rglob("*")]
    assert all(path.stat().st_mode & 0o004 for path in paths)
    assert not [path for path in paths if path.name == "__pycache__"]


def test_moving_the_weight_changes_only_the_weights(copy):
    before = (copy / "payments.yaml").read_text().splitlines()
    assert weights(copy) == [90, 10]
    shop.move_weight(copy)
    assert weights(copy) == [50, 50]
    after = (copy / "payments.yaml").read_text().splitlines()
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 2


def test_a_fault_comes_and_goes_as_a_file(copy):
    names = sorted(path.name for path in copy.iterdir())
    shop.inject_fault(copy)
    (fault,) = yaml.safe_load_all((copy / "fault.yaml").read_text())
    assert fault["spec"]["http"][0]["fault"]["abort"] == {"percentage": {"value": 50}, "httpStatus": 503}
    shop.heal_fault(copy)
    assert sorted(path.name for path in copy.iterdir()) == names


def test_the_suggested_commands_work(copy, monkeypatch):
    monkeypatch.chdir(copy.parent)
    (_, (move,)), (_, (inject, heal)), (_, (let_in, keep_out)), _ = shop.things_to_try(copy, victim=0)
    subprocess.run(move, shell=True, check=True)
    assert weights(copy) == [50, 50]
    subprocess.run(inject, shell=True, check=True)
    assert (copy / "fault.yaml").exists()
    subprocess.run(heal, shell=True, check=True)
    assert not (copy / "fault.yaml").exists()
    before = (copy / "payments.yaml").read_text()
    subprocess.run(let_in, shell=True, check=True)
    assert accounts(copy) == [["frontend", "snoop"]] * 2
    subprocess.run(keep_out, shell=True, check=True)
    assert (copy / "payments.yaml").read_text() == before


def accounts(directory: Path) -> list[list[str]]:
    """Return the service accounts that the policies of payments name."""
    documents = yaml.safe_load_all((directory / "payments.yaml").read_text())
    policies = [each["spec"] for each in documents if each["kind"] == "AuthorizationPolicy"]
    sources = [policy["rules"][0]["from"][0]["source"] for policy in policies]
    return [named for source in sources for named in source.values()]


def test_the_policies_of_payments_admit_and_deny_snoop(copy):
    before = (copy / "payments.yaml").read_text()
    assert accounts(copy) == [["frontend"]] * 2
    shop.let_snoop_in(copy)
    assert accounts(copy) == [["frontend", "snoop"]] * 2
    shop.keep_snoop_out(copy)
    assert (copy / "payments.yaml").read_text() == before


def test_an_outsider_has_no_proxy_and_comes_and_goes_as_a_file(copy):
    names = sorted(path.name for path in copy.iterdir())
    shop.add_outsider(copy)
    (outsider,) = yaml.safe_load_all((copy / "outsider.yaml").read_text())
    assert outsider["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    shop.remove_outsider(copy)
    assert sorted(path.name for path in copy.iterdir()) == names


def test_every_workload_of_the_shop_has_an_account_of_its_own_and_no_two_services_share_one():
    documents = [each for path in shop.source().glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    workloads = [each for each in documents if each["kind"] == "Workload"]
    by_app = {(each["metadata"]["labels"]["app"], each["spec"]["serviceAccount"]) for each in workloads}
    assert all(app == account for app, account in by_app)


def test_no_command_is_broken_by_the_width_of_a_usual_terminal(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tips = shop.things_to_try(tmp_path / "weft-demo", victim=1_234_567)
    assert max(len(command) for _, commands in tips for command in commands) < 76


def test_the_pod_to_kill_is_named_by_its_process():
    assert shop.things_to_try(Path("shop"), victim=4711)[-1][1] == ["kill -9 4711"]


def test_a_directory_with_a_space_can_be_pasted_into_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop.copy_to(tmp_path / "my shop")
    (command,) = shop.things_to_try(tmp_path / "my shop", victim=0)[0][1]
    subprocess.run(command, shell=True, check=True)
    assert weights(tmp_path / "my shop") == [50, 50]


def test_the_shops_programs_compile():
    programs = sorted((shop.source() / "programs").glob("*.py"))
    assert len(programs) >= 7
    code = "import sys\nfor name in sys.argv[1:]: compile(open(name).read(), name, 'exec')"
    subprocess.run([sys.executable, "-c", code, *programs], check=True)
    subprocess.run(["perl", "-c", shop.source() / "programs" / "ledger.pl"], check=True, capture_output=True)
