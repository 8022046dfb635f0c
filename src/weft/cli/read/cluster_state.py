"""Extracts from a cluster's inventory what the checks of its objects need: the installed revisions, and the settings of
each injector."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.inspect.rehearse.examination import Running
    from weft.kube.inventory import Inventory


def running(inventory: Inventory) -> Running:
    from weft.analyze.proxies import Installed
    from weft.inject.settings import InjectionSettings, SettingsError, read_config_map
    from weft.inspect.rehearse.examination import Running

    injectors: dict[str, InjectionSettings] = {}
    problems = list(inventory.problems)
    for revision, data in inventory.injectors.items():
        try:
            injectors[revision] = read_config_map(data, f"the injector's settings of revision {revision}")
        except SettingsError as error:
            problems.append(error.problem)
    installed = Installed(inventory.revisions, {name: each.image for name, each in injectors.items()})
    return Running(inventory.values, installed, injectors, tuple(problems))
