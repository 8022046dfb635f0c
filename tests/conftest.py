"""Settings and fixtures for all tests."""

import logging
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A developer's run looks for new counter-examples; CI repeats the same ones, so that its result depends only on the
# change. The duration of an example depends on the machine, not on the code.
settings.register_profile("person", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("person"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "person")

# If the suite is started in the background of a script, or by a parent that ignores Ctrl-C, all programs that tests
# start would inherit an ignored SIGINT, and Python would raise no KeyboardInterrupt. SIGHUP is not changed: `nohup`
# ignores it on purpose, and weft and its tests set their own handlers for it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests that use one of these fixtures need Kubernetes: `make test-kube` runs them, `make test` does not.
_KUBERNETES = {"api_server", "own_api_server", "plain_server", "cluster", "helm", "istioctl", "h2spec"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if _KUBERNETES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kube)


def pytest_collection_finish(session):
    """Builds missing programs before the timeout of the first test starts: a full build takes a quarter of an hour."""
    wanted = [item for item in session.items if item.get_closest_marker("kube")]
    if not wanted or session.config.option.collectonly:
        return
    from tools.kube import api_server, build

    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    by_h2spec = [item for item in wanted if "h2spec" in getattr(item, "fixturenames", ())]
    if by_h2spec:
        from tools import h2spec

        h2spec.ensure(tell=terminal.write_line)
    if len(by_h2spec) < len(wanted):
        build.ensure(api_server.PROGRAMS, tell=terminal.write_line)
    if any("helm" in getattr(item, "fixturenames", ()) for item in session.items):
        from tools import helm

        helm.ensure(tell=terminal.write_line)
    if any("istioctl" in getattr(item, "fixturenames", ()) for item in session.items):
        from tools import istioctl

        istioctl.ensure(tell=terminal.write_line)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory):
    """A real API server on loopback, one for all tests: `.kubeconfig`, `.server`, `.ca`, `.certificate`, `.key`,
    `.token`; `.request`, `.make_namespace`, `.compact`, …"""
    from tools.kube import api_server as real

    with real.started(tmp_path_factory.mktemp("api-server")) as server:
        yield server


@pytest.fixture(scope="session")
def own_api_server(tmp_path_factory):
    """Another one, for tests that install weft and remove it again, so that they do not affect the others."""
    from tools.kube import api_server as real

    with real.started(tmp_path_factory.mktemp("own-api-server")) as server:
        yield server


@pytest.fixture(scope="session")
def helm():
    """The path of the real program."""
    from tools import helm

    return helm.path()


@pytest.fixture(scope="session")
def istioctl():
    """The path of the real program."""
    from tools import istioctl

    return istioctl.path()


@pytest.fixture(scope="session")
def h2spec():
    """The module that runs the real program."""
    from tools import h2spec

    return h2spec


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    """A command that runs in this process configures logging; this restores it for the next test."""
    logger = logging.getLogger("weft")
    before = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate, logger.level = before
