"""The example mesh that comes with weft: the path of its files, a copy for the user to edit, and the edits worth
trying."""

from __future__ import annotations

import os
import shlex
import shutil
from datetime import timedelta
from pathlib import Path

# Long enough that a busy machine renews in time, short enough that a user sees renewals. Renewed at 80 % of the
# lifetime.
CERTIFICATE_TTL = timedelta(seconds=10)
CALLERS = ("[frontend]", "[frontend, snoop]")  # the allowed callers in payments.yaml, before and after the edit
WEIGHTS = ((90, 50), (10, 50))  # payments.yaml's weights, before and after the edit


def source() -> Path:
    """Return the directory of the example shop: inside the package in a wheel, beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "examples" / "shop", package.parent.parent / "examples" / "shop"):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"no examples/shop in or beside {package}; install weft again")


def copy_to(target: Path) -> None:
    """Copy the shop to `target`, readable by every user, because the shop's programs run as other users."""
    shutil.copytree(source(), target, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def move_weight(directory: Path) -> None:
    text = (directory / "payments.yaml").read_text()
    for old, new in WEIGHTS:
        text = text.replace(f"weight: {old}\n", f"weight: {new}\n")
    _save(directory / "payments.yaml", text)


def inject_fault(directory: Path) -> None:
    _save(directory / "fault.yaml", (directory / "fault.yaml.example").read_text())


def heal_fault(directory: Path) -> None:
    (directory / "fault.yaml").unlink()


def let_snoop_in(directory: Path) -> None:
    _replace(directory / "payments.yaml", *CALLERS)


def keep_snoop_out(directory: Path) -> None:
    _replace(directory / "payments.yaml", *reversed(CALLERS))


def add_outsider(directory: Path) -> None:
    _save(directory / "outsider.yaml", (directory / "outsider.yaml.example").read_text())


def remove_outsider(directory: Path) -> None:
    (directory / "outsider.yaml").unlink()


def things_to_try(directory: Path, victim: int) -> list[tuple[str, list[str]]]:
    """Return the things that a user may try, each as a title and the shell commands for it. `directory` is the
    user's copy of the shop. `victim` is the PID of a pod to kill; 0 if there is none yet."""
    place = _short(directory)
    return [
        ("Move payments from 90/10 to 50/50:", [f"sed -i 's/weight: .*/weight: 50/' {place / 'payments.yaml'}"]),
        (
            "Make half of catalog's answers fail, then heal it:",
            [f"cp {place / 'fault.yaml.example'} {place / 'fault.yaml'}", f"rm {place / 'fault.yaml'}"],
        ),
        (
            "Let snoop pay, then keep it out again (weft logs -f snoop):",
            [
                rf"sed -i 's/\[frontend\]/[frontend, snoop]/' {place / 'payments.yaml'}",
                f"sed -i 's/, snoop//' {place / 'payments.yaml'}",
            ],
        ),
        ("Kill a pod of catalog and see it come back:", [f"kill -9 {victim or 'PID'}"]),
    ]


def _replace(path: Path, old: str, new: str) -> None:
    _save(path, path.read_text().replace(old, new))


def _save(path: Path, text: str) -> None:
    """Replace the file atomically, as editors do: write a new file, then rename it."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.chmod(0o644)
    beside.rename(path)


def _short(directory: Path) -> Path:
    """Return the path relative to the current directory where possible, quoted for a shell."""
    absolute = directory.absolute()
    here = Path.cwd()
    shown = absolute.relative_to(here) if absolute.is_relative_to(here) else absolute
    return Path(shlex.quote(os.fspath(shown)))
