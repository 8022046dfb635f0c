"""The list of istioctl's commands is complete: the help pages of the real istioctl name no others."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tools.istioctl_commands import COMMANDS


def commands_below(istioctl, words=()):
    """Every command below `words`, and whether it has commands of its own: {name: is a group}."""
    done = subprocess.run([istioctl, *words, "--help"], capture_output=True, text=True, check=True)
    listed = re.search(r"Available Commands:\n((?:  .*\n)+)", done.stdout)
    names = [line.split()[0] for line in listed[1].splitlines()] if listed else []
    with ThreadPoolExecutor(2) as pool:
        below = pool.map(
            lambda name: commands_below(istioctl, (*words, name)), (each for each in names if each != "help")
        )
        return {" ".join(words): bool(names)} | {name: group for found in below for name, group in found.items()}


def test_every_command_of_istioctl_is_listed(istioctl):
    found = commands_below(istioctl)
    listed = [each.name for each in COMMANDS]
    assert sorted(set(listed)) == listed
    assert {name for name, group in found.items() if not group} - set(listed) == set()
    assert set(listed) - found.keys() == set()


def test_a_command_that_is_run_has_an_expected_output_and_no_other_has():
    for each in COMMANDS:
        assert (each.outcome == "not applicable") is not bool(each.prints), each.name
        assert each.note or each.outcome == "works", each.name
