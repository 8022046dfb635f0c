"""The image runs: its files as the root of a process in separate namespaces, like a container's, without Docker."""

import json
import os
import re
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from tools.image import oci
from tools.image.build import ROOT, version

from tools import image

# The first test builds the image, and downloads its parts.
pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]

PROGRAMS = {
    "/usr/bin/python3.11",
    "/usr/sbin/xtables-nft-multi",
    "/usr/local/bin/weft",
    "/usr/local/lib/python3.11/dist-packages/envoy/_bin/envoy",
    "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
}
# The environment of each container: a read-only root, and separate process and network namespaces.
ENTER = """
mount --bind "$ROOT_TREE" "$ROOT_TREE"
mount -t proc proc "$ROOT_TREE/proc"
[ -z "$VOLUME" ] || mount --bind "$VOLUME" "$ROOT_TREE/run"
mount -o remount,bind,ro "$ROOT_TREE"
chroot=$(command -v chroot)
export PATH=/usr/local/bin:/usr/sbin:/usr/bin LANG=C.UTF-8
"""


@pytest.fixture(scope="module")
def archive():
    return image.build()


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory):
    tree = tmp_path_factory.mktemp("image")
    tree.chmod(0o755)
    return tree, image.unpack(archive, tree)


@pytest.fixture(scope="module")
def tree(unpacked):
    return unpacked[0]


def enter(tree, script, *arguments, volume="", text=None):
    """Run a script of this machine's shell, in which `$chroot … $ROOT_TREE PROGRAM` runs in the image."""
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child"]
    command += ["sh", "-ec", ENTER + script, "sh", *arguments]
    environment = {"PATH": os.environ["PATH"], "ROOT_TREE": str(tree), "VOLUME": str(volume)}
    return subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, timeout=100, check=False
    )


def run(tree, *command, **more):
    """Run as the image's own user, without any capability."""
    done = enter(tree, '"$chroot" --userspec=1337:1337 "$ROOT_TREE" "$@"', *command, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(tree):
    for directory, _, names in os.walk(tree):
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                yield path, "/" + str(path.relative_to(tree))


def test_the_image_has_its_entrypoint_and_runs_as_an_unprivileged_user(unpacked):
    _, configuration = unpacked
    wanted = configuration["config"]
    assert wanted["User"] == "1337:1337"
    assert wanted["Entrypoint"] == ["weft"]
    assert configuration["architecture"] == "amd64"


def test_the_cluster_knows_it_by_the_name_that_is_installed(archive):
    with tarfile.open(archive) as layout:
        (entry,) = json.load(layout.extractfile("index.json"))["manifests"]
        (for_docker,) = json.load(layout.extractfile("manifest.json"))
    assert entry["annotations"]["io.containerd.image.name"] == f"docker.io/library/weft:{version()}"
    assert for_docker["RepoTags"] == [f"weft:{version()}"]


def test_weft_and_envoy_start_on_a_read_only_root_as_a_user_without_rights(tree):
    assert f"weft {version()}\nenvoy 1.4" in run(tree, "weft", "--version")
    assert "/RELEASE/BoringSSL" in run(tree, "envoy", "--version")
    written = enter(tree, '"$chroot" "$ROOT_TREE" python3 -c "open(\'/tmp/file\', \'w\')"')
    assert "Read-only file system" in written.stderr


def test_weft_finds_the_envoy_that_is_on_the_path(tree):
    found = run(tree, "python3", "-c", "from weft.envoy.binary import find; print(find())").strip()
    assert Path(tree, "usr/local/bin/envoy").readlink() == Path(found)


def test_the_example_is_valid_in_the_image_too(tree):
    shop = "/usr/local/lib/python3.11/dist-packages/weft/examples/shop"
    run(tree, "weft", "validate", shop)


def test_envoy_accepts_a_configuration_and_trusts_the_authorities_of_the_image(tree):
    trust = {"filename": "/etc/ssl/certs/ca-certificates.crt"}
    context = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"validation_context": {"trusted_ca": trust}},
    }
    cluster = {"name": "world", "transport_socket": {"name": "tls", "typed_config": context}}
    bootstrap = {"static_resources": {"clusters": [cluster]}}
    run(tree, "envoy", "--mode", "validate", "--config-yaml", json.dumps(bootstrap))
    trusted = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    assert int(run(tree, "python3", "-c", trusted)) > 100


def test_a_pods_rules_are_put_in_place_with_two_capabilities(tree):
    done = enter(
        tree,
        """
        for command in 'weft interception --apply --force -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15020' \\
            'iptables-save -t nat' 'ip6tables-save -t nat'; do
          set -f
          setpriv --bounding-set=-all,+net_admin,+net_raw,+sys_chroot "$chroot" "$ROOT_TREE" $command
        done
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001") == 2, done.stdout
    assert done.stdout.count("--uid-owner 1337") >= 2


def test_every_library_that_is_needed_is_there(tree):
    missing = """
import pathlib, subprocess
for path in pathlib.Path("/usr").rglob("*"):
    if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\\x7fELF":
        said = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--list", path], capture_output=True, text=True)
        if said.returncode != 0:
            print(path, said.stdout, said.stderr)
"""
    assert run(tree, "python3", "-c", missing) == ""


def test_every_module_of_weft_can_be_imported(tree):
    script = """
import importlib, pkgutil, weft
found = [module.name for module in pkgutil.walk_packages(weft.__path__, "weft.") if not module.name.endswith("__main__")]
for name in found:
    importlib.import_module(name)
print(len(found))
"""
    assert int(run(tree, "python3", "-I", "-c", script)) > 100


def test_all_bytecode_is_present_and_does_not_check_its_source(tree):
    script = """
import importlib.util, marshal, pathlib
for directory in ("/usr/lib/python3.11", "/usr/local"):
    for path in pathlib.Path(directory).rglob("*.py"):
        if not pathlib.Path(importlib.util.cache_from_source(path)).is_file():
            print(path, "has none")
    for path in pathlib.Path(directory).rglob("*.pyc"):
        content = path.read_bytes()
        # Magic, then flags: 1 is "made from a source of this hash", without 2, "compare it".
        if content[:8] != importlib.util.MAGIC_NUMBER + b"\\1\\0\\0\\0":
            print(path, content[:8])
        # What protoc wrote is there as bytecode alone, in its source's place.
        cached = path.parent.name == "__pycache__"
        source = importlib.util.source_from_cache(path) if cached else str(path.with_suffix(".py"))
        if marshal.loads(content[16:]).co_filename != source:
            print(path, marshal.loads(content[16:]).co_filename)
"""
    assert run(tree, "python3", "-I", "-c", script) == ""


def test_nothing_can_be_run_but_weft_envoy_python_and_iptables(tree):
    """No shell, no compiler, no package installer, and no setuid program."""
    runnable = set()
    for path, name in files(tree):
        mode = path.stat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID), name
        assert not mode & stat.S_IWOTH, name
        if mode & 0o111 and not re.search(r"\.so(\.[\d.]+)?$", name):
            runnable.add(name)
    runnable |= {name for name in PROGRAMS if Path(tree, name[1:]).is_file()}
    assert runnable == PROGRAMS
    installers = [name for _, name in files(tree) if re.search(r"/(pip|ensurepip|setuptools|distutils)/\w+\.", name)]
    assert installers == []


def test_no_path_of_this_machine_and_no_key_got_into_it(tree):
    paths = (f"{ROOT}/src", f"{ROOT}/tools", str(tree.parent), "/.cache/weft")
    unwanted = re.compile(
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/]{40}|"
        + b"|".join(re.escape(path.encode()) for path in paths)
    )
    assert [name for path, name in files(tree) if unwanted.search(path.read_bytes())] == []


def test_scanners_find_which_packages_are_inside(tree):
    status = Path(tree, "var/lib/dpkg/status.d/libssl3").read_text()
    assert re.search(r"^Version: 3\.", status, re.MULTILINE)
    assert Path(tree, "usr/share/doc/libssl3/copyright").is_file()


def test_the_same_checkout_makes_the_same_bytes(archive, tmp_path):
    """With a cache that has the downloads but no built layer, and another umask."""
    known = image.default_cache()
    for downloads in (known / "debian", *known.glob("wheels-*")):
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "cache" / downloads.name).symlink_to(downloads)
    before = os.umask(0o077)
    try:
        again = image.build(tmp_path / "again.tar", cache=tmp_path / "cache")
    finally:
        os.umask(before)
    assert again.read_bytes() == archive.read_bytes()


def test_the_dockerfile_builds_the_same_image():
    lines = (ROOT / "deploy" / "Dockerfile").read_text().split("FROM scratch", 1)[1].splitlines()
    assert f"USER {oci.USER}" in lines
    assert f"ENTRYPOINT {json.dumps(list(oci.ENTRYPOINT))}" in lines
    assert "ENV " + " ".join(f"{name}={value}" for name, value in oci.ENVIRONMENT.items()) in lines
