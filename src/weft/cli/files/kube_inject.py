"""`weft kube-inject`: injects the proxy into the pods in YAML files as the webhook would, without a cluster, and prints
the changed YAML."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.flags import shared
from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.inject.settings import InjectionSettings

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,3})(?:\..*)?")


@click.command()
@shared.files_option("A file of YAML or JSON, or - for standard input.", required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The output file; stdout by default.")
@click.option(
    "--settings",
    type=click.Path(path_type=Path),
    help="The injector's settings: `settings` of the ConfigMap istio-sidecar-injector, as JSON.",
)
@click.option("--revision", default="", help="The revision that injects; by default that of the settings.")
@shared.default_namespace
@click.option(
    "--kubernetes-version",
    "kubernetes",
    default="1.34",
    show_default=True,
    help="Kubernetes version of the cluster; 1.29 introduced native sidecars.",
)
def kube_inject(
    files: tuple[Path, ...], output: Path | None, settings: Path | None, revision: str, namespace: str, kubernetes: str
) -> None:
    """Add the proxy to the pods of workloads in files. Prints the changed Deployments, Jobs and other workloads.

    The webhook does the same to these pods. All other objects in the files are printed as they are written.

    \b
    Example: weft kube-inject -f web.yaml | kubectl apply -f -
             kubectl -n istio-system get cm istio-sidecar-injector -o jsonpath='{.data.settings}' > settings.json
             weft kube-inject -f web.yaml --settings settings.json
    """
    from weft.cluster.sidecar_arguments import arguments
    from weft.inject.annotations import InjectionRefused
    from weft.inject.workloads import inject_document

    chosen = _settings(settings, revision)
    native, sleeping = _abilities(kubernetes)
    parts: list[str] = []
    documents = list(_documents(files))
    for name, text, document in documents:
        try:
            result = inject_document(
                document, chosen, arguments, namespace=namespace, native_sidecars=native, sleep_hooks=sleeping
            )
        except InjectionRefused as refusal:
            fail(f"{name}: {refusal.problems[0]}", "\n".join(str(each) for each in refusal.problems[1:]))
        for note in result.notes:
            say(f"{name}: {note}")
        parts.append(_as_yaml(result.document) if result.changed else text)
    if not any(isinstance(document, dict) for _, _, document in documents):
        fail(f"nothing to inject in {', '.join(map(str, files))}", "give a file with Kubernetes objects in it")
    whole = "---\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)
    if output is None:
        click.echo(whole, nl=False)
    else:
        output.write_text(whole, encoding="utf-8")


def _settings(file: Path | None, revision: str) -> InjectionSettings:
    import msgspec

    from weft.inject.settings import InjectionSettings, read

    try:
        settings = InjectionSettings() if file is None else read(file.read_bytes(), str(file))
    except OSError as error:
        fail(
            f"{file} cannot be read: {error.strerror or error}", "to use weft's default settings, leave out --settings"
        )
    return msgspec.structs.replace(settings, revision=revision) if revision else settings


def _abilities(version: str) -> tuple[bool, bool]:
    """Return whether this Kubernetes version has native sidecars, and whether it has lifecycle hooks that sleep."""
    from weft.inject.injector import has_native_sidecars, has_sleep_hooks

    parts = _VERSION.fullmatch(version)
    if parts is None:
        fail(f"`{version}` is not a version of Kubernetes", "for example: --kubernetes-version 1.34", code=2)
    return has_native_sidecars(parts[1], parts[2]), has_sleep_hooks(parts[1], parts[2])


def _documents(files: Sequence[Path]) -> Iterator[tuple[str, str, Any]]:
    """Yield each YAML document with the name of its file and its text: (name, text, document)."""
    from weft.api.yaml_text import YamlError, compose

    for file in files:
        name, text = _read(file)
        line = 1
        # A line that begins with `---` always begins a document, even inside a block of text.
        for number, part in enumerate(_MARKER.split(text)):
            if part.strip():
                try:
                    composed = compose(part, line)
                except YamlError as error:
                    fail(f"{name}:{error.flaw.line}: {error.flaw.what}", error.flaw.hint)
                if composed.value is not None and not _is_object(composed.value):
                    # A part after a marker begins with the rest of the marker's line.
                    hint = "give what kubectl apply would take; objects are separated by a line ---"
                    place = f"{name}:{line + bool(number)}"
                    fail(f"{place}: this is not a Kubernetes object: it has no apiVersion and kind", hint)
                yield name, part.removeprefix("\n") if number else part, composed.value
            line += part.count("\n")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(each), str) for each in ("apiVersion", "kind"))


def _read(file: Path) -> tuple[str, str]:
    try:
        if str(file) == "-":
            return "standard input", sys.stdin.buffer.read().decode()
        return str(file), file.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}", "give a file, or - for standard input")
    except UnicodeDecodeError as error:
        fail(f"{file} is not UTF-8 text: {error}", "save it as UTF-8, as YAML or JSON")


def _as_yaml(document: Any) -> str:
    import yaml

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10**9)
