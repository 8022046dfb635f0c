import contextlib
import itertools
import time

import pytest

from weft.demo import check
from weft.demo.mesh_process import ShopAnswer, StepFailed


class FakeMesh:
    """Responds in place of a mesh, so that each step of the check can be made to fail."""

    def __init__(self, *answers, status=None):
        self.answers, self._status = list(answers), status

    def ask(self, url, count, by="loadgen"):
        return (self.answers * count)[:count]

    def status(self):
        return self._status


def answer(status=200, **body):
    return ShopAnswer(status, body, time.time())


NINE_TO_ONE = [answer(version="v1")] * 9 + [answer(version="v2")]


def test_an_expected_split_is_accepted_and_reported_in_numbers():
    assert check._split(FakeMesh(*NINE_TO_ONE), 0.1).startswith("v1 270, v2 30 of 300")


def test_a_wrong_split_is_refused():
    with pytest.raises(StepFailed, match="wanted 50% v2"):
        check._split(FakeMesh(*NINE_TO_ONE), 0.5)


def test_a_split_with_failures_is_refused():
    with pytest.raises(StepFailed, match="30 of 300 failed; for example 503"):
        check._split(FakeMesh(*NINE_TO_ONE[:9], answer(503, text="no healthy upstream")), 0.1)


def test_a_split_that_was_wrong_before_the_edit_has_not_moved():
    class Even(FakeMesh):
        @contextlib.contextmanager
        def stream(self, url, by="loadgen"):
            yield itertools.cycle(self.answers)

    with pytest.raises(StepFailed, match="not 90/10 before"):
        check._weight_moves(Even(answer(version="v1"), answer(version="v2")))


def test_an_app_that_sees_its_caller_was_not_intercepted():
    seen = {"caller": "127.0.0.6", "catalog": {"caller": "127.0.0.6"}, "inventory": {"caller": "ipv4:127.0.0.6:41"}}
    good = answer(**seen, payments={"caller": "127.0.0.6"})
    assert "inventory" in check._sees_proxy(FakeMesh(good))
    with pytest.raises(StepFailed, match=r"payments.*10\.0\.0\.9"):
        check._sees_proxy(FakeMesh(answer(**seen, payments={"caller": "10.0.0.9"})))


def test_requests_must_reach_both_pods_of_catalog():
    one, two = answer(catalog={"pod": "catalog-0"}), answer(catalog={"pod": "catalog-1"})
    assert "catalog-0 and catalog-1" in check._requests_pass(FakeMesh(one, two))
    with pytest.raises(StepFailed, match="only"):
        check._requests_pass(FakeMesh(one))


def test_a_failed_step_is_reported_and_stops_no_other():
    def fails():
        raise StepFailed("it was cold")

    step = check._take("the sun shines", fails)
    assert (step.ok, step.saw) == (False, "it was cold")
    assert "FAILED" in str(step)
