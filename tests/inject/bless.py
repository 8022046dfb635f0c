"""The golden pods: the results of injection in readable form. `make bless` writes them again."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import yaml

from weft.cluster.sidecar_arguments import arguments
from weft.inject.patch import inject
from weft.inject.settings import InjectionSettings


def cases() -> list[Path]:
    return sorted((Path(__file__).parent / "golden").iterdir())


def written(case: Path) -> str:
    """Return the injected pod, with Envoy's bootstrap, one long argument, as readable YAML."""
    given = yaml.safe_load((case / "pod.yaml").read_text())
    settings = msgspec.convert(given.get("settings", {}), InjectionSettings)
    native = given.get("nativeSidecars", True)
    result = inject(given["pod"], given["namespace"], settings, arguments, native_sidecars=native)
    for container in [*result.pod["spec"]["containers"], *result.pod["spec"].get("initContainers", ())]:
        if "--config-yaml" in container.get("args", ()):
            place = container["args"].index("--config-yaml") + 1
            document = json.loads(container["args"][place])
            del document["stats_config"]  # long, and the same for every Envoy
            container["args"][place] = document
    shown = {"warnings": list(result.warnings), "pod": result.pod}
    return yaml.dump(shown, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True
