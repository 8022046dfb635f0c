"""Mutated documents of all kinds through everything that reads files or admission reviews: no exception, no hang, bounded
memory.

`WEFT_FUZZ_DOCUMENTS` is the number of documents; `make test-fuzz` uses 20,000. `WEFT_FUZZ_SEED` selects others. The same
numbers give the same documents. A failure names the file that reproduces it. Write a test for each finding beside the
module that was at fault.
"""

import json
import os
import random
import resource
import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzz.corpus import meshes, pods
from fuzz.mutations import Mutator, as_file, as_text
from weft.api.yaml_text import YamlError, compose
from weft.cli.main import app
from weft.cluster.sidecar_arguments import arguments
from weft.inject.annotations import InjectionRefused
from weft.inject.injector import Injector
from weft.inject.review import BadReview, decode, encode
from weft.inject.settings import InjectionSettings
from weft.inject.validation import validate
from weft.inject.workloads import inject_document

DOCUMENTS = int(os.environ.get("WEFT_FUZZ_DOCUMENTS", "500"))
SEED = os.environ.get("WEFT_FUZZ_SEED", "1")
SHARE = 250  # documents of one test: a test that hangs is ended by pytest's timeout
MOST_MEMORY = 256 << 20  # bytes that a share may need in addition
_CALLERS = ("Workload", "Deployment", "StatefulSet", "Pod")


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("CRITICAL", "weft")


@pytest.fixture(autouse=True)
def no_memory_for_bombs():
    """An allocation of gigabytes fails at once instead of taking the machine down."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("share", range(max(1, DOCUMENTS // SHARE)))
def test_no_document_raises_an_exception(share, tmp_path):
    chance = random.Random(f"{SEED} {share}")
    corpus, peak = meshes(), _peak()
    mutator = Mutator(chance, [each for mesh in corpus for each in mesh])
    fuzz = Fuzz(chance, tmp_path)
    while fuzz.documents < SHARE:
        mesh = chance.choice(corpus)
        chosen = [chance.random() < 0.5 for _ in mesh]
        fuzz.documents += sum(chosen)
        fuzz.run(mesh, [mutator.mutated(each) if changed else each for each, changed in zip(mesh, chosen, strict=True)])
    assert not fuzz.findings, "\n\n".join(fuzz.findings.values())
    assert _peak() - peak < MOST_MEMORY


@pytest.mark.parametrize("share", range(max(1, DOCUMENTS // SHARE)))
def test_no_pod_raises_an_exception_in_the_injector(share, tmp_path):
    chance = random.Random(f"{SEED} pods {share}")
    corpus = pods()
    corpus += [_injected({**pod, "apiVersion": "v1", "kind": "Pod"}) for pod in corpus]
    mutator = Mutator(chance, corpus)
    fuzz = Fuzz(chance, tmp_path)
    for _ in range(SHARE):
        pod = mutator.mutated(chance.choice(corpus))
        fuzz.review(pod, "Pod")
        fuzz.inject(pod)
    assert not fuzz.findings, "\n\n".join(fuzz.findings.values())


class Fuzz:
    """Passes documents to the commands and the webhooks, and keeps one finding for each place in the code."""

    def __init__(self, chance, directory):
        self._chance, self._directory = chance, directory
        self._before, self._after = directory / "before", directory / "after"
        self._before.mkdir()
        self._after.mkdir()
        self._injector = Injector(InjectionSettings(), arguments, native_sidecars=True)
        self.documents = 0
        self.findings = {}

    def run(self, mesh, mutated):
        """Run all commands on a mesh of mutated documents. `mesh`: the same documents before."""
        name, text = as_file(self._chance, mutated)
        file = self._after / name
        file.write_bytes(text)
        (self._before / "mesh.yaml").write_bytes("\n---\n".join(map(json.dumps, mesh)).encode())
        self._command(text, "validate", self._after)
        self._command(text, "analyze", self._after)
        self._command(text, "explain", self._caller(mesh), "--to", self._url(mesh), "-f", self._after)
        self._command(text, "diff", "-f", self._after, "--against", self._before)
        # In a base mesh, rejected objects are left out; in a change, they end the command.
        self._command(text, "diff", "-f", self._before, "--against", self._after)
        self._command(text, "kube-inject", "-f", file)
        file.unlink()
        for body in mutated:
            self.review(body, "VirtualService")
            self.review(_pod(body), "Pod")

    def review(self, body, kind):
        """Send an object to both webhooks."""
        request = {"uid": "1", "kind": {"kind": kind}, "operation": "CREATE", "namespace": "shop", "object": body}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        text = json.dumps(review).encode(errors="surrogatepass")
        for name, answer in (("inject", self._injector.answer), ("validate", validate)):
            self._call(f"webhook {name}", text, lambda answer=answer: _reviewed(text, answer))

    def inject(self, pod):
        """Inject a pod as `weft kube-inject` does."""
        text = as_text([{**pod, "apiVersion": "v1", "kind": "Pod"}])
        try:
            document = compose(text.decode(errors="replace")).value
        except YamlError:
            return
        self._call("kube-inject", text, lambda: _injected(document))

    def _call(self, what, given, function):
        try:
            function()
        except Exception as error:
            self._note(what, given, error)

    def _command(self, text, *words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            self._note(f"weft {words[0]}", text, result.exception)

    def _note(self, what, given, error):
        frames = traceback.extract_tb(error.__traceback__)
        own = next((each for each in reversed(frames) if "/src/weft/" in each.filename), frames[-1])
        place = (what, own.filename, own.lineno)
        if place not in self.findings:
            kept = self._directory / f"finding-{len(self.findings)}"
            kept.write_bytes(given)
            trace = "".join(traceback.format_exception(error)[-8:])
            self.findings[place] = f"{what} with {kept}:\n{trace}"

    def _caller(self, mesh):
        names = [each["metadata"] for each in mesh if each.get("kind") in _CALLERS]
        chosen = self._chance.choice(names) if names else {"name": "web"}
        return f"{chosen['name']}.{chosen.get('namespace', 'default')}"

    def _url(self, mesh):
        services = [each for each in mesh if each.get("kind") == "Service"]
        if not services or self._chance.random() < 0.2:
            return self._chance.choice(("http://example.com/", "https://a.b/", "http://10.0.0.1:9000/x"))
        chosen = self._chance.choice(services)
        port = self._chance.choice(chosen["spec"].get("ports") or [{}]).get("port", 80)
        return f"http://{chosen['metadata']['name']}.{chosen['metadata'].get('namespace', 'default')}:{port}/a?x=1"


def _injected(document):
    try:
        return inject_document(document, InjectionSettings(), arguments).document
    except InjectionRefused:
        return document


def _reviewed(text, answer):
    try:
        request = decode(text)
    except BadReview:
        return
    encode(request.uid, answer(request))


def _pod(body):
    """The pod template of a workload, or the object itself."""
    spec = body.get("spec") if isinstance(body, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    return template if isinstance(template, dict) else body


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
