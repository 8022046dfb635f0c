"""Fixtures of real namespaces: unique names, and nothing left when a test ends."""

import itertools
import os
import signal

import pytest

from weft.netns import namespace as netns

_numbers = itertools.count()


@pytest.fixture
def make_namespace():
    made = []

    def make(label="t"):
        made.append(netns.make(f"weft-test-{os.getpid()}-{next(_numbers)}-{label}"))
        return made[-1]

    yield make
    for namespace in made:
        for pid in netns.processes_in(namespace):
            os.kill(pid, signal.SIGKILL)
        netns.delete(namespace)
