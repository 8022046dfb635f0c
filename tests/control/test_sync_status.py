from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from weft.control.sync_status import NOT_SENT, STALE, SYNCED, TYPES, ProxySync, TypeSync, cell, duration, rows


@pytest.mark.parametrize(
    ("sync", "says"),
    [
        (None, "IGNORED"),
        (TypeSync(SYNCED, sent="3", acked="3"), "SYNCED"),
        (TypeSync(NOT_SENT), "NOT SENT"),
        (TypeSync(STALE, stale_since_push=41, stale_seconds=12.7), "STALE (12s, push 41)"),
        (TypeSync(SYNCED, last_error="no such path"), "ERROR"),
    ],
)
def test_a_cell_shows_the_sync_state_of_a_type(sync, says):
    assert cell(sync) == says


def test_durations_are_short():
    said = [duration(seconds) for seconds in (0, 0.9, 119, 120, 3_601, 7_200, 90_000, 172_800)]
    assert said == ["0s", "0s", "119s", "2m", "60m", "2h", "25h", "2d"]


def test_the_table_is_istioctls():
    proxies = [
        ProxySync("web-0.shop", cluster_id="east", istiod="one", istio_version="1.30", resources={}),
        ProxySync("api-0.shop", resources={TYPES["LDS"]: TypeSync(SYNCED)}),
    ]
    header, *found = rows(proxies)
    assert " ".join(header) == "NAME CLUSTER CDS LDS EDS RDS ECDS ISTIOD VERSION"
    assert [row[0] for row in found] == ["api-0.shop", "web-0.shop"]
    assert found[0][2:4] == ("IGNORED", "SYNCED")
    assert found[1][1] == "east" and found[1][-2:] == ("one", "1.30")


def test_what_is_written_has_istios_names_and_can_be_read_again():
    sync = ProxySync("web-0.shop", resources={TYPES["CDS"]: TypeSync(SYNCED, "3", "3", "2026-01-01T00:00:00Z", "no")})
    written = msgspec.json.encode(sync)
    assert b'"sentTime":"2026-01-01T00:00:00Z"' in written and b'"lastError":"no"' in written
    assert msgspec.json.decode(written, type=ProxySync) == sync


def test_a_command_that_prints_it_loads_no_protobuf():
    code = "import sys, weft.control.sync_status; sys.exit(any(name.startswith(('google', 'grpc')) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
