"""Runs the conformance suite of the Gateway API against weft of this checkout, on a real cluster.

`make conformance` runs it. It prints a line for each test when the test ends, then a summary, and writes the Gateway
API's conformance reports and the suite's logs to `build/conformance`. The suite and the images of its applications
are built from the suite's Go module, and the echo server from Istio's Go module; neither is part of this repository.
Arguments after `gateway` or `mesh` are passed to the suite: `… gateway -run-test=HTTPRouteMatching`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import yaml
from tools.kube.certificates import Authority
from tools.kube.cluster import Cluster, borrowed
from tools.kube.node import PAUSE_IMAGE
from tools.kube.process import Failed

from tools import image, istioctl
from tools.kube import archive, build, gateway_api, go
from weft import __version__
from weft.kube.gateway_features import SUPPORTED
from weft.model.gateway_api import CONTROLLER, GATEWAY_NAME
from weft.model.proxy import GATEWAY_TEMPLATE

MODULE = "sigs.k8s.io/gateway-api/conformance"
SUM = "h1:jyH7Jtx46hEeBQnmSErn2cbp0k4OmT3FLRBnu77c4Ko="
OUTPUT = Path("build", "conformance")
CLASS = "weft"
NAMESPACE = "istio-system"
_PARTS = ("deployment/weft-control", "daemonset/weft-node")
_SUITE = f"""package weft

import (
\t"testing"

\t"{MODULE}"
\t"{MODULE}/tests"
)

// One after another: of tests that run beside others the report says that they passed before they have run.
func TestConformance(t *testing.T) {{
\tfor i := range tests.ConformanceTests {{
\t\ttests.ConformanceTests[i].Parallel = false
\t}}
\tconformance.RunConformance(t)
}}
"""
_NAMED = re.compile(r"^\s*(?:- )?image: *(\S+)", re.MULTILINE)
_RESULT = re.compile(r"--- (PASS|FAIL|SKIP): TestConformance/(\w+) \(([\d.]+)s\)\n")
_STEP = re.compile(r": Test Setup: (.+)\n")
_MARK = "\x16"  # Go's test binary puts this byte before its own lines with -test.v=test2json
_WORDS = 20  # lines of the log to show if the suite ended before its tests

Tell = Callable[[str], None]


class Run(msgspec.Struct, frozen=True):
    """The settings of one run of the suite."""

    profiles: tuple[str, ...]
    features: tuple[str, ...]  # features that weft supports
    options: Mapping[str, str] = {}  # command-line options of the suite
    beside: tuple[dict[str, Any], ...] = ()  # objects that the suite needs but does not create


class Result(msgspec.Struct, frozen=True):
    """The result of one test."""

    outcome: str  # PASS, FAIL or SKIP
    name: str
    seconds: float


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one run of the suite."""

    name: str
    results: tuple[Result, ...]
    report: dict[str, Any]  # the Gateway API's ConformanceReport; empty if the suite wrote none
    seconds: float
    code: int  # exit code of the suite

    @property
    def ran(self) -> list[Result]:
        return [each for each in self.results if each.outcome != "SKIP"]

    @property
    def failed(self) -> list[Result]:
        return [each for each in self.ran if each.outcome == "FAIL"]

    @property
    def good(self) -> bool:
        """Whether the suite succeeded: at least one test ran and none failed."""
        return not self.code and bool(self.ran) and not self.failed


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _deployment(namespace: str, name: str, labels: dict[str, str], template: dict[str, Any]) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _stand_in(namespace: str) -> tuple[dict[str, Any], ...]:
    """Return a namespace with a Deployment of one idle pod."""
    labels = {"app": "stand-in"}
    pod = {"containers": [{"name": "stand-in", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return _namespace(namespace), _deployment(namespace, "stand-in", labels, template)


def _own_proxies(namespace: str, gateway: str) -> tuple[dict[str, Any], ...]:
    """Return a Service and Deployment of manually deployed proxies, for a Gateway whose address is that Service."""
    labels = {GATEWAY_NAME: gateway}
    template = {
        "metadata": {
            "labels": {**labels, "sidecar.istio.io/inject": "true"},
            "annotations": {"inject.istio.io/templates": GATEWAY_TEMPLATE},
        },
        "spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]},
    }
    spec = {"selector": labels, "ports": [{"name": "http", "port": 8080}]}
    metadata = {"name": gateway, "namespace": namespace}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return _namespace(namespace), service, _deployment(namespace, gateway, labels, template)


_INFRASTRUCTURE = "gateway-conformance-infra"  # the suite's namespace for Gateways
_ADDRESSED = "gateway-static-addresses"  # its Gateway with static addresses, set as options
RUNS = {
    "gateway": Run(
        ("GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS", "GATEWAY-TCP"),
        SUPPORTED,
        options={
            "usable-address": f"{_ADDRESSED}.{_INFRASTRUCTURE}.svc.cluster.local",
            "unusable-address": f"nobody.{_INFRASTRUCTURE}.svc.cluster.local",
        },
        beside=_own_proxies(_INFRASTRUCTURE, _ADDRESSED),
    ),
    "mesh": Run(
        ("MESH-HTTP", "MESH-GRPC"),
        (
            "Mesh", "HTTPRoute", "GRPCRoute", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode",
            "HTTPRoute308RedirectStatusCode", "HTTPRouteParentRefPort", "HTTPRouteResponseHeaderModification",
            "MeshClusterIPMatching", "MeshConsumerRoute", "MeshHTTPRouteRewritePath", "MeshHTTPRouteSchemeRedirect",
            "MeshHTTPRouteRedirectPort", "MeshHTTPRouteRedirectPath", "MeshHTTPRouteBackendRequestHeaderModification",
            "MeshHTTPRouteQueryParamMatching", "MeshHTTPRouteNamedRouteRule",
        ),
        options={"namespace-labels": "istio-injection=enabled"},
        # The suite waits for pods in these two namespaces, but creates them only in gateway runs.
        beside=(*_stand_in("gateway-conformance-app-backend"), *_stand_in("gateway-conformance-web-backend")),
    ),
}  # fmt: skip


def run(cluster: Cluster, name: str, words: tuple[str, ...], tell: Tell) -> Outcome:
    """Run the suite on a cluster on which `prepare` ran. Its output goes to the log in `OUTPUT`, and the report is
    in the same directory."""
    chosen = RUNS[name]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    log, report = OUTPUT.absolute() / f"{name}.log", OUTPUT.absolute() / f"{name}.yaml"
    report.unlink(missing_ok=True)
    options = {
        **chosen.options,
        "gateway-class": CLASS,
        "conformance-profiles": ",".join(chosen.profiles),
        "supported-features": ",".join(chosen.features),
        "organization": "weft",
        "project": "weft",
        # The suite writes no report without `url` and `contact`. Set the variables to submit a report: where weft is
        # published, and whom to contact.
        "url": os.environ.get("REPORT_URL") or "none",
        "contact": os.environ.get("REPORT_CONTACT") or "none",
        "version": f"v{__version__}",
        "report-output": str(report),
    }
    if chosen.features is SUPPORTED and not words:
        del options["supported-features"]  # the suite reads them from the GatewayClass
    places = [each["metadata"]["name"] for each in chosen.beside if each["kind"] == "Namespace"]
    for place in places:  # namespaces of an earlier run may still be terminating
        cluster.kubectl("wait", "--for=delete", f"namespace/{place}", "--timeout=120s")
    cluster.apply(*chosen.beside)
    # The suite runs on the node, because Service addresses are reachable only there.
    command: list[str | Path] = [*cluster.holder.joined(), _suite(), "-test.v=test2json", "-test.timeout=90m"]
    command += [f"-{option}={value}" for option, value in options.items()]
    tell(f"running the suite for {', '.join(chosen.profiles)}; its log is {log}")
    began = time.monotonic()
    code, results = _run([*command, *words], {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, log, tell)
    seconds = time.monotonic() - began
    tell("removing the objects that were created for the suite")
    cluster.kubectl("delete", "namespace", "--ignore-not-found", *places)
    if not results:
        tell("\n".join(log.read_text().splitlines()[-_WORDS:]))
    content = yaml.safe_load(report.read_text()) if report.exists() else {}
    return Outcome(name, results, content, seconds, code)


def _run(
    command: Sequence[str | Path], environment: dict[str, str], log: Path, tell: Tell
) -> tuple[int, tuple[Result, ...]]:
    """Run the suite. Return its exit code and the result of each test; pass each result to `tell` as soon as the
    test ends."""
    results = []
    with (
        log.open("w") as file,
        subprocess.Popen(
            command,
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as suite,
    ):  # fmt: skip
        for line in suite.stdout or ():
            plain = line.replace(_MARK, "")
            file.write(plain)
            if (step := _STEP.search(plain)) is not None:
                tell(f"the suite: {step[1]}")
            elif (result := result_of(plain)) is not None:
                results.append(result)
                if result.outcome != "SKIP":
                    tell(f"{result.outcome}  {result.name} ({result.seconds:.0f} s)")
    return suite.returncode, tuple(results)


def result_of(line: str) -> Result | None:
    """Parse a line of the suite's output. Return the result of a top-level test, or None for other lines."""
    match = _RESULT.fullmatch(line)
    return Result(match[1], match[2], float(match[3])) if match is not None else None


def summary(outcome: Outcome) -> Iterator[str]:
    """Yield the lines of the summary: how many tests passed, in total and in each profile, and which failed."""
    passed, ran = len(outcome.ran) - len(outcome.failed), len(outcome.ran)
    skipped = len(outcome.results) - ran
    yield (
        f"{outcome.name}: {passed} of {ran} tests passed, {skipped} were not run, in {outcome.seconds / 60:.1f} minutes"
    )
    for profile in outcome.report.get("profiles", ()):
        counts = (
            (level, profile[level]["statistics"]) for level in ("core", "extended") if profile.get(level) is not None
        )
        parts = (f"{level} {each['Passed']} of {each['Passed'] + each['Failed']}" for level, each in counts)
        yield f"  {profile['name']}: {', '.join(parts)}"
    for each in outcome.failed:
        yield f"  FAIL  {each.name}"
    if outcome.code and not outcome.failed:
        yield f"  the suite itself exited with {outcome.code}"


def prepare(cluster: Cluster, tell: Tell) -> None:
    """Install weft, the Gateway API's CustomResourceDefinitions and the suite's images on the cluster."""
    ensure(tell)
    tell("building weft's image and loading it")
    cluster.load_image(image.build())
    tell("loading the images of the suite's applications")
    for tar in _images(cluster):
        cluster.load_image(tar)
        tar.unlink()
    cluster.apply(*gateway_api.definitions())
    tell("installing weft")
    before = cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", "-o", "name")
    values = (
        "imagePullPolicy=Never", "gateways.deployments=true", 'gateways.secretsIn=["*"]', 'gateways.configMapsIn=["*"]'
    )  # fmt: skip
    options = [word for value in values for word in ("--set", value)]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "weft.cli", "install", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"weft install: {done.stdout}{done.stderr}")
    if before:  # the running pods may use an older image of the same name
        tell("restarting weft's pods")
        cluster.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", *_PARTS)
        for part in _PARTS:
            cluster.kubectl("rollout", "status", f"--namespace={NAMESPACE}", part, "--timeout=180s")
    spec = {"controllerName": CONTROLLER}
    group = "gateway.networking.k8s.io/v1"
    cluster.apply({"apiVersion": group, "kind": "GatewayClass", "metadata": {"name": CLASS}, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Accepted", f"gatewayclass/{CLASS}", "--timeout=60s")


def ensure(tell: Tell) -> None:
    """Build the suite and the applications of its images, if they are missing."""
    directory = _place()
    compiler = go.find(build.cache().parent, tell)
    _write(directory / "go.mod", _module())
    _write(directory / "suite_test.go", _SUITE)
    if not _suite().exists():
        tell(f"building the Gateway API's conformance suite {gateway_api.VERSION}")
        _go(compiler, directory, "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", _suite(), ".")
    if not _basic().exists():
        tell("building the suite's echo server")
        _go(compiler, directory, "build", "-trimpath", "-ldflags", "-s -w", "-o", _basic(), f"{MODULE}/echo-basic")
    for name in ("client", "server"):
        if not _istio(name).exists():
            istioctl.compile_package(f"{istioctl.PACKAGE}/pkg/test/echo/cmd/{name}", _istio(name), tell=tell)


def image_names(manifests: zipfile.ZipFile) -> set[str]:
    """Return the names of all images in the suite's manifests."""
    texts = (manifests.read(each).decode() for each in manifests.namelist() if each.endswith(".yaml"))
    return {name.strip("\"'") for text in texts for name in _NAMED.findall(text)}


def _images(cluster: Cluster) -> Iterator[Path]:
    """Yield one image archive for each image of the suite."""
    tar = build.cache() / f".conformance-{os.getpid()}.tar"
    names = Authority(cluster.api.keys).server("conformance-echo", ("echo",))
    usual = ["PATH=/usr/local/bin"]
    for name in sorted(image_names(zipfile.ZipFile(_downloaded()))):
        word = name.rpartition("/")[2].partition(":")[0]
        if word == "echo-basic":
            config: dict[str, Any] = {"Entrypoint": ["/echo-basic"], "User": "65532:65532"}
            yield archive.write(tar, name, files={"/echo-basic": _basic()}, config=config)
        elif word == "echo-advanced":
            files = {f"/usr/local/bin/{each}": _istio(each) for each in ("client", "server")}
            files |= {"/cert.crt": names, "/cert.key": names.with_suffix(".key")}
            yield archive.write(tar, name, files=files, config={"Entrypoint": ["server"], "Env": usual})
        else:  # server of the UDP tests, which weft does not support; it only has to run
            yield archive.write(tar, name, files={"/pause": build.path("pause")}, config={"Entrypoint": ["/pause"]})


def _module() -> str:
    version = gateway_api.VERSION
    needed = f"\tsigs.k8s.io/gateway-api {version}\n\t{MODULE} {version}\n"
    return f"module weft/conformance\n\ngo 1.26.0\n\nrequire (\n{needed})\n"


def _place() -> Path:
    return build.cache().parent / "module" / f"conformance-{gateway_api.VERSION}"


def _suite() -> Path:
    return build.cache().parent / f"conformance-{gateway_api.VERSION}-{sha256(_SUITE.encode()).hexdigest()[:8]}"


def _basic() -> Path:
    return build.cache().parent / f"echo-basic-{gateway_api.VERSION}"


def _istio(name: str) -> Path:
    return istioctl.path().with_name(istioctl.path().name.replace("istioctl", f"echo-{name}"))


def _downloaded() -> Path:
    """Download the suite's Go module and return the path of its zip. Go caches the zip and verifies its checksum."""
    compiler = go.find(build.cache().parent, lambda _: None)
    output = _go(compiler, _place(), "mod", "download", "-json", f"{MODULE}@{gateway_api.VERSION}")
    download: dict[str, str] = msgspec.json.decode(output)
    if download["Sum"] != SUM:
        raise build.BuildFailed(f"{MODULE} is not {gateway_api.VERSION}: its sum is {download['Sum']}, not {SUM}")
    return Path(download["Zip"])


def _go(compiler: Path, directory: Path, *words: str | Path) -> str:
    environment = {"GOTOOLCHAIN": "auto", "GOWORK": "off", "GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0"}
    done = subprocess.run(
        [compiler, *words],
        cwd=directory, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise build.BuildFailed(f"`go {words[0]}` for the conformance suite failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def main() -> int:
    def tell(line: str) -> None:
        print(line, flush=True)

    arguments = sys.argv[1:]
    if arguments and arguments[0] not in RUNS:
        print(f"usage: python -m tools.kube.conformance [{'|'.join(RUNS)} [-OPTION-OF-THE-SUITE…]]", file=sys.stderr)
        return 2
    try:
        with borrowed(tell) as cluster:
            prepare(cluster, tell)
            outcomes = [run(cluster, name, tuple(arguments[1:]), tell) for name in arguments[:1] or RUNS]
    except (Failed, build.BuildFailed, go.NoGo, gateway_api.NoDefinitions, image.ImageError) as failed:
        print(failed, file=sys.stderr)
        return 1
    for outcome in outcomes:
        tell("\n".join(summary(outcome)))
    tell(f"the suite's logs and the conformance reports are in {OUTPUT}")
    return 0 if all(each.good for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
