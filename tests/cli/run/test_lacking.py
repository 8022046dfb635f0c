import click
import msgspec
import pytest

from weft.base.problem import Problem, Where
from weft.cli.run.lacking import end_if_workloads_lack, what_lacks
from weft.local.status import MeshStatus, RejectedVersion

FINE = MeshStatus("shop", "/mesh", 1, 2.0)
REJECTED = RejectedVersion("Workload shop/web", "Workload", "web.yaml", 4, is_in_force=False)


def test_a_rejected_workload_ends_the_command_with_an_error(capsys):
    lacking = msgspec.structs.replace(FINE, rejected=(REJECTED,))
    with pytest.raises(click.exceptions.Exit) as ended:
        end_if_workloads_lack(FINE, lacking)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == (
        "error: web.yaml:4: Workload shop/web has no pods, because it is rejected\n"
        "hint: see the errors: weft status --mesh shop\n"
    )


def test_errors_of_a_mesh_without_workloads_are_reported():
    lacking = msgspec.structs.replace(FINE, problems=(Problem(Where("a.yaml", 1), "this is not YAML"),))
    assert what_lacks(lacking) == "no workload runs in mesh shop, and its files have errors"
    assert what_lacks(FINE) == ""
    end_if_workloads_lack(FINE)
