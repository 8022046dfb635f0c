from weft.cli.pod.clean import run


def test_directories_are_removed_and_others_only_if_they_are_empty(tmp_path):
    for name in ("weft/default/a", "weft/canary", "plugins/csi.weft.dev", "plugins/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "weft/default/uid.json").write_text("{}")
    assert run([f"{tmp_path}/weft/default", f"{tmp_path}/plugins/csi.weft.dev", "--if-empty", f"{tmp_path}/weft"]) == 0
    left = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")}
    assert left == {"weft", "weft/canary", "plugins", "plugins/other"}
    assert run([f"{tmp_path}/weft/canary", f"{tmp_path}/weft/default", "--if-empty", f"{tmp_path}/weft"]) == 0
    assert not (tmp_path / "weft").exists()


def test_a_link_is_not_followed(tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert run([f"{tmp_path}/link"]) == 1
    assert f"{tmp_path}/link cannot be removed" in capsys.readouterr().err
    assert (tmp_path / "kept").is_dir()
