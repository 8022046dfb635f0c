"""The list of all commands, under the headings that `weft --help` shows: each with its line of help and the module that
implements it.

A command's module is imported only when the command is called, so `weft --help` imports none of them.
"""

from __future__ import annotations

from weft.cli.lazy_commands import Listing
from weft.cli.pod.listed import IN_PODS

COMMANDS: dict[str, tuple[Listing, ...]] = {
    "A mesh on this machine": (
        Listing("demo", "run.demo:demo", "Run the example shop and watch its traffic."),
        Listing("up", "run.up:up", "Run the mesh of a directory."),
        Listing("down", "run.down:down", "End a mesh: its pods, proxies, namespaces and files."),
        Listing("ps", "run.ps:ps", "List the pods of every running mesh on this machine."),
        Listing("status", "run.status:status", "Show workloads, traffic and problems."),
        Listing("logs", "run.logs:logs", "Print the output of a workload or pod."),
        Listing("exec", "run.exec:exec_", "Run a command in a pod."),
    ),
    "Check YAML before it runs": (
        Listing("validate", "files.validate:validate", "Check YAML files and their references."),
        Listing("analyze", "files.analyze:analyze", "Find misconfigurations, in files or in a mesh."),
        Listing("test", "files.test:test", "Check that requests have their expected results."),
        Listing("diff", "files.diff:diff", "Show what a change would change, before it is applied."),
        Listing("kube-inject", "files.kube_inject:kube_inject", "Add the proxy to the pods of workloads in files."),
        Listing("kube-export", "files.kube_export:kube_export", "Print a mesh of this machine as Kubernetes objects."),
    ),
    "Look inside": (
        Listing("authn", "look.authn:GROUP", "Mutual TLS: whether callers and servers agree."),
        Listing("check-inject", "look.check_inject.command:check_inject", "Show which webhook injects a pod, and why."),
        Listing("describe", "look.describe:describe", "Describe a pod or a service in plain English."),
        Listing("audit", "look.audit.command:audit", "Check a whole mesh for what needs action."),
        Listing(
            "bug-report",
            "look.bug_report.command:bug_report",
            "Collect what is needed to diagnose a mesh, without secrets.",
        ),
        Listing("why", "look.why:why", "Show which objects and rules made a resource of a proxy."),
        Listing("explain", "look.explain:explain", "Explain what would happen to a request."),
        Listing("bisect", "look.bisect:bisect", "Find the change after which a request had another result."),
        Listing("history", "look.history:history", "Show what has changed in a mesh, and when."),
        Listing("proxy-config", "look.proxy_config.tables:GROUP", "Show the config of a pod's Envoy."),
        Listing("pc", "look.proxy_config.tables:PC", "Short for proxy-config.", hidden=True),
        Listing(
            "proxy-status",
            "look.proxy_status:proxy_status",
            "Show the sync state of each proxy, or what differs in one proxy's config.",
        ),
        Listing("x", "look.experimental:GROUP", "Commands that may still change."),
    ),
    "A mesh on Kubernetes": (
        Listing(
            "install", "install.install:install", "Install weft on a Kubernetes cluster, or change what is installed."
        ),
        Listing(
            "upgrade",
            "install.upgrade:upgrade",
            "Install a new revision, move namespaces to it, and show which namespaces use which revision.",
        ),
        Listing("uninstall", "install.uninstall:uninstall", "Remove weft from a cluster."),
        Listing("manifest", "install.manifest:GROUP", "The objects and the values of an installation."),
        Listing(
            "crds", "install.crds:crds", "Print the CustomResourceDefinitions of the kinds that weft reads, as YAML."
        ),
    ),
    "The parts by themselves": (
        Listing("control", "parts.control:control", "Serve xDS from a directory of YAML, and sign certificates."),
        Listing("node", "parts.node:node", "Run the agent that gives every workload of this machine its identity."),
        Listing("ca", "parts.ca:GROUP", "The certificate authority: inspect it, rotate its root."),
        Listing("interception", "parts.interception:interception", "Print the iptables rules of a pod."),
        Listing(
            "version", "parts.version:version", "Print the versions of the command, the control plane and the proxies."
        ),
        Listing(
            "completion",
            "parts.completion:completion",
            "Print the completion script of a shell, for commands, flags and names.",
        ),
    ),
    # Hidden, because people do not type these commands. `weft.cli.start` usually runs them without this list.
    "In pods": tuple(Listing(name, f"pod.click_commands:{name}", line, hidden=True) for name, line in IN_PODS.items()),
}


def by_name() -> dict[str, Listing]:
    return {command.name: command for commands in COMMANDS.values() for command in commands}
