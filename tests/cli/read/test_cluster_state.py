from weft.cli.read.cluster_state import running
from weft.kube.inventory import Inventory


def test_each_revisions_injector_has_its_settings():
    found = running(
        Inventory(revisions=frozenset({"default"}), injectors={"default": {"settings": '{"image": "weft:1"}'}})
    )
    assert list(found.injectors) == ["default"]
    assert found.injectors["default"].image == "weft:1"


def test_settings_that_cannot_be_read_are_a_problem_and_stop_nothing_else():
    found = running(Inventory(injectors={"broken": {"settings": "["}, "good": {"settings": "{}"}}))
    assert list(found.injectors) == ["good"]
    assert "revision broken" in str(found.problems[0])
