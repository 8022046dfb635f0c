"""`weft demo --check`: the demo without a user. It starts the shop with the commands that a user types, makes the
same edits, checks the responses, and stops the mesh. Each step reports what it observed. After a failed step the
remaining steps still run. If the workloads do not become ready, the mesh is stopped at once."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from weft.demo import shop, trust_steps
from weft.demo.likelihood import change_point, split_probability
from weft.demo.mesh_process import MeshProcess, ShopAnswer, StepFailed, odd_one, until
from weft.local.status import MeshStatus, PodPhase, PodStatus

SECONDS = 110.0  # seconds for all steps together; the documentation promises two minutes
UNLIKELY = 1e-6  # a step fails if its traffic split would occur by chance less often than this
PAYMENTS, CATALOG, FRONTEND = "http://payments/pay", "http://catalog/items", "http://frontend/"


class DemoStep(msgspec.Struct, frozen=True):
    what: str
    ok: bool
    saw: str
    seconds: float

    def __str__(self) -> str:
        return f"{'ok    ' if self.ok else 'FAILED'} {self.seconds:5.1f} s  {self.what}: {self.saw}"


class CheckReport(msgspec.Struct, frozen=True):
    steps: tuple[DemoStep, ...]
    log: Path  # the output of `weft up`; removed if no step failed
    log_end: tuple[str, ...] = ()  # the last lines of `log`, if a step failed

    @property
    def failed(self) -> int:
        return sum(not step.ok for step in self.steps)


def run(name: str, say: Callable[[str], None]) -> CheckReport:
    """Run every step of the check on a mesh called `name`, which must not run yet, and return the report. `say` is
    called with one line after each step."""
    home = Path(tempfile.mkdtemp(prefix="weft-demo-check-"))
    home.chmod(0o755)
    mesh = MeshProcess(
        home / "shop",
        name=name,
        log=home / "weft.log",
        until=time.monotonic() + SECONDS,
        options=("--certificate-ttl", f"{shop.CERTIFICATE_TTL.total_seconds():.0f}s"),
    )
    steps: list[DemoStep] = []

    def take(what: str, step: Callable[[], str]) -> None:
        steps.append(_take(what, step))
        say(str(steps[-1]))

    try:
        shop.copy_to(mesh.directory)
        for what, step in _journey(mesh):
            take(what, step)
            if not steps[-1].ok and what in _ESSENTIAL:
                break
    except KeyboardInterrupt:
        steps.append(DemoStep("not interrupted", ok=False, saw="Ctrl-C", seconds=0.0))
    finally:
        take(_LEAVES_NOTHING, lambda: _leaves_nothing(mesh))
    if all(step.ok for step in steps):
        shutil.rmtree(home)
        return CheckReport(tuple(steps), mesh.log)
    return CheckReport(tuple(steps), mesh.log, tuple(mesh.log_lines()[-40:]))


_LEAVES_NOTHING = "weft down leaves nothing behind"


def _journey(mesh: MeshProcess) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "all workloads are ready", lambda: _all_ready(mesh)
    yield "the job ran to completion", lambda: _job_completed(mesh)
    yield "requests pass all four services", lambda: _requests_pass(mesh)
    yield "apps see their proxy (127.0.0.6) as caller", lambda: _sees_proxy(mesh)
    yield "payments is split 90/10", lambda: _split(mesh, 0.10)
    yield "HTTP, gRPC and TCP calls are counted", lambda: _edges(mesh)
    yield "plaintext to a STRICT workload is refused", lambda: trust_steps.plaintext_is_refused(mesh)
    yield "frontend may pay, snoop gets 403", lambda: trust_steps.one_is_served_the_other_is_not(mesh)
    yield "saving the policy allows and denies snoop", lambda: trust_steps.snoop_comes_and_goes(mesh)
    yield "certificates rotate under load", lambda: trust_steps.certificates_rotate(mesh)
    yield "no private key is in files or environments", lambda: trust_steps.no_key_lies_about(mesh)
    yield "saving the weight moves the traffic", lambda: _weight_moves(mesh)
    yield "payments is split 50/50", lambda: _split(mesh, 0.50)
    yield "a fault makes catalog fail", lambda: _fault_appears(mesh)
    yield "without the fault, catalog recovers", lambda: _fault_heals(mesh)
    yield "a killed pod is restarted", lambda: _killed_pod_returns(mesh)


_ESSENTIAL = ("all workloads are ready",)


def _take(what: str, step: Callable[[], str]) -> DemoStep:
    begun = time.monotonic()
    try:
        ok, saw = True, step()
    except StepFailed as failed:
        ok, saw = False, str(failed)
    return DemoStep(what, ok, saw, time.monotonic() - begun)


def _all_ready(mesh: MeshProcess) -> str:
    begun = time.monotonic()
    mesh.start()
    status = mesh.wait_for("all pods are ready or completed", _settled, seconds=60)
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


def _job_completed(mesh: MeshProcess) -> str:
    def unfinished(status: MeshStatus) -> str:
        phase = _pod(status, "migrate").phase
        return "" if phase in (PodPhase.COMPLETED, PodPhase.FAILED) else f"it is {phase}"

    job = _pod(mesh.wait_for("the job has ended", unfinished, seconds=20), "migrate")
    lines = mesh.logs("migrate").splitlines()
    if job.phase is not PodPhase.COMPLETED or job.exit_code != 0 or not lines:
        raise StepFailed(f"{job.phase}, exit code {job.exit_code}, last line {lines[-1:]}")
    return f"exit code 0, last line: {lines[-1]}"


def _requests_pass(mesh: MeshProcess) -> str:
    answers = mesh.ask(FRONTEND, 50)
    good = [answer for answer in answers if answer.status == 200]
    if len(good) != len(answers):
        raise StepFailed(f"{len(good)} of {len(answers)} answered 200; for example {odd_one(answers)}")
    served = sorted({str(answer.body["catalog"]["pod"]) for answer in good})
    if len(served) < 2:
        raise StepFailed(f"only {served} of catalog's two pods answered")
    return f"{len(good)} of {len(answers)} answered 200, catalog by {' and '.join(served)}"


def _sees_proxy(mesh: MeshProcess) -> str:
    body = mesh.ask(FRONTEND, 1)[0].body
    try:
        callers = {"frontend": body["caller"], **{name: body[name]["caller"] for name in ("catalog", "payments")}}
        callers["inventory"] = body["inventory"]["caller"].partition(":")[2].rpartition(":")[0]
    except KeyError as missing:
        raise StepFailed(f"no {missing} in {body}") from missing
    wrong = {name: caller for name, caller in callers.items() if caller != "127.0.0.6"}
    if wrong:
        raise StepFailed(f"callers seen: {wrong}")
    return f"as seen by {', '.join(callers)}"


def _split(mesh: MeshProcess, share: float) -> str:
    answers = mesh.ask(PAYMENTS, 300, by="frontend")
    versions = [answer.body.get("version") for answer in answers if answer.status == 200]
    if len(versions) < len(answers):
        raise StepFailed(f"{len(answers) - len(versions)} of {len(answers)} failed; for example {odd_one(answers)}")
    second = versions.count("v2")
    likelihood = split_probability(second, len(versions), share)
    seen = f"v1 {len(versions) - second}, v2 {second} of {len(versions)} (p = {likelihood:.2g})"
    if likelihood < UNLIKELY:
        raise StepFailed(f"{seen}, wanted {share:.0%} v2")
    return seen


def _edges(mesh: MeshProcess) -> str:
    wanted = {"catalog": "http", "inventory": "grpc", "ledger": "tcp"}

    def carried(status: MeshStatus) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for edge in status.edges:
            namespace = edge.source.partition("/")[0]
            name = edge.destination.removesuffix(f".{namespace}.svc.cluster.local")
            amount = edge.connections if wanted.get(name) == "tcp" else edge.requests
            amounts[name] = amounts.get(name, 0) + amount
        return amounts

    def lacking(status: MeshStatus) -> str:
        amounts = carried(status)
        return ", ".join(
            f"nothing to {name} over {protocol}" for name, protocol in wanted.items() if not amounts.get(name)
        )

    amounts = carried(mesh.wait_for("HTTP, gRPC and TCP calls are counted", lacking, seconds=15))
    units = {"http": "requests", "grpc": "calls", "tcp": "connections"}
    return ", ".join(f"{amounts[name]} {units[protocol]} to {name}" for name, protocol in wanted.items())


def _weight_moves(mesh: MeshProcess) -> str:
    with mesh.stream(PAYMENTS, by="frontend") as answers:
        earlier = [next(answers) for _ in range(100)]
        if _moved(earlier, since=earlier[0].at) is not None:
            raise StepFailed("the split was not 90/10 before the weight was saved")
        shop.move_weight(mesh.directory)
        saved = time.time()
        moved = _moved(until(answers, saved, seconds=20), since=saved)
    if moved is None:
        raise StepFailed("20 s after saving, the split is still the old one")
    return f"moved about {1000 * moved[0]:.0f} ms after saving, beyond doubt after {1000 * moved[1]:.0f} ms"


def _moved(answers: Iterable[ShopAnswer], *, since: float) -> tuple[float, float] | None:
    versions = ((answer.at - since, answer.body.get("version") == "v2") for answer in answers)
    return change_point(versions, before=0.10, after=0.50)


def _fault_appears(mesh: MeshProcess) -> str:
    with mesh.stream(CATALOG, by="frontend") as answers:
        next(answers)
        shop.inject_fault(mesh.directory)
        saved = time.time()
        first = next((answer for answer in until(answers, saved, seconds=20) if answer.status == 503), None)
    if first is None:
        raise StepFailed("20 s after saving, nothing has failed")
    sample = mesh.ask(CATALOG, 100, by="frontend")
    failed = sum(answer.status == 503 for answer in sample)
    likelihood = split_probability(failed, len(sample), 0.50)
    seen = f"first 503 after {1000 * (first.at - saved):.0f} ms, then {failed} of {len(sample)} (p = {likelihood:.2g})"
    if likelihood < UNLIKELY:
        raise StepFailed(f"{seen}, wanted half")
    return seen


def _fault_heals(mesh: MeshProcess) -> str:
    with mesh.stream(CATALOG, by="frontend") as answers:
        next(answers)
        shop.heal_fault(mesh.directory)
        removed = time.time()
        well_since, well = removed, 0
        for answer in until(answers, removed, seconds=20):
            if answer.status != 200:
                well_since, well = answer.at, 0
            elif (well := well + 1) == 60:  # with the fault in place, 60 successes in a row have a probability of 10⁻¹⁸
                break
    if well < 60:
        raise StepFailed("20 s after removing the fault, catalog still fails")
    sample = mesh.ask(CATALOG, 100, by="frontend")
    failed = sum(answer.status != 200 for answer in sample)
    if failed:
        raise StepFailed(f"{failed} of {len(sample)} still fail; for example {odd_one(sample)}")
    last = 1000 * (well_since - removed)
    return f"last failure {last:.0f} ms after removing the fault, then {len(sample)} of {len(sample)} succeeded"


def _killed_pod_returns(mesh: MeshProcess) -> str:
    before = _pod(mesh.status(), "frontend")
    with mesh.stream(FRONTEND) as answers:
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

    mesh.wait_for("frontend is restarted", restarted, seconds=20)
    sample = mesh.ask(FRONTEND, 50)
    unwell = sum(answer.status != 200 for answer in sample)
    if not recovered or unwell:
        raise StepFailed(
            f"{failed} requests failed, recovered: {bool(recovered)}, then {unwell} of {len(sample)} still fail"
        )
    return (
        f"frontend's only pod: {failed} requests failed, one succeeded {recovered - killed:.1f} s after the kill, "
        f"then {len(sample)} of {len(sample)} succeeded"
    )


def _leaves_nothing(mesh: MeshProcess) -> str:
    traces = mesh.stop()
    if traces:
        raise StepFailed("; ".join(traces))
    return f"no namespace, process, mount or file of {mesh.name} (there were {mesh.most_processes} processes)"


def _pod(status: MeshStatus, workload: str) -> PodStatus:
    pod = next((pod for pod in status.pods if pod.workload == workload), None)
    if pod is None:
        raise StepFailed(f"there is no pod of {workload}")
    return pod
