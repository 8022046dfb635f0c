"""A whole Kubernetes cluster for the tests of this folder: the one of `make kube-up`, else one for this run."""

from pathlib import Path

import pytest

from on_cluster import machine
from tools.kube import build
from tools.kube import cluster as kube


def _tell(config):
    return config.pluginmanager.get_plugin("terminalreporter").write_line


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A loaded machine starts pods slowly, so timeouts are minutes. Tests of the second revision run late, so that
    it does not affect the others, and tests that remove shared components run last."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kube)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(600))
    items.sort(key=lambda item: 2 if item.get_closest_marker("last") else "canary" in _fixtures(item))


def pytest_collection_finish(session):
    """Builds missing programs before the timeout of the first test starts: a full build takes a quarter of an hour."""
    wanted = any("cluster" in _fixtures(item) for item in session.items)
    if wanted and not session.config.option.collectonly:
        build.ensure(tell=_tell(session.config))


def _fixtures(item):
    return getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def machine_before():
    """The state of this machine, before the cluster, that a cluster must not change."""
    return machine.look(), machine.mounts()


@pytest.fixture(scope="session")
def cluster(request, machine_before):
    """`.kubeconfig`, `.kubectl(…)`, `.apply(…)`, `.load_image(tar)`, `.api`, `.node`, and its faults."""
    with kube.borrowed(_tell(request.config)) as borrowed:
        yield borrowed
    if not kube.find():
        assert not machine.remains()


@pytest.fixture(scope="session")
def mesh(cluster):
    """`.weft(…)`, `.kubectl(…)`, `.apply(…)`, `.install(…)`, `.namespace(word)`, `.rolled_out(namespace)`, `.cluster`."""
    from on_cluster.mesh import installed

    return installed(cluster)


@pytest.fixture(scope="session")
def canary(mesh):
    """The name of a second revision beside the default one. Its pods are redirected by their node's agent, and it
    also serves clients without TLS."""
    mesh.install("--revision", "canary", "--set", "injection.redirectBy=node", "--set", "control.plaintextXds=true")
    yield "canary"
    mesh.weft("uninstall", "--revision", "canary", "--force", "--yes", check=False)
