"""The texts of the small Go modules from which the programs of a cluster are built.

Kubernetes' own module can not be installed from a proxy: it replaces its libraries by folders of its repository. Ours
asks for the same versions of everything and takes those libraries in the version that belongs to the release.
"""

from __future__ import annotations

import re

KUBERNETES = "v1.34.3"
COREDNS = "v1.12.4"
LIBRARIES = "v0" + KUBERNETES.removeprefix("v1")
ETCD_PACKAGE = "go.etcd.io/etcd/server/v3"
COMMANDS = ("kube-apiserver", "kubectl", "kube-controller-manager", "kubelet", "kube-scheduler", "kube-proxy")

# Only what answers for services and pods, and what tests want to see; CoreDNS' usual build has fifty more.
DNS_PLUGINS = ("errors", "log", "health", "ready", "cache", "loadbalance", "hosts", "kubernetes")


def kubernetes(original: str) -> str:
    """`go.mod` for the commands of Kubernetes and etcd, from the one that Kubernetes was released with."""
    text = re.sub(r"^module .*$", "module weft/kubernetes", original, flags=re.MULTILINE)
    text = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {LIBRARIES}", text)
    # Not a prefix of a longer version: v0.0.0-2025… names a commit of a library with its own releases.
    text = re.sub(r"(k8s\.io/\S+) v0\.0\.0(?=\s|$)", rf"\1 {LIBRARIES}", text)
    packages = [f"k8s.io/kubernetes/cmd/{command}" for command in COMMANDS] + [ETCD_PACKAGE]
    tools = "".join(f"\t{package}\n" for package in packages)
    return f"{text}\nrequire k8s.io/kubernetes {KUBERNETES}\n\ntool (\n{tools})\n"


def version_flags() -> str:
    """What the linker writes into the programs, so that they say which release they are."""
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
    """CoreDNS' main program with our choice of plugins. They are asked in the order of the list."""
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
