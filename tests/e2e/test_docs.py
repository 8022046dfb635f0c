"""The commands in the documents work, in their order."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"\A# file: (\S+)\n")
SOURCE = re.compile(r"`((?:src|tests|tools|bench|docs)/[\w/.-]+\.\w+)`")
MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")  # below src/weft
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


@pytest.fixture
def shell(tmp_path):
    """`weft` on the path, an empty directory, and no mesh left running."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }

    def run(command):
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False
        )

    yield run
    run("weft down hello")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_of_a_document_works(document, shell, tmp_path):
    for language, text in BLOCK.findall(document.read_text()):
        if named := FILE.match(text):
            path = tmp_path / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if language != "console":
            continue
        for command in text.splitlines():
            if command.startswith("make "):  # this test itself runs below one of them
                assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
                continue
            if command == "weft demo --check":  # has a test of its own, test_demo.py
                continue
            done = shell(command)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "ARCHITECTURE.md"], ids=lambda path: path.name)
def test_the_files_that_a_document_names_exist(document):
    text = document.read_text()
    for named in SOURCE.findall(text):
        assert (ROOT / named).exists(), named
    for named in MODULE.findall(text):
        assert (ROOT / named).exists() or (ROOT / "src" / "weft" / named).exists(), named
    for linked in LINK.findall(text):
        assert (document.parent / linked).exists(), linked


def test_every_command_block_is_tested():
    """A fence that the pattern above does not match would not be tested."""
    for document in DOCUMENTS:
        fences = document.read_text().count("\n```")
        assert fences == 2 * len(BLOCK.findall(document.read_text())), document.name


def test_the_command_is_installed_where_the_documents_expect_it():
    assert shutil.which("weft", path=str(Path(sys.executable).parent))
