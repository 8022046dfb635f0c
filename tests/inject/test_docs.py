"""docs/injection.md lists every setting of injection, and no other."""

import re
from pathlib import Path

from weft.inject.settings import InjectionSettings

TEXT = (Path(__file__).parents[2] / "docs" / "injection.md").read_text()


def test_every_setting_is_named():
    told = set(re.findall(r"`([A-Za-z]+)`", TEXT.partition("## Settings")[2]))
    assert set(InjectionSettings.__struct_encode_fields__) <= told
    assert told - set(InjectionSettings.__struct_encode_fields__) <= {
        "settings",
        "values",
        "config",
        "requests",
        "limits",
    }
