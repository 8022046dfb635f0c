"""Checks what this machine and this user lack to run a mesh; each problem has the command that solves it.

Nothing is guessed from names or versions where the kernel can be tested: links and rules are tried in an unnamed
namespace, which ends with the check.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from weft.base.problem import Problem, Where
from weft.netns.interception import Interception
from weft.netns.namespace import NetworkError, ipv6_available, run_in_new

_CAPABILITIES = {12: "CAP_NET_ADMIN", 21: "CAP_SYS_ADMIN", 6: "CAP_SETGID", 7: "CAP_SETUID", 5: "CAP_KILL"}
_PROGRAMS = {
    "iptables-restore": "iptables",
    "iptables-save": "iptables",
    "ip6tables-restore": "iptables",
    "ip6tables-save": "iptables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "prlimit": "util-linux",
    "mount": "mount",
}


def missing_privileges() -> list[Problem]:
    """Return a problem for each thing that this machine or user lacks to run a mesh. An empty list means that a mesh
    can run here."""
    problems = [*_missing_rights(), *_missing_programs()]
    # Without rights and programs, the kernel check would fail for the same reasons with less clear messages.
    return problems or _missing_kernel_parts()


def _missing_rights() -> list[Problem]:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    lacking = [name for bit, name in sorted(_CAPABILITIES.items()) if not effective >> bit & 1]
    problems = []
    if lacking:
        what = f"a mesh needs network namespaces, and this process (UID {os.geteuid()}) lacks {', '.join(lacking)}"
        hint = "in a container: run it with --privileged" if os.geteuid() == 0 else "sudo weft up"
        problems.append(Problem(Where(), what, hint))
    if not os.access("/run", os.W_OK):
        problems.append(Problem(Where(file="/run"), "this user cannot write to the directory", "sudo weft up"))
    return problems


def _missing_programs() -> list[Problem]:
    lacking = [program for program in _PROGRAMS if shutil.which(program) is None]
    if not lacking:
        return []
    packages = " ".join(sorted({_PROGRAMS[program] for program in lacking}))
    return [Problem(Where(), f"programs are missing: {', '.join(lacking)}", f"apt-get install {packages}")]


def _missing_kernel_parts() -> list[Problem]:
    try:
        return run_in_new(_try_kernel)
    except (NetworkError, OSError) as error:
        return [Problem(Where(), f"the kernel does not allow a network namespace: {error}", "sudo weft up")]


def _try_kernel() -> list[Problem]:
    # Slow to import, and this check also runs in commands that use no netlink otherwise.
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    problems = []
    with IPRoute() as netlink:
        for kind, more in (("bridge", {}), ("veth", {"peer": "probe-peer"})):
            try:
                netlink.link("add", ifname=f"probe-{kind}", kind=kind, **more)
            except NetlinkError as error:
                problems.append(
                    Problem(Where(), f"the kernel cannot create a {kind} interface: {error}", f"modprobe {kind}")
                )
    rules = {"iptables-restore": Interception().rules(4)}
    if ipv6_available():
        rules["ip6tables-restore"] = Interception().rules(6)
    for program, text in rules.items():
        command = [program, "--noflush"]
        tried = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=30)
        if tried.returncode != 0:
            reason = " ".join(tried.stderr.split())
            hint = "modprobe nf_nat xt_owner xt_dscp xt_REDIRECT"
            problems.append(Problem(Where(), f"the kernel rejects the interception rules ({program}): {reason}", hint))
    return problems
