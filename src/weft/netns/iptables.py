"""Installs interception rules in a network namespace, and removes them.

The rules of each address family are installed in one transaction of iptables-restore, which is started from a thread
inside the namespace: all of them are installed or none, and the host's tables are never touched. Only chains named
ISTIO_* and the jumps to them are changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

from weft.netns.interception import CHAINS, Family, Interception
from weft.netns.namespace import NetworkError, NetworkNamespace, ipv6_available, run_in

_PREFIX: dict[Family, str] = {4: "iptables", 6: "ip6tables"}
_MARK = "ISTIO_ONCE_"
_JUMP = re.compile(r"^-A ((?:PREROUTING|OUTPUT) .*-j ISTIO_\w+)$", re.MULTILINE)


def apply(namespace: NetworkNamespace, interception: Interception) -> None:
    """Install the rules for IPv4 and IPv6. If weft's rules are installed already, each family's rules are replaced
    in one transaction."""

    def install(family: Family) -> None:
        rules = interception.rules(family)
        # A new pod has no rules, so the plain rules usually apply. The current table is read only if iptables-restore
        # fails.
        if _restore(namespace, family, rules).returncode != 0:
            jumps = "".join(f"-D {jump}\n" for jump in _JUMP.findall(_saved(namespace, family)))
            # iptables-restore empties a chain that is declared this way, and creates it if it does not exist.
            replacement = re.sub(r"^-N (\w+)$", r":\1 - [0:0]", rules, flags=re.MULTILINE)
            replacement = replacement.replace("-A ", f"{jumps}-A ", 1)
            _check(namespace, family, _restore(namespace, family, replacement))

    _for_each_family(install)


def apply_once(namespace: NetworkNamespace, interception: Interception) -> None:
    """Install the rules in a namespace in which they must not change afterwards. To apply the same interception again
    has no effect; to apply a different one raises NetworkError. The name of an empty chain in the namespace records
    which interception was applied."""
    mark = _mark(interception)

    def install(family: Family) -> None:
        rules = interception.rules(family)
        done = _restore(namespace, family, rules.replace("*nat\n", f"*nat\n-N {mark}\n", 1))
        if done.returncode == 0:
            return
        saved = _saved(namespace, family)
        if f":{mark} " in saved:
            return
        if any(f":{chain} " in saved for chain in CHAINS):
            hint = "a pod's first redirect cannot be changed; delete the pod and create it again"
            raise NetworkError("a different redirect is installed already", hint, where=str(namespace))
        _check(namespace, family, done)

    _for_each_family(install)


def remove(namespace: NetworkNamespace) -> None:
    """Remove the rules. Established connections stay redirected. Idempotent."""

    def uninstall(family: Family) -> None:
        removal = _removal(namespace, family)
        if removal:
            _check(namespace, family, _restore(namespace, family, f"*nat\n{removal}COMMIT\n"))

    _for_each_family(uninstall)


def _mark(interception: Interception) -> str:
    """Return the name of the chain that records this interception. The name contains a hash of the arguments, not of
    the rules: a pod requests the same arguments again whenever its proxy restarts, and by then another version of
    weft may generate different rules for them."""
    arguments = interception.arguments()
    options = [f"{flag} {value}" for flag, value in zip(arguments[::2], arguments[1::2], strict=True) if value]
    return f"{_MARK}{blake2b(' '.join(options).encode(), digest_size=8).hexdigest()}"


def _for_each_family(work: Callable[[Family], None]) -> None:
    families: tuple[Family, ...] = (4, 6) if ipv6_available() else (4,)
    with ThreadPoolExecutor(len(families)) as pool:
        for done in [pool.submit(work, family) for family in families]:
            done.result()


def _restore(namespace: NetworkNamespace, family: Family, rules: str) -> subprocess.CompletedProcess[str]:
    # --wait: another process may have the lock of the older, non-nft iptables.
    return _run(namespace, f"{_PREFIX[family]}-restore", "--noflush", "--wait", "5", standard_input=rules)


def _removal(namespace: NetworkNamespace, family: Family) -> str:
    """Return the iptables-restore lines of one IP family that remove weft's chains, and the jumps to them, from the
    namespace's nat table; an empty string if there are none."""
    saved = _saved(namespace, family)
    present = [chain for chain in CHAINS if f":{chain} " in saved]
    present += re.findall(rf"^:({_MARK}\w+) ", saved, re.MULTILINE)
    lines = [f"-D {jump}" for jump in _JUMP.findall(saved)]
    lines += [f"-F {chain}" for chain in present] + [f"-X {chain}" for chain in present]
    return "".join(f"{line}\n" for line in lines)


def _saved(namespace: NetworkNamespace, family: Family) -> str:
    saved = _run(namespace, f"{_PREFIX[family]}-save", "-t", "nat")
    _check(namespace, family, saved)
    return saved.stdout


def _run(
    namespace: NetworkNamespace, program: str, *arguments: str, standard_input: str = ""
) -> subprocess.CompletedProcess[str]:
    path = shutil.which(program)
    if path is None:
        raise NetworkError(f"the program `{program}` is missing", "apt-get install iptables", where=str(namespace))
    command = [path, *arguments]
    return run_in(
        namespace,
        lambda: subprocess.run(command, input=standard_input, capture_output=True, text=True, check=False, timeout=30),
    )


def _check(namespace: NetworkNamespace, family: Family, finished: subprocess.CompletedProcess[str]) -> None:
    if finished.returncode != 0:
        reason = " ".join(finished.stderr.split()) or f"exit status {finished.returncode}"
        raise NetworkError(
            f"{_PREFIX[family]} rejected the interception rules: {reason}",
            "the kernel may lack a module: modprobe nf_nat xt_owner xt_dscp xt_REDIRECT; then run: weft up",
            where=str(namespace),
        )
