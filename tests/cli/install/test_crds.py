"""The CRDs, printed for installing them separately."""

import yaml

from weft.install.crds import crds


def test_it_prints_every_definition(weft):
    assert list(yaml.safe_load_all(weft("crds").stdout)) == crds()
