"""A real API server for the tests of what speaks to Kubernetes: one for all of them, on loopback."""

import pytest
from tools.kube import api_server as real
from tools.kube import build


def pytest_collection_finish(session):
    """Builds what is missing before the first test's clock runs: from nothing it takes a quarter of an hour."""
    wanted = any("api_server" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    build.ensure(real.PROGRAMS, tell=terminal.write_line)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory):
    """`.kubeconfig`, `.server`, `.ca`, `.certificate`, `.key`, `.token`; `.request`, `.make_namespace`, `.compact`, …"""
    with real.started(tmp_path_factory.mktemp("api-server")) as server:
        yield server
