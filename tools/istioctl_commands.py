"""Every command of istioctl 1.31, with what it does on a cluster with weft. `tests/on_cluster/test_istioctl.py` runs
each command that changes nothing and compares its output with `prints`. `tools/istioctl_page.py` writes the table into
docs/proxy-status.md. A test walks the help pages of istioctl and fails for a command that is not listed here.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Outcome = Literal["works", "as with Istio", "differs", "not applicable"]


class IstioctlCommand(msgspec.Struct, frozen=True):
    """`arguments`: what the test adds to the name; it replaces `{pod}`, `{namespace}` and so on. `prints`: a regular
    expression that the output must match. `serves`: for a command that runs until it is interrupted, the path of a page
    that it serves; `prints` is for this page. `code`: the exit code."""

    name: str
    outcome: Outcome
    note: str = ""
    arguments: str = ""
    prints: str = ""
    serves: str = ""
    code: int = 0


def _works(name: str, arguments: str, prints: str, note: str = "", serves: str = "") -> IstioctlCommand:
    return IstioctlCommand(name, "works", note, arguments, prints, serves)


def _as_istio(name: str, arguments: str, prints: str, note: str) -> IstioctlCommand:
    return IstioctlCommand(name, "as with Istio", note, arguments, prints, code=1)


def _not_applicable(name: str, note: str) -> IstioctlCommand:
    return IstioctlCommand(name, "not applicable", note)


_INSTALLS: Final = "it installs Istio: use `weft install`, `upgrade` and `uninstall`"
_NO_AMBIENT: Final = "weft has no ambient mode"
_NO_ZTUNNEL: Final = r'daemonsets\.apps "ztunnel" not found'
_NO_GROUPS: Final = "weft does not read WorkloadGroups"
_NO_CLUSTERS: Final = "a mesh of weft has one cluster"
_NO_ADDON: Final = "it opens the addon, if one is installed in the control plane's namespace"

COMMANDS: Final = (
    _works(
        "admin log",
        "",
        r"ACTIVE SCOPE .*\nbase .*\n(.*\n)*xds .* info +none",
        "[log levels](#log-levels) of weft's own scopes; `--stack-trace-level` is rejected",
    ),
    _works(
        "analyze",
        "-n {namespace}",
        r"IST0158|No validation issues found",
        "warns (IST0158) if the proxy's image has no registry in its name, such as `weft:0.1.0`",
    ),
    _as_istio("authz", "", r"Use `istioctl experimental authz`", "the command was moved"),
    _works(
        "bug-report",
        "--dir {directory}/bug-report --output-dir {directory} --duration 1m --timeout 30s",
        r"(?s)control plane revisions/versions.*Analysis Report.*archive at {directory}/bug-report\.tar\.gz.*Done\.",
        "without istiod's debug pages, which need a token; `weft bug-report` has them",
    ),
    _works("bug-report version", "", r"client version: "),
    _works("completion bash", "", r"bash completion"),
    _works("completion fish", "", r"fish completion"),
    _works("completion powershell", "", r"powershell completion"),
    _works("completion zsh", "", r"zsh completion"),
    _not_applicable("create-remote-secret", _NO_CLUSTERS),
    _works("dashboard controlz", "{control}.istio-system --browser=false", r"xds +info", "shows the log levels", "/"),
    _works("dashboard envoy", "{pod}.{namespace} --browser=false", r"\{", serves="/server_info"),
    _as_istio("dashboard grafana", "--browser=false", r"no pods found", _NO_ADDON),
    IstioctlCommand(
        "dashboard istiod-debug",
        "differs",
        "the pages need a token: `weft proxy-status` and `istioctl x internal-debug` send one",
        "{control}.istio-system --browser=false",
        r"send a bearer token",
        "/debug",
    ),
    _as_istio("dashboard jaeger", "--browser=false", r"no pods found", _NO_ADDON),
    _as_istio("dashboard kiali", "--browser=false", r"no pods found", _NO_ADDON),
    _as_istio("dashboard prometheus", "--browser=false", r"no pods found", _NO_ADDON),
    _works("dashboard proxy", "{pod}.{namespace} --browser=false", r"\{", serves="/server_info"),
    _as_istio("dashboard skywalking", "--browser=false", r"no pods found", _NO_ADDON),
    _as_istio("dashboard zipkin", "--browser=false", r"no pods found", _NO_ADDON),
    _works(
        "experimental authz check",
        "{pod}.{namespace}",
        r"ACTION +AuthorizationPolicy +RULES\n(.*\n)*DENY +nobody\.{namespace}",
        "prints `failed to parse policy name` for weft's rules against "
        "[disguised paths and headers](authorization.md#disguised-paths-headers-and-hosts), which belong to no policy",
    ),
    _works("experimental check-inject", "{pod} -n {namespace}", r"istio-sidecar-injector +default +\S*✔"),
    _works("experimental config list", "", r"istioNamespace +istio-system"),
    _works("experimental describe pod", "{pod} -n {namespace}", r"Pod Revision: default\n(.*\n)*Service: web"),
    _works(
        "experimental describe service",
        "web -n {namespace}",
        r"Service: web\n +Port: http 80/HTTP targets pod port 8080",
    ),
    _works("experimental envoy-stats", "{pod} -n {namespace}", r"cluster_manager\.cds\.version_text"),
    _works("experimental injector list", "", r"{namespace} +istio-sidecar-injector +default +\S+/weft:"),
    _works("experimental internal-debug", "syncz --all", r'"proxy": "{pod}\.{namespace}"'),
    _as_istio("experimental metrics", "web -n {namespace}", r"no Prometheus pods found", "it needs a Prometheus"),
    _works("experimental precheck", "-n {namespace}", r"No issues found"),
    _works("experimental proxy-status", "-n {namespace}", r"{pod}\.{namespace} +Kubernetes +{control_pattern}"),
    _works("experimental version", "", r"control plane version: {version}\ndata plane version: "),
    _not_applicable("experimental workload entry configure", _NO_GROUPS),
    _not_applicable("experimental workload group create", _NO_GROUPS),
    _not_applicable("install", _INSTALLS),
    _works(
        "kube-inject",
        "-f {deployment}",
        r"name: istio-proxy\n",
        "it calls the webhook; `--injectConfigFile` is rejected",
    ),
    _not_applicable("manifest generate", _INSTALLS),
    _not_applicable("manifest install", _INSTALLS),
    _not_applicable("manifest translate", _INSTALLS),
    _works("proxy-config all", "{pod}.{namespace}", r"Istio Version: "),
    _works("proxy-config bootstrap", "{pod}.{namespace}", r'"cluster": "web\.{namespace}"'),
    _works("proxy-config cluster", "{pod}.{namespace}", r"web\.{namespace}\.svc\.cluster\.local +80 +- +outbound +EDS"),
    _as_istio(
        "proxy-config ecds",
        "{pod}.{namespace}",
        r"no configuration type .*EcdsConfigDump",
        "no proxy of weft has extension config, so its dump has none, as in a mesh without WasmPlugins",
    ),
    _works("proxy-config endpoint", "{pod}.{namespace}", r":8080 +HEALTHY +OK +outbound\|80\|\|web\.{namespace}"),
    _works("proxy-config listener", "{pod}.{namespace}", r"15006 +Trans: tls"),
    _works("proxy-config log", "{pod}.{namespace}", r"active loggers:\n(.*\n)* +admin: warning"),
    _as_istio(
        "proxy-config rootca-compare",
        "{pod}.{namespace} {other}.{namespace}",
        r"failed to decode inlinebytes",
        "istioctl 1.31 decodes the root twice, which fails with Istio's proxies as well; use "
        "`weft proxy-config rootca-compare`",
    ),
    _works("proxy-config route", "{pod}.{namespace}", r"web\.{namespace}\.svc\.cluster\.local:80 "),
    _works("proxy-config secret", "{pod}.{namespace}", r"default +Cert Chain +ACTIVE +true"),
    _works("proxy-status", "{pod}.{namespace}", r"Clusters Match\nListeners Match\nRoutes Match"),
    _works(
        "remote-clusters", "", r"Kubernetes +synced +{control_pattern} +default", "shows the cluster of the mesh itself"
    ),
    _works("tag generate", "prod --revision default", r"istio\.io/tag: prod"),
    _works("tag list", "", r"TAG +REVISION +NAMESPACES"),
    _not_applicable("tag remove", "it changes webhooks: use `weft upgrade`"),
    _not_applicable("tag set", "it changes webhooks: use `weft upgrade`"),
    _not_applicable("uninstall", _INSTALLS),
    _not_applicable("upgrade", _INSTALLS),
    _works("validate", "-f {objects}", r"is valid"),
    _works("version", "", r"control plane version: {version}\ndata plane version: "),
    _not_applicable("waypoint apply", _NO_AMBIENT),
    _not_applicable("waypoint delete", _NO_AMBIENT),
    _not_applicable("waypoint generate", _NO_AMBIENT),
    _not_applicable("waypoint list", _NO_AMBIENT),
    _not_applicable("waypoint status", _NO_AMBIENT),
    _as_istio("ztunnel-config all", "", _NO_ZTUNNEL, _NO_AMBIENT),
    _as_istio("ztunnel-config certificate", "", _NO_ZTUNNEL, _NO_AMBIENT),
    _as_istio("ztunnel-config connections", "", _NO_ZTUNNEL, _NO_AMBIENT),
    _as_istio("ztunnel-config log", "", _NO_ZTUNNEL, _NO_AMBIENT),
    _as_istio("ztunnel-config policy", "", _NO_ZTUNNEL, _NO_AMBIENT),
    _as_istio("ztunnel-config service", "", _NO_ZTUNNEL, _NO_AMBIENT),
    _as_istio("ztunnel-config workload", "", _NO_ZTUNNEL, _NO_AMBIENT),
)
