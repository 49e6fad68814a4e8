"""Sessions that are given to other processes: pickled, or had by a child of a fork."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from copy import copy as shallow_copy
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

import edgepack
from edgepack.api import Bundle
from edgepack.errors import ConfigError
from tests.support.sessions import random_input, slowed


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
