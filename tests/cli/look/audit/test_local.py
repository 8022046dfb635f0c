"""The part of an audit that reads this machine."""

import subprocess
import sys

import pytest

from weft.base.problem import Problem, Where
from weft.cli.look.audit.local import _family, _is_in, _memory, _private, _words
from weft.local.error import LocalError
from weft.local.status import PodPhase, PodStatus


@pytest.fixture
def parent():
    """A process that has a child, which holds ten million bytes."""
    child = "import sys; held = bytearray(b'x' * 10_000_000); print(1, flush=True); sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def test_an_application_is_all_that_its_command_has_started(parent):
    family = list(_family(parent.pid))
    assert len(family) == 2 and family[0] == parent.pid
    assert _private(family[1]) > 10_000_000
    pod = PodStatus("web-0", "shop", "web", PodPhase.READY, pid=parent.pid, proxy_memory=20)
    assert _memory(pod).application >= 10_000_000 + _private(parent.pid) // 2


def test_what_does_not_run_has_no_memory():
    pod = PodStatus("web-0", "shop", "web", PodPhase.BACK_OFF)
    assert (_memory(pod).application, _memory(pod).proxy) == (None, None)
    assert list(_family(0)) == [] and _private(2**22 + 1) == 0


def test_problems_are_those_of_the_namespace_or_of_the_whole_mesh():
    def about(name):
        return Problem(Where(object=name), "x")

    assert _is_in(about("Service shop/web"), "shop") and not _is_in(about("Service shop/web"), "other")
    assert _is_in(about("CA"), "shop") and _is_in(about("Service shop/web"), "")


def test_an_error_within_a_problem_has_no_place_and_hint_of_its_own():
    assert _words(LocalError("it is gone", "look", where="Pod shop/web-0")) == "it is gone"
    assert _words(ValueError("no JSON")) == "no JSON"
