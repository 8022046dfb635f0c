import pytest
from click.testing import CliRunner

from weft.cli.main import app


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["node", *arguments])
    return done.exit_code, done.output


@pytest.fixture
def workloads(tmp_path):
    made = tmp_path / "workloads"
    made.mkdir(mode=0o700)
    return made


def test_a_directory_that_others_can_open_is_refused_with_the_command_that_mends_it(workloads):
    workloads.chmod(0o755)
    code, said = run("--workloads", str(workloads), "--ca", "unix:/run/ca.sock")
    assert code == 1 and "is open to other users" in said and f"chmod 700 {workloads}" in said


def test_a_ca_on_the_network_is_known_by_its_root(workloads, tmp_path):
    code, said = run("--workloads", str(workloads), "--ca", "control:15012")
    assert code == 2 and "--ca-root" in said
    code, said = run("--workloads", str(workloads), "--ca", "control:15012", "--ca-root", str(tmp_path / "none.pem"))
    assert code == 1 and "cannot be read as certificates" in said


def test_an_invalid_certificate_lifetime_is_rejected(workloads):
    code, said = run("--workloads", str(workloads), "--ca", "unix:/x", "--certificate-ttl", "soon")
    assert code == 2 and "`soon` is not a duration" in said
