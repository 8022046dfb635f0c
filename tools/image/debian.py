"""Builds the lowest layer: the files of Debian 12 that Python, iptables and Envoy need, without package managers or
compilers.

The packages are downloaded with this machine's apt, which checks their signatures. They are unpacked, not installed,
so their scripts do not run. This module creates the files that those scripts would have created: the bundle of CA
certificates and the names of the iptables programs.
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
# Modules of the standard library that are left out: modules that need a missing library, tests, graphics, and package
# installers.
_UNUSED_MODULES = (
    r"(?:config-3\.11-[^/]+|crypt\.py|curses|dbm|distutils|ensurepip|idlelib|lib2to3|nntplib\.py|pydoc_data|sitecustomize\.py"
    r"|test|tkinter|turtle\.py|turtledemo|unittest/test|venv|EXTERNALLY-MANAGED|.*\.rst"
    r"|lib-dynload/(?:_?curses|_?xx|_test|_ctypes_test|_crypt|_dbm|audioop|nis|ossaudiodev|readline).*)(?:/.*)?"
)
_PYTHON = rf"usr/lib/python3\.11/(?!{_UNUSED_MODULES}$).*"
# By package: a regular expression for the files that the image contains.
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
    # libxt_connlabel needs one more library, for a match that weft does not use.
    "iptables": r"usr/sbin/xtables-nft-multi|usr/lib/x86_64-linux-gnu/xtables/(?!libxt_connlabel).*\.so",
    "ca-certificates": r"usr/share/ca-certificates/mozilla/.*\.crt",
}
_ALWAYS = r"usr/share/doc/[^/]+/copyright"
_MERGED = ("bin", "lib", "lib64", "sbin")
_IPTABLES = [f"{family}{part}" for family in ("iptables", "ip6tables") for part in ("", "-save", "-restore")]
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/nonexistent\nweft:x:1337:1337:weft:/:/nonexistent\n",
    "etc/group": "root:x:0:\nweft:x:1337:\n",
    # Without this file, glibc queries DNS before it reads /etc/hosts.
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\n'
    'ID=debian\nVERSION_ID="12"\n',
}
_AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
_HINT = "this needs Debian 12 and its package lists (run as root: apt-get update); elsewhere, use deploy/Dockerfile"


def fetch(cache: Path) -> list[Path]:
    """Return the package files, in the versions that apt would install now. Missing files are downloaded."""
    cache.mkdir(parents=True, exist_ok=True)
    offers = _offers()
    for name, digest in offers.items():
        if not _is_whole(cache / name, digest):
            _download(cache)
            break
    for name, digest in offers.items():
        if not _is_whole(cache / name, digest):
            raise ImageError(
                f"the downloaded {name} does not match apt's package list; run: apt-get update, then try again"
            )
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
    """Return the file name and SHA-256 of each package, from apt's signed package lists, in the order of `PACKAGES`."""
    command = ["apt-get", "download", "--print-uris", *(f"{package}:amd64" for package in PACKAGES)]
    try:
        output = run(command, hint=_HINT)
    except ImageError:
        _update()
        output = run(command, hint=_HINT)
    digests = dict(re.findall(r"^'\S+' (\S+) \d+ SHA256:(\w+)$", output, re.MULTILINE))
    by_package = {name.split("_")[0]: name for name in digests}
    if missing := PACKAGES.keys() - by_package.keys():
        raise ImageError(f"apt has no {', '.join(sorted(missing))}; {_HINT}")
    return {by_package[package]: digests[by_package[package]] for package in PACKAGES}


def _download(cache: Path) -> None:
    command = ["apt-get", "download", "-q", *(f"{package}:amd64" for package in PACKAGES)]
    try:
        run(command, hint=_HINT, directory=cache)
    except ImageError:
        # Package lists from before the last security update name files that no longer exist.
        _update()
        run(command, hint=_HINT, directory=cache)


def _update() -> None:
    run(["apt-get", "update", "-q"], hint="run once as root: apt-get update")


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
    # Vulnerability scanners read the installed packages from here if an image has no dpkg.
    status = tree / "var/lib/dpkg/status.d" / name
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(run(["dpkg-deb", "--field", package], hint="remove the file and try again"), encoding="utf-8")


def _merged(name: str) -> str:
    """Return the path of a package's file in the image. Packages of Debian 12 still contain files in /lib and /bin,
    which installed systems have in /usr/lib and /usr/bin."""
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
    """Concatenate the CA certificates into the one bundle file that Envoy and Python read, and remove the single
    files."""
    source = tree / "usr/share/ca-certificates"
    certificates = sorted(source.rglob("*.crt"))
    bundle = tree / _AUTHORITIES
    bundle.parent.mkdir(parents=True)
    bundle.write_text("".join(certificate.read_text(encoding="utf-8") for certificate in certificates))
    shutil.rmtree(source)
    (tree / "usr/lib/ssl").mkdir()
    (tree / "usr/lib/ssl/cert.pem").symlink_to(f"/{_AUTHORITIES}")
