"""A bundle in this process, through its C ABI."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from copy import copy as shallow_copy
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import edgepack
from edgepack.abi.header import header
from edgepack.abi.pool import cores
from edgepack.api import Bundle
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.plan.dtypes import DTYPE_CODE
from tests.support.worker import COLUMNS, ROWS, reference


def random_input(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype("f4")


@pytest.fixture
def copy(small_bundle: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_bundle.path, tmp_path / "cöpy of it"))


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_runs_on_arrays(small_bundle: Bundle, threads: int | None) -> None:
    with edgepack.load(small_bundle, threads=threads) as session:
        for seed in range(3):
            outputs = session.run({"input": random_input(seed)})
            expected, sign = reference(random_input(seed))
            np.testing.assert_allclose(outputs["output"], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(outputs["sign"], sign)


def test_says_what_it_runs_on(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle) as session:
        assert session.backend == "cpu"
    with pytest.raises(ConfigError, match="closed"):
        _ = session.backend


def test_describes_its_inputs_and_outputs(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle.path) as session:
        assert [(t.name, t.dtype, t.shape) for t in session.inputs] == [("input", "float32", (ROWS, COLUMNS))]
        assert [(t.name, t.dtype) for t in session.outputs] == [("output", "float32"), ("sign", "int8")]


def test_outputs_of_one_run_are_not_those_of_the_next(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle) as session:
        first = session.run({"input": random_input(1)})["output"]
        kept = first.copy()
        session.run({"input": random_input(2)})
        np.testing.assert_array_equal(first, kept)


def test_arrays_that_are_not_contiguous_are_copied(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        expected = session.run({"input": x})["output"]
        np.testing.assert_array_equal(session.run({"input": np.asfortranarray(x)})["output"], expected)
        raw = bytearray(x.nbytes + 1)
        unaligned = np.frombuffer(raw, "f4", x.size, offset=1).reshape(x.shape)
        unaligned[:] = x
        np.testing.assert_array_equal(session.run({"input": unaligned})["output"], expected)
        np.testing.assert_array_equal(session.run({"input": x.tolist() and x})["output"], expected)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing: input"),
        ({"input": random_input(), "other": 1}, "unknown: other"),
        ({"input": random_input().astype("f8")}, "is float64, the model takes float32"),
        ({"input": random_input().astype(">f4")}, "the model takes float32"),
        ({"input": random_input()[:2]}, r"has shape \(2, 8\), the model takes \(4, 8\)"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    small_bundle: Bundle, inputs: dict[str, np.ndarray], message: str
) -> None:
    with edgepack.load(small_bundle) as session, pytest.raises(ConfigError, match=message):
        session.run(inputs)


def test_arrays_go_by_name_or_in_the_models_order(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        expected = session.run({"input": x})["output"]
        np.testing.assert_array_equal(session.run(x)["output"], expected)
        np.testing.assert_array_equal(session.run(MappingProxyType({"input": x}))["output"], expected)


class Unwilling:
    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("this tensor is on another device")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "^0 arrays are given, the model has 1 input: input"),
        ((random_input(), random_input()), "^2 arrays are given, the model has 1 input: input"),
        (([[1.0, 2.0], [3.0]],), "^Input input: no array can be made of a value of type list"),
        (("x.npy",), "^Input input is a value of type str, no array of numbers"),
        ((None,), "^Input input is a value of type NoneType, no array of numbers"),
        ((Unwilling(),), "^Input input: .* of type Unwilling: this tensor is on another device"),
    ],
)
def test_arguments_that_are_no_inputs_are_a_sentence(
    small_bundle: Bundle, inputs: tuple[object, ...], message: str
) -> None:
    with edgepack.load(small_bundle) as session, pytest.raises(ConfigError, match=message) as caught:
        session.run(*inputs)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_knows_its_bundle_and_takes_a_bundle_or_a_path(small_bundle: Bundle) -> None:
    for given in (small_bundle, small_bundle.path, str(small_bundle.path)):
        with edgepack.Session(given) as session:
            assert session.path == small_bundle.path
    with pytest.raises(ConfigError, match="not a value of type int"):
        edgepack.load(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="threads is a whole number, not the str '2'"):
        edgepack.load(small_bundle, threads="2")  # type: ignore[arg-type]


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
    """The example of docs/python.md."""
    text = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    (example,) = (part for part in text.split("```") if "asyncio.to_thread" in part)
    program = example.removeprefix("python\n").replace('"dist/resnet18-host"', repr(str(small_bundle.path)))
    assert str(small_bundle.path) in program
    program = program.replace("(1, 3, 224, 224)", "(4, 8)")
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=120, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_into_arrays_that_are_there(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        expected = session.run(x)
        arrays = {"sign": np.empty((ROWS, COLUMNS), "i1"), "output": np.empty((ROWS, COLUMNS), "f4")}
        in_order = [arrays["output"], arrays["sign"]]
        readonly = x.copy()
        readonly.flags.writeable = False
        for inputs, outputs in (
            ({"input": x}, arrays),
            (x, in_order),
            ([x], tuple(in_order)),
            (MappingProxyType({"input": np.asfortranarray(x)}), MappingProxyType(arrays)),
            ((readonly,), arrays),
        ):
            for array in in_order:
                array.fill(0)
            session.run_into(inputs, outputs)
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, expected[name])


def _output() -> np.ndarray:
    return np.empty((ROWS, COLUMNS), "f4")


def _sign() -> np.ndarray:
    return np.empty((ROWS, COLUMNS), "i1")


def _readonly() -> np.ndarray:
    array = _output()
    array.flags.writeable = False
    return array


def _unaligned() -> np.ndarray:
    return np.frombuffer(bytearray(ROWS * COLUMNS * 4 + 1), "f4", offset=1).reshape(ROWS, COLUMNS)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([_output()], "1 array is given, the model has 2 outputs: output, sign"),
        ({"output": _output()}, "The outputs are not the model's; missing: sign"),
        ({"output": _output(), "sign": _sign(), "other": _sign()}, "unknown: other"),
        ([_output().tolist(), _sign()], "Output output is a value of type list, no array"),
        ([_output().astype("f8"), _sign()], "Output output is float64, the model gives float32"),
        ([_output()[:2], _sign()], r"has shape \(2, 8\), the model gives \(4, 8\)"),
        ([_readonly(), _sign()], "The array for output output is read-only"),
        ([np.asfortranarray(_output()), _sign()], "output is not C-contiguous"),
        ([_unaligned(), _sign()], "output is not aligned"),
    ],
)
def test_outputs_that_cannot_be_run_into_are_named(
    small_bundle: Bundle, outputs: object, message: str
) -> None:
    with edgepack.load(small_bundle) as session, pytest.raises(ConfigError, match=message) as caught:
        session.run_into(random_input(), outputs)
    assert caught.value.hint


def test_an_output_that_overlaps_another_array_is_refused(small_bundle: Bundle) -> None:
    x = random_input()
    with edgepack.load(small_bundle) as session:
        for outputs in ((x, _sign()), (_output(), x.view("i1").reshape(-1)[:32].reshape(4, 8))):
            with pytest.raises(ConfigError, match="overlaps another array"):
                session.run_into(x, outputs)
        session.run_into(x, (_output(), _sign()))


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


@pytest.mark.parametrize("race", RACES)
def test_threads_that_close_a_session_and_use_it_end_in_a_result_or_an_error(
    race: str, small_bundle: Bundle
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
for _ in range(300):
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
threading.excepthook = lambda *_: None
end = time.monotonic() + 3
def run():
    while time.monotonic() < end:
        try:
            session.run(x)
        except KeyboardInterrupt:
            pass
threads = [threading.Thread(target=run) for _ in range(4)]
sys.setswitchinterval(1e-5)
[one.start() for one in threads]
raised = ctypes.pythonapi.PyThreadState_SetAsyncExc
while time.monotonic() < end:
    for one in threads:
        raised(ctypes.c_ulong(one.ident), ctypes.py_object(KeyboardInterrupt))
    time.sleep(0.001)
[one.join(60) for one in threads]
assert not any(one.is_alive() for one in threads)
assert not session._pool._users
session.run(x)
session.close()
"""
    command = [sys.executable, "-c", program, str(small_bundle.path)]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Slow:
    """The library's functions, of which a run waits until it may go on; what was called, in order."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.calls: list[str] = []
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.session_create = api.session_create

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api, name)

    def slow_run(self, *arguments: Any) -> int:
        self.inside.set()
        assert self.go_on.wait(60)
        status: int = self.api.session_run(*arguments)
        self.calls.append("run")
        return status

    def session_destroy(self, handle: Any) -> None:
        self.calls.append("destroy")
        self.api.session_destroy(handle)

    def model_close(self, model: Any) -> None:
        self.calls.append("close")
        self.api.model_close(model)


def slowed(session: edgepack.Session) -> Slow:
    """Its one native session now has runs that wait."""
    session._model.api = slow = Slow(session._model.api)
    assert session._pool is not None
    (call,) = session._pool.calls
    call.function = slow.slow_run
    return slow


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


def test_a_session_pickles_as_its_bundles_path_and_options(
    small_bundle: Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(small_bundle.path.parent)
    with edgepack.load(small_bundle.path.name, threads=1, sessions=2) as session:
        expected = session.run(random_input())["output"]
        pickled = pickle.dumps(session)
        copies = [shallow_copy(session), deepcopy(session)]
        monkeypatch.chdir(tmp_path)
        copies.append(pickle.loads(pickled))
        for other in copies:
            assert other._options == {"threads": 1, "sessions": 2, "check": False}
            with other:
                np.testing.assert_array_equal(other.run(random_input())["output"], expected)
        assert not session.closed
    with pytest.raises(ConfigError, match="is closed"):
        pickle.dumps(session)


def test_a_pickled_session_whose_bundle_is_gone_or_another_says_so(copy: Path) -> None:
    with edgepack.load(copy) as session:
        pickled = pickle.dumps(session)
    manifest = copy / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    own = json.loads(text)["params"]["id"]
    manifest.write_text(text.replace(own, "0" * 64), encoding="utf-8")
    with pytest.raises(ConfigError, match="another bundle than when it was pickled"):
        pickle.loads(pickled)
    shutil.rmtree(copy)
    with pytest.raises(ConfigError, match=r"its bundle .* is not there") as caught:
        pickle.loads(pickled)
    assert "the same one" in caught.value.hint


def _run_in_a_process(session: edgepack.Session) -> np.ndarray:
    return session.run(random_input())["output"]


def test_a_session_is_given_to_processes_that_begin_anew(small_bundle: Bundle) -> None:
    with edgepack.load(small_bundle, threads=1) as session:
        with multiprocessing.get_context("spawn").Pool(1) as processes:
            (found,) = processes.map(_run_in_a_process, [session])
        np.testing.assert_array_equal(found, session.run(random_input())["output"])


def test_says_what_it_is(small_bundle: Bundle) -> None:
    about = "small on host: input float32[4, 8] -> output float32[4, 8], sign int8[4, 8]"
    session = edgepack.load(small_bundle)
    assert repr(session) == f"<edgepack.Session {about}>"
    session.close()
    assert repr(session) == f"<edgepack.Session {about}, closed>"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_during_a_run_closes_the_session(small_bundle: Bundle) -> None:
    session = edgepack.load(small_bundle)
    slow = slowed(session)
    running = threading.Thread(target=session.run, args=(random_input(),))
    running.start()
    assert slow.inside.wait(60)
    assert _ends(multiprocessing.get_context("fork").Process(target=session.close)) == 0
    slow.go_on.set()
    running.join(60)
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


def test_params_that_are_not_its_own_are_refused(copy: Path) -> None:
    path = copy / "params" / "small.params"
    data = path.read_bytes()
    path.write_bytes(b"X" + data[1:])
    with pytest.raises(CheckFailedError, match="EP_E_PARAMS_MAGIC"):
        edgepack.load(copy)
    path.write_bytes(data[:-1])
    with pytest.raises(CheckFailedError, match="EP_E_PARAMS_TRUNCATED"):
        edgepack.load(copy)
    path.unlink()
    with pytest.raises(CheckFailedError, match="EP_E_IO"):
        edgepack.load(copy)


def test_the_hash_check_finds_one_flipped_bit(copy: Path) -> None:
    path = copy / "params" / "small.params"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with edgepack.load(copy) as session, pytest.raises(CheckFailedError, match="EP_E_PARAMS_HASH"):
        session.check_params()


def test_bundles_that_cannot_be_loaded_here_are_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a bundle"):
        edgepack.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        edgepack.load(copy, threads=0)
    library = copy / "lib" / "libsmall.so"
    library.write_bytes(b"\x7fELF")
    with pytest.raises(CheckFailedError, match="cannot be loaded"):
        edgepack.load(copy)
    data = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    data["device"]["arch"] = "riscv64"
    (copy / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be loaded here"):
        edgepack.load(copy)


def test_tables_of_the_header_are_complete() -> None:
    tables = header()
    assert tables.dtypes == {code: name for name, code in DTYPE_CODE.items()}
    assert tables.statuses[0].name == "EP_OK"
    assert sorted(tables.statuses) == list(range(len(tables.statuses)))


def _ends(process: multiprocessing.process.BaseProcess) -> int | None:
    """How a process ended; it is given a minute, for a busy machine."""
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        pytest.fail("the child did not end")
    return process.exitcode


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_during_a_run_runs_in_another_session(small_bundle: Bundle) -> None:
    """That of the run stays busy there for ever."""
    session = edgepack.load(small_bundle, sessions=1)
    expected = session.run(random_input())["output"]
    slow = slowed(session)
    running = threading.Thread(target=session.run, args=(random_input(),))
    running.start()
    assert slow.inside.wait(60)

    def child() -> None:
        for _ in range(2):
            np.testing.assert_array_equal(session.run(random_input())["output"], expected)
        session.close()

    assert _ends(multiprocessing.get_context("fork").Process(target=child)) == 0
    slow.go_on.set()
    running.join(60)
    session.close()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork here")
@pytest.mark.parametrize("asleep", [True, False])
@pytest.mark.parametrize("how", ["run", "close", "exit", "another"])
def test_a_forked_child_uses_and_ends_a_session_of_several_threads(
    how: str, asleep: bool, small_bundle: Bundle
) -> None:
    """The child has none of the pool's threads, which sleep or still spin in the parent."""
    x = random_input()

    def child() -> None:
        if how == "run":
            for _ in range(50):
                np.testing.assert_array_equal(session.run(x)["output"], expected)
        if how in {"run", "close"}:
            session.close()
        if how == "another":
            with edgepack.load(small_bundle, threads=3) as own:
                np.testing.assert_array_equal(own.run(x)["output"], expected)

    with edgepack.load(small_bundle, threads=3) as session:
        expected = session.run(x)["output"]
        if asleep:
            time.sleep(0.05)
        assert _ends(multiprocessing.get_context("fork").Process(target=child)) == 0
        np.testing.assert_array_equal(session.run(x)["output"], expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_workers_that_a_server_forks_run_the_session_that_it_loaded(small_bundle: Bundle) -> None:
    """As gunicorn's --preload: several children, each of which runs requests and ends as Python does."""
    program = """
import os, sys, numpy as np, edgepack
session = edgepack.load(sys.argv[1], threads=3)
x = np.ones(session.inputs[0].shape, "f4")
expected = session.run(x)["output"]
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        for _ in range(20):
            assert (session.run(x)["output"] == expected).all()
        sys.exit(0)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(small_bundle.path)]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
