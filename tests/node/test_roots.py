from __future__ import annotations

import asyncio

import pytest

from authority import Authority
from eventually import eventually
from weft.node.roots import read_roots, watch_roots

ONE, TWO = Authority().root, Authority().root


def test_a_bundle_is_split_into_single_roots(tmp_path):
    file = tmp_path / "root-cert.pem"
    file.write_bytes(b"# ours\n" + ONE + TWO)
    assert "".join(read_roots(file)).encode() == ONE + TWO and len(read_roots(file)) == 2
    file.write_text("nothing")
    with pytest.raises(ValueError):
        read_roots(file)


async def test_roots_are_yielded_when_they_change_and_kept_while_the_file_is_missing_or_broken(tmp_path, caplog):
    file, data = tmp_path / "root-cert.pem", tmp_path / "..data"
    for name, root in (("first", ONE), ("second", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "root-cert.pem").write_bytes(root)
    data.symlink_to("first")  # the layout of a ConfigMap volume
    file.symlink_to("..data/root-cert.pem")
    told = watch_roots(file, read_roots(file), look=0.01)
    next_one = asyncio.ensure_future(anext(told))
    file.unlink()
    async with asyncio.timeout(30):
        await eventually(lambda: "No such file" in caplog.text)
        file.write_text("broken")
        await eventually(
            lambda: "root-cert.pem cannot be read as certificates: " in caplog.text.replace("No such file", "")
        )
        file.unlink()
        file.symlink_to("..data/root-cert.pem")
        await asyncio.sleep(0.05)
        assert not next_one.done()  # the same as before
        fresh = tmp_path / "..data_tmp"
        fresh.symlink_to("second")
        fresh.rename(data)
        assert "".join(await next_one).encode() == TWO
    await told.aclose()
