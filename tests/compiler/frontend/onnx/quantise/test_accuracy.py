"""A script of the user's measures the accuracy, and layers return to float for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgepack.compiler.frontend.onnx.quantise import sensitivity
from edgepack.compiler.frontend.onnx.quantise.runs import runner
from edgepack.errors import CheckFailedError, ConfigError
from tests.compiler.frontend.onnx.quantise.support import convolutions, made

#: How near the scores of an input are to what the float model says: 1 at best.
NEAR = """
import numpy
import beside

def accuracy(run):
    print("measuring")
    scores = run({"image": beside.picture()})["scores"]
    return 1 - float(numpy.abs(scores - numpy.load("expected.npy")).max())
"""
BESIDE = """
import numpy
def picture():
    return numpy.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(numpy.float32)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that needs a module beside it, and a file of the folder in which the user is."""
    (folder := tmp_path / "scripts").mkdir()
    (folder / "beside.py").write_text(BESIDE)
    (path := folder / "near.py").write_text(NEAR)
    picture = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "expected.npy", runner(convolutions(), ["scores"])({"image": picture})["scores"])
    return path


def test_layers_return_to_float_until_the_accuracy_is_reached(script: Path, tmp_path: Path) -> None:
    _, all_rounded = made(convolutions(), tmp_path, accuracy=script)
    assert all_rounded.float_accuracy == pytest.approx(1.0, abs=1e-6)
    assert all_rounded.accuracy is not None and all_rounded.kept_float == ()
    error = 1 - all_rounded.accuracy
    assert 1e-4 < error < 0.1
    enough = all_rounded.accuracy - 1e-4
    _, same = made(convolutions(), tmp_path, accuracy=script, min_accuracy=enough)
    assert (same.kept_float, same.accuracy) == ((), all_rounded.accuracy)
    model, nearer = made(convolutions(), tmp_path, accuracy=script, max_drop=error / 2)
    assert nearer.accuracy is not None and nearer.accuracy >= 1 - error / 2
    assert nearer.kept_float and not any(
        one.quantised for one in nearer.layers if one.name in nearer.kept_float
    )
    assert any(node.op_type == "QuantizeLinear" for node in model.graph.node)


def test_an_accuracy_that_cannot_be_had_is_refused(script: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match=r"--min-accuracy 1.5: that of the float model itself is 1"):
        made(convolutions(), tmp_path, accuracy=script, min_accuracy=1.5)
    with pytest.raises(CheckFailedError, match=r"--max-drop 1e-07 of .*: the accuracy is no better than 0.9"):
        made(convolutions(), tmp_path, accuracy=script, max_drop=1e-7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def accuracy(run)\n", r"near.py:1: the script raised SyntaxError: expected ':'"),
        ("\nimport absent_module\n", r"near.py:2: the script raised ModuleNotFoundError: .*absent_module"),
        ("x = 1\n", r"near.py defines no function accuracy"),
        ("def accuracy(run):\n    return run\n", r"near.py:1: accuracy returned .*no finite number"),
        ("def accuracy(run):\n    return float('nan')\n", r"near.py:1: accuracy returned nan"),
        ("def accuracy(run):\n    return 1 / 0\n", r"near.py:2: accuracy raised ZeroDivisionError: division"),
        ("def accuracy(run):\n    exit(3)\n", r"near.py:2: accuracy raised SystemExit: 3"),
        (
            "def accuracy(run):\n    return run([1])\n",
            r"near.py:2: run takes a dictionary with an array for each input \(image\)",
        ),
        (
            "import numpy\ndef accuracy(run):\n    return run({'image': numpy.ones((1, 3, 8, 8))})\n",
            r"near.py:3: run takes float32 \[1, 3, 8, 8\] for image, not float64",
        ),
        ("def accuracy(run):\n    return 10**400\n", r"near.py: what accuracy returned raised OverflowError"),
        ("def accuracy():\n    return 1\n", r"near.py: accuracy raised TypeError: accuracy\(\) takes 0"),
    ],
)
def test_what_is_wrong_in_a_script_is_said_with_its_line(
    text: str, said: str, script: Path, tmp_path: Path
) -> None:
    script.write_text(text)
    before = Path.cwd()
    with pytest.raises(ConfigError, match=said):
        made(convolutions(), tmp_path, accuracy=script)
    assert Path.cwd() == before
    assert not (tmp_path / "quantised.onnx").exists()


def test_a_script_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--accuracy .*absent.py: the file cannot be read: No such file"):
        made(convolutions(), tmp_path, accuracy=tmp_path / "absent.py")


def test_a_script_that_asks_for_input_gets_none(tmp_path: Path) -> None:
    """The compiler's process is told by its own input what to do."""
    (path := tmp_path / "asks.py").write_text("def accuracy(run):\n    return float(input())\n")
    with pytest.raises(ConfigError, match=r"asks\.py:2: accuracy raised EOFError"):
        made(convolutions(), tmp_path, accuracy=path)


def test_a_bar_is_not_missed_in_silence_where_no_layer_alone_costs_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensitivity, "compared_outputs", lambda *_: ())  # on the few samples
    with pytest.raises(CheckFailedError, match="--min-sqnr 140: outputs come no nearer"):
        made(convolutions(), tmp_path, min_sqnr=140.0)
