"""The list of commands: what a person wants, the commands for that, each with its line of help and where it lives.

A command's own module is read only when it is called: `weft --help` needs none of them.
"""

from __future__ import annotations

from weft.cli.lazy_commands import Listing
from weft.cli.pod.listed import IN_PODS

COMMANDS: dict[str, tuple[Listing, ...]] = {
    "A mesh on this machine": (
        Listing("demo", "run.demo:demo", "Run the example shop and watch its traffic."),
        Listing("up", "run.up:up", "Run the mesh of a directory."),
        Listing("down", "run.down:down", "End a mesh: its pods, proxies, namespaces and files."),
        Listing("ps", "run.ps:ps", "List the pods that run, of every mesh on this machine."),
        Listing("status", "run.status:status", "Show workloads, traffic and problems."),
        Listing("logs", "run.logs:logs", "Print what a workload or pod has printed."),
        Listing("exec", "run.exec:exec_", "Run a command in a pod."),
    ),
    "YAML before it runs": (
        Listing("validate", "files.validate:validate", "Check YAML files, and that what they refer to is there."),
        Listing("analyze", "files.analyze:analyze", "Find what does not fit together, in files or in a mesh."),
        Listing("test", "files.test:test", "Test what requests are expected to do."),
        Listing("diff", "files.diff:diff", "Show what a change would change, before it is applied."),
        Listing("kube-inject", "files.kube_inject:kube_inject", "Put the proxy into the pods of workloads in files."),
        Listing(
            "kube-export", "files.kube_export:kube_export", "Print a mesh of this machine as objects of a cluster."
        ),
    ),
    "Look inside": (
        Listing("authn", "look.authn:GROUP", "Mutual TLS: whether callers and servers agree."),
        Listing("check-inject", "look.check_inject.command:check_inject", "Show which webhook injects a pod, and why."),
        Listing("describe", "look.describe:describe", "Describe a pod or a service in plain English."),
        Listing("audit", "look.audit.command:audit", "Look a whole mesh over for what should be acted upon."),
        Listing(
            "bug-report",
            "look.bug_report.command:bug_report",
            "Collect what is needed to see what is wrong, without secrets.",
        ),
        Listing("why", "look.why:why", "Show which objects and rules made a resource of a proxy."),
        Listing("explain", "look.explain:explain", "Explain what would happen to a request."),
        Listing("bisect", "look.bisect:bisect", "Find the change after which a request ended otherwise."),
        Listing("history", "look.history:history", "Show what has changed in a mesh, and when."),
        Listing("proxy-config", "look.proxy_config.tables:GROUP", "Show what a pod's Envoy has."),
        Listing("pc", "look.proxy_config.tables:PC", "The same.", hidden=True),
        Listing(
            "proxy-status", "look.proxy_status:proxy_status", "Show how far each proxy is, or what differs at one."
        ),
        Listing("x", "look.experimental:GROUP", "Commands that may still change."),
    ),
    "A mesh on Kubernetes": (
        Listing(
            "install", "install.install:install", "Install weft on a Kubernetes cluster, or change what is installed."
        ),
        Listing("upgrade", "install.upgrade:upgrade", "Show who uses which revision, and move namespaces to another."),
        Listing("uninstall", "install.uninstall:uninstall", "Remove weft from a cluster."),
        Listing("manifest", "install.manifest:GROUP", "What an installation is made of: its objects, its values."),
        Listing(
            "crds", "install.crds:crds", "Print the CustomResourceDefinitions of the kinds that weft reads, as YAML."
        ),
    ),
    "The parts by themselves": (
        Listing("control", "parts.control:control", "Serve xDS from a directory of YAML, and sign certificates."),
        Listing("node", "parts.node:node", "Give every workload of this machine its identity."),
        Listing("ca", "parts.ca:GROUP", "The certificate authority: look at it, give it a new root."),
        Listing("interception", "parts.interception:interception", "Print the iptables rules of a pod."),
        Listing(
            "version", "parts.version:version", "Print the versions of the command, the control plane and the proxies."
        ),
        Listing(
            "completion",
            "parts.completion:completion",
            "Print what a shell reads to complete commands, flags and names.",
        ),
    ),
    # Usually not even started by way of this list; hidden, because nobody types them.
    "In pods": tuple(Listing(name, f"pod.click_commands:{name}", line, hidden=True) for name, line in IN_PODS.items()),
}


def by_name() -> dict[str, Listing]:
    return {command.name: command for commands in COMMANDS.values() for command in commands}
