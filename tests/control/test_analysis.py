"""The analysis of a running mesh: it does not delay pushes, and its findings are never stale for long."""

import asyncio
import threading

from eventually import eventually
from model.builders import put, service
from weft.control import analysis
from weft.control.analysis import Analysis
from weft.control.problems import Problems
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import DestinationRule
from weft.model.names import ObjectKey, Origin
from weft.model.sidecar import Sidecar

KEY = ObjectKey("DestinationRule", "shop", "web")
RULE = DestinationRule("web", "shop", "web.shop.svc.cluster.local", origin=Origin(KEY))


def analyzing(refused=None, quiet=0.01):
    mesh, problems = Mesh(), Problems()
    return mesh, problems, Analysis(mesh, problems, lambda: refused or {}, quiet=quiet)


async def test_a_missing_host_is_a_problem_until_it_exists():
    mesh, problems, one = analyzing()
    put(mesh, RULE)
    one.wake()
    await eventually(problems.all)
    assert "no Service or ServiceEntry has the host web.shop" in problems.all()[0].what
    put(mesh, service("web"))
    one.wake()
    await eventually(lambda: not problems.all())


async def test_a_burst_of_changes_is_analyzed_once_and_not_on_the_event_loop(monkeypatch):
    _, _, one = analyzing()
    threads = []
    real = analysis.facts_of
    monkeypatch.setattr(
        analysis, "facts_of", lambda *more, **kw: threads.append(threading.current_thread()) or real(*more, **kw)
    )
    for _ in range(100):
        one.wake()
        await asyncio.sleep(0)
    await eventually(lambda: not one.pending)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_change_during_the_analysis_is_analyzed_after_it(monkeypatch):
    mesh, problems, one = analyzing()
    going, go_on = threading.Event(), threading.Event()
    real = analysis.facts_of

    def slow(*more, **settings):
        going.set()
        assert go_on.wait(10)
        return real(*more, **settings)

    monkeypatch.setattr(analysis, "facts_of", slow)
    monkeypatch.setattr(analysis, "REST", 0)
    one.wake()
    await eventually(going.is_set)
    put(mesh, RULE)
    one.wake()
    go_on.set()
    await eventually(problems.all)


async def test_a_failed_analysis_is_logged_and_keeps_the_earlier_findings(monkeypatch, caplog):
    mesh, problems, one = analyzing()
    put(mesh, RULE)
    one.wake()
    await eventually(problems.all)
    monkeypatch.setattr(analysis, "facts_of", lambda *_, **__: 1 / 0)
    one.wake()
    await eventually(lambda: not one.pending)
    assert problems.all()
    assert "the analysis of the mesh failed" in caplog.text


async def test_a_rejected_object_counts_as_the_target_of_references():
    mesh, problems, one = analyzing(refused={ObjectKey("Service", "shop", "web"): (service("web"),)})
    put(mesh, RULE)
    one.wake()
    await eventually(lambda: not one.pending)
    assert problems.all() == ()


async def test_a_mesh_that_is_too_large_is_left_alone(monkeypatch):
    mesh, problems, one = analyzing()
    put(mesh, RULE)
    monkeypatch.setattr(analysis, "MOST_OBJECTS", 0)
    one.wake()
    await eventually(lambda: not one.pending)
    assert problems.all() == ()


async def test_nothing_happens_after_the_end():
    mesh, _, one = analyzing()
    put(mesh, RULE)
    one.wake()
    one.close()
    one.wake()
    assert not one.pending


async def test_a_finding_has_the_line_of_its_field_although_no_lines_are_stored(tmp_path):
    file = tmp_path / "rule.yaml"
    file.write_text(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\n"
        "spec:\n  host: web\n"
    )
    mesh, problems, one = analyzing()
    put(mesh, DestinationRule("web", "shop", "web.shop.svc.cluster.local", origin=Origin(KEY, "", str(file), 1)))
    one.wake()
    await eventually(problems.all)
    assert [(each.where.file, each.where.line) for each in problems.all()] == [(str(file), 5)]
    file.unlink()
    one.wake()
    await eventually(lambda: [each.where.line for each in problems.all()] == [1])


async def test_a_rejected_object_causes_no_findings_of_others():
    first, second = (
        Sidecar(name, "shop", origin=Origin(ObjectKey("Sidecar", "shop", name), file="mesh.yaml", line=1))
        for name in ("first", "second")
    )
    for refused, told in (({}, ["WFT0404"]), ({ObjectKey("Sidecar", "shop", "first"): (first,)}, [])):
        mesh, problems, one = analyzing(refused=refused)
        mesh.apply(ObjectKey("Sidecar", "shop", "second"), (second,))
        if not refused:
            mesh.apply(ObjectKey("Sidecar", "shop", "first"), (first,))
        one.wake()
        await eventually(lambda one=one: not one.pending)
        assert [each.code for each in problems.all()] == told
