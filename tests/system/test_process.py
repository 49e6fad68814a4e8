"""Programs that edgepack runs: their output, their time-outs, and what is left of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from edgepack.errors import ToolchainError
from edgepack.system.deadline import OutOfTimeError, check_time, time_limit
from edgepack.system.process import (
    Completed,
    ask,
    background,
    ends_with_siblings,
    execute,
    run_checked,
    run_tool,
    side_by_side,
)
from edgepack.system.streams import Output
from tests.support.processes import ends, printed_before_the_end


def python(code: str, timeout: float = 60) -> Completed:
    return execute([sys.executable, "-c", code], timeout=timeout, cwd=Path.cwd())


def test_gives_exit_code_and_both_streams() -> None:
    done = python("import sys; print('öut'); print('err', file=sys.stderr); sys.exit(3)")
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (3, "öut", "err")


def shell(code: str, timeout: float) -> Completed:
    return execute(["sh", "-c", code], timeout=timeout, cwd=Path.cwd())


@pytest.mark.skipif(os.name != "posix", reason="runs a shell")
def test_a_time_out_shows_what_was_printed() -> None:
    printed_before_the_end(lambda seconds: shell("echo so far; sleep 60", seconds), "so far")


@pytest.mark.skipif(os.name != "posix", reason="sessions are POSIX's")
def test_a_time_out_does_not_wait_for_who_else_holds_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack.system.process._PATIENCE", 0.5)
    code = "setsid sleep 600 & echo other $!; sleep 600"
    detail = printed_before_the_end(lambda seconds: shell(code, seconds), "other")
    os.kill(int(detail.split()[-1]), signal.SIGKILL)  # it still ran


@pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")
def test_a_time_out_ends_grandchildren_too() -> None:
    detail = printed_before_the_end(
        lambda seconds: shell("sleep 600 & echo other $!; wait", seconds), "other"
    )
    assert ends(int(detail.split()[-1]))


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="nothing cannot be started"):
        execute([tmp_path / "nothing"], timeout=5, cwd=tmp_path)


def test_a_tool_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="cannot be started"):
        run_tool([str(tmp_path / "nowhere")], timeout=5)


def test_long_output_is_cut_in_its_middle() -> None:
    code = "print('first error'); print('x' * 50000); print('last line'); raise SystemExit(3)"
    with pytest.raises(ToolchainError) as caught:
        run_checked([sys.executable, "-c", code], what="a test", timeout=60)
    assert "a test failed (exit code 3)" in caught.value.message
    assert "first error" in caught.value.detail
    assert "last line" in caught.value.detail
    assert "characters left out" in caught.value.detail
    assert len(caught.value.detail) < 8000


def test_a_tools_two_streams_are_one_text_in_order() -> None:
    code = "import sys\nfor i in range(3): print(i, file=(sys.stdout, sys.stderr)[i % 2], flush=True)"
    done = run_tool([sys.executable, "-c", code], timeout=60)
    assert (done.stdout.split(), done.stderr) == (["0", "1", "2"], "")


def test_a_tool_has_the_environment_that_it_is_given_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPACK_TEST_OUTER", "outer")
    show = [sys.executable, "-c", "import os; print(os.environ.get('EDGEPACK_TEST_OUTER', 'not set'))"]
    assert run_tool(show, timeout=60, env={"PATH": os.environ["PATH"]}).stdout.strip() == "not set"
    assert execute(show, timeout=60, cwd=Path.cwd(), env={"MORE": "1"}).stdout.strip() == "outer"


def test_asking_what_is_not_there_or_hangs_gives_nothing(tmp_path: Path) -> None:
    assert ask([str(tmp_path / "nowhere")]) == ""
    assert ask([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], timeout=0.3) == ""
    assert ask([sys.executable, "-c", "import sys; print('1.2'); sys.exit(1)"]).strip() == "1.2"


@pytest.mark.parametrize("streams", ["1", "2", "12"])
def test_a_program_that_prints_too_much_is_refused_however_fast_it_ends(
    streams: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgepack.system.process._MOST_PRINTED", 1 << 20)
    code = f"import os\nfor i in '{streams}': os.write(int(i), bytes({(1 << 20) // len(streams)}))\n"
    assert len(python(code).stdout + python(code).stderr) == 1 << 20
    with pytest.raises(ToolchainError, match="printed more than 1 MiB, and was ended"):
        python(f"{code}os.write(1, b'x')")
    with pytest.raises(ToolchainError, match="printed more than 1 MiB, and was ended"):
        run_tool([sys.executable, "-c", f"{code}os.write(1, b'x')"], timeout=60)
    assert ask([sys.executable, "-c", f"{code}os.write(1, bytes(2 << 20))"]) == ""


def test_what_a_program_prints_without_end_takes_no_more_memory_than_it_may(tmp_path: Path) -> None:
    code = "import os\nwhile True: os.write(1, bytes(1 << 20))"
    tracemalloc.start()
    try:
        with pytest.raises(ToolchainError, match="printed more than 64 MiB, and was ended"):
            python(code)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 160 << 20  # a bytearray grows by moving


def test_what_runs_in_the_background_is_ended_with_the_body(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    script = f"open({str(begun)!r}, 'w').close(); import time; time.sleep(600)"
    before = time.monotonic()
    with background([sys.executable, "-c", script]) as running:
        while not begun.exists():
            assert time.monotonic() < before + 120, "it did not begin"
            time.sleep(0.02)
        assert running()
    assert time.monotonic() - before < 300
    assert not running()


def test_what_cannot_run_in_the_background_is_no_error(tmp_path: Path) -> None:
    done = []
    with background([str(tmp_path / "missing")]):
        done.append(1)
    with background([sys.executable, "-c", "raise SystemExit(3)"]):
        done.append(2)
    assert done == [1, 2]


def test_an_error_of_the_body_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(KeyError), background([str(tmp_path / "missing")]):
        raise KeyError
    with pytest.raises(KeyError), background([sys.executable, "-c", "pass"]):
        raise KeyError


def with_a_child(folder: Path, code: str, *, server: bool = False) -> subprocess.Popen[bytes]:
    """Python code that starts ``tool``, whose child leaves its id in the file ``pid`` of the folder.

    Args:
        code: what is run; it may use ``tool``, a command, and ``pid``, the file's path.
        server: the tool's child has a session of its own, and the tool ends when it has started it.
    """
    pid = folder / "pid"
    tool = (
        "import os, subprocess, sys, time\n"
        f"wait = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        f"child = subprocess.Popen(wait, start_new_session={server}, stdout=-3, stderr=-3)\n"
        f"open({str(pid) + '0'!r}, 'w').write(str(child.pid))\n"
        f"os.rename({str(pid) + '0'!r}, {str(pid)!r})\n"
        f"time.sleep({0 if server else 600})"
    )
    text = (
        "import os, sys, time\nfrom edgepack.system import guardian, process\n"
        f"pid, tool = {str(pid)!r}, [sys.executable, '-c', {tool!r}]\n{code}"
    )
    return subprocess.Popen([sys.executable, "-c", text], cwd=Path(__file__).parents[2])


def killed_with_a_child(folder: Path, code: str, *, server: bool = False) -> int:
    """Kills such code when the tool has started its child, or a server said that it is over; gives the
    child's id."""
    parent = with_a_child(folder, code, server=server)
    late = time.monotonic() + 120
    while not (folder / ("over" if server else "pid")).exists():
        assert parent.poll() is None and time.monotonic() < late
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    return int((folder / "pid").read_text())


@pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")
def test_what_runs_when_edgepack_is_killed_ends(tmp_path: Path) -> None:
    assert ends(killed_with_a_child(tmp_path, "process.run_tool(tool, timeout=600)"))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
def test_what_was_just_being_started_when_edgepack_is_killed_ends(tmp_path: Path) -> None:
    code = "guardian._tell = print\nprocess.run_tool(tool, timeout=600)"
    assert ends(killed_with_a_child(tmp_path, code))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
def test_what_was_just_being_started_when_edgepack_was_interrupted_ends(tmp_path: Path) -> None:
    """It came to its end and told the guardian so, but not of the program: an interrupt came before."""
    code = (
        "import threading\nguardian._tell = lambda line: None\n"
        "run = lambda: process.run_tool(tool, timeout=600)\n"
        "threading.Thread(target=run, daemon=True).start()\n"
        "while not os.path.exists(pid):\n    time.sleep(0.02)\n"
    )
    parent = with_a_child(tmp_path, code)
    assert parent.wait(120) == 0
    assert ends(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")
def test_what_a_tool_left_running_on_purpose_stays(tmp_path: Path) -> None:
    """Such as adb's server, which serves other programs too."""
    code = "process.run_tool(tool, timeout=600)\nopen(pid[:-3] + 'over', 'w')\ntime.sleep(600)"
    server = killed_with_a_child(tmp_path, code, server=True)
    assert not ends(server, seconds=1)
    os.kill(server, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_a_guardian_of_its_own(tmp_path: Path) -> None:
    code = (
        "process.ask([sys.executable, '-c', ''])\nmine = guardian._current['guardian'].process.pid\n"
        "if os.fork():\n    time.sleep(600)\n"
        "assert not guardian._current\nprocess.run_tool(tool, timeout=600)"
    )
    child = killed_with_a_child(tmp_path, code)  # the parent is killed, and its child goes on
    assert not ends(child, seconds=1)
    os.killpg(os.getpgid(child), signal.SIGKILL)


def test_time_for_all_of_it_ends_what_runs(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(OutOfTimeError), time_limit(1):
        run_tool([sys.executable, "-c", code], timeout=600)
    with pytest.raises(OutOfTimeError), time_limit(0.01), time_limit(600):
        while True:
            check_time()
    with time_limit(0), time_limit(None):
        check_time()
    if os.name == "posix" and pid.exists() and pid.read_text():  # a busy machine may not get so far
        assert ends(int(pid.read_text()))


def test_the_first_failure_of_those_side_by_side_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    def work(number: int) -> None:
        if number == 0:
            run_tool([sys.executable, "-c", code], timeout=600)
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.02)
        raise KeyError(number)

    with pytest.raises(KeyError, match="1"):
        side_by_side(work, range(2))
    assert ends(int(pid.read_text()))


def test_a_process_that_was_there_before_ends_with_those_side_by_side() -> None:
    """One that serves several of them in turn is not waited for."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as old:

        def work(number: int) -> None:
            if number:
                raise ToolchainError("the other one")
            ends_with_siblings(old)
            old.wait(60)

        with pytest.raises(ToolchainError, match="the other one"):
            side_by_side(work, range(2))
        assert old.returncode not in (None, 0)


def test_those_side_by_side_answer_in_order_and_share_the_time() -> None:
    assert side_by_side(lambda number: number * 2, range(9)) == list(range(0, 18, 2))
    wait = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(OutOfTimeError), time_limit(0.01):
        side_by_side(lambda _: run_tool(wait, timeout=600), [1])


def waits(thread: threading.Thread) -> bool:
    """Whether a thread has come to wait for what a program prints."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code is not Output.wait.__code__:
        frame = frame.f_back
    return frame is not None


@pytest.mark.skipif(os.name != "posix", reason="there is no guardian on Windows")
def test_an_exception_that_comes_while_a_program_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def interrupted(line: str) -> None:
        told.append(line)
        if line.startswith("+"):
            raise KeyboardInterrupt

    monkeypatch.setattr("edgepack.system.guardian._tell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(["sleep", "600"], timeout=600, cwd=Path.cwd())
    mark, pid = told[0].split()[1:]
    assert told[1] == f"- {mark}"
    assert ends(int(pid))


def test_an_exception_raised_in_a_thread_ends_what_it_waits_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    caught: list[BaseException] = []

    def work() -> None:
        try:
            execute([sys.executable, "-c", code], timeout=600, cwd=tmp_path)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    late = time.monotonic() + 120
    while not (pid.exists() and pid.read_text() and waits(thread)):
        assert time.monotonic() < late
        time.sleep(0.02)
    raised = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), raised)
    thread.join(timeout=120)
    assert [type(error) for error in caught] == [KeyboardInterrupt]
    assert os.name != "posix" or ends(int(pid.read_text()))
