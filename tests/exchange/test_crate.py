"""One file for a campaign: what was changed on its way, or would do harm, is refused with a sentence."""

import json
import os
import stat
import subprocess
import tracemalloc
import zipfile

import pytest

from tests import needs
from train_bench.errors import RequestError
from train_bench.exchange import crate

CONTENT = {"spec.json": b'{"plan": 1}', "results/result_0.txt": b"a log\n" * 100}


@pytest.fixture
def file(tmp_path):
    crate.write(tmp_path / "campaign.zip", CONTENT)
    return tmp_path / "campaign.zip"


def rewritten(file, change):
    """The same archive, whose entries `change` has had in its hands: a dict of names to content, which may have
    `ZipInfo` for names."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    change(entries)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file


def refused(file, **options):
    with pytest.raises(RequestError) as caught:
        crate.read(file, **options)
    return str(caught.value)


def test_what_was_written_is_read_and_the_same_content_makes_the_same_file(file, tmp_path):
    read = crate.read(file)
    assert read.content == CONTENT
    assert read.json("spec.json") == {"plan": 1}
    assert (read.signed_by, read.trusted) == (None, False)
    assert crate.write(tmp_path / "again.zip", CONTENT) == read.root
    assert (tmp_path / "again.zip").read_bytes() == file.read_bytes()
    read.unpack("results/", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["result_0.txt"]


def test_every_byte_of_the_file_counts(tmp_path):
    """Whatever byte is changed: the file is refused, or its content is what it was."""
    crate.write(tmp_path / "small.zip", {"a.json": b"{}"})
    whole = (tmp_path / "small.zip").read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        (tmp_path / "changed.zip").write_bytes(changed)
        try:
            assert crate.read(tmp_path / "changed.zip").content == {"a.json": b"{}"}, at
        except RequestError as error:
            assert "changed.zip" in str(error)


def test_a_file_inside_that_was_changed_taken_away_or_added_is_named(file):
    rewritten(file, lambda entries: entries.update({"spec.json": b'{"plan": 2}'}))
    assert "spec.json differs from the manifest: it was modified" in refused(file)
    rewritten(file, lambda entries: entries.pop("spec.json"))
    assert "spec.json is missing" in refused(file)
    rewritten(file, lambda entries: entries.update({"spec.json": CONTENT["spec.json"], "more.json": b""}))
    assert "more.json is not in the manifest" in refused(file)


@pytest.mark.parametrize(
    "name",
    ["../out.txt", "/etc/out", "a/../../out", "a\\..\\out", ".hidden", "a//b", "C:out", "a/./b", "nul\x01"],
)
def test_a_path_that_leads_outside_or_hides_is_refused(file, name):
    rewritten(file, lambda entries: entries.update({name: b"x"}))
    assert "would be outside of the folder, or hidden" in refused(file)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR])
def test_links_and_special_files_are_refused(file, kind):
    entry = zipfile.ZipInfo("results/link")
    entry.external_attr = (kind | 0o777) << 16
    rewritten(file, lambda entries: entries.update({entry: b"/etc/passwd"}))
    assert "results/link is a link or another special file" in refused(file)


def test_a_bomb_is_refused_by_what_its_table_says_and_unpacked_nowhere(file, monkeypatch):
    monkeypatch.setattr(crate, "LARGEST_BYTES", 100_000)
    rewritten(file, lambda entries: entries.update({"bomb": bytes(10**6)}))
    assert "are allowed" in refused(file)
    monkeypatch.setattr(crate, "MOST_FILES", 2)
    assert "it has 4 files; at most 2 are allowed" in refused(file)


def test_what_a_table_understates_is_not_unpacked_at_all(tmp_path):
    """zlib would be asked for all of it at once, and the rest thrown away."""
    file = tmp_path / "bomb.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(10**7))
    file.write_bytes(file.read_bytes().replace((10**7).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    tracemalloc.start()
    assert "refused" in refused(file) or "cannot be read" in refused(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6


def test_what_unpacks_without_a_bound_is_refused(file):
    with zipfile.ZipFile(file, "a", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("bomb", bytes(1000))
    assert "bomb is not compressed by deflate" in refused(file)


def test_a_file_that_would_be_a_folder_too_is_refused(file):
    rewritten(file, lambda entries: entries.update({"results/result_0.txt/more": b""}))
    assert "results/result_0.txt/more lies below a file" in refused(file)


def test_numbers_that_are_none_are_no_json(tmp_path):
    crate.write(tmp_path / "file.zip", {"a.json": b'{"runs": NaN}'})
    with pytest.raises(RequestError, match=r"its a\.json is not JSON \(it has the number NaN\)"):
        crate.read(tmp_path / "file.zip").json("a.json")


def test_a_table_that_understates_a_bomb_gets_no_further(file, monkeypatch):
    """The size is in the table twice; what is unpacked never exceeds it."""
    rewritten(file, lambda entries: entries.update({"bomb": bytes(10**6)}))
    content = file.read_bytes().replace((10**6).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    file.write_bytes(content)
    assert "refused" in refused(file) or "cannot be read" in refused(file)


def test_a_name_that_comes_twice_is_refused(file):
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("spec.json", b"other")
    assert "it has spec.json twice" in refused(file)


@pytest.mark.parametrize(
    "manifest",
    [
        '{"files": {}}'.encode("utf-16"),
        b"",
        b"[]",
        b'{"files": {"spec.json": 3}}',
        b'{"files": [1]}',
        b"{" * 99999,
    ],
)
def test_a_manifest_that_is_none_is_refused(file, manifest):
    rewritten(file, lambda entries: entries.update({"manifest.json": manifest}))
    assert "its manifest.json is invalid" in refused(file)


def test_a_root_that_does_not_follow_and_another_format_are_refused(file):
    def change(key, value):
        def within(entries):
            entries["manifest.json"] = json.dumps(
                json.loads(entries["manifest.json"]) | {key: value}
            ).encode()

        return within

    rewritten(file, change("root", "0" * 64))
    assert "root of its manifest does not match" in refused(file)
    rewritten(file, change("format", 2))
    assert "it has format 2" in refused(file)


def test_what_is_no_archive_is_refused(tmp_path):
    assert "cannot be read" in refused(tmp_path / "nothing.zip")
    (tmp_path / "text.zip").write_text("no archive")
    assert "File is not a zip file" in refused(tmp_path / "text.zip")
    os.mkfifo(tmp_path / "pipe.zip")
    assert "it is not a file" in refused(tmp_path / "pipe.zip")


@needs.program("ssh-keygen")
def test_signatures_are_held_against_the_signers_that_the_user_names(tmp_path):
    keys = {}
    for name in ("ours", "theirs"):
        path = tmp_path / name
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True
        )
        public = path.with_suffix(".pub").read_text()
        keys[name] = path
        (tmp_path / f"{name}_allowed").write_text(f"{name}@example.org {public}")
    signed = tmp_path / "signed.zip"
    crate.write(signed, CONTENT, key=keys["ours"])
    read = crate.read(signed, allowed_signers=tmp_path / "ours_allowed")
    assert (read.signed_by, read.trusted) == ("ours@example.org", True)
    several = tmp_path / "several_allowed"
    several.write_text("other@example.org," + (tmp_path / "ours_allowed").read_text())
    assert crate.read(signed, allowed_signers=several).trusted
    unknown = crate.read(signed)
    assert unknown.signed_by.startswith("SHA256:") and not unknown.trusted
    assert "it has no valid signature of a signer in" in refused(
        signed, allowed_signers=tmp_path / "theirs_allowed"
    )
    plain = tmp_path / "plain.zip"
    crate.write(plain, CONTENT)
    assert "it is not signed" in refused(plain, allowed_signers=tmp_path / "ours_allowed")
    other = tmp_path / "other.zip"
    crate.write(other, CONTENT | {"more.json": b"{}"}, key=keys["ours"])
    with zipfile.ZipFile(other) as archive:
        foreign = archive.read("manifest.json.sig")
    rewritten(signed, lambda entries: entries.update({"manifest.json.sig": foreign}))
    assert "no valid signature" in refused(signed)
    with pytest.raises(RequestError, match="cannot sign"):
        crate.write(tmp_path / "none.zip", CONTENT, key=tmp_path / "no_key")
