"""Generates the small Go modules from which the programs of a cluster are built.

The Kubernetes module cannot be built from a module proxy, because its go.mod replaces its libraries by directories
of its repository. The generated module requires the same versions of everything, and the published version of those
libraries that belongs to the release.
"""

from __future__ import annotations

import re

KUBERNETES = "v1.34.3"
COREDNS = "v1.12.4"
LIBRARIES = "v0" + KUBERNETES.removeprefix("v1")
ETCD_PACKAGE = "go.etcd.io/etcd/server/v3"
COMMANDS = ("kube-apiserver", "kubectl", "kube-controller-manager", "kubelet", "kube-scheduler", "kube-proxy")

# Only the plugins that resolve services and pods or that tests use; the usual build of CoreDNS has fifty more.
DNS_PLUGINS = ("errors", "log", "health", "ready", "cache", "loadbalance", "hosts", "kubernetes")


def kubernetes(original: str) -> str:
    """Return the `go.mod` for building the programs of Kubernetes and etcd, derived from the `go.mod` of the
    Kubernetes release."""
    text = re.sub(r"^module .*$", "module weft/kubernetes", original, flags=re.MULTILINE)
    text = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {LIBRARIES}", text)
    # The version must end there: v0.0.0-2025… is a commit of a library with separate releases.
    text = re.sub(r"(k8s\.io/\S+) v0\.0\.0(?=\s|$)", rf"\1 {LIBRARIES}", text)
    packages = [f"k8s.io/kubernetes/cmd/{command}" for command in COMMANDS] + [ETCD_PACKAGE]
    tools = "".join(f"\t{package}\n" for package in packages)
    return f"{text}\nrequire k8s.io/kubernetes {KUBERNETES}\n\ntool (\n{tools})\n"


def version_flags() -> str:
    """Return the linker flags that set the version which the programs report."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": KUBERNETES,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": KUBERNETES,
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


def coredns() -> str:
    return f"module weft/coredns\n\ngo 1.24.0\n\nrequire github.com/coredns/coredns {COREDNS}\n"


def coredns_main() -> str:
    """Return the main program of CoreDNS with the plugins in `DNS_PLUGINS`, which run in that order."""
    imports = "".join(f'\t_ "github.com/coredns/coredns/plugin/{plugin}"\n' for plugin in DNS_PLUGINS)
    names = ", ".join(f'"{plugin}"' for plugin in DNS_PLUGINS)
    return (
        "package main\n\nimport (\n"
        '\t"github.com/coredns/coredns/core/dnsserver"\n'
        '\t"github.com/coredns/coredns/coremain"\n'
        f"{imports})\n\n"
        f"func init() {{ dnsserver.Directives = []string{{{names}}} }}\n\n"
        "func main() { coremain.Run() }\n"
    )
