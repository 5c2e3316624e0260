"""Builds the C++ sources in `csrc/` into a shared library, once per machine, and loads it.

The interface is plain C over raw pointers: it needs no Python or torch headers, only a C++17 compiler. The library is
cached under a hash of sources, flags, compiler and processor, so a change in any of them triggers a new build.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "csrc"
# No -ffast-math: NaN must stay NaN.
FLAGS = (
    "-O3",
    "-std=c++17",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fPIC",
    "-shared",
    "-pthread",
)
BUILD_SECONDS = 15
WAYS_OUT = "set FEEDBACK_TRANSFORMER_CACHE to a writable directory, and CXX to a C++17 compiler"


class BuildError(RuntimeError):
    """The library cannot be built here; the message says why and what to do."""


def native_available() -> str | None:
    """None if the native engine can be used here, else the reason and how to fix it. Builds on first use."""
    try:
        library()
    except BuildError as error:
        return str(error)
    except (OSError, RuntimeError) as error:  # a folder that may not be searched, no home, a compiler that is none
        return f"the native engine cannot be built or loaded here: {error}; {WAYS_OUT}"
    return None


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The loaded library, built if it is not in the cache."""
    compiler = find_compiler()
    target = _march_flag(compiler)
    path = cache_directory() / f"native-{_fingerprint(compiler, target)}.so"
    if not path.exists():
        _build(compiler, target, path)
    try:
        return ctypes.CDLL(str(path.absolute()))
    except OSError as error:
        raise BuildError(
            f"the native engine was built but cannot be loaded: {error}; delete {path} and try again"
        ) from None


def cache_directory() -> Path:
    """FEEDBACK_TRANSFORMER_CACHE, or feedback-transformer in the user's cache directory."""
    own = os.environ.get("FEEDBACK_TRANSFORMER_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "feedback-transformer"


def find_compiler() -> str:
    """CXX if it is set, else the first of c++, g++, clang++."""
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return path
    if chosen:
        raise BuildError(f"the native engine needs a C++ compiler, and CXX = {chosen!r} is not one that can be run")
    raise BuildError(
        "the native engine needs a C++ compiler and none was found (CXX, c++, g++, clang++); "
        "install one, for example with `apt-get install g++`"
    )


def _march_flag(compiler: str) -> str:
    """The flag that makes the compiler use all of this processor's instructions, or none if it has no such flag."""
    for flag in ("-march=native", "-mcpu=native"):
        tried = subprocess.run([compiler, flag, "-x", "c++", "-E", os.devnull], capture_output=True, check=False)
        if tried.returncode == 0:
            return flag
    return ""


def _fingerprint(compiler: str, target: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    parts = [version, compiler.encode(), target.encode(), " ".join(FLAGS).encode(), _processor().encode()]
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".h", ".cpp"):
            parts += [source.name.encode(), source.read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _processor() -> str:
    """The processor's capabilities, because different machines may share a cache directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features", "CPU part"))}))


def _build(compiler: str, target: str, path: Path) -> None:
    print(f"building the native engine (once, about {BUILD_SECONDS} s) ...", file=sys.stderr, flush=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Built beside its place and moved there atomically: two processes may build at once, none sees half a file.
        handle, unfinished = tempfile.mkstemp(suffix=".so", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise BuildError(
            f"the native engine cannot be cached in {path.parent}: {error}; "
            "set FEEDBACK_TRANSFORMER_CACHE to a writable directory"
        ) from None
    try:
        command = [compiler, *FLAGS, *filter(None, [target]), str(SOURCES / "engine.cpp"), "-o", unfinished]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode:
            tail = "\n".join(built.stderr.splitlines()[-15:])
            raise BuildError(
                f"the native engine did not build with {compiler}; it needs a C++17 compiler (g++ 9, clang++ 10 or "
                f"newer), which CXX can select. The compiler's output:\n{tail}"
            )
        os.chmod(unfinished, 0o755)  # others may share the cache
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
