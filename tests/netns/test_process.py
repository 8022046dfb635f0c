import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from eventually import eventually
from weft.netns import namespace as netns
from weft.netns import process as process_module
from weft.netns.namespace import NetworkError, NetworkNamespace
from weft.netns.process import Spawn, end, exec_argv, last_words, spawn
from weft.netns.view import Laid, View

pytestmark = pytest.mark.root

UID, GID = 4242, 4243


@pytest.fixture
def start(make_namespace):
    namespace = make_namespace()

    async def begin(*argv, **more):
        options = {"uid": UID, "gid": GID, "namespace": namespace, "stdout": PIPE, "stderr": STDOUT} | more
        return await spawn(Spawn(argv=argv, **options))

    begin.namespace = namespace
    return begin


async def output_of(process):
    async with asyncio.timeout(20):
        written = await process.stdout.read()
        await process.wait()
    return written.decode()


def own_mounts():
    # Other tests create and delete namespaces meanwhile; their mounts do not count.
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "/run/netns" not in line]


async def wait_until_gone(pid):
    await eventually(lambda: ended(pid))


def ended(pid):
    """Return whether the process has ended or is a zombie."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or "Z" in status.read_text().split(")")[1].split()[0]


async def test_runs_in_the_namespace_under_its_own_user_without_privileges(start):
    script = "id -u; id -g; id -G; readlink /proc/self/ns/net; grep -E 'Cap|NoNew' /proc/self/status"
    process = await start("sh", "-c", script)
    uid, gid, groups, network, *status = (await output_of(process)).splitlines()
    assert (uid, gid, groups) == (str(UID), str(GID), str(GID))
    assert network == f"net:[{start.namespace.path.stat().st_ino}]"
    assert {line.split()[0]: line.split()[1].lstrip("0") for line in status} == {
        **dict.fromkeys(["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"], ""),
        "NoNewPrivs:": "1",
    }


async def test_has_only_the_variables_it_was_given(start):
    process = await start("env", environment={"COLOUR": "blue and 'green'", "PATH": "/usr/bin"})
    assert sorted((await output_of(process)).splitlines()) == ["COLOUR=blue and 'green'", "PATH=/usr/bin"]
    assert await output_of(await start("env")) == ""


async def test_no_variable_reaches_the_tools_that_start_it_as_root(start):
    # The dynamic loader prints an error for each program that cannot preload this library.
    variables = {"LD_PRELOAD": "/no/such.so", "PATH": "/usr/bin", "IFS": "/", "not a name": "x"}
    seen = await output_of(await start("env", environment=variables))
    assert "LD_PRELOAD=/no/such.so" in seen and "PATH=/usr/bin" in seen and "__WEFT" not in seen
    assert seen.count("cannot be preloaded") == 1


async def test_reads_nothing_and_starts_in_its_directory(start):
    assert await output_of(await start("sh", "-c", "cat; pwd", working_directory="/usr/share")) == "/usr/share\n"


async def test_has_a_host_name_of_its_own_while_the_machine_keeps_its_own(start):
    machine = os.uname().nodename
    assert await output_of(await start("uname", "-n", hostname="web-0")) == "web-0\n"
    assert await output_of(await start("uname", "-n")) == f"{machine}\n"
    assert await output_of(await start("uname", "-n", hostname="a" * 200)) == f"{'a' * 63}\n"
    assert os.uname().nodename == machine


async def test_can_open_its_output_by_name(start):
    words = "echo out > /dev/stdout; echo error > /dev/stderr; echo descriptor > /dev/fd/1"
    process = await start("/bin/sh", "-c", words)
    assert await output_of(process) == "out\nerror\ndescriptor\n"


async def test_its_number_is_the_programs_own(start):
    process = await start("sh", "-c", "echo $$")
    assert int(await output_of(process)) == process.pid


async def test_its_exit_status_is_the_programs_own(start):
    process = await start("sh", "-c", "exit 37")
    assert await process.wait() == 37


async def test_arguments_arrive_as_they_are(start):
    odd = ["a b", "$HOME", "'\"", "", "*", "new\nline"]
    process = await start("printf", "%s|", *odd)
    assert await output_of(process) == "|".join([*odd, ""])


async def test_sees_its_own_resolv_conf_while_the_machine_keeps_its_own(start, tmp_path):
    before = Path("/etc/resolv.conf").read_text()
    own = tmp_path / "resolv.conf"
    own.write_text("nameserver 10.97.0.1\n")
    own.chmod(0o644)
    view = View(files=(Laid(str(own), "/etc/resolv.conf"),))
    process = await start("cat", "/etc/resolv.conf", view=view)
    assert await output_of(process) == "nameserver 10.97.0.1\n"
    assert Path("/etc/resolv.conf").read_text() == before


async def test_leaves_no_mount_behind_and_pins_no_other_namespace(start, make_namespace, tmp_path):
    other = make_namespace("other")
    before = own_mounts()
    (tmp_path / "in").mkdir(mode=0o755)
    process = await start("sleep", "60", view=View(visible=(str(tmp_path / "in"),)))
    assert own_mounts() == before
    inside = Path(f"/proc/{process.pid}/mountinfo").read_text()
    assert "/run/netns" not in inside
    assert str(other.path) not in inside
    await end(process)


async def test_a_program_below_a_closed_directory_runs_when_declared_visible(start, tmp_path):
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    program = tmp_path / "programs" / "hello"
    program.parent.mkdir(mode=0o755)
    program.write_text("#!/bin/sh\necho hello; cat data; ls $1\n")
    program.chmod(0o755)
    (program.parent / "data").write_text("data\n")
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(NetworkError, match=r"working directory .*/programs cannot be reached by UID 4242"):
        await start("./hello", working_directory=str(program.parent))
    view = View(visible=(str(program.parent),))
    process = await start("./hello", str(tmp_path), working_directory=str(program.parent), view=view)
    assert await output_of(process) == "hello\ndata\nprograms\n"


async def test_this_python_runs_wherever_it_is_installed(start, tmp_path):
    script = tmp_path / "app.py"
    script.write_text("import asyncio, json, msgspec; print('up')")
    script.chmod(0o644)
    view = View(visible=(sys.prefix, sys.base_prefix, str(tmp_path)))
    process = await start(sys.executable, "app.py", view=view, working_directory=str(tmp_path))
    assert await output_of(process) == "up\n"


@pytest.mark.parametrize(
    ("argv", "options", "message"),
    [
        ((), {}, "the command is empty"),
        (("weft-no-such-program",), {}, "`weft-no-such-program` is not in /usr/local/sbin"),
        (("/no/such/program",), {}, "program /no/such/program does not exist"),
        (("/etc",), {}, "program /etc is not a file"),
        (("/etc/passwd",), {}, "program /etc/passwd is not executable for UID 4242"),
        (("true",), {"working_directory": "/no/such/directory"}, "working directory /no/such/directory does not exist"),
        (("true",), {"working_directory": "/etc/passwd"}, "working directory /etc/passwd is not a directory"),
        (
            ("true",),
            {"namespace": NetworkNamespace("weft-none")},
            "namespace weft-none: .*could not start true: exit status",
        ),
        (("true",), {"view": View(files=(Laid("/no/such", "/etc/hosts"),))}, "/no/such does not exist"),
    ],
)
async def test_what_keeps_it_from_starting_is_named(start, argv, options, message):
    with pytest.raises(NetworkError, match=message):
        await start(*argv, **options)


async def test_a_script_with_a_missing_interpreter_is_named(start, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/shell\n")
    script.chmod(0o755)
    with pytest.raises(NetworkError, match="interpreter /no/such/shell, which does not exist"):
        await start(str(script), view=View(visible=(str(script),)))


async def test_a_failing_mount_is_an_error_with_the_tools_message(start, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NetworkError, match="could not start true: mount"):
        await start("true", view=View(files=(Laid("/etc", str(tmp_path / "file")),)))


async def test_sends_sigterm_to_the_whole_process_tree_first(start):
    script = "trap 'echo bye; exit 3' TERM; sleep 1000 & echo up; wait"
    process = await start("sh", "-c", script)
    assert await process.stdout.readline() == b"up\n"
    assert len(netns.processes_in(start.namespace)) == 2
    assert await end(process) == 3
    assert await process.stdout.read() == b"bye\n"
    assert netns.processes_in(start.namespace) == []


async def test_kills_a_process_tree_that_ignores_sigterm(start):
    process = await start("sh", "-c", "trap '' TERM; sleep 1000 & echo up; wait; sleep 1000")
    assert await process.stdout.readline() == b"up\n"
    assert await end(process, grace=0.05) == -signal.SIGKILL
    for pid in netns.processes_in(start.namespace):
        await wait_until_gone(pid)


async def test_its_end_is_seen_while_a_child_still_holds_its_output(start):
    process = await start("sh", "-c", "setsid sleep 1000 & echo $!; exec sleep 1000")
    child = int(await process.stdout.readline())
    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            waiting = group.create_task(process.wait())
            await asyncio.sleep(0)  # let it start waiting
            os.kill(process.pid, signal.SIGKILL)
        assert waiting.result() == -signal.SIGKILL
    finally:
        os.kill(child, signal.SIGKILL)
    assert await asyncio.wait_for(process.stdout.read(), 30) == b""


async def test_ending_what_has_ended_gives_its_status(start):
    process = await start("sh", "-c", "exit 5")
    await process.wait()
    assert await end(process) == 5


async def test_the_last_output_is_awaited_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(process_module, "_LAST_WORDS", 0.01)
    never = asyncio.get_running_loop().create_future()
    await last_words(never)
    assert never.cancelled()


async def test_a_cancellation_as_the_last_output_arrives_is_not_lost():
    reading = asyncio.get_running_loop().create_future()
    hearing = asyncio.ensure_future(last_words(reading))
    await asyncio.sleep(0)
    reading.set_result(None)
    hearing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hearing


async def test_dies_with_its_parent_even_by_kill_9(make_namespace):
    namespace = make_namespace()
    parent = textwrap.dedent(f"""
        import asyncio
        from weft.netns.namespace import NetworkNamespace
        from weft.netns.process import Spawn, spawn
        async def main():
            wanted = Spawn(argv=("sleep", "1000"), namespace=NetworkNamespace({namespace.name!r}), uid={UID}, gid={GID})
            print((await spawn(wanted)).pid, flush=True)
            await asyncio.sleep(1000)
        asyncio.run(main())
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, env=environment) as process:
        child = int(process.stdout.readline())
        await eventually(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
        assert netns.processes_in(namespace) == [child]
        process.kill()
    await asyncio.wait_for(wait_until_gone(child), 30)


def test_entering_later_gives_the_same_view_on_the_callers_own_terminal(make_namespace, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("10.97.0.9 there\n")
    hosts.chmod(0o644)
    wanted = Spawn(
        argv=("sh", "-c", "read line; echo $line; id -u; cat /etc/hosts; exit 9"),
        namespace=make_namespace(),
        uid=UID,
        gid=GID,
        view=View(files=(Laid(str(hosts), "/etc/hosts"),)),
    )
    done = subprocess.run(exec_argv(wanted), input="typed\n", capture_output=True, text=True, env={})
    assert (done.returncode, done.stdout) == (9, f"typed\n{UID}\n10.97.0.9 there\n")


async def test_a_process_may_stay_in_the_machines_own_network_and_keep_one_capability(start):
    where = await output_of(await start("readlink", "/proc/self/ns/net", namespace=None))
    assert where.strip() == str(Path("/proc/self/ns/net").readlink())
    caps = await output_of(await start("grep", "Cap", "/proc/self/status", namespace=None, capabilities=("net_raw",)))
    assert {line.split()[0]: int(line.split()[1], 16) for line in caps.splitlines()}["CapEff:"] == 1 << 13
    caps = await output_of(await start("grep", "CapEff", "/proc/self/status"))
    assert int(caps.split()[1], 16) == 0
