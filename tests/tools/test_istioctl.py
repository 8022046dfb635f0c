from tools import istioctl


def test_its_module_requires_one_commit_and_libraries_that_are_available():
    text = istioctl._module()
    assert f"require {istioctl.PACKAGE} {istioctl.VERSION}\n" in text
    for name, version in istioctl.LIBRARIES.items():
        assert f"\t{name} => {name} {version}\n" in text


def test_another_commit_is_another_program():
    assert istioctl.VERSION.endswith(istioctl.path().name.rpartition("-")[2])


def test_one_that_is_there_is_not_built_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    istioctl.path().parent.mkdir(parents=True)
    istioctl.path().touch()
    told = []
    istioctl.ensure(tell=told.append)
    assert told == []
