import msgspec
import pytest

from inject.truth_table import CASES
from weft.inject.decision import decide, required
from weft.inject.settings import InjectionSettings


def settings_of(case):
    return msgspec.convert({**case.settings, "revision": case.revision}, InjectionSettings)


def pod_of(case):
    metadata = {"name": "pod", "labels": case.labels, "annotations": case.annotations}
    return {"metadata": metadata, "spec": {"containers": [{"name": "app", "image": "app"}], **case.spec}}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_truth_table(case):
    found = decide(pod_of(case), case.namespace or "shop", case.namespace_labels, settings_of(case))
    assert found.inject is case.injected, found.reason
    assert case.reason in found.reason


def test_the_table_is_large_enough_and_has_no_case_twice():
    assert len(CASES) >= 40
    told = [msgspec.structs.replace(case, name="", reason="", injected=False) for case in CASES]
    assert all(told.count(each) == 1 for each in told)
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "pod", [{}, {"metadata": None}, {"metadata": {"labels": None}, "spec": None}, {"metadata": [], "spec": []}]
)
def test_a_pod_without_metadata_or_spec_is_judged_too(pod):
    assert required(pod, "shop", InjectionSettings()).inject
    assert not decide(pod, "shop", {}, InjectionSettings()).inject


def test_no_pod_is_selected_by_two_revisions():
    for case in CASES:
        asked = [
            decide(pod_of(case), "shop", case.namespace_labels, InjectionSettings(revision=revision)).inject
            for revision in ("default", "canary", "stable")
        ]
        assert sum(asked) <= 1, case.name
