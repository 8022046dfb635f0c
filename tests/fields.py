"""Which test shows what a field does, for docs/traffic.md: `tools/fields.py` reads these marks without running anything."""

import pytest


def proves(kind, *fields):
    """Requests through real proxies show the effect of these fields of a kind. Literals only: the source is read,
    not run."""
    return pytest.mark.field(kind, *fields)
