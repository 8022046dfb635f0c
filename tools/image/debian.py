"""The lowest layer: what Python, iptables and Envoy need of Debian 12, file by file; nothing that installs or builds.

Packages come through this machine's apt, which checks their signatures; they are opened, never installed, so none of
their scripts runs. What those scripts would have made (the bundle of authorities, the names of iptables) is made here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from tools.image.error import ImageError, run

_LIBRARIES = r"usr/lib/x86_64-linux-gnu/[^/]+\.so[^/]*"
# Of the standard library: what needs a library that is not there, what only tests or draws, what installs packages.
_UNUSED_MODULES = (
    r"(?:config-3\.11-[^/]+|crypt\.py|curses|dbm|distutils|ensurepip|idlelib|lib2to3|nntplib\.py|pydoc_data|sitecustomize\.py"
    r"|test|tkinter|turtle\.py|turtledemo|unittest/test|venv|EXTERNALLY-MANAGED|.*\.rst"
    r"|lib-dynload/(?:_?curses|_?xx|_test|_ctypes_test|_crypt|_dbm|audioop|nis|ossaudiodev|readline).*)(?:/.*)?"
)
_PYTHON = rf"usr/lib/python3\.11/(?!{_UNUSED_MODULES}$).*"
# For each package, the files that are taken.
PACKAGES = {
    "libc6": rf"{_LIBRARIES}|usr/lib64/.*",
    "libgcc-s1": _LIBRARIES,
    "libstdc++6": _LIBRARIES,
    "zlib1g": _LIBRARIES,
    "libbz2-1.0": _LIBRARIES,
    "liblzma5": _LIBRARIES,
    "libexpat1": _LIBRARIES,
    "libffi8": _LIBRARIES,
    "libsqlite3-0": _LIBRARIES,
    "libssl3": _LIBRARIES,
    "libuuid1": _LIBRARIES,
    "python3.11-minimal": r"usr/bin/python3\.11",
    "libpython3.11-minimal": _PYTHON,
    "libpython3.11-stdlib": _PYTHON,
    "libmnl0": _LIBRARIES,
    "libnftnl11": _LIBRARIES,
    "libxtables12": _LIBRARIES,
    # libxt_connlabel needs one more library, for a match that nobody here writes.
    "iptables": r"usr/sbin/xtables-nft-multi|usr/lib/x86_64-linux-gnu/xtables/(?!libxt_connlabel).*\.so",
    "ca-certificates": r"usr/share/ca-certificates/mozilla/.*\.crt",
}
_ALWAYS = r"usr/share/doc/[^/]+/copyright"
_MERGED = ("bin", "lib", "lib64", "sbin")
_IPTABLES = [f"{family}{part}" for family in ("iptables", "ip6tables") for part in ("", "-save", "-restore")]
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/nonexistent\nweft:x:1337:1337:weft:/:/nonexistent\n",
    "etc/group": "root:x:0:\nweft:x:1337:\n",
    # Without it, glibc asks DNS before /etc/hosts.
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\n'
    'ID=debian\nVERSION_ID="12"\n',
}
_AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
_HINT = "it needs Debian 12 and its package lists (run as root: apt-get update); elsewhere, use deploy/Dockerfile"


def fetch(cache: Path) -> list[Path]:
    """The packages' files, of the versions that apt would install now; downloaded if they are not there yet."""
    cache.mkdir(parents=True, exist_ok=True)
    offers = _offers()
    for name, digest in offers.items():
        if not _is_whole(cache / name, digest):
            _download(cache)
            break
    for name, digest in offers.items():
        if not _is_whole(cache / name, digest):
            raise ImageError(f"apt did not download {name} as it was announced; run: apt-get update, then try again")
    return [cache / name for name in offers]


def unpack(packages: list[Path], tree: Path) -> None:
    tree.mkdir(parents=True)
    for name in _MERGED:
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    for package in packages:
        _take(package, tree)
    for name in ("dev", "proc", "run", "sys", "tmp", "root", "usr/local/bin"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "var/run").symlink_to("../run")
    for name, text in _FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")
    for name in _IPTABLES:
        (tree / "usr/sbin" / name).symlink_to("xtables-nft-multi")
    (tree / "usr/bin/python3").symlink_to("python3.11")
    _bundle_authorities(tree)


def _offers() -> dict[str, str]:
    """For each package in turn the name of its file and its SHA-256, as apt's signed lists have it."""
    command = ["apt-get", "download", "--print-uris", *(f"{package}:amd64" for package in PACKAGES)]
    try:
        said = run(command, hint=_HINT)
    except ImageError:
        _update()
        said = run(command, hint=_HINT)
    found = dict(re.findall(r"^'\S+' (\S+) \d+ SHA256:(\w+)$", said, re.MULTILINE))
    by_package = {name.split("_")[0]: name for name in found}
    if missing := PACKAGES.keys() - by_package.keys():
        raise ImageError(f"apt has no {', '.join(sorted(missing))}; {_HINT}")
    return {by_package[package]: found[by_package[package]] for package in PACKAGES}


def _download(cache: Path) -> None:
    command = ["apt-get", "download", "-q", *(f"{package}:amd64" for package in PACKAGES)]
    try:
        run(command, hint=_HINT, directory=cache)
    except ImageError:
        # Lists older than the last security update name files that are no longer there.
        _update()
        run(command, hint=_HINT, directory=cache)


def _update() -> None:
    run(["apt-get", "update", "-q"], hint="run it as root once: apt-get update")


def _is_whole(file: Path, digest: str) -> bool:
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest


def _take(package: Path, tree: Path) -> None:
    name = package.name.split("_")[0]
    wanted = re.compile(f"{PACKAGES[name]}|{_ALWAYS}")
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as opened,
        tarfile.open(fileobj=opened.stdout, mode="r|") as archive,
    ):
        for member in archive:
            path = _merged(member.name)
            if not member.isdir() and wanted.fullmatch(path):
                _write(archive, member, tree / path)
    if opened.returncode != 0:
        raise ImageError(f"dpkg-deb cannot read {package}; remove it and try again")
    # Where scanners for known weaknesses look for what is inside, in an image without dpkg.
    status = tree / "var/lib/dpkg/status.d" / name
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(run(["dpkg-deb", "--field", package], hint="remove the file and try again"), encoding="utf-8")


def _merged(name: str) -> str:
    """Debian 12's packages still put files into /lib; its machines have them in /usr/lib."""
    path = name.removeprefix("./")
    return f"usr/{path}" if path.split("/")[0] in _MERGED else path


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        to.symlink_to(member.linkname)
        return
    content = archive.extractfile(member)
    if content is None:
        raise ImageError(f"{member.name} is neither a file nor a symbolic link")
    with to.open("wb") as file:
        shutil.copyfileobj(content, file)
    to.chmod(0o755 if member.mode & 0o100 else 0o644)


def _bundle_authorities(tree: Path) -> None:
    """Envoy and Python trust one file. The certificates that it is made of have no other reader."""
    source = tree / "usr/share/ca-certificates"
    certificates = sorted(source.rglob("*.crt"))
    bundle = tree / _AUTHORITIES
    bundle.parent.mkdir(parents=True)
    bundle.write_text("".join(certificate.read_text(encoding="utf-8") for certificate in certificates))
    shutil.rmtree(source)
    (tree / "usr/lib/ssl").mkdir()
    (tree / "usr/lib/ssl/cert.pem").symlink_to(f"/{_AUTHORITIES}")
