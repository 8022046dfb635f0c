"""`weft bug-report`: collects what is needed to diagnose a mesh into one archive: versions, status, problems, the
config and logs of each proxy, and facts about the machine. Rule: Secrets, keys, tokens, environments and the output
of applications are not read. All other text is searched for secrets before it is written (`archive.py`). What cannot
be collected is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from weft.cli.look.bug_report.archive import ReportArchive
    from weft.cli.print.progress import Progress
    from weft.cli.reach.interface import MeshReach, PodProxy

MOST_PROXIES = 100
LOG_LINES = 2_000  # the last lines of each proxy's log
_PAGES = ("syncz", "adsz", "registryz", "endpointz", "configz", "history", "audit", "version")
_ADMIN = ("certs", "clusters", "listeners", "memory", "server_info", "stats", "runtime")
_PROXY_CONTAINER, _CONTROL_LABEL = "istio-proxy", "app=istiod"
# Kernel settings that the redirect and the proxies depend on.
_KERNEL = (
    *("net/ipv4/ip_forward", "net/ipv4/ip_local_port_range", "net/ipv6/conf/all/disable_ipv6", "net/core/somaxconn"),
    *("fs/file-max", "fs/inotify/max_user_watches", "fs/inotify/max_user_instances"),
)
_COMMANDS = (("uname", "-a"), ("iptables", "-V"), ("ip", "-V"), ("ip", "netns", "list"))
_IN_PODS = (("iptables-save",), ("ip6tables-save",), ("ip", "address"), ("ss", "-lntp"))


@click.command()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The file to write; by default a name with the time.",
)
@click.option(
    "--output-dir",
    "--dir",
    "directory",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default=True,
    help="The directory to write to; by default the current one.",
)
@shared.only_namespace
@shared.which_mesh
@shared.system
def bug_report(
    output: Path | None,
    directory: Path,
    namespace: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Collect what is needed to diagnose a mesh, without secrets. Writes an archive (.tar.gz) with versions, status,
    problems, the config and logs of every proxy, the control plane's debug pages, and facts about this machine.

    \b
    Example: weft bug-report
             weft bug-report -o report.tar.gz -n shop
    """
    import time

    from weft.cli.look.bug_report.archive import ReportArchive
    from weft.cli.print.progress import progress
    from weft.cli.reach.connect import reach
    from weft.cli.reach.local_versions import is_somebody_there

    named = bool(mesh or kubernetes or kubeconfig or context)
    path = directory / (output or f"weft-bug-report-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    reached = None
    if named or is_somebody_there():
        reached = reach(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
    else:
        say("no mesh is included: choose one with --mesh NAME, or a cluster with --kubernetes")
    try:
        file = path.open("xb")
    except OSError as error:
        fail(f"{path}: {error.strerror}", "give another file: -o FILE")
    with file, ReportArchive(file, path.name.removesuffix(".gz").removesuffix(".tar")) as bundle, progress() as shown:
        path.chmod(0o600)
        _of_machine(bundle, shown)
        if reached is not None:
            try:
                _of_mesh(reached, bundle, shown, namespace)
                _of_place(reached, bundle, shown, namespace, (kubeconfig, context, system))
            finally:
                reached.close()
    for line in bundle.left_out:
        say(f"left out: {line}")
    say(f"{len(bundle.names)} files, {path.stat().st_size / 1e6:.1f} MB; check the archive before you share it")
    click.echo(str(path))


def _attempt(bundle: ReportArchive, name: str, get: Callable[[], bytes], *, tail: bool = False) -> bytes:
    """Add the result of `get` to the archive under `name`, and return it. If `get` fails, list `name` as left out,
    and return b"". `tail`: if the result is too long, keep its end instead of its beginning."""
    try:
        data = get()
    except Exit:
        bundle.left_out.append(f"{name}: could not be read")
        return b""
    except Exception as error:
        problem = getattr(error, "problem", None)
        if problem is None and not isinstance(error, (OSError, ValueError)):
            raise
        bundle.left_out.append(f"{name}: {problem.what if problem is not None else error}")
        return b""
    bundle.add(name, data, tail=tail)
    return data


def _of_machine(bundle: ReportArchive, shown: Progress) -> None:
    import msgspec

    from weft.cli.reach.local_versions import here

    shown.now("this machine")
    bundle.add("versions.json", msgspec.json.format(msgspec.json.encode(here()), indent=2))
    for command in _COMMANDS:
        _attempt(bundle, f"machine/{'-'.join(command)}.txt", partial(_output, *command))
    for name in ("meminfo", "loadavg", "version"):
        _attempt(bundle, f"machine/{name}.txt", (Path("/proc") / name).read_bytes)
    _attempt(bundle, "machine/os-release.txt", Path("/etc/os-release").read_bytes)
    lines = [f"{each.replace('/', '.')} = {_kernel(each)}" for each in _KERNEL]
    bundle.add("machine/sysctl.txt", "\n".join([*lines, ""]).encode())


def _of_mesh(reached: MeshReach, bundle: ReportArchive, shown: Progress, namespace: str) -> None:
    """Add to the archive `bundle` what every kind of mesh has: the control plane's debug pages, and the config of each
    proxy. `reached`: the connection to the mesh. `shown`: prints the progress. `namespace`: only proxies of this
    namespace; "" for all."""
    import msgspec

    from weft.cli.reach.interface import PodProxy

    pages: dict[str, bytes] = {}
    for page in _PAGES:
        shown.now(f"the control plane's {page}")
        _attempt(bundle, f"control/{page}.json", partial(_joined, reached, pages, page))
    replicas = [each for answer in [pages.get("syncz", b"")] if answer for each in msgspec.json.decode(answer).values()]
    names = {str(proxy["proxy"]) for each in replicas for proxy in each}
    proxies = [PodProxy(*name.rpartition(".")[::2]) for name in sorted(names)]
    chosen = [proxy for proxy in proxies if not namespace or proxy.namespace == namespace]
    if namespace and proxies and not chosen:
        others = ", ".join(sorted({proxy.namespace for proxy in proxies}))
        say(f"no proxy is in namespace {namespace}, so the report has no proxies\nhint: there are proxies in {others}")
    for number, proxy in enumerate(chosen[:MOST_PROXIES], start=1):
        shown.now(f"proxy {number} of {len(chosen)}: {proxy}")
        _of_proxy(reached, bundle, proxy)
    bundle.left_out += [f"proxies/{proxy}: there are too many proxies" for proxy in chosen[MOST_PROXIES:]]


def _of_proxy(reached: MeshReach, bundle: ReportArchive, proxy: PodProxy) -> None:
    from weft.envoy.dump import read

    def dump() -> bytes:
        import msgspec

        return msgspec.json.encode(read(reached.admin(proxy, "/config_dump", {"include_eds": "true"})).document)

    if not _attempt(bundle, f"proxies/{proxy}/config_dump.json", dump):
        return  # an Envoy that does not respond to this query responds to none
    for page in _ADMIN:
        _attempt(bundle, f"proxies/{proxy}/{page}.txt", partial(reached.admin, proxy, f"/{page}"))


def _of_place(
    reached: MeshReach,
    bundle: ReportArchive,
    shown: Progress,
    namespace: str,
    cluster: tuple[Path | None, str | None, str],
) -> None:
    """Add to the archive what only some kinds of meshes have: for a mesh on this machine, its status and the logs of
    its proxies; for a cluster, the list of pods and the logs; for a `weft control`, nothing. `cluster`: kubeconfig,
    context and the control plane's namespace. `shown` and `namespace`: as for `_of_mesh`."""
    from weft.cli.reach.control import ControlReach
    from weft.cli.reach.local import LocalReach

    if isinstance(reached, LocalReach):
        _of_pods_here(reached.mesh, bundle, shown, namespace)
    elif not isinstance(reached, ControlReach):
        _of_cluster(bundle, shown, namespace, *cluster)


def _of_pods_here(mesh: str, bundle: ReportArchive, shown: Progress, namespace: str) -> None:
    import msgspec

    from weft.local.client import fetch_problems, fetch_status, read_logs
    from weft.local.run_directory import output_file

    shown.now("status and logs")
    status = fetch_status(mesh)
    bundle.add("status.json", msgspec.json.format(msgspec.json.encode(status), indent=2))
    bundle.add("problems.txt", "".join(f"{each}\n" for each in fetch_problems(mesh)).encode())
    if (file := output_file(mesh)).exists():
        _attempt(bundle, "logs/mesh.log", file.read_bytes, tail=True)
    for pod in status.pods:
        if pod.sync.value == "-" or (namespace and pod.namespace != namespace):
            continue
        word, place = f"{pod.namespace}/{pod.name}", f"proxies/{pod.name}.{pod.namespace}"
        lines = read_logs(mesh, word, proxy=True, lines=LOG_LINES)
        _attempt(bundle, f"{place}/proxy.log", partial(_text, lines), tail=True)
        for command in _IN_PODS if pod.pid else ():
            argv = ("nsenter", "-t", str(pod.pid), "-n", *command)
            _attempt(bundle, f"{place}/{'-'.join(command)}.txt", partial(_output, *argv))


def _of_cluster(
    bundle: ReportArchive, shown: Progress, namespace: str, kubeconfig: Path | None, context: str | None, system: str
) -> None:
    """Add the list of pods with their state, and the logs of control planes and proxies. The pods' specs are not added:
    they may contain secrets. `shown` and `namespace`: as for `_of_mesh`. `system`: the namespace of the control
    plane."""
    import asyncio

    from weft.cli.reach.cluster import client
    from weft.kube.resource import PODS

    async def logs() -> None:
        async with client(kubeconfig, context) as cluster:
            control = (await cluster.list(PODS, dict, namespace=system, labels=_CONTROL_LABEL)).items
            pods = (await cluster.list(PODS, dict, namespace=namespace)).items
            bundle.add("pods.txt", "".join(f"{_pod_line(pod)}\n" for pod in pods).encode())
            meshed = [pod for pod in pods if _PROXY_CONTAINER in _containers(pod)]
            for pod, container in (
                *((each, _containers(each)[0]) for each in control),
                *((each, _PROXY_CONTAINER) for each in meshed[:MOST_PROXIES]),
            ):
                place, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
                shown.now(f"the log of {place}/{name}")
                query = {"container": container, "tailLines": str(LOG_LINES)}
                try:
                    log = await cluster.raw("GET", PODS.path(place, name, "log"), query=query)
                except Exception as error:
                    problem = getattr(error, "problem", None)
                    if problem is None:
                        raise
                    bundle.left_out.append(f"logs/{name}.{place}.log: {problem.what}")
                else:
                    bundle.add(f"logs/{name}.{place}.log", log, tail=True)

    try:
        asyncio.run(logs())
    except Exception as error:
        problem = getattr(error, "problem", None)
        if problem is None:
            raise
        bundle.left_out.append(f"logs: {problem.what}")


def _pod_line(pod: dict[str, Any]) -> str:
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    images = " ".join(str(each.get("image", "")) for each in spec.get("containers") or ())
    restarts = sum(int(each.get("restartCount", 0)) for each in status.get("containerStatuses") or ())
    where = f"{metadata['namespace']}/{metadata['name']} {status.get('phase', '')} on {spec.get('nodeName', '-')}"
    return f"{where}, {restarts} restarts, {' '.join(_containers(pod))}: {images}"


def _containers(pod: dict[str, Any]) -> list[str]:
    spec = pod.get("spec", {})
    return [str(each.get("name", "")) for field in ("containers", "initContainers") for each in spec.get(field) or ()]


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{each}\n" for each in lines).encode()


def _joined(reached: MeshReach, pages: dict[str, bytes], page: str) -> bytes:
    """Return the debug page `page` of all replicas as one JSON object, by the replica's name. Also add the object to
    `pages`, under the page's name."""
    import msgspec

    answers = {name: msgspec.json.decode(answer) for name, answer in reached.ask_all(page).items()}
    pages[page] = msgspec.json.encode(answers)
    return pages[page]


def _output(*command: str) -> bytes:
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return b"no output within 10 s"
    return done.stdout + done.stderr


def _kernel(name: str) -> str:
    try:
        return (Path("/proc/sys") / name).read_text(encoding="ascii").strip()
    except OSError:
        return "-"
