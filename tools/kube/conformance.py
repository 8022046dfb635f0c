"""Runs the Gateway API's own conformance suite against weft of this checkout, on a real cluster.

`make conformance` comes in; the standard's reports and the suite's words leave, in `build/conformance`. The suite and
the images of its applications are built from its Go module, and Istio's echo from Istio's; nothing of either is a part
of this repository. Words after `gateway` or `mesh` go to the suite: `… gateway -run-test=HTTPRouteMatching`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from tools.kube.certificates import Authority
from tools.kube.cluster import Cluster, borrowed
from tools.kube.node import PAUSE_IMAGE
from tools.kube.process import Failed

from tools import image, istioctl
from tools.kube import archive, build, gateway_api, go
from weft import __version__
from weft.kube.gateway_features import SUPPORTED
from weft.model.gateway_api import CONTROLLER

MODULE = "sigs.k8s.io/gateway-api/conformance"
SUM = "h1:jyH7Jtx46hEeBQnmSErn2cbp0k4OmT3FLRBnu77c4Ko="
OUTPUT = Path("build", "conformance")
CLASS = "weft"
NAMESPACE = "istio-system"
_PARTS = ("deployment/weft-control", "daemonset/weft-node")
_SUITE = """package weft

import (
\t"testing"

\t"%s"
)

func TestConformance(t *testing.T) { conformance.RunConformance(t) }
"""
_NAMED = re.compile(r"^\s*(?:- )?image: *(\S+)", re.MULTILINE)
_RESULT = re.compile(r"^    --- (PASS|FAIL|SKIP): TestConformance/(\w+) \(([\d.]+)s\)", re.MULTILINE)

Tell = Callable[[str], None]


class Run(msgspec.Struct, frozen=True):
    """One run of the suite."""

    profiles: tuple[str, ...]
    features: tuple[str, ...]  # that weft has
    labels: str = ""  # of the suite's namespaces
    beside: tuple[dict[str, Any], ...] = ()  # what the suite needs and does not make


def _stand_in(namespace: str) -> tuple[dict[str, Any], ...]:
    """A namespace with a pod in it."""
    labels = {"app": "stand-in"}
    pod = {"containers": [{"name": "stand-in", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    metadata = {"name": "stand-in", "namespace": namespace}
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
    )


RUNS = {
    "gateway": Run(("GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS", "GATEWAY-TCP"), SUPPORTED),
    "mesh": Run(
        ("MESH-HTTP", "MESH-GRPC"),
        (
            "Mesh", "HTTPRoute", "GRPCRoute", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode",
            "HTTPRoute308RedirectStatusCode", "HTTPRouteParentRefPort", "HTTPRouteResponseHeaderModification",
            "MeshConsumerRoute", "MeshHTTPRouteRewritePath", "MeshHTTPRouteSchemeRedirect",
            "MeshHTTPRouteRedirectPort", "MeshHTTPRouteRedirectPath", "MeshHTTPRouteBackendRequestHeaderModification",
            "MeshHTTPRouteQueryParamMatching", "MeshHTTPRouteNamedRouteRule",
        ),
        labels="istio-injection=enabled",
        # It waits for pods in two namespaces of its gateways' applications, which it makes for gateways alone.
        beside=(*_stand_in("gateway-conformance-app-backend"), *_stand_in("gateway-conformance-web-backend")),
    ),
}  # fmt: skip


def run(cluster: Cluster, name: str, words: tuple[str, ...], tell: Tell) -> int:
    """The suite's code, on a cluster that `prepare` has seen. Its words are in the log, its report beside it."""
    chosen = RUNS[name]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    log, report = OUTPUT.absolute() / f"{name}.log", OUTPUT.absolute() / f"{name}.yaml"
    report.unlink(missing_ok=True)
    given = {
        "gateway-class": CLASS,
        "conformance-profiles": ",".join(chosen.profiles),
        "supported-features": ",".join(chosen.features),
        "namespace-labels": chosen.labels,
        "organization": "weft",
        "project": "weft",
        "url": "https://weft.dev",
        "contact": "https://weft.dev",
        "version": f"v{__version__}",
        "report-output": str(report),
    }
    if chosen.features is SUPPORTED and not words:
        del given["supported-features"]  # the suite asks the GatewayClass
    if chosen.beside:
        for each in chosen.beside:  # a run before this one may still be leaving
            if each["kind"] == "Namespace":
                cluster.kubectl("wait", "--for=delete", f"namespace/{each['metadata']['name']}", "--timeout=120s")
        cluster.apply(*chosen.beside)
    # On the node, where Services' addresses answer.
    command: list[str | Path] = [*cluster.holder.joined(), _suite(), "-test.v", "-test.timeout=90m"]
    command += [f"-{option}={value}" for option, value in given.items() if value]
    tell(f"running the suite for {', '.join(chosen.profiles)}; its log is {log}")
    with log.open("wb") as file:
        done = subprocess.run(
            [*command, *words],
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=file, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    for each in chosen.beside:
        if each["kind"] == "Namespace":
            cluster.kubectl("delete", "namespace", each["metadata"]["name"])
    for line in results(log.read_text(errors="replace")):
        tell(line)
    return done.returncode


def results(said: str) -> Iterator[str]:
    """A line for each test that ran, and their sum."""
    found = _RESULT.findall(said)
    ran = [each for each in found if each[0] != "SKIP"]
    for result, name, seconds in ran:
        yield f"{result}  {name} ({float(seconds):.0f} s)"
    passed = sum(result == "PASS" for result, _, _ in ran)
    yield f"{passed} of {len(ran)} tests passed, {len(found) - len(ran)} were not run"


def prepare(cluster: Cluster, tell: Tell) -> None:
    """weft, the standard's definitions and the suite's images on the cluster."""
    ensure(tell)
    tell("loading images")
    cluster.load_image(image.build())
    for tar in _images(cluster):
        cluster.load_image(tar)
        tar.unlink()
    cluster.apply(*gateway_api.definitions())
    tell("installing weft")
    before = cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", "-o", "name")
    values = (
        "imagePullPolicy=Never", "gateways.deployments=true", 'gateways.secretsIn=["*"]', 'gateways.configMapsIn=["*"]'
    )  # fmt: skip
    given = [word for value in values for word in ("--set", value)]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "weft.cli", "install", *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"weft install: {done.stdout}{done.stderr}")
    if before:  # an image of the same name may be newer than the pods that run
        cluster.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", *_PARTS)
        for part in _PARTS:
            cluster.kubectl("rollout", "status", f"--namespace={NAMESPACE}", part, "--timeout=180s")
    spec = {"controllerName": CONTROLLER}
    group = "gateway.networking.k8s.io/v1"
    cluster.apply({"apiVersion": group, "kind": "GatewayClass", "metadata": {"name": CLASS}, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Accepted", f"gatewayclass/{CLASS}", "--timeout=60s")


def ensure(tell: Tell) -> None:
    """Builds what is missing of the suite and of the applications in its images."""
    directory = _place()
    compiler = go.find(build.cache().parent, tell)
    _write(directory / "go.mod", _module())
    _write(directory / "suite_test.go", _SUITE % MODULE)
    if not _suite().exists():
        tell(f"building the Gateway API's conformance suite {gateway_api.VERSION}")
        _go(compiler, directory, "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", _suite(), ".")
    if not _basic().exists():
        _go(compiler, directory, "build", "-trimpath", "-ldflags", "-s -w", "-o", _basic(), f"{MODULE}/echo-basic")
    for name in ("client", "server"):
        if not _istio(name).exists():
            istioctl.compile_package(f"{istioctl.PACKAGE}/pkg/test/echo/cmd/{name}", _istio(name), tell=tell)


def image_names(manifests: zipfile.ZipFile) -> set[str]:
    """Every image that the suite's manifests name."""
    texts = (manifests.read(each).decode() for each in manifests.namelist() if each.endswith(".yaml"))
    return {name.strip("\"'") for text in texts for name in _NAMED.findall(text)}


def _images(cluster: Cluster) -> Iterator[Path]:
    """One archive for each image."""
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
        else:  # a server of UDP's tests, which weft does not take: the suite only waits until it runs
            yield archive.write(tar, name, files={"/pause": build.path("pause")}, config={"Entrypoint": ["/pause"]})


def _module() -> str:
    version = gateway_api.VERSION
    needed = f"\tsigs.k8s.io/gateway-api {version}\n\t{MODULE} {version}\n"
    return f"module weft/conformance\n\ngo 1.26.0\n\nrequire (\n{needed})\n"


def _place() -> Path:
    return build.cache().parent / "module" / f"conformance-{gateway_api.VERSION}"


def _suite() -> Path:
    return build.cache().parent / f"conformance-{gateway_api.VERSION}"


def _basic() -> Path:
    return build.cache().parent / f"echo-basic-{gateway_api.VERSION}"


def _istio(name: str) -> Path:
    return istioctl.path().with_name(istioctl.path().name.replace("istioctl", f"echo-{name}"))


def _downloaded() -> Path:
    """The suite's module as the proxy gave it: Go keeps it, and has compared its sum."""
    compiler = go.find(build.cache().parent, lambda _: None)
    said = _go(compiler, _place(), "mod", "download", "-json", f"{MODULE}@{gateway_api.VERSION}")
    found: dict[str, str] = msgspec.json.decode(said)
    if found["Sum"] != SUM:
        raise build.BuildFailed(f"{MODULE} is not {gateway_api.VERSION}: its sum is {found['Sum']}, not {SUM}")
    return Path(found["Zip"])


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

    asked = sys.argv[1:]
    if asked and asked[0] not in RUNS:
        print(f"usage: python -m tools.kube.conformance [{'|'.join(RUNS)} [-OPTION-OF-THE-SUITE…]]", file=sys.stderr)
        return 2
    try:
        with borrowed(tell) as cluster:
            prepare(cluster, tell)
            return max([run(cluster, name, tuple(asked[1:]), tell) for name in asked[:1] or RUNS])
    except (Failed, build.BuildFailed, go.NoGo, gateway_api.NoDefinitions, image.ImageError) as failed:
        print(failed, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
