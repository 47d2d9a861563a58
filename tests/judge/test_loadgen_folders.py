"""Search for folders of LoadGen tests."""

from train_bench.judge import loadgen_folders as folders


def test_a_search_ends_in_a_circle_of_links_and_finds_a_test_behind_none(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "above").symlink_to(tmp_path)
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / folders.DETAIL).touch()
    assert not folders.has_tests(tmp_path / "a")
    assert folders.has_tests(tmp_path)
    assert not folders.has_tests(tmp_path / "away" / folders.DETAIL)


def test_a_search_ends_after_so_many_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MOST_FOLDERS", 3)
    deep = tmp_path / "1" / "2" / "3"
    deep.mkdir(parents=True)
    (deep / folders.DETAIL).touch()
    assert not folders.has_tests(tmp_path)
    assert folders.has_tests(tmp_path / "1")
