"""Two revisions have no name in common, so that they can run side by side."""

from weft.install.names import InstallationNames


def names_of(names):
    return {
        names.control,
        names.node,
        names.cluster_control,
        names.service,
        names.driver,
        names.lease,
        names.refusals,
        names.roots_annotation,
        names.mesh_config,
        names.injector,
        names.validator,
        names.selector,
    }


def test_the_default_revision_has_the_plain_names():
    names = InstallationNames("default", "istio-system")
    assert (names.control, names.service, names.driver) == ("weft-control", "istiod", "csi.weft.dev")
    assert names.validator == "istio-validator-istio-system"


def test_no_two_revisions_share_a_name():
    assert not names_of(InstallationNames("default", "istio-system")) & names_of(InstallationNames("a", "istio-system"))
    assert not names_of(InstallationNames("a", "istio-system")) & names_of(InstallationNames("b", "istio-system"))


def test_the_selector_finds_what_the_labels_mark():
    names = InstallationNames("a", "x")
    assert set(names.selector.split(",")) <= {f"{key}={value}" for key, value in names.labels.items()}
    assert names.metadata("n", app="x") == {
        "name": "n",
        "namespace": "x",
        "labels": {**names.labels, "app": "x"},
    }
    assert "namespace" not in names.metadata("n", namespaced=False)


def test_an_owner_is_never_longer_than_a_label_may_be():
    assert InstallationNames("default", "istio-system").roots_annotation == "roots.weft.dev/istio-system.default"
    long = [InstallationNames(f"{number}{'x' * 50}", "y" * 50).owner for number in range(2)]
    assert len(set(long)) == 2 and {len(each) for each in long} == {32}
