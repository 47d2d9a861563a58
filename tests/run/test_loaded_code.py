"""Code that a rank has loaded: planted bytecode, and modules, libraries and start files from elsewhere."""

import base64
import hashlib
import importlib.util
import json
import marshal
import os
import py_compile
import struct
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.run.fakes import OneRank
from tests.sandbox import ROOT
from train_bench.run import loaded_code

DESCRIBE = """\
import json, sys
sys.path.insert(0, sys.argv[1])
import mine
from train_bench.run import loaded_code
print(mine.answer(), json.dumps(loaded_code.describe([sys.argv[1], None])))
"""
ONE, TWO = "def answer():\n    return 1\n", "def answer():\n    return 2\n"
SITE = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
NOTHING = {"bytecode": [], "modules": [], "libraries": [], "start_files": []}


@pytest.fixture
def reference(tmp_path):
    path = tmp_path / "reference"
    path.mkdir()
    (path / "mine.py").write_text(ONE)
    return path


@pytest.fixture
def environment(tmp_path):
    """The interpreter and the empty site-packages of an environment of its own."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(tmp_path / "venv")
    return tmp_path / "venv/bin/python", tmp_path / "venv" / SITE


def described(reference, python=sys.executable, code=DESCRIBE, path=(), **variables):
    """The answer of the module, and what its process has loaded."""
    folders = os.pathsep.join(map(str, (ROOT, *path)))
    variables = {name: str(value) for name, value in variables.items()}
    done = subprocess.run(
        [python, "-c", code, str(reference)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": folders, **variables},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answer, _, found = done.stdout.partition(" ")
    return answer, json.loads(found)


def cached(source):
    return Path(importlib.util.cache_from_source(str(source)))


def plant(source, text, flags=0, size=None, at=None):
    """Bytecode of another text, with the header of the source."""
    stat = source.stat()
    named = struct.pack("<III", flags, int(stat.st_mtime), stat.st_size if size is None else size)
    path = at or cached(source)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(importlib.util.MAGIC_NUMBER + named + marshal.dumps(compile(text, str(source), "exec")))


def test_an_honest_process_has_nothing_to_tell(reference):
    for _ in range(2):  # compiled, then taken from the cache
        assert described(reference) == ("1", NOTHING)


@pytest.mark.parametrize("flags", [0, 1], ids=["by time", "unchecked hash"])
def test_bytecode_of_another_source_is_named(reference, flags):
    plant(reference / "mine.py", TWO, flags)
    assert described(reference) == ("2", NOTHING | {"bytecode": ["mine"]})


def test_bytecode_that_is_none_is_named(reference):
    plant(reference / "mine.py", ONE)
    held = cached(reference / "mine.py")
    code = DESCRIBE.replace("import mine\n", f"import mine\nopen({str(held)!r}, 'r+b').truncate(20)\n")
    assert described(reference, code=code)[1]["bytecode"] == ["mine"]


def test_bytecode_of_an_older_source_is_not_taken_and_not_named(reference):
    plant(reference / "mine.py", TWO, size=1)
    assert described(reference) == ("1", NOTHING)


def test_bytecode_in_a_folder_elsewhere_is_named(reference, tmp_path, monkeypatch):
    prefix = str(tmp_path / "prefix")
    monkeypatch.setattr(sys, "pycache_prefix", prefix)
    plant(reference / "mine.py", TWO)
    monkeypatch.undo()
    assert described(reference, PYTHONPYCACHEPREFIX=prefix) == ("2", NOTHING | {"bytecode": ["mine"]})


def test_bytecode_of_the_program_itself_is_named(reference):
    """A rank is started by `-m`, and its module is called `__main__`."""
    code = "import json, sys\nfrom train_bench.run import loaded_code\nname = 'mine'\n"
    code += "print(name, json.dumps(loaded_code.describe([sys.argv[1]])))\n"
    (reference / "mine.py").write_text(code)
    plant(reference / "mine.py", code.replace("'mine'", "'other'"))
    as_module = "import runpy, sys\nsys.path.insert(0, sys.argv[1])\n"
    as_module += "runpy.run_module('mine', run_name='__main__', alter_sys=True)\n"
    assert described(reference, code=as_module) == ("other", NOTHING | {"bytecode": ["mine"]})


def test_bytecode_of_train_bench_is_looked_into_without_a_folder(monkeypatch, tmp_path):
    held = cached(loaded_code.__file__)
    elsewhere = tmp_path / "planted.pyc"
    plant(Path(loaded_code.__file__), ONE, at=elsewhere)
    real = loaded_code.SourceFileLoader.get_data
    monkeypatch.setattr(
        loaded_code.SourceFileLoader,
        "get_data",
        lambda self, path: real(self, str(elsewhere) if Path(path) == held else path),
    )
    assert loaded_code.changed_bytecode() == [loaded_code.__name__]


def test_a_compiled_module_in_place_of_a_source_is_named(reference):
    package = reference / "mine"
    package.mkdir()
    (package / "text").write_text(TWO)
    py_compile.compile(str(package / "text"), cfile=str(package / "__init__.pyc"), doraise=True)
    expected = NOTHING | {"modules": [f"mine ({package / '__init__.pyc'})"]}
    assert described(reference) == ("2", expected)


@pytest.mark.parametrize(
    ("compiled", "source", "hides"),
    [
        ("fast.cpython-311-x86_64-linux-gnu.so", "fast.py", True),
        ("fast.cpython-311-x86_64-linux-gnu.so", "slow.py", False),
        ("fast/__init__.abi3.so", "fast.py", True),
        ("fast.py", "fast.py", False),
    ],
)
def test_an_extension_hides_the_source_of_its_name_alone(tmp_path, compiled, source, hides):
    (tmp_path / source).write_text("")
    assert loaded_code._hides_source(tmp_path / compiled) is hides


def test_modules_from_elsewhere_are_named_by_their_package(reference, tmp_path):
    shadow = tmp_path / "shadow"
    (shadow / "torch" / "optim").mkdir(parents=True)
    (shadow / "torch" / "__init__.py").write_text("from torch import optim")
    (shadow / "torch" / "optim" / "__init__.py").write_text("")
    (shadow / "statistics.py").write_text("")
    (shadow / "time.py").write_text("")  # Python has this one built in
    code = "import statistics, time, torch\n" + DESCRIBE
    torch, statistics = shadow / "torch" / "__init__.py", shadow / "statistics.py"
    assert described(reference, code=code, path=[shadow])[1]["modules"] == [
        f"statistics ({statistics})",
        f"torch ({torch})",
    ]


def test_a_start_module_from_elsewhere_is_named_also_if_it_hides(reference, tmp_path):
    start = tmp_path / "start"
    start.mkdir()
    path = start / "sitecustomize.py"
    for text in ("import other\n", "import other, sys\ndel sys.modules['sitecustomize']\n"):
        path.write_text(text)
        (start / "other.py").write_text("")
        _, found = described(reference, path=[start])
        expected = {"start_files": [str(path)], "modules": [f"other ({start / 'other.py'})"]}
        assert found == NOTHING | expected


def test_a_start_module_of_the_user_is_named_where_it_is_used(reference, tmp_path, environment):
    python, _ = environment
    stated = tmp_path / "venv" / "pyvenv.cfg"
    stated.write_text(stated.read_text().replace("packages = false", "packages = true"))
    path = tmp_path / SITE / "usercustomize.py"
    path.parent.mkdir(parents=True)
    path.write_text("")
    used = {"PYTHONUSERBASE": tmp_path}
    assert str(path) in described(reference, python, **used)[1]["start_files"]
    unused = used | {"PYTHONNOUSERSITE": "1"}
    assert str(path) not in described(reference, python, path=[path.parent], **unused)[1]["start_files"]


@pytest.mark.parametrize(
    ("path", "named"), [("/etc/python3.12/sitecustomize.py", False), ("/usr/local/sitecustomize.py", True)]
)
def test_the_start_module_of_an_operating_system_is_known(monkeypatch, path, named):
    monkeypatch.setattr(loaded_code.PathFinder, "find_spec", lambda name: None)
    assert list(loaded_code._start_modules({"sitecustomize": path})) == ([path] if named else [])


@pytest.mark.parametrize("text", ["import os\n", "# a comment\nimport\tos", "\ufeffimport os\n"])
def test_a_start_file_that_no_package_installed_is_named(reference, environment, text):
    python, site = environment
    (site / "planted.pth").write_text(text, encoding="utf-8")
    assert described(reference, python) == ("1", NOTHING | {"start_files": [str(site / "planted.pth")]})


def install(site, name, text, **direct_url):
    """A package with one `.pth` file, as pip records it."""
    (site / f"{name}.pth").write_text(text)
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{name}.pth,sha256={digest},{len(text)}\n")
    (info / "direct_url.json").write_text(json.dumps(direct_url))


def test_start_files_of_packages_are_known_as_they_were_installed(reference, environment):
    python, site = environment
    install(site, "hooked", "import os; var = 'SETUPTOOLS_USE_DISTUTILS'\n")
    (site / "_virtualenv.py").write_text("")
    (site / "_virtualenv.pth").write_text("import _virtualenv")
    assert described(reference, python) == ("1", NOTHING)
    with (site / "hooked.pth").open("a") as file:
        file.write("import sys\n")
    assert described(reference, python) == ("1", NOTHING | {"start_files": [str(site / "hooked.pth")]})


@pytest.mark.parametrize("installed", ["by a finder", "by a path"])
def test_modules_of_editable_installations_are_of_the_environment(
    reference, environment, tmp_path, installed
):
    python, site = environment
    project = tmp_path / "my project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "honest.py").write_text("")
    finder = f"import sys; sys.path.append({str(project / 'src')!r})\n"
    if installed == "by a finder":
        editable = {"url": project.as_uri(), "dir_info": {"editable": True}}
        install(site, "__editable__.honest", finder, **editable)
    else:
        (site / "easy-install.pth").write_text(f"# a comment\n\n{project / 'src'}\n")
    code = "import honest\n" + DESCRIBE
    assert described(reference, python, code=code) == ("1", NOTHING)


def test_a_damaged_installation_is_no_failure(reference, environment):
    python, site = environment
    for number, content in enumerate(
        (b"[1]", b'{"dir_info": 3}', b"{", b"\xff", b'{"dir_info":{"editable":1}}')
    ):
        info = site / f"damaged{number}-1.0.dist-info"
        info.mkdir()
        (info / "direct_url.json").write_bytes(content)
    assert described(reference, python) == ("1", NOTHING)


def mapped_library():
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(path for line in lines if "libm" in Path(path := line.split(maxsplit=5)[-1]).name)


def test_a_preloaded_library_is_named_also_if_it_removes_the_variable(reference, tmp_path):
    library = tmp_path / "libother.so"
    library.write_bytes(Path(mapped_library()).read_bytes())
    code = "import os\nos.unsetenv('LD_PRELOAD'); os.environ.pop('LD_PRELOAD')\n" + DESCRIBE
    found = described(reference, code=code, LD_PRELOAD=library)
    assert found == ("1", NOTHING | {"libraries": [str(library)]})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("environ", "A=1\0LD_PRELOAD=a.so  /b.so\0LD_AUDIT=\0LD_PRELOAD_X=no.so"),
        ("environ", "LD_AUDIT=a.so:/b.so"),
        ("preload", "# no.so\na.so /b.so # no.so\n"),
    ],
)
def test_every_way_to_preload_is_looked_at(tmp_path, monkeypatch, file, text):
    (tmp_path / file).write_text(text)
    monkeypatch.setattr(loaded_code, "PROCESS", tmp_path)
    monkeypatch.setattr(loaded_code, "PRELOADED", tmp_path / "preload")
    assert list(loaded_code._preloaded()) == ["a.so", "/b.so"]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/tmp/planted.so", True),
        ("/tmp/planted.so (deleted)", True),
        ("/memfd:planted (deleted)", True),
        ("/home/user/ffi/planted.so", True),
        ("/usr/lib/libc.so.6", False),
        ("/memfd:libffi (deleted)", False),
        ("/tmp/ffiAb3x9Z (deleted)", False),
        (f"{sys.prefix}/lib/x.so", False),
        ("/modules/cuda/lib/libcuda.so", False),
        ("[vdso]", False),
    ],
)
def test_libraries_from_elsewhere_are_named(tmp_path, monkeypatch, path, named):
    (tmp_path / "maps").write_text(
        f"7f00-7f01 r-xp 00000000 08:01 12 {path}\n7f01-7f02 r--p 00000000 08:01 12 /tmp/data.bin\n"
        "7f02-7f03 r-xp 00000000 00:00 0\n"
    )
    monkeypatch.setattr(loaded_code, "PROCESS", tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/modules/cuda/lib:relative:")
    expected = [path.removesuffix(" (deleted)")] if named else []
    assert list(loaded_code._foreign_libraries((f"{sys.prefix}/",))) == expected


@pytest.mark.parametrize(
    ("owner", "writable", "others"), [(1, False, True), (1, True, False), (0, False, False)]
)
def test_what_this_user_cannot_change_is_of_the_administrator(tmp_path, monkeypatch, owner, writable, others):
    user = tmp_path.stat().st_uid + owner
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "access", lambda path, mode: writable)
    assert loaded_code._is_of_another_user(str(tmp_path)) is others


class TwoRanks(OneRank):
    def gather_objects(self, value):
        return [value, {kind: ["b", "a"] for kind in value}]


def test_the_lists_of_all_ranks_are_one():
    assert loaded_code.gather(TwoRanks(), {"modules": ["c", "b"], "libraries": []}) == {
        "modules": ["a", "b", "c"],
        "libraries": ["a", "b"],
    }
