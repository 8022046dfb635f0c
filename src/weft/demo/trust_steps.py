"""The security steps of `weft demo --check`: which callers are allowed and denied, what the access log shows, and
whether certificates rotate without failed requests. Each step takes the running shop and returns what it observed,
or raises StepFailed."""

from __future__ import annotations

import time
from collections.abc import Callable

from weft.demo import shop
from weft.demo.mesh_process import MeshProcess, ShopAnswer, StepFailed, odd_one, until
from weft.local.status import MeshStatus, PodPhase

PAYMENTS, FRONTEND = "http://payments/pay", "http://frontend/"
RULE = "ns[shop]-policy[till]-rule[0]"  # the policy rule in payments.yaml that denies snoop
SNOOP = "spiffe://cluster.local/ns/shop/sa/snoop"
_PATIENCE = 20.0  # seconds
_ASKED = 50
_IN_A_ROW = 60
_LEAST_REQUESTS = 300
_LEAST_RENEWALS = 2  # per pod: each then trusts certificates that were replaced under load


def plaintext_is_refused(mesh: MeshProcess) -> str:
    shop.add_outsider(mesh.directory)
    try:
        mesh.wait_for("a pod without a proxy", _outsider_runs, seconds=_PATIENCE)
        earlier = _refused_plaintext(mesh)
        answers = mesh.ask(PAYMENTS, _ASKED, by="outsider")
        answered = [answer for answer in answers if answer.status]
        if answered:
            raise StepFailed(f"{len(answered)} of {len(answers)} were answered; for example {answered[0].status}")
        # A missing response can have many causes. The access log of the proxy that closed the connection states the
        # cause.
        lines = _wait_for_lines(lambda: _refused_plaintext(mesh) - earlier, _ASKED)
    finally:
        shop.remove_outsider(mesh.directory)
    return f"{len(answers)} of {len(answers)} got no answer ({_error(answers[0])}); the log: {len(lines)} times NR"


def one_is_served_the_other_is_not(mesh: MeshProcess) -> str:
    served = mesh.ask(PAYMENTS, _ASKED, by="frontend")
    if any(answer.status != 200 for answer in served):
        raise StepFailed(f"frontend was not served: {odd_one(served)}")
    earlier = _denied(mesh)
    refused = mesh.ask(PAYMENTS, _ASKED, by="snoop")
    wrong = [answer for answer in refused if answer.status != 403]
    if wrong:
        raise StepFailed(f"{len(wrong)} of {_ASKED} requests of snoop were not refused: {wrong[0].status}")
    lines = _wait_for_lines(lambda: _denied(mesh) - earlier, _ASKED)
    unnamed = [line for line in lines if RULE not in line]
    if unnamed:
        raise StepFailed(f"a line does not name {RULE}: {unnamed[0]}")
    return f"frontend {_ASKED} times 200, snoop {_ASKED} times 403; the log: {RULE} for {SNOOP}"


def snoop_comes_and_goes(mesh: MeshProcess) -> str:
    with mesh.stream(PAYMENTS, by="snoop") as answers:
        next(answers)
        shop.let_snoop_in(mesh.directory)
        saved = time.time()
        first = next((answer for answer in until(answers, saved, seconds=_PATIENCE) if answer.status == 200), None)
        if first is None:
            raise StepFailed(f"{_PATIENCE:.0f} s after the policy was changed to allow snoop, snoop is still denied")
        shop.keep_snoop_out(mesh.directory)
        removed = time.time()
        last, in_a_row = removed, 0
        for answer in until(answers, removed, seconds=_PATIENCE):
            last, in_a_row = (last, in_a_row + 1) if answer.status == 403 else (answer.at, 0)
            if in_a_row == _IN_A_ROW:
                break
    if in_a_row < _IN_A_ROW:
        raise StepFailed(f"{_PATIENCE:.0f} s after the policy was changed to deny snoop, snoop is still allowed")
    return f"allowed {1000 * (first.at - saved):.0f} ms after saving, denied {1000 * (last - removed):.0f} ms after"


def certificates_rotate(mesh: MeshProcess) -> str:
    before = _renewals(mesh.status())
    begun = time.monotonic()
    sent, failed, odd = 0, 0, ""
    with mesh.stream(FRONTEND) as answers:
        for answer in until(answers, time.time(), seconds=2 * _PATIENCE):
            sent += 1
            if answer.status != 200:
                failed, odd = failed + 1, f"{answer.status} {answer.body}"
            enough = sent >= _LEAST_REQUESTS and sent % 50 == 0
            if enough and _least_renewed(before, mesh.status()) >= _LEAST_RENEWALS:
                break
    after = _renewals(mesh.status())
    renewed = sum(after[pod] - before[pod] for pod in before)
    seen = f"{renewed} new certificates for {len(before)} pods in {time.monotonic() - begun:.0f} s"
    if _least_renewed(before, mesh.status()) < _LEAST_RENEWALS:
        raise StepFailed(f"only {seen}")
    if failed:
        raise StepFailed(f"{failed} of {sent} requests failed during {seen}; for example {odd}")
    if sent < _LEAST_REQUESTS:
        raise StepFailed(f"only {sent} requests were sent during {seen}")
    return f"{seen}, 0 of {sent} requests failed"


def no_key_lies_about(mesh: MeshProcess) -> str:
    searched = mesh.search_keys()
    if searched.found:
        raise StepFailed("; ".join(searched.found))
    return f"none in {searched.places} files, command lines and environments"


def _outsider_runs(status: MeshStatus) -> str:
    phases = [pod.phase for pod in status.pods if pod.workload == "outsider"]
    return "" if phases == [PodPhase.READY] else f"outsider: {', '.join(phases) or 'no pod'}"


def _refused_plaintext(mesh: MeshProcess) -> set[str]:
    return {line for line in _lines(mesh) if "filter_chain_not_found" in line}


def _denied(mesh: MeshProcess) -> set[str]:
    return {line for line in _lines(mesh) if f'downstream_peer="{SNOOP}"' in line and " 403 " in line}


def _lines(mesh: MeshProcess) -> list[str]:
    """Return the access log lines of both payments proxies. No two lines are equal: each contains its time and
    connection."""
    return [line for name in ("payments-v1", "payments-v2") for line in mesh.logs(name, proxy=True).splitlines()]


def _wait_for_lines(look: Callable[[], set[str]], count: int) -> set[str]:
    deadline = time.monotonic() + _PATIENCE
    while len(lines := look()) < count:
        if time.monotonic() > deadline:
            raise StepFailed(f"the log has {len(lines)} of {count} lines about rejected requests")
        time.sleep(0.2)
    return lines


def _renewals(status: MeshStatus) -> dict[str, int]:
    """Return how often the certificate of each ready pod with a proxy has been renewed, by the pod's name."""
    running = (pod for pod in status.pods if pod.phase is PodPhase.READY and pod.identity is not None)
    return {pod.name: pod.identity.renewals for pod in running if pod.identity is not None}


def _least_renewed(before: dict[str, int], status: MeshStatus) -> int:
    after = _renewals(status)
    return min((after.get(pod, 0) - count for pod, count in before.items()), default=0)


def _error(answer: ShopAnswer) -> str:
    return str(answer.body.get("error", "no reason"))
