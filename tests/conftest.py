"""What holds for all tests."""

import os

from hypothesis import settings

# A person's run looks for new counter-examples; CI repeats the same ones, so that what it says depends on the change.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
