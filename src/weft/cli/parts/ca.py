"""`weft ca`: create a CA's root, show its certificates, rotate the root, and follow a rotation."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.lazy_commands import LazyGroup, Listing
from weft.cli.parts import ca_kubernetes
from weft.cli.print.output import counted, fail, is_data, print_data, print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from weft.ca.admin import Wish
    from weft.ca.status import AuthorityStatus, CertificateFacts
    from weft.cli.print.fit_terminal import FirstThatFits

DIRECTORY = Path("/var/lib/weft/ca")
_LOOK_SECONDS = 0.2
_CONTINUES_LATER = "no process signs with this CA now; the rotation continues when weft control or weft up runs with it"
_ca_of_mesh = shared.mesh_option("The CA of this mesh, which runs on this machine.")
_ca_of_cluster = shared.kubernetes_flag("The CA of a cluster.")

GROUP = LazyGroup(
    "ca",
    help="The certificate authority: inspect it, rotate its root.",
    epilog="Example: weft ca show /var/lib/weft/ca",
    listings={
        "Commands": (
            Listing("init", "parts.ca:init", "Create a root, so that it can be distributed before anything is signed."),
            Listing(
                "show",
                "parts.ca:show",
                "Show a CA's certificates and the state of a rotation; or the certificates in a file.",
            ),
            Listing("rotate", "parts.ca:rotate", "Begin to replace a CA's root, without an outage."),
            Listing("status", "parts.ca:status", "Print each phase of a rotation until its end."),
        )
    },
)


@click.command()
@click.argument(
    "directory",
    type=click.Path(path_type=Path),
    default=DIRECTORY,
    help=f"The CA's directory, readable only by its owner; default: {DIRECTORY}.",
)
@shared.trust_domain()
def init(directory: Path, trust_domain: str) -> None:
    """Create a root, so that it can be distributed before anything is signed. An existing root is kept.

    \b
    Example: weft ca init ./ca
    """
    from weft.ca.authority import Authority
    from weft.ca.store import BUNDLE

    authority = Authority.open(directory, trust_domain)
    try:
        root = authority.status().certificates[-1]
    finally:
        authority.close()
    say(f"{root.subject}, until {root.expires:%Y-%m-%d}")
    if (directory / BUNDLE).exists():
        say(f"the roots to trust: {directory / BUNDLE}")


@click.command()
@click.argument(
    "path",
    type=click.Path(path_type=Path),
    default=DIRECTORY,
    help=f"A CA's directory, or a PEM file of certificates; default: {DIRECTORY}.",
)
@_ca_of_mesh
@shared.wide_table_or_data("table, wide (fingerprints), json or yaml.")
@click.option("--pem", is_flag=True, help="Print only the roots to trust, in PEM.")
@_ca_of_cluster
@shared.which_cluster
@shared.installed_namespace
def show(
    path: Path,
    mesh: str | None,
    output: str,
    pem: bool,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
) -> None:
    """Show a CA's certificates and the state of a rotation; or the certificates in a file.

    \b
    Example: weft ca show /var/lib/weft/ca
             weft ca show chain.pem -o wide
             weft ca show --mesh shop
             weft ca show --mesh shop --pem > root.pem
             weft ca show --kubernetes
    """
    from datetime import UTC, datetime

    if kubernetes or mesh is not None or path.is_dir():
        status = (
            ca_kubernetes.show(ca_kubernetes.InstalledCa(kubeconfig, context, namespace))
            if kubernetes
            else _of_directory(path)
            if mesh is None
            else _of_mesh(mesh)
        )
        if pem:
            _print_roots(status.certificates)
            return
        if is_data(output):
            print_data(status, output)
            return
        print_table(_table(status.certificates, wide=output == "wide"))
        domain = f" for {status.trust_domain}" if status.trust_domain else ""
        say(f"{status.kind}{domain}, {status.phase}: {status.next_step}")
        if status.issued or status.refused:
            reasons = ", ".join(f"{count} × {reason}" for reason, count in sorted(status.refused.items()))
            issued = counted(status.issued, "certificate")
            say(f"issued {issued} since the CA started; rejected requests: {reasons or 'none'}")
        for problem in status.problems(datetime.now(UTC)):
            say(str(problem))
        return
    certificates = _of_file(path)
    if pem:
        _print_roots(certificates)
    elif is_data(output):
        print_data(certificates, output)
    else:
        print_table(_table(certificates, wide=output == "wide"))


@click.command()
@click.argument(
    "directory",
    type=click.Path(path_type=Path),
    default=DIRECTORY,
    help=f"The CA's directory; default: {DIRECTORY}.",
)
@click.option(
    "--propagation", default="", help="How long the new root is trusted before it signs, such as 30s, 10m or 24h."
)
@_ca_of_mesh
@click.option(
    "--now",
    is_flag=True,
    help="Let the new root sign now, if it is already trusted: do not wait for --propagation to end.",
)
@click.option(
    "--wait/--no-wait",
    default=False,
    show_default=True,
    help="Print each phase as it begins, until the old root is removed, which takes as long as certificates are valid.",
)
@_ca_of_cluster
@shared.which_cluster
@shared.installed_namespace
def rotate(
    directory: Path,
    propagation: str,
    mesh: str | None,
    now: bool,
    wait: bool,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
) -> None:
    """Begin to replace a CA's root, without an outage.

    The new root is trusted first and signs later. The old root is removed when everything that it signed has expired.
    The process that signs with the CA does the rotation; this command returns when the rotation has begun. To follow
    it: weft ca status.

    \b
    Example: weft ca rotate /var/lib/weft/ca
             weft ca rotate --propagation 10m --wait
             weft ca rotate --now
             weft ca rotate --mesh shop
             weft ca rotate --kubernetes --propagation 10m
    """
    from weft.ca.admin import Wish

    pause = _pause(propagation)
    if kubernetes:
        if now or mesh is not None:
            fail(
                "--now and --mesh are for a CA on this machine",
                "for the CA of a cluster, set the waiting time: --propagation 10m",
                code=2,
            )
        ca_kubernetes.rotate(ca_kubernetes.InstalledCa(kubeconfig, context, namespace), pause, wait=wait)
        return
    if mesh is not None:
        if now:
            fail("--now is for the CA of weft control", "for a mesh of weft up, give: --propagation 0s", code=2)
        _rotate_mesh(mesh, pause, wait=wait)
        return
    if not directory.is_dir():
        fail(f"there is no CA in {directory}", "give its directory: weft ca rotate DIR")
    seconds = None if pause is None else pause.total_seconds()
    wish = Wish(do="switch" if now else "rotate", propagation=seconds, follow=wait)
    try:
        _print_phases(directory, wish)
    except (FileNotFoundError, ConnectionError):
        status = _rotate_here(directory, pause, now=now)
        say(f"{status.phase}: {status.next_step}")
        say(_CONTINUES_LATER)


@click.command()
@click.argument(
    "directory",
    type=click.Path(path_type=Path),
    default=DIRECTORY,
    help=f"The CA's directory; default: {DIRECTORY}.",
)
@_ca_of_mesh
@click.option(
    "--follow/--no-follow",
    default=True,
    show_default=True,
    help="Print each phase as it begins, until the rotation has ended.",
)
@_ca_of_cluster
@shared.which_cluster
@shared.installed_namespace
def status(
    directory: Path,
    mesh: str | None,
    follow: bool,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
) -> None:
    """Print each phase of a rotation until its end.

    The first line is the current phase and what comes next. Without a rotation, the command prints `steady` and ends.
    The certificates: weft ca show.

    \b
    Example: weft ca status /var/lib/weft/ca
             weft ca status --mesh shop
             weft ca status --kubernetes
             weft ca status --kubernetes --no-follow
    """
    from weft.ca.admin import Wish
    from weft.ca.rotation import RotationPhase
    from weft.ca.status import read_status

    if kubernetes:
        ca_kubernetes.status(ca_kubernetes.InstalledCa(kubeconfig, context, namespace), follow=follow)
        return
    if mesh is not None:
        _follow_mesh(mesh, follow=follow)
        return
    try:
        _print_phases(directory, Wish(do="status", follow=follow))
    except (FileNotFoundError, ConnectionError):
        state = read_status(directory)
        say(f"{state.phase}: {state.next_step}")
        if state.phase is not RotationPhase.STEADY:
            say(_CONTINUES_LATER)


def _print_phases(directory: Path, wish: Wish) -> None:
    """Send the request `wish` to the process that signs with the CA in `directory`, and print each phase that this
    process reports. Raises FileNotFoundError or ConnectionError if no process signs with this CA."""
    from weft.ca.admin import ask
    from weft.ca.rotation import RotationPhase

    status: AuthorityStatus | None = None
    try:
        for status in ask(directory, wish):
            say(f"{status.phase}: {status.next_step}")
    except PermissionError:
        fail(f"{directory} belongs to another user", "run this as the user of weft control, or as root")
    except KeyboardInterrupt:
        say(f"the rotation continues without this command; see its state: weft ca status {directory}")
        raise Exit(130) from None
    if wish.follow and (status is None or status.phase is not RotationPhase.STEADY):
        say("the process that signs with this CA ended; the rotation continues when it runs again")


def _of_directory(directory: Path) -> AuthorityStatus:
    """Return the status of the CA in `directory`: from the process that signs with it, which has more details, or else
    from the files."""
    from weft.ca.admin import Wish, ask
    from weft.ca.status import read_status

    try:
        return next(iter(ask(directory, Wish(do="status"))))
    except (OSError, StopIteration):
        return read_status(directory)


def _of_mesh(mesh: str) -> AuthorityStatus:
    from weft.cli.reach.choose import choose_mesh
    from weft.local.client import fetch_ca

    return fetch_ca(choose_mesh(mesh))


def _rotate_mesh(mesh: str, pause: timedelta | None, *, wait: bool) -> None:
    from weft.cli.reach.choose import choose_mesh
    from weft.local.client import rotate_ca

    name = choose_mesh(mesh)
    status = rotate_ca(name, pause)
    if wait:
        _follow_mesh(name, follow=True)
    else:
        say(f"{status.phase}: {status.next_step}")


def _follow_mesh(mesh: str, *, follow: bool) -> None:
    import time

    from weft.ca.rotation import RotationPhase
    from weft.cli.reach.choose import choose_mesh
    from weft.local.client import fetch_ca

    name, shown = choose_mesh(mesh), None
    try:
        while True:
            status = fetch_ca(name)
            if status.phase is not shown:
                say(f"{status.phase}: {status.next_step}")
            if status.phase is RotationPhase.STEADY or not follow:
                return
            shown = status.phase
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        say(f"the rotation continues without this command; see its state: weft ca status --mesh {name}")
        raise Exit(130) from None


def _rotate_here(directory: Path, pause: timedelta | None, *, now: bool) -> AuthorityStatus:
    from weft.ca.authority import Authority
    from weft.ca.status import read_status

    authority = Authority.open(directory, read_status(directory).trust_domain or "cluster.local")
    try:
        return authority.switch() if now else authority.rotate(pause)
    finally:
        authority.close()


def _pause(text: str) -> timedelta | None:
    from weft.ca.admin import LONGEST_WAIT_SECONDS
    from weft.cli.flags.duration import duration_of

    if not text:
        return None
    pause = duration_of(text, "--propagation 10m")
    if pause.total_seconds() > LONGEST_WAIT_SECONDS:
        fail(f"--propagation {text} is longer than a year", "give at most 366d", code=2)
    return pause


def _of_file(path: Path) -> tuple[CertificateFacts, ...]:
    from cryptography import x509

    from weft.ca.certificates import certificate_pem
    from weft.ca.status import certificate_facts

    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}", "give a CA's directory or a file of certificates")
    except ValueError:
        fail(f"{path} contains no certificates in PEM", "such a file begins with -----BEGIN CERTIFICATE-----")
    return tuple(
        certificate_facts(
            certificate_pem(each), "root" if each.issuer == each.subject else "leaf" if place == 0 else "CA"
        )
        for place, each in enumerate(certificates)
    )


def _print_roots(certificates: Sequence[CertificateFacts]) -> None:
    click.echo("".join(each.pem for each in certificates if each.is_root), nl=False)


def _table(certificates: Sequence[CertificateFacts], *, wide: bool) -> FirstThatFits:
    """Return a table of certificates. On a narrow terminal, the columns NOT BEFORE and then KEY are left out. With
    `wide`, serial numbers and fingerprints are added; if they do not fit, each certificate becomes a block of lines."""
    from datetime import UTC, datetime
    from functools import partial

    from weft.cli.print.fit_terminal import FirstThatFits, stacked

    now = datetime.now(UTC)
    rows = [
        {
            "ROLE": each.role,
            "NAME": ", ".join(each.names) or each.subject,
            "KEY": each.key,
            "NOT BEFORE": f"{each.not_before:%Y-%m-%d %H:%M}",
            "EXPIRES": f"{each.expires:%Y-%m-%d %H:%M}",
            "LEFT": "expired" if each.expires <= now else _left(each.expires - now),
            **({"SERIAL": each.serial, "SHA-256": each.fingerprint} if wide else {}),
        }
        for each in certificates
    ]
    names = list(rows[0]) if rows else []
    tight = [name for name in names if name != "NOT BEFORE"]
    tightest = [name for name in tight if name != "KEY"]
    return FirstThatFits(
        partial(_columns, names, rows),
        *([] if wide else [partial(_columns, tight, rows), partial(_columns, tightest, rows)]),
        partial(stacked, names, [list(row.values()) for row in rows]),
    )


def _columns(names: Sequence[str], rows: Sequence[dict[str, str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in names))  # else `:cd:` becomes an emoji
    return table


def _left(left: timedelta) -> str:
    seconds = int(left.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
