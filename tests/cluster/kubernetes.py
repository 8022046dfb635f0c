"""Helpers of the tests of the control plane on Kubernetes."""

from __future__ import annotations

import itertools

_numbers = itertools.count(1)


def unique(word):
    return f"{word}-{next(_numbers)}"
