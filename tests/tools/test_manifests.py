"""The generated files in deploy/ are up to date."""

from tools import manifests


def test_the_generated_files_are_up_to_date():
    for file, text in manifests.texts().items():
        assert file.read_text() == text, f"{file.name} is old; run: make manifests"
