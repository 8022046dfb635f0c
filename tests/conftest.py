"""What holds for all tests."""

import logging
import os

import pytest
from hypothesis import settings

# A person's run looks for new counter-examples; CI repeats the same ones, so that what it says depends on the change.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    """A command that is run in this process sets logging up for itself; the next test listens to it as before."""
    logger = logging.getLogger("weft")
    before = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate, logger.level = before
