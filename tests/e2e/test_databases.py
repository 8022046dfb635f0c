"""Real servers of other protocols: PostgreSQL, which is client-first but not HTTP, and Redis; on declared and on
undeclared ports. `make test-packages` installs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from e2e.objects import service, text, workload

pytestmark = pytest.mark.asyncio(loop_scope="module")

# PostgreSQL needs a user with a name; the pod's user has none, so it gets one in a user namespace.
_POSTGRES = """
data=$(mktemp -d /tmp/weft-postgres-XXXXXX)
unshare --user --map-user=postgres --map-group=postgres sh -e -c '
  {binaries}/initdb -D "$0/db" -U tester -A trust >/dev/null
  echo "host all all all trust" >> "$0/db/pg_hba.conf"
  exec {binaries}/postgres -D "$0/db" -c listen_addresses="*" -c unix_socket_directories= -c fsync=off
' "$data" &
trap 'kill $!' TERM
wait $!
wait $!
rm -rf "$data"
"""


def files(control):
    binaries = _postgres().parent
    script = _POSTGRES.replace("{binaries}", str(binaries))
    redis = [_program("redis-server"), "--port", "6379", "--bind", "*", "--protected-mode", "no", "--save", ""]
    return {
        "client.yaml": text(workload("client", control=control)),
        "databases.yaml": text(
            workload("postgres", control=control, serve="x=5432", command=["sh", "-c", script]),
            workload("redis", control=control, serve="x=6379", command=redis),
            service("postgres", {"name": "tcp-postgres", "port": 5432}),
            service("redis", {"name": "redis", "port": 6379, "appProtocol": "redis"}),
            # Neither the name nor the number declares the protocol.
            service("someone", {"name": "db", "port": 7000, "targetPort": 5432}, selector={"app": "postgres"}),
            service("somebody", {"name": "cache", "port": 7001, "targetPort": 6379}, selector={"app": "redis"}),
        ),
    }


def _postgres():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert found, "PostgreSQL is not installed; run: make test-packages"
    return found[-1]


def _program(name):
    found = shutil.which(name)
    assert found, f"{name} is not installed; run: make test-packages"
    return found


async def queried(mesh, host, port, statement):
    target = f"host={host} port={port} user=tester dbname=postgres sslmode=disable connect_timeout=15"
    return await mesh.tell("client", "run", argv=[_program("psql"), "-AtX", target, "-c", statement])


@pytest.mark.parametrize(("host", "port"), [("postgres", 5432), ("someone", 7000)])
async def test_postgresql(mesh, host, port):
    answer = await queried(mesh, host, port, "select sum(n), repeat('x', 3) from generate_series(1, 1000) n")
    assert answer["stdout"] == "500500|xxx\n", answer
    large = await queried(mesh, host, port, "select length(repeat('x', 5000000)), repeat('y', 5000000)")
    assert len(large["stdout"]) == 5_000_000 + len("5000000|\n")
    wrong = await queried(mesh, host, port, "select nothing")
    assert 'column "nothing" does not exist' in wrong["stderr"]


@pytest.mark.parametrize(("host", "port"), [("redis", 6379), ("somebody", 7001)])
async def test_redis(mesh, host, port):
    async def asked(*words):
        argv = [_program("redis-cli"), "-h", host, "-p", str(port), *words]
        return (await mesh.tell("client", "run", argv=argv))["stdout"]

    assert await asked("set", host, "some words") == "OK\n"
    assert await asked("get", host) == "some words\n"
    assert await asked("eval", "return string.rep('z', 1000000)", "0") == "z" * 1_000_000 + "\n"
    assert "PONG" in await asked("-r", "3", "ping")
