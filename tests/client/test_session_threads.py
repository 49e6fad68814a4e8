"""Sessions that threads share, and their end."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import edgepack
from edgepack.abi.pool import cores
from edgepack.api import Bundle
from edgepack.errors import ConfigError
from tests.support.sessions import random_input, slowed
from tests.support.worker import reference


def test_many_sessions_run_at_once(small_bundle: Bundle) -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        with edgepack.load(small_bundle, threads=2) as session:
            for _ in range(50):
                outputs = session.run({"input": random_input(seed)})
                if not np.allclose(outputs["output"], reference(random_input(seed))[0], atol=1e-6):
                    failures.append(f"session {seed}")

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


@pytest.mark.parametrize("sessions", [1, 2, None])
def test_one_session_is_run_by_many_threads(sessions: int | None, small_bundle: Bundle) -> None:
    """As ONNX Runtime's: each run has a session of the library to itself, further ones wait."""
    with edgepack.load(small_bundle, threads=1, sessions=sessions) as session:

        def work(seed: int) -> bool:
            wanted = reference(random_input(seed))[0]
            given = {"input": random_input(seed)}
            return all(np.allclose(session.run(given)["output"], wanted, atol=1e-6) for _ in range(200))

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(16)))
        assert session._pool is not None
        assert len(session._pool.calls) <= (sessions or cores())


def test_a_further_session_is_made_when_all_are_in_use_and_fewer_than_asked_for(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle, sessions=2) as session:
        slow = slowed(session)
        with ThreadPoolExecutor(3) as threads:
            first = threads.submit(session.run, random_input())
            assert slow.inside.wait(60)
            session.run(random_input())  # in a second one; the third run would wait
            assert session._pool is not None
            assert len(session._pool.calls) == 2
            assert not first.done()
            slow.go_on.set()
            first.result(60)


def test_a_run_waits_where_there_is_no_memory_for_a_further_session(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle, sessions=4) as session:
        slow = slowed(session)
        slow.session_create = lambda *_: 21  # EP_E_NO_MEMORY
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(session.run, random_input())
            assert slow.inside.wait(60)
            second = threads.submit(session.run, random_input())
            while session._pool is not None and session._pool.limit > 1:
                time.sleep(0.001)
            slow.go_on.set()
            first.result(60)
            np.testing.assert_array_equal(second.result(60)["output"], first.result()["output"])


def test_many_tasks_of_asyncio_run_one_session(small_bundle: Bundle) -> None:
    """The example of docs/reference/python.md."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    (example,) = (part for part in text.split("```") if "asyncio.to_thread" in part)
    program = example.removeprefix("python\n").replace('"dist/resnet18-host"', repr(str(small_bundle.path)))
    assert str(small_bundle.path) in program
    program = program.replace("(1, 3, 224, 224)", "(4, 8)")
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=120, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_session_says_so_and_closes_twice(small_bundle: Bundle) -> None:
    session = edgepack.load(small_bundle)
    session.close()
    session.close()
    with pytest.raises(ConfigError, match="is closed"):
        session.run({"input": random_input()})


#: What a program does with a session of the bundle that it is given, in several threads at once.
RACES = {
    "close during runs": "work = [run, run, close]",
    "close in two threads": "work = [run, close, close]",
    "close and ask": "work = [run, ask, close]",
}


@pytest.mark.parametrize("times", [80, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("race", RACES)
def test_threads_that_close_a_session_and_use_it_end_in_a_result_or_an_error(
    race: str, times: int, small_bundle: Bundle
) -> None:
    program = f"""
import sys, threading, numpy as np, edgepack
from edgepack.errors import EdgepackError
def run(session):
    x = np.ones(session.inputs[0].shape, "f4")
    for _ in range(40):
        try:
            session.run(x)
        except EdgepackError as error:
            assert "is closed" in str(error), error
def ask(session):
    for _ in range(40):
        try:
            assert session.backend == "cpu"
            session.check_params()
        except EdgepackError as error:
            assert "is closed" in str(error), error
def close(session):
    session.close()
{RACES[race]}
wrong = []
threading.excepthook = wrong.append
sys.setswitchinterval(1e-6)
for _ in range({times}):
    session = edgepack.load(sys.argv[1], threads=2)
    threads = [threading.Thread(target=one, args=(session,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
print(wrong, end="")
"""
    command = [sys.executable, "-c", program, str(small_bundle.path)]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]", "")


def test_what_signals_handlers_raise_leaves_no_session_in_use(small_bundle: Bundle) -> None:
    program = """
import ctypes, sys, threading, time, numpy as np, edgepack
session = edgepack.load(sys.argv[1], threads=1, sessions=2)
x = np.ones(session.inputs[0].shape, "f4")
running = True
caught = [0] * 4
# Whether a thread is where an exception is caught, and none is under way to it.
ready = [False] * 4
def run(index):
    while running:
        try:
            ready[index] = True
            while running:
                session.run(x)
        except KeyboardInterrupt:
            caught[index] += 1
threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
raised = ctypes.pythonapi.PyThreadState_SetAsyncExc
sys.setswitchinterval(1e-5)
[one.start() for one in threads]
end = time.monotonic() + 1.5
while time.monotonic() < end:
    for index, one in enumerate(threads):
        if ready[index]:
            ready[index] = False
            raised(ctypes.c_ulong(one.ident), ctypes.py_object(KeyboardInterrupt))
    time.sleep(0.001)
while not all(ready):
    time.sleep(0.001)
running = False
[one.join(60) for one in threads]
assert not any(one.is_alive() for one in threads)
assert all(caught), caught
assert not session._pool._users
session.run(x)
session.close()
"""
    command = [sys.executable, "-c", program, str(small_bundle.path)]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_close_waits_for_the_run_that_another_thread_began(small_bundle: Bundle) -> None:
    session = edgepack.load(small_bundle)
    expected = session.run(random_input())["output"]
    slow = slowed(session)
    results: list[np.ndarray] = []
    running = threading.Thread(target=lambda: results.append(session.run(random_input())["output"]))
    running.start()
    assert slow.inside.wait(60)
    closing = [threading.Thread(target=session.close) for _ in range(2)]
    for thread in closing:
        thread.start()
    while not session.closed:
        time.sleep(0.001)
    with pytest.raises(ConfigError, match="is closed"):
        session.run(random_input())
    assert slow.calls == []
    slow.go_on.set()
    for thread in (running, *closing):
        thread.join(60)
    assert slow.calls == ["run", "destroy", "close"]
    np.testing.assert_array_equal(results[0], expected)


def test_a_session_that_an_inputs_conversion_closes_is_closed(small_bundle: Bundle) -> None:
    session = edgepack.load(small_bundle)

    class Closing:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            session.close()
            return random_input()

    with pytest.raises(ConfigError, match="is closed"):
        session.run(Closing())


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX's timers")
def test_close_in_a_signals_handler_that_interrupts_a_run_is_an_error(small_bundle: Bundle) -> None:
    """It would wait for the run that waits for it."""
    session = edgepack.load(small_bundle)
    with session._in_use(), pytest.raises(ConfigError, match="cannot be closed by the call"):
        session.close()
    session.close()


def test_a_forgotten_session_ends_its_threads(small_bundle: Bundle) -> None:
    edgepack.load(small_bundle, threads=4)
    gc.collect()
    tasks = Path("/proc/self/task")
    if tasks.is_dir():
        before = len(list(tasks.iterdir()))
        session = edgepack.load(small_bundle, threads=4)
        assert len(list(tasks.iterdir())) == before + 3
        del session
        gc.collect()
        assert len(list(tasks.iterdir())) == before
