"""The native library: built once, said when it cannot be, and it does not leak."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from feedback_transformer.kernels import native_build
from feedback_transformer.kernels.native_build import native_available
from tests.kernels.native_cases import make_case

pytestmark = pytest.mark.skipif(native_available() is not None, reason=str(native_available()))


def run_python(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_missing_compiler_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    native_build.library.cache_clear()
    try:
        reason = native_build.native_available()
    finally:
        native_build.library.cache_clear()
    assert reason is not None
    assert "apt-get install g++" in reason


def test_a_compiler_that_was_named_and_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/compiler")
    with pytest.raises(native_build.BuildError, match="CXX = '/no/compiler' is not one that can be run"):
        native_build.find_compiler()


def test_a_cache_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEEDBACK_TRANSFORMER_CACHE", str(tmp_path / "file"))
    native_build.library.cache_clear()
    try:
        reason = native_build.native_available()
    finally:
        native_build.library.cache_clear()
    assert reason is not None
    assert "FEEDBACK_TRANSFORMER_CACHE" in reason


@pytest.mark.parametrize("lack", ["no home", "a folder that may not be searched", "a compiler that is none"])
def test_where_it_cannot_be_looked_for_it_is_not_available(
    lack: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied") if "folder" in lack else RuntimeError("no home directory")

    for name in ("FEEDBACK_TRANSFORMER_CACHE", "XDG_CACHE_HOME", "CXX"):
        monkeypatch.delenv(name, raising=False)
    if "compiler" in lack:
        (tmp_path / "cxx").write_text("no program")
        (tmp_path / "cxx").chmod(0o755)
        monkeypatch.setenv("CXX", str(tmp_path / "cxx"))
    native_build.library.cache_clear()
    try:
        with monkeypatch.context() as patch:
            if "home" in lack:
                patch.setattr(Path, "home", refuse)
            elif "folder" in lack:
                patch.setattr(Path, "exists", refuse)
            reason = native_build.native_available()
    finally:
        native_build.library.cache_clear()
    assert reason is not None
    assert "FEEDBACK_TRANSFORMER_CACHE" in reason


@pytest.mark.slow
def test_two_processes_can_build_at_once(tmp_path: Path) -> None:
    code = "from feedback_transformer.kernels.native_build import native_available; print(native_available())"
    both = [run_python(code, FEEDBACK_TRANSFORMER_CACHE=str(tmp_path)) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=300)
        assert out.strip() == "None", err
        assert "building the native engine" in err
    (built,) = tmp_path.iterdir()
    assert built.stat().st_mode & 0o444 == 0o444, "others may share the cache"
    alone = run_python(f"import os; os.chdir({str(tmp_path)!r}); {code}", FEEDBACK_TRANSFORMER_CACHE=".")
    out, err = alone.communicate(timeout=300)
    assert (out.strip(), err) == ("None", "")


@pytest.mark.slow
def test_a_process_can_be_copied_while_threads_use_the_engine() -> None:
    code = """
import os, threading, time, torch
from feedback_transformer.kernels.native import Loan
stop = threading.Event()
def busy():
    while not stop.is_set():
        [Loan.of(60 << 18, torch.float32) for _ in range(3)]
threads = [threading.Thread(target=busy) for _ in range(2)]
[thread.start() for thread in threads]
end = time.monotonic() + 8
while time.monotonic() < end:
    child = os.fork()
    if not child:
        Loan.of(1 << 10, torch.float32)
        os._exit(0)
    until = time.monotonic() + 20
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > until:
            os.kill(child, 9)
            os._exit(3)
        time.sleep(0.001)
stop.set()
"""
    process = run_python(code)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


@pytest.mark.slow
def test_ten_thousand_blocks_do_not_leak() -> None:
    case = make_case(steps=4, batch=2, dtype=torch.float32)

    def blocks(count: int) -> int:
        for _ in range(count):
            case.native(dropout=0.1)[0].sum().backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes

    before = blocks(1000)
    assert blocks(9000) - before < 4096
