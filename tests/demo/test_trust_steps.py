import contextlib
import itertools
import time

import pytest

from cli.statuses import mesh as status_of
from cli.statuses import pod, workload
from weft.base.key_search import Searched
from weft.demo import shop, trust_steps
from weft.demo.mesh_process import ShopAnswer, StepFailed
from weft.demo.trust_steps import RULE, SNOOP
from weft.local.status import PodPhase
from weft.node.status import IdentityStatus

DENIED = f'"GET /pay HTTP/2" 403 - rbac_access_denied_matched_policy[{RULE}] downstream_peer="{SNOOP}"'
PLAIN = '"- - -" 0 NR filter_chain_not_found'


class FakeMesh:
    """A shop with a chosen response for each caller, so that each step of the check can be made to fail."""

    def __init__(self, directory, answers=None, line="", statuses=(), keys=()):
        self.directory, self.answers, self.line = directory, answers or {}, line
        self.lines, self.statuses, self.keys = [], list(statuses), Searched(9, keys)

    def ask(self, url, count, by="loadgen"):
        self.lines += [f"{len(self.lines) + number} {self.line}" for number in range(count)]
        return [ShopAnswer(self.answers[by], {"error": "reset"}, time.time())] * count

    @contextlib.contextmanager
    def stream(self, url, by="loadgen"):
        def answers():
            for number in itertools.count():
                status = self.answers[by]
                yield ShopAnswer(status(number) if callable(status) else status, {}, time.time())

        yield answers()

    def logs(self, workload, proxy=False):
        assert proxy
        return "\n".join(self.lines) if workload == "payments-v1" else ""

    def wait_for(self, what, lacking, seconds):
        assert lacking(self.status()) == ""

    def status(self):
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def search_keys(self):
        return self.keys


@pytest.fixture
def copy(tmp_path, monkeypatch):
    monkeypatch.setattr(trust_steps, "_PATIENCE", 0.1)
    shop.copy_to(tmp_path / "shop")
    return tmp_path / "shop"


def renewed(times):
    identity = IdentityStatus(workload="shop/web-0", identity="spiffe://cluster.local/ns/shop/sa/web", renewals=times)
    return status_of(workload("web", pod("web", phase=PodPhase.READY, identity=identity)))


OUTSIDER = status_of(workload("outsider", pod("outsider", phase=PodPhase.READY)))


def test_plaintext_must_get_no_response_and_the_log_must_show_why(copy):
    seen = trust_steps.plaintext_is_refused(FakeMesh(copy, {"outsider": 0}, PLAIN, [OUTSIDER]))
    assert seen == "50 of 50 got no answer (reset); the log: 50 times NR"
    with pytest.raises(StepFailed, match="50 of 50 were answered; for example 200"):
        trust_steps.plaintext_is_refused(FakeMesh(copy, {"outsider": 200}, PLAIN, [OUTSIDER]))
    with pytest.raises(StepFailed, match="the log has 0 of 50 lines about rejected requests"):
        trust_steps.plaintext_is_refused(FakeMesh(copy, {"outsider": 0}, "nothing", [OUTSIDER]))
    assert not (copy / "outsider.yaml").exists()


def test_frontend_must_be_served_and_snoop_refused_by_name_of_the_rule(copy):
    seen = trust_steps.one_is_served_the_other_is_not(FakeMesh(copy, {"frontend": 200, "snoop": 403}, DENIED))
    assert seen.endswith(f"the log: {RULE} for {SNOOP}")
    for answers, line, what in (
        ({"frontend": 403, "snoop": 403}, DENIED, "frontend was not served"),
        ({"frontend": 200, "snoop": 200}, DENIED, "50 of 50 requests of snoop were not refused: 200"),
        ({"frontend": 200, "snoop": 403}, DENIED.replace(RULE, "none"), "does not name"),
        ({"frontend": 200, "snoop": 403}, DENIED.replace("snoop", "frontend"), "0 of 50 lines"),
    ):
        with pytest.raises(StepFailed, match=what):
            trust_steps.one_is_served_the_other_is_not(FakeMesh(copy, answers, line))


def test_snoop_must_be_served_and_then_refused_for_good(copy):
    def as_promised(number):
        return 200 if 5 <= number < 9 else 403

    seen = trust_steps.snoop_comes_and_goes(FakeMesh(copy, {"snoop": as_promised}))
    assert seen.startswith("allowed ")
    for status, what in ((403, "still denied"), (200, "still allowed")):
        with pytest.raises(StepFailed, match=what):
            trust_steps.snoop_comes_and_goes(FakeMesh(copy, {"snoop": status}))


def test_every_pod_must_have_had_two_new_certificates_without_one_failure(copy, monkeypatch):
    many = [renewed(1), renewed(2), renewed(3)]
    seen = trust_steps.certificates_rotate(FakeMesh(copy, {"loadgen": 200}, statuses=many))
    assert seen == "2 new certificates for 1 pods in 0 s, 0 of 350 requests failed"
    with pytest.raises(StepFailed, match="350 of 350 requests failed during 2 new certificates"):
        trust_steps.certificates_rotate(FakeMesh(copy, {"loadgen": 503}, statuses=many))
    monkeypatch.setattr(trust_steps, "_LEAST_REQUESTS", 10**9)
    with pytest.raises(StepFailed, match=r"only \d+ requests"):
        trust_steps.certificates_rotate(FakeMesh(copy, {"loadgen": 200}, statuses=[renewed(1), renewed(3)]))
    monkeypatch.setattr(trust_steps, "_LEAST_REQUESTS", 10)
    with pytest.raises(StepFailed, match="only 1 new certificates"):
        trust_steps.certificates_rotate(FakeMesh(copy, {"loadgen": 200}, statuses=[renewed(1), renewed(2)]))


def test_a_private_key_in_a_file_is_reported_with_its_path(copy):
    assert "none in 9 files" in trust_steps.no_key_lies_about(FakeMesh(copy))
    with pytest.raises(StepFailed, match=r"weft\.log: PEM"):
        trust_steps.no_key_lies_about(FakeMesh(copy, keys=("weft.log: PEM",)))
