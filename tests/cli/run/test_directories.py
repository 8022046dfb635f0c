from pathlib import Path

from weft.cli.run.directories import name_of


def test_the_mesh_is_named_after_its_directory(tmp_path, monkeypatch):
    assert name_of(Path("examples/shop")) == "shop"
    assert name_of(Path("/meshes/My Shop_2!")) == "my-shop-2"
    assert name_of(Path("/")) == "mesh"
    assert len(name_of(Path("x" * 80))) == 32
    (tmp_path / "bank").mkdir()
    monkeypatch.chdir(tmp_path / "bank")
    assert name_of(Path()) == "bank"
