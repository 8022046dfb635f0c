"""`weft version`: the versions of this command and, if a mesh can be queried, of its control plane and its proxies.
Names and formats are istioctl's. Rule: without a mesh the command does not wait, and a mesh that does not respond is
reported in one line on standard error."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import is_data, print_data
from weft.cli.reach.local_versions import here, is_somebody_there, lines

if TYPE_CHECKING:
    from weft.cli.reach.interface import MeshReach


@click.command()
@click.option(
    "--remote",
    type=click.Choice(["true", "false"]),
    default="true",
    show_default=True,
    help="Also query the mesh; --remote=false prints only the versions on this machine.",
)
@shared.text_or_data
@click.option("-s", "--short", is_flag=True, help="No effect: the output is always short.")
@shared.which_mesh
@shared.system
def version(
    remote: str,
    output: str,
    short: bool,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Print the versions of the command, the control plane and the proxies. Without a mesh, those of weft, Envoy and
    Python on this machine.

    \b
    Example: weft version
             weft version --remote=false -o json
    """
    versions: dict[str, Any] = {"clientVersion": here()}
    if remote == "true":
        named = mesh is not None or kubernetes or kubeconfig is not None or context is not None
        if named or is_somebody_there():
            from weft.cli.reach.connect import reach

            reached = reach(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
            with closing(reached):
                versions |= _remote_versions(reached)
    if is_data(output):
        print_data(versions, output)
    else:
        click.echo("\n".join(_lines(versions)))


def print_here() -> None:
    """Print the versions for `weft --version`."""
    for name, number in zip(("weft", "envoy", "python"), here().values(), strict=True):
        click.echo(f"{name} {number}")


def _lines(versions: dict[str, Any]) -> list[str]:
    shown = lines(versions["clientVersion"])
    if "meshVersion" in versions:
        shown.append(f"control plane version: {_listed([each['Info']['version'] for each in versions['meshVersion']])}")
        proxies = [each["IstioVersion"] for each in versions["dataPlaneVersion"]]
        counts = {each: proxies.count(each) for each in sorted(proxies)}
        kinds = (f"{each} ({count} {'proxy' if count == 1 else 'proxies'})" for each, count in counts.items())
        shown.append(f"data plane version: {', '.join(kinds) or 'none'}; the version of Istio that the proxies report")
    return shown


def _listed(versions: list[str]) -> str:
    return ", ".join(sorted(set(versions))) or "unknown"


def _remote_versions(reached: MeshReach) -> dict[str, Any]:
    """Return the versions of the control plane's replicas (`meshVersion`) and of the proxies (`dataPlaneVersion`). If
    they cannot be queried, print the reason on standard error and return an empty dict."""
    import msgspec

    try:
        replicas = reached.ask_all("version")
        proxies = [proxy for page in reached.ask_all("syncz").values() for proxy in msgspec.json.decode(page)]
    except Exit:  # the reason is printed already
        return {}
    except Exception as error:
        problem = getattr(error, "problem", None)
        if problem is None:
            raise
        click.echo(f"the mesh does not respond: {problem.what}", err=True)
        return {}
    return {
        "meshVersion": [
            {"Component": "pilot", "Replica": name, "Info": msgspec.json.decode(page)}
            for name, page in sorted(replicas.items())
        ],
        "dataPlaneVersion": [
            {"ID": each["proxy"], "IstioVersion": each.get("istio_version") or "unknown"}
            for each in sorted(proxies, key=lambda each: str(each["proxy"]))
        ],
    }
