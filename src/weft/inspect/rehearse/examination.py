"""Run all checks of `weft analyze`: find the problems of a mesh, and of its pods, which come from Deployments and
other templates, or run on a cluster. Input: documents. Output: problems with codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from weft.analyze.facts import Facts
from weft.analyze.finding import coded
from weft.analyze.outside import of_outside
from weft.analyze.pods import DEPRECATED, found, of_pods, of_scraping
from weft.analyze.proxies import Installed, of_proxies
from weft.analyze.templates import PLACES, PodTemplate, template_of
from weft.api.document import Document
from weft.api.parse import KINDS, NOT_READ, OF_MESHES, OF_PODS
from weft.base.problem import Problem, Severity
from weft.inject.annotations import InjectionRefused, read
from weft.inject.settings import InjectionSettings
from weft.inspect.rehearse.pods_from_templates import AssumedInjection, would_be
from weft.inspect.rehearse.rehearsal import Values, rehearsed
from weft.model.instance import Instance
from weft.model.names import ObjectKey
from weft.model.value import Admit, as_it_is

# Annotations. Their value lists the codes to suppress, or is `*`.
SUPPRESSING = ("weft.dev/analyze-suppress", "galley.istio.io/analyze-suppress")


class Running(msgspec.Struct, frozen=True):
    """The state of a cluster beyond its written objects: running pods and EndpointSlices (`values`), the installed
    control planes, and the settings of each revision's injector (`injectors`). `problems`: what could not be read."""

    values: tuple[Values, ...] = ()  # pods and EndpointSlices
    installed: Installed = Installed()
    injectors: Mapping[str, InjectionSettings] = {}  # revision -> settings of its injector
    problems: tuple[Problem, ...] = ()  # problems in reading this state


class Examined(msgspec.Struct, frozen=True):
    objects: int
    problems: tuple[Problem, ...]
    facts: Facts | None = None  # about all objects


def examine(
    documents: Iterable[Document],
    domain: str = "cluster.local",
    admit: Admit = as_it_is,
    *,
    running: Running | None = None,
    laid_over: Iterable[Document] = (),
) -> Examined:
    """Find the problems of a mesh. `admit`: completes each value, for example with an address for a service that has
    none. `running`: the state of a cluster; None for files alone. `laid_over`: files that replace objects of the
    cluster. Never raises, whatever the documents contain."""
    written = {document.key: document for document in documents}
    fresh = {document.key: document for document in laid_over}
    written |= fresh
    injection = AssumedInjection(written.values(), running.injectors if running is not None else {})
    templates = [each for document in written.values() if (each := template_of(document)) is not None]
    looked_at = [document for document in written.values() if _is_read(document)]
    others = [*_present(running, fresh), *_made_of(templates, running, fresh, injection)]
    result = rehearsed(looked_at, domain, admit, others=others, least=Severity.INFO)
    # A template with an owner is left out, since the owner's template is examined.
    unowned = [each for each in templates if each.owner == ("", "")]
    problems = [
        *result.problems,
        *of_pods(unowned, written.values()),
        *_of_annotations(unowned, injection),
        *of_scraping((each for each in unowned if injection.kind_of(each) is not None), result.facts),
        *of_outside(result.facts, written.values()),
    ]
    if running is not None:
        pods = [each for each in templates if each.document.key.kind == "Pod"]
        problems += of_proxies(result.facts, pods, running.installed, injection.wants)
        problems += running.problems
    return Examined(len(written), _in_order(_unsuppressed(dict.fromkeys(map(coded, problems)), written)), result.facts)


def _is_read(document: Document) -> bool:
    """Whether the document's kind is analyzed: kinds that weft reads, kinds that concern a mesh or its pods, and
    unknown kinds. Known kinds of Kubernetes that weft does not use, such as Role or NetworkPolicy, are ignored."""
    kind = document.key.kind
    return kind in KINDS or kind in OF_MESHES or kind in OF_PODS or kind not in NOT_READ


def _present(running: Running | None, fresh: Mapping[ObjectKey, Document]) -> Iterator[Values]:
    """The pods and EndpointSlices of the running cluster, except those that are replaced. `running`: the state of the
    cluster; None if there is none, then nothing is yielded. `fresh`: the objects in files, which replace objects of the
    cluster; the pods of a replaced workload are left out, too."""
    for key, values in running.values if running else ():
        if key not in fresh and not any(_is_of(value, fresh) for value in values):
            yield key, values


def _made_of(
    templates: Iterable[PodTemplate],
    running: Running | None,
    fresh: Mapping[ObjectKey, Document],
    injection: AssumedInjection,
) -> Iterator[Values]:
    """The pods that Kubernetes would create for workloads in files. `templates`: all pod templates. `running`: the
    state of a cluster; None without a cluster. `fresh`: the objects in files. With a cluster, only the templates of
    these objects count, because the cluster's other workloads have their pods already. `injection`: decides which of
    the new pods get a proxy."""
    written = (each for each in templates if running is None or each.document.key in fresh)
    return ((key, (pod,)) for key, pod in would_be(written, injection))


def _is_of(value: object, fresh: Mapping[ObjectKey, Document]) -> bool:
    return isinstance(value, Instance) and any(
        ObjectKey(kind, value.namespace, value.workload) in fresh for kind in PLACES
    )


def _of_annotations(templates: Iterable[PodTemplate], injection: AssumedInjection) -> Iterator[Problem]:
    for template in templates:
        if not injection.wants(template):
            for container in template.containers:
                if container.image == "auto":
                    auto = f"container {container.name} has `image: auto`"
                    what = f"{auto}, but the injector, which would replace it, skips this pod"
                    hint = "label the namespace or the pod for injection"
                    yield found("WFT0814", template.document, (*container.path, "image"), what, hint)
            continue
        place = (*template.path, "metadata", "annotations")
        annotations = dict(template.annotations)
        try:
            wishes = read(annotations, injection.settings_for(template.namespace), str(template.document.key))
        except InjectionRefused as refusal:
            for problem in refusal.problems:
                name = problem.where.field.partition("[")[2].removesuffix("]")
                what = f"{name}: {problem.what}: the injector rejects such a pod"
                yield found("WFT0811", template.document, (*place, name), what, problem.hint)
            continue
        for words in wishes.warnings:
            name = next((each for each in annotations if each in words), "")
            if name in DEPRECATED:
                continue  # another finding reports it
            yield found("WFT0810", template.document, (*place, name) if name else place, words)


def _unsuppressed(problems: Iterable[Problem], written: Mapping[ObjectKey, Document]) -> Iterator[Problem]:
    """The problems, without those whose code an annotation of their object lists to suppress them. `written`: all
    objects, with their annotations."""
    silenced: dict[str, set[str]] = {}
    for key, document in written.items():
        metadata = document.body.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        annotations = annotations if isinstance(annotations, Mapping) else {}
        for name in SUPPRESSING:
            if isinstance(codes := annotations.get(name), str):
                silenced.setdefault(str(key), set()).update(code.strip() for code in codes.split(","))
    return (each for each in problems if not silenced.get(each.where.object, set()) & {"*", each.code})


def _in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda each: (each.where.file, each.where.line, str(each))))
