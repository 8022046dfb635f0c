"""weft on a real cluster: put there, found well, and removed without a trace."""

from cluster.mesh import NAMESPACE


def test_what_was_installed_runs(mesh):
    ready = mesh.kubectl(
        "get", "pods", f"--namespace={NAMESPACE}", "-o", "jsonpath={.items[*].status.containerStatuses[*].ready}"
    )
    assert set(ready.split()) == {"true"}


def test_installing_again_changes_nothing(mesh):
    assert "26 unchanged" in mesh.install()
