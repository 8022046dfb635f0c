"""`weft demo --check`: the demo without a person. It starts the shop with the commands a user types, makes the same
edits, judges what comes back, and tears everything down. Each step says what it saw; one that fails stops no other."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

import msgspec
from rich.table import Table
from rich.text import Text

from weft.cli import demo_trust, shop
from weft.cli.likelihood import change_point, split_probability
from weft.cli.output import print_table, say
from weft.cli.rig import Answer, Rig, StepFailed, odd_one, until
from weft.cli.view import short_host
from weft.local.status import MeshStatus, PodPhase, PodStatus

SECONDS = 110.0  # for all of it; the promise is two minutes
UNLIKELY = 1e-6  # a split that chance alone would show less often than this is wrong
PAYMENTS, CATALOG, FRONTEND = "http://payments/pay", "http://catalog/items", "http://frontend/"


class Step(msgspec.Struct, frozen=True):
    what: str
    ok: bool
    saw: str
    seconds: float


def run(name: str) -> int:
    """Of a mesh of that name, which nobody else has. Exit code 0 if everything was seen as promised."""
    home = Path(tempfile.mkdtemp(prefix="weft-demo-check-"))
    home.chmod(0o755)
    rig = Rig(
        home / "shop",
        name=name,
        log=home / "weft.log",
        until=time.monotonic() + SECONDS,
        options=("--certificate-ttl", f"{shop.CERTIFICATE_TTL.total_seconds():.0f}s"),
    )
    steps: list[Step] = []
    try:
        shop.copy_to(rig.directory)
        for what, step in _journey(rig):
            steps.append(_take(what, step))
            if not steps[-1].ok and what in _ESSENTIAL:
                break
    except KeyboardInterrupt:
        steps.append(Step("not interrupted", ok=False, saw="Ctrl-C", seconds=0.0))
    finally:
        steps.append(_take(_LEAVES_NOTHING, lambda: _leaves_nothing(rig)))
    failed = [step for step in steps if not step.ok]
    # Each step has been said on standard error. Who sees both streams needs no table of the same.
    if _is_one_place(sys.stdout, sys.stderr):
        say(f"{len(steps) - len(failed)} of {len(steps)} steps passed")
    else:
        print_table(_table(steps))
    if failed:
        say(f"\n{len(failed)} of {len(steps)} steps failed; the end of weft's own log ({rig.log}):")
        say("\n".join(rig.log_lines()[-40:]))
        return 1
    shutil.rmtree(home)
    return 0


def _is_one_place(first: TextIO, second: TextIO) -> bool:
    """Whether two streams end at the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(first.fileno()), os.fstat(second.fileno()))
    except OSError:
        return False


_LEAVES_NOTHING = "weft down leaves nothing behind"


def _journey(rig: Rig) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "all workloads are ready", lambda: _all_ready(rig)
    yield "the job ran to completion", lambda: _job_completed(rig)
    yield "requests pass all four services", lambda: _requests_pass(rig)
    yield "the app sees its proxy, 127.0.0.6", lambda: _sees_proxy(rig)
    yield "payments is split 90/10", lambda: _split(rig, 0.10)
    yield "HTTP, gRPC and TCP edges carry traffic", lambda: _edges(rig)
    yield "plaintext to a STRICT workload is refused", lambda: demo_trust.plaintext_is_refused(rig)
    yield "frontend may pay, snoop gets 403", lambda: demo_trust.one_is_served_the_other_is_not(rig)
    yield "saving the policy lets snoop in, and out", lambda: demo_trust.snoop_comes_and_goes(rig)
    yield "certificates rotate under load", lambda: demo_trust.certificates_rotate(rig)
    yield "no private key lies about", lambda: demo_trust.no_key_lies_about(rig)
    yield "saving the weight moves the traffic", lambda: _weight_moves(rig)
    yield "payments is split 50/50", lambda: _split(rig, 0.50)
    yield "a fault makes catalog fail", lambda: _fault_appears(rig)
    yield "removing it heals catalog", lambda: _fault_heals(rig)
    yield "a killed pod is restarted", lambda: _killed_pod_returns(rig)


_ESSENTIAL = ("all workloads are ready",)


def _take(what: str, step: Callable[[], str]) -> Step:
    begun = time.monotonic()
    try:
        ok, saw = True, step()
    except StepFailed as failed:
        ok, saw = False, str(failed)
    taken = Step(what, ok, saw, time.monotonic() - begun)
    say(f"{'ok    ' if ok else 'FAILED'} {taken.seconds:5.1f} s  {what}: {saw}")
    return taken


def _table(steps: list[Step]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("STEP", no_wrap=True)
    table.add_column("SECONDS", justify="right")
    table.add_column("WHAT WAS SEEN", overflow="fold")
    for step in steps:
        mark = Text("ok", "green") if step.ok else Text("FAILED", "bold red")
        table.add_row(mark, step.what, f"{step.seconds:.1f}", Text(step.saw))
    return table


def _all_ready(rig: Rig) -> str:
    begun = time.monotonic()
    rig.start()
    status = rig.wait_for("all pods are ready or completed", _settled, seconds=60)
    pods = status.pods
    unwell = [str(problem) for problem in status.problems]
    if unwell:
        raise StepFailed(f"problems: {'; '.join(unwell)}")
    return f"{len(pods)} pods of {len(status.workloads)} workloads in {time.monotonic() - begun:.1f} s"


def _settled(status: MeshStatus) -> str:
    pods = status.pods
    unready = [f"{pod.name} {pod.phase}" for pod in pods if pod.phase not in (PodPhase.READY, PodPhase.COMPLETED)]
    missing = [each.name for each in status.workloads if len(each.pods) < each.replicas]
    if not pods:
        return "there are no pods"
    return ", ".join([*unready, *(f"{name} lacks pods" for name in missing)])


def _job_completed(rig: Rig) -> str:
    def unfinished(status: MeshStatus) -> str:
        phase = _pod(status, "migrate").phase
        return "" if phase in (PodPhase.COMPLETED, PodPhase.FAILED) else f"it is {phase}"

    job = _pod(rig.wait_for("the job has ended", unfinished, seconds=20), "migrate")
    lines = rig.logs("migrate").splitlines()
    if job.phase is not PodPhase.COMPLETED or job.exit_code != 0 or not lines:
        raise StepFailed(f"{job.phase}, exit code {job.exit_code}, last line {lines[-1:]}")
    return f"exit code 0, last line: {lines[-1]}"


def _requests_pass(rig: Rig) -> str:
    answers = rig.ask(FRONTEND, 50)
    good = [answer for answer in answers if answer.status == 200]
    if len(good) != len(answers):
        raise StepFailed(f"{len(good)} of {len(answers)} answered 200; for example {odd_one(answers)}")
    served = sorted({str(answer.body["catalog"]["pod"]) for answer in good})
    if len(served) < 2:
        raise StepFailed(f"only {served} of catalog's two pods answered")
    return f"{len(good)} of {len(answers)} answered 200, catalog by {' and '.join(served)}"


def _sees_proxy(rig: Rig) -> str:
    body = rig.ask(FRONTEND, 1)[0].body
    try:
        callers = {"frontend": body["caller"], **{name: body[name]["caller"] for name in ("catalog", "payments")}}
        callers["inventory"] = body["inventory"]["caller"].partition(":")[2].rpartition(":")[0]
    except KeyError as missing:
        raise StepFailed(f"no {missing} in {body}") from missing
    wrong = {name: caller for name, caller in callers.items() if caller != "127.0.0.6"}
    if wrong:
        raise StepFailed(f"callers seen: {wrong}")
    return f"so say {', '.join(callers)}"


def _split(rig: Rig, share: float) -> str:
    answers = rig.ask(PAYMENTS, 300, by="frontend")
    versions = [answer.body.get("version") for answer in answers if answer.status == 200]
    if len(versions) < len(answers):
        raise StepFailed(f"{len(answers) - len(versions)} of {len(answers)} failed; for example {odd_one(answers)}")
    second = versions.count("v2")
    likelihood = split_probability(second, len(versions), share)
    seen = f"v1 {len(versions) - second}, v2 {second} of {len(versions)} (p = {likelihood:.2g})"
    if likelihood < UNLIKELY:
        raise StepFailed(f"{seen}, wanted {share:.0%} v2")
    return seen


def _edges(rig: Rig) -> str:
    wanted = {"catalog": "http", "inventory": "grpc", "ledger": "tcp"}

    def carried(status: MeshStatus) -> dict[str, int]:
        found: dict[str, int] = {}
        for edge in status.edges:
            name = short_host(edge.destination, edge.source.partition("/")[0])
            amount = edge.connections if wanted.get(name) == "tcp" else edge.requests
            found[name] = found.get(name, 0) + amount
        return found

    def lacking(status: MeshStatus) -> str:
        found = carried(status)
        return ", ".join(
            f"nothing to {name} over {protocol}" for name, protocol in wanted.items() if not found.get(name)
        )

    found = carried(rig.wait_for("HTTP, gRPC and TCP edges", lacking, seconds=15))
    units = {"http": "requests", "grpc": "calls", "tcp": "connections"}
    return ", ".join(f"{found[name]} {units[protocol]} to {name}" for name, protocol in wanted.items())


def _weight_moves(rig: Rig) -> str:
    with rig.stream(PAYMENTS, by="frontend") as answers:
        earlier = [next(answers) for _ in range(100)]
        if _moved(earlier, since=earlier[0].at) is not None:
            raise StepFailed("the split was not 90/10 before the weight was saved")
        shop.move_weight(rig.directory)
        saved = time.time()
        moved = _moved(until(answers, saved, seconds=20), since=saved)
    if moved is None:
        raise StepFailed("20 s after saving, the split is still the old one")
    return f"moved about {1000 * moved[0]:.0f} ms after saving, beyond doubt after {1000 * moved[1]:.0f} ms"


def _moved(answers: Iterable[Answer], *, since: float) -> tuple[float, float] | None:
    versions = ((answer.at - since, answer.body.get("version") == "v2") for answer in answers)
    return change_point(versions, before=0.10, after=0.50)


def _fault_appears(rig: Rig) -> str:
    with rig.stream(CATALOG, by="frontend") as answers:
        next(answers)
        shop.inject_fault(rig.directory)
        saved = time.time()
        first = next((answer for answer in until(answers, saved, seconds=20) if answer.status == 503), None)
    if first is None:
        raise StepFailed("20 s after saving, nothing has failed")
    sample = rig.ask(CATALOG, 100, by="frontend")
    failed = sum(answer.status == 503 for answer in sample)
    likelihood = split_probability(failed, len(sample), 0.50)
    seen = f"first 503 after {1000 * (first.at - saved):.0f} ms, then {failed} of {len(sample)} (p = {likelihood:.2g})"
    if likelihood < UNLIKELY:
        raise StepFailed(f"{seen}, wanted half")
    return seen


def _fault_heals(rig: Rig) -> str:
    with rig.stream(CATALOG, by="frontend") as answers:
        next(answers)
        shop.heal_fault(rig.directory)
        removed = time.time()
        well_since, well = removed, 0
        for answer in until(answers, removed, seconds=20):
            if answer.status != 200:
                well_since, well = answer.at, 0
            elif (well := well + 1) == 60:  # with the fault in place, chance gives that once in 10¹⁸
                break
    if well < 60:
        raise StepFailed("20 s after removing the fault, catalog still fails")
    sample = rig.ask(CATALOG, 100, by="frontend")
    failed = sum(answer.status != 200 for answer in sample)
    if failed:
        raise StepFailed(f"{failed} of {len(sample)} still fail; for example {odd_one(sample)}")
    last = 1000 * (well_since - removed)
    return f"last failure {last:.0f} ms after removing it, then {len(sample)} of {len(sample)} well"


def _killed_pod_returns(rig: Rig) -> str:
    before = _pod(rig.status(), "frontend")
    with rig.stream(FRONTEND) as answers:
        next(answers)
        os.kill(before.pid, signal.SIGKILL)
        killed = time.time()
        failed, recovered = 0, 0.0
        for answer in until(answers, killed, seconds=30):
            failed += answer.status != 200
            if answer.status == 200 and failed and not recovered:
                recovered = answer.at
                break

    def restarted(status: MeshStatus) -> str:
        pod = _pod(status, "frontend")
        well = pod.restarts == before.restarts + 1 and pod.phase is PodPhase.READY and pod.pid not in (0, before.pid)
        return "" if well else f"{pod.phase}, {pod.restarts} restarts, pid {pod.pid}"

    rig.wait_for("frontend is restarted", restarted, seconds=20)
    sample = rig.ask(FRONTEND, 50)
    unwell = sum(answer.status != 200 for answer in sample)
    if not recovered or unwell:
        raise StepFailed(f"{failed} failed, recovered: {bool(recovered)}, then {unwell} of {len(sample)} still fail")
    return (
        f"frontend's only pod: {failed} requests failed, well again {recovered - killed:.1f} s after the kill, "
        f"then {len(sample)} of {len(sample)} well"
    )


def _leaves_nothing(rig: Rig) -> str:
    traces = rig.stop()
    if traces:
        raise StepFailed("; ".join(traces))
    return f"no namespace, process, mount or file of {rig.name} (there were {rig.most_processes} processes)"


def _pod(status: MeshStatus, workload: str) -> PodStatus:
    found = next((pod for pod in status.pods if pod.workload == workload), None)
    if found is None:
        raise StepFailed(f"there is no pod of {workload}")
    return found
