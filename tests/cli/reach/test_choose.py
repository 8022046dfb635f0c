import click
import pytest

from cli.statuses import mesh, pod, workload
from weft.base.ambiguous import Ambiguous
from weft.cli.reach.choose import choose_mesh, choose_pod, choose_pods, one_name
from weft.local import run_directory
from weft.local.status import PodPhase

STATUS = mesh(
    workload("catalog", pod("catalog", PodPhase.STARTING), pod("catalog", index=1)),
    workload("ledger", pod("ledger")),
    workload("ledger", pod("ledger", namespace="bank"), namespace="bank"),
)


@pytest.fixture
def start(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path))
    held = []

    def start(name):
        held.append(run_directory.acquire(name, "/meshes"))

    yield start
    for each in held:
        each.release()


def refused(capsys, ask, *arguments):
    with pytest.raises(click.exceptions.Exit) as ended:
        ask(*arguments)
    return ended.value.exit_code, capsys.readouterr().err


def test_the_only_running_mesh_is_chosen(start):
    start("shop")
    assert choose_mesh(None) == "shop"
    assert choose_mesh("shop") == "shop"


def test_without_a_mesh_the_hint_is_how_to_start_one(start, capsys):
    code, said = refused(capsys, choose_mesh, None)
    assert code == 1
    assert "hint: start one with: weft up DIR" in said and "--kubeconfig" not in said
    with pytest.raises(click.exceptions.Exit):
        choose_mesh(None, or_cluster=True)
    assert "hint: or use a cluster: --kubernetes, or --kubeconfig FILE" in capsys.readouterr().err


def test_several_running_meshes_require_a_choice(start, capsys):
    start("shop")
    start("bank")
    code, said = refused(capsys, choose_mesh, None)
    assert code == 2
    assert "bank, shop" in said
    assert "--mesh bank" in said
    assert choose_mesh("shop") == "shop"


def test_a_mistyped_mesh_gets_a_suggestion(start, capsys):
    start("shop")
    assert "did you mean `shop`?" in refused(capsys, choose_mesh, "shpo")[1]


def test_a_workload_name_selects_its_ready_pod_and_a_pod_name_that_pod():
    assert choose_pod(STATUS, "catalog").name == "catalog-1"
    assert choose_pod(STATUS, "catalog-0").name == "catalog-0"
    assert choose_pod(STATUS, "shop/catalog").name == "catalog-1"


def test_a_pod_can_be_named_in_all_forms_that_istioctl_accepts(capsys):
    for words in (
        ("ledger.bank",),
        ("ledger-0.bank",),
        ("ledger", "bank"),
        ("deploy/ledger.bank",),
        ("po/ledger-0", "bank"),
    ):
        assert choose_pod(STATUS, *words).namespace == "bank", words
        assert [each.namespace for each in choose_pods(STATUS, *words)] == ["bank"], words
    assert refused(capsys, choose_pod, STATUS, "ledger.bank", "shop")[0] == 2
    assert "is not a workload" in refused(capsys, choose_pods, STATUS, "svc/ledger")[1]


def test_a_workload_name_can_select_all_of_its_pods():
    assert [each.name for each in choose_pods(STATUS, "catalog")] == ["catalog-0", "catalog-1"]


def test_a_name_in_several_namespaces_is_ambiguous():
    with pytest.raises(Ambiguous) as caught:
        choose_pod(STATUS, "ledger")
    assert caught.value.problem.hint == "choose one: bank/ledger, or shop/ledger"
    assert choose_pod(STATUS, "bank/ledger").namespace == "bank"


def test_an_unknown_name_gets_a_suggestion(capsys):
    code, said = refused(capsys, choose_pod, STATUS, "catlog")
    assert code == 1
    assert "did you mean `catalog`?" in said


def test_a_mesh_is_named_as_an_argument_or_as_an_option_but_not_two_meshes(capsys):
    assert (one_name("shop", None), one_name(None, "shop"), one_name("shop", "shop")) == ("shop",) * 3
    assert one_name(None, None) is None
    assert refused(capsys, one_name, "shop", "bank")[0] == 2
