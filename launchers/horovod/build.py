"""Build of Horovod against the installed torch: `make horovod`, or `python -m train_bench.launchers.horovod.build`.

The last release, 0.28.1, is source only and older than today's torch and CMake, so its build files are
changed where they fail. The wheel is kept in the user's cache folder, one per torch and Python version; a
later call installs it from there.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from train_bench.errors import LaunchError
from train_bench.plan import discover

VERSION = "0.28.1"
SDIST = f"horovod=={VERSION} --hash=sha256:92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
REQUIREMENTS = ("setuptools", "wheel", "packaging", "psutil", "cffi", "cloudpickle", "pyyaml")
"""Packages that its build needs; the last five it needs to run, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A change of one file of the unpacked source: `old`, which is there exactly once, becomes `new`."""

    file: str
    old: str
    new: str
    cpu_only: bool = False


PATCHES = (
    # torch's headers are C++20.
    Patch(file="CMakeLists.txt", old="set(CMAKE_CXX_STANDARD 14)", new="set(CMAKE_CXX_STANDARD 20)"),
    Patch(
        file="horovod/torch/CMakeLists.txt",
        old="set(CMAKE_CXX_STANDARD 14)",
        new="set(CMAKE_CXX_STANDARD 20)",
    ),
    # With a CUDA build of torch and an nvcc on the path it demands the CUDA toolkit, even for a CPU build.
    Patch(
        file="cmake/Modules/FindPytorch.cmake",
        old="print(True if ((torch.version.cuda is not None) and (CUDA_HOME is not None)) else False)",
        new="print(False)",
        cpu_only=True,
    ),
)


def main(arguments: Sequence[str]) -> None:
    """Build or reuse the wheel, install it, import it."""
    parser = argparse.ArgumentParser("python -m train_bench.launchers.horovod.build", description=__doc__)
    parser.add_argument("--mpi", action="store_true", help="with MPI, which has to be installed")
    parser.add_argument("--nccl", action="store_true", help="for GPUs; needs the CUDA toolkit and NCCL")
    options = parser.parse_args(arguments)
    folder = discover.cache() / "horovod" / key(mpi=options.mpi, nccl=options.nccl)
    try:
        python("-m", "pip", "install", "--constraint", str(discover.ROOT / "constraints.txt"), *REQUIREMENTS)
        wheel = next(folder.glob("*.whl"), None)
        if wheel is not None:
            print(f"Horovod {VERSION} was built before: {wheel}", flush=True)
            install(wheel)
        else:
            build(folder, mpi=options.mpi, nccl=options.nccl)
    except (LaunchError, subprocess.CalledProcessError) as error:
        sys.exit(f"train_bench.launchers.horovod.build: {error}")


def key(*, mpi: bool, nccl: bool) -> str:
    """Cache key of a built wheel, as the name of a folder."""
    parts = [VERSION, f"torch-{torch.__version__}", f"{sys.implementation.cache_tag}-{platform.machine()}"]
    return "_".join([*parts, *(["mpi"] if mpi else []), "nccl" if nccl else "cpu"])


def build(folder: Path, *, mpi: bool, nccl: bool) -> None:
    """Fetch, patch and compile the source, install the wheel; once it works, keep it in `folder`."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            raise LaunchError(
                f"{tool} was not found. Horovod is compiled: install CMake 3.13 or newer and a compiler for "
                f"C++20 (g++ 10 or newer)."
            )
    with tempfile.TemporaryDirectory(prefix="horovod-") as name:
        work = Path(name)
        source = fetch(work)
        patch(source, cpu_only=not nccl)
        print(f"Building Horovod {VERSION} for torch {torch.__version__}; this takes minutes ...", flush=True)
        options = ("--no-build-isolation", "--no-deps", "--wheel-dir", str(work / "wheel"), str(source))
        python("-m", "pip", "wheel", *options, env=environment(mpi=mpi, nccl=nccl))
        wheel = next((work / "wheel").glob("*.whl"))
        install(wheel)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{wheel.name}.part"
        shutil.copy(wheel, part)
        part.replace(folder / wheel.name)
        print(f"The wheel is kept in {folder}", flush=True)


def fetch(work: Path) -> Path:
    """The unpacked source distribution."""
    pinned = work / "pinned.txt"
    pinned.write_text(SDIST + "\n", encoding="utf-8")
    options = ("--no-deps", "--no-binary=horovod", "--no-build-isolation", "--require-hashes")
    python("-m", "pip", "download", *options, "--dest", str(work), "--requirement", str(pinned))
    with tarfile.open(work / f"horovod-{VERSION}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    return work / f"horovod-{VERSION}"


def patch(source: Path, *, cpu_only: bool) -> None:
    """Change the build files. Raises `LaunchError` where a text to change is not there exactly once."""
    for change in PATCHES:
        if change.cpu_only and not cpu_only:
            continue
        path = source / change.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        count = text.count(change.old)
        if count != 1:
            raise LaunchError(f"{change.file} holds {change.old!r} {count} times; the patch expects it once.")
        path.write_text(text.replace(change.old, change.new), encoding="utf-8")
        print(f"Patched {change.file}: {change.new}", flush=True)


def environment(*, mpi: bool, nccl: bool) -> dict[str, str]:
    """Environment variables of Horovod's build."""
    wanted = {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI" if mpi else "HOROVOD_WITHOUT_MPI": "1",
        # The bundled Gloo requires a CMake version that CMake 4 no longer emulates.
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    }
    if nccl:
        wanted["HOROVOD_GPU_OPERATIONS"] = "NCCL"
    return {"MAKEFLAGS": f"-j{os.cpu_count() or 1}"} | wanted


def install(wheel: Path) -> None:
    """Install the wheel in place of any other build, and see that it loads."""
    python("-m", "pip", "install", "--force-reinstall", "--no-deps", str(wheel))
    python("-c", "import horovod.torch")


def python(*arguments: str, env: Mapping[str, str] | None = None) -> None:
    """Run this interpreter; raises `CalledProcessError` if it fails."""
    subprocess.run([sys.executable, *arguments], check=True, env=os.environ | dict(env or {}))


if __name__ == "__main__":
    main(sys.argv[1:])
