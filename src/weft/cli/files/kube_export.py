"""`weft kube-export`: prints a mesh of this machine as objects for `kubectl apply`. It reads files, prints YAML, and
runs nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from weft.api.document import Document
    from weft.model.workload import Workload

_PASSED_OVER = frozenset({"Workload", "Namespace"})


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), help="A directory of YAML, as for `weft up`.")
@click.option(
    "--image",
    default="",
    help="The image of the pods. It must contain the interpreters of the Workloads' commands; default: weft's.",
)
def kube_export(directory: Path, image: str) -> None:
    """Print a mesh of this machine as Kubernetes objects. Workloads become Deployments and Jobs.

    Files in a Workload's working directory become a ConfigMap, except files with a private key. Namespaces without an
    injection or revision label get the label that enables injection. All other objects are printed as they are written.

    \b
    Example: weft kube-export examples/shop | kubectl apply -f -
    """
    import yaml

    image = image or _own_image()
    objects = _objects(directory, image)
    click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True), nl=False)
    programs = sorted(
        {each["command"][0] for document in objects for each in _containers(document) if "command" in each}
    )
    if programs:
        say(f"the image {image} must contain these programs: {', '.join(programs)}")
    if any(document["metadata"].get("namespace") == "istio-system" for document in objects):
        say("some objects are in the namespace istio-system; on a cluster, they apply to the whole mesh")
    say(f"{len(objects)} objects; apply them with: weft kube-export {directory} | kubectl apply -f -")


def _containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    if document["kind"] not in ("Deployment", "Job"):
        return []
    containers: list[dict[str, Any]] = document["spec"]["template"]["spec"]["containers"]
    return containers


def _own_image() -> str:
    from weft import __version__

    return f"weft:{__version__}"


def _objects(directory: Path, image: str) -> list[dict[str, Any]]:
    from weft.api.parse import parse
    from weft.base.problem import Severity
    from weft.install import workloads
    from weft.model.settings import Namespace
    from weft.model.workload import Workload

    documents = _documents(directory)
    labels: dict[str, dict[str, str]] = {}
    runners: list[Workload] = []
    for document in documents:
        parsed = parse(document)
        wrong = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
        if wrong:
            fail(str(wrong[0]), f"see all problems: weft validate {directory}")
        for value in parsed.values:
            if isinstance(value, Namespace):
                labels[value.name] = dict(value.labels)
            elif isinstance(value, Workload):
                runners.append(value)
    for workload in runners:
        labels.setdefault(workload.namespace, {})
    namespaces: list[dict[str, Any]] = [workloads.namespace(name, labels[name]) for name in sorted(labels)]
    rest = [_plain(document.body) for document in documents if document.key.kind not in _PASSED_OVER]
    keys = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rest}
    for workload in runners:
        for each in _of(workload, image):
            key = (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            if key not in keys:
                keys.add(key)
                rest.append(each)
    return [*namespaces, *rest]


def _of(workload: Workload, image: str) -> list[dict[str, Any]]:
    from weft.install import workloads

    if workload.gateway:
        objects = workloads.gateway(workload)
        return objects if workload.service_account == "default" else [workloads.account(workload), *objects]
    if any(mount != workload.working_directory for mount in workload.mounts):
        named = f"Workload {workload.namespace}/{workload.name}"
        say(f"warning: the `mounts` of {named} are not exported: put these files into an image, or add volumes")
    files = workloads.programs(workload, _files(Path(workload.working_directory)))
    objects = [files, workloads.running(workload, image, files["metadata"]["name"])]
    return objects if workload.service_account == "default" else [workloads.account(workload), *objects]


def _documents(directory: Path) -> list[Document]:
    from weft.files import scan
    from weft.files.directory import Directory

    root, shown = str(directory.absolute()), scan.shown(directory)
    try:
        seen = scan.look(root, shown)
    except OSError as error:
        fail(f"{shown} cannot be read: {error.strerror or error}", "give a directory of YAML: weft kube-export DIR")
    read = Directory(root, shown)
    read.apply({name: scan.read(root, name, shown) for name in seen.files})
    if problems := read.problems():
        fail(str(problems[0]), f"see all problems: weft validate {shown}")
    return list(read.live.values())


def _files(directory: Path) -> dict[str, str]:
    from weft.base.key_search import kinds_of_keys
    from weft.install.workloads import MOST_BYTES

    texts: dict[str, str] = {}
    for file in sorted(directory.iterdir()) if directory.is_dir() else ():
        if file.name.startswith(".") or not file.is_file() or file.suffix in (".yaml", ".yml", ".example"):
            continue
        try:
            content = file.read_bytes()
            if kinds_of_keys(content):
                _say_key(file)
                continue
            texts[file.name] = content.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fail(
                f"{file} cannot be put into a ConfigMap: {error}",
                "programs that are not text must be in an image: --image",
            )
    size = sum(len(text.encode()) for text in texts.values())
    if size > MOST_BYTES:
        fail(
            f"the files of {directory} are {size} bytes",
            f"a ConfigMap holds at most {MOST_BYTES} bytes; put the files into an image: --image",
        )
    return texts


def _say_key(file: Path) -> None:
    import shlex

    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "key"
    command = f"kubectl create secret generic {name} --from-file={shlex.quote(str(file))}"
    say(f"warning: {file} contains a private key, so it is not exported: a ConfigMap is no place for a key")
    say(f"hint: put it into a Secret, and mount that Secret into the pods: {command}")


def _plain(value: Any) -> Any:
    """Return a copy of a parsed YAML value in which the YAML reader's own mapping and list types are replaced by
    dict and list."""
    if hasattr(value, "items"):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
