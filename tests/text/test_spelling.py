"""Options in errors: as they are typed in a terminal, or as Python's keyword arguments."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgepack
from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.commands.update import UpdateKeywords
from edgepack.errors import EdgepackError
from edgepack.options import (
    CheckKeywords,
    CompareKeywords,
    PackageKeywords,
    PackKeywords,
    QuantizeKeywords,
    RunKeywords,
)
from edgepack.release.interface import ReleaseKeywords
from edgepack.text.spelling import OPTIONS, at_the_command_line, spelled

#: Options that say how a command prints, and those that Python has no argument for.
ALONE = {"--json", "--quiet", "--verbose", "--help", "--dry-run", "--peak"}
#: What no message of these commands names: pack has another option of that name, or Python a flag.
ELSEWHERE = {("compare", "--inputs"), ("quantize", "--bias-correction"), ("quantize", "--method")}
#: The keywords of a command's function that are behind its ``**options``.
KEYWORDS: dict[str, tuple[Any, ...]] = {
    "pack": (edgepack.pack, PackKeywords),
    "check": (edgepack.check, CheckKeywords),
    "export": (edgepack.export, PackageKeywords),
    "sign": (edgepack.sign,),
    "update": (edgepack.update, UpdateKeywords),
    "new": (edgepack.new_project,),
    "release": (edgepack.make_release, ReleaseKeywords),
    "verify": (Bundle.verify, edgepack.verify_layers),
    "compare": (edgepack.compare, CompareKeywords),
    "quantize": (edgepack.quantize, QuantizeKeywords),
    "bench": (Bundle.bench, RunKeywords),
    "report": (Bundle.report, RunKeywords),
}


@pytest.mark.parametrize(
    ("typed", "python"),
    [
        ("Choose its size, for example: --dim N=4", 'Choose its size, for example: dims={"N": 4}'),
        (
            "for example: --dim a=1 --dim b=8 --shape x=1,3,224,224",
            'for example: dims={"a": 1, "b": 8}, shapes={"x": (1, 3, 224, 224)}',
        ),
        ("(--dim batch=... gives another size)", '(dims={"batch": ...} gives another size)'),
        ("--const n=1,2.5: not numbers", 'const={"n": [1, 2.5]}: not numbers'),
        ("--input NAME=FILE.npy.", 'inputs={"NAME": "FILE.npy"}.'),
        ("Replace it with --force.", "Replace it with force=True."),
        ("or choose another folder with --output.", "or choose another folder with `output=`."),
        ("Leave --params out: they go", "Leave `params=` out: they go"),
        ("a letter first: --name resnet18.", 'a letter first: name="resnet18".'),
        ("--name names the model", "`name=` names the model"),
        ("with --timeout SECONDS (0 for none)", "with timeout=SECONDS (0 for none)"),
        ("Use --threads 1 or more.", "Use threads=1 or more."),
        ("cut it (--inputs, --outputs)", "cut it (`cut_inputs=`, `cut_outputs=`)"),
        ("packed with: --tuned FILE.", 'packed with: tuned=["FILE"].'),
        ("--ram-budget is for", "`ram_budget=` is for"),
        ("add --executor dask.", 'add executor="dask".'),
        ("to compile anew: --no-cache", "to compile anew: cache=False"),
        ("Check it with `edgepack verify`.", "Check it with `bundle.verify()`."),
        ("`edgepack bench BUNDLE --profile --json`", "`bundle.bench(profile=True)`"),
        ("with `pack --params embed` they are", 'with `edgepack.pack(params="embed")` they are'),
        (
            "can be compiled:\n    edgepack pack 'my net.onnx' --shape 's=()' --outputs a,b",
            'can be compiled:\n    edgepack.pack("my net.onnx", shapes={"s": ()}, cut_outputs=["a", "b"])',
        ),
        ("`edgepack doctor --device x` tries it", "`edgepack doctor --device x` tries it"),
        ("apt-get install --no-install-recommends wine", "apt-get install --no-install-recommends wine"),
        ("a file called a--force.onnx", "a file called a--force.onnx"),
        ("an `unfinished 'text", "an `unfinished 'text"),
        ("`it's --dim`", "`it's --dim`"),
    ],
)
def test_options_are_named_as_python_takes_them_and_at_a_terminal_as_they_are_typed(
    typed: str, python: str
) -> None:
    assert spelled(typed) == python
    assert spelled(python) == python
    with at_the_command_line():
        assert spelled(typed) == typed


@pytest.mark.parametrize("name", KEYWORDS)
def test_every_option_of_a_command_is_an_argument_of_its_function(name: str) -> None:
    command: click.Command = importlib.import_module(f"edgepack.cli.{name}").command
    known: set[str] = set()
    for one in KEYWORDS[name]:
        known |= set(one.__annotations__ if inspect.isclass(one) else inspect.signature(one).parameters)
    for parameter in command.params:
        if not isinstance(parameter, click.Option):
            continue
        (option,) = (text for text in parameter.opts if text.startswith("--"))
        if option not in ALONE and (name, option) not in ELSEWHERE:
            assert OPTIONS[option].keyword in known, option


@pytest.fixture
def open_model(tmp_path: Path) -> Path:
    """An input of two open sizes, behind which stands an operator that nobody knows."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Nobody", ["r"], ["y"], domain="nowhere")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["length", None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


#: A mistake by its name: what is called with a model, a bundle and a folder, and what its error says.
MISTAKES: dict[str, tuple[Callable[[Path, Bundle, Path], object], str]] = {
    "open sizes": (lambda model, _, out: edgepack.pack(model, output=out / "b"), "shapes="),
    "open sizes, checked": (lambda model, *_: edgepack.check(model), "shapes="),
    "an operator": (
        lambda model, _, out: edgepack.pack(model, output=out / "b", shapes={"x": (1, 4)}),
        'cut_outputs=["r"]',
    ),
    "a batch": (
        lambda model, _, out: edgepack.pack(model, output=out / "b", shapes={"x": (2, 4)}, set_batch=4),
        "set_batch=4: ",
    ),
    "a folder that is there": (lambda model, _, out: edgepack.pack(model, output=out), "output="),
    "a bundle that is there": (
        lambda model, bundle, _: edgepack.pack(model, output=bundle.path),
        "force=True",
    ),
    "a name": (lambda model, _, out: edgepack.pack(model, output=out / "b", name="int"), 'name="model_int"'),
    "firmware": (
        lambda model, _, out: edgepack.pack(model, "cortex-m4", out / "b", params="file"),
        'params="file"',
    ),
    "a precision": (
        lambda model, _, out: edgepack.pack(model, "linux-aarch64", out / "b", precision="tf32"),
        'precision="tf32"',
    ),
    "an sdk": (
        lambda model, _, out: edgepack.pack(model, output=out / "b", sdk="/opt/ndk"),
        'sdk="/opt/ndk"',
    ),
    "a package's name": (
        lambda model, _, out: edgepack.pack(model, output=out / "b", package_name="acme"),
        "`package_name=`",
    ),
    "a key without packages": (
        lambda model, _, out: edgepack.pack(model, output=out / "b", sign_key="k"),
        "`formats=`",
    ),
    "a package that is there": (
        lambda _, bundle, out: [edgepack.export(bundle, "tar.gz", out) for _ in range(2)],
        "force=True",
    ),
    "a format that does not take it": (lambda _, bundle, out: edgepack.export(bundle, "aar", out), ""),
    "a report that is there": (
        lambda _, bundle, out: [bundle.report(out / "r.html") for _ in range(2)],
        "force=True",
    ),
    "a measurement of another": (
        lambda _, bundle, out: bundle.report(out / "r.html", bench=_written(out / "m.json")),
        "bundle.bench(",
    ),
    "a runner": (lambda _, bundle, __: bundle.verify(runner="native:there"), 'runner="native"'),
    "ssh without a place": (lambda _, bundle, __: bundle.verify(runner="ssh"), 'runner="ssh:'),
    "a variant": (lambda _, bundle, __: bundle.bench(variant="other"), "`variant=`"),
    "a session of nothing": (lambda _, __, out: edgepack.load(out), ""),
    "an update": (
        lambda model, bundle, out: edgepack.update(bundle.path, model, out / "p"),
        "",
    ),
    "no scheduler": (
        lambda _, __, out: edgepack.make_release(_project(out), out / "d", executor="dask"),
        'scheduler="tcp://HOST:8786"',
    ),
}


def _written(path: Path) -> Path:
    path.write_text("{}", encoding="utf-8")
    return path


def _project(folder: Path) -> Path:
    model = folder / "m.onnx"
    onnx.save(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Relu", ["x"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
            )
        ),
        model,
    )
    return edgepack.new_project(folder / "project", model)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_python_raises_names_no_option_of_the_command_line(
    mistake: str, open_model: Path, small_bundle: Bundle, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "something").touch()
    call, said = MISTAKES[mistake]
    with pytest.raises(EdgepackError) as caught:
        call(open_model, small_bundle, out)
    text = f"{caught.value.message}\n{caught.value.hint}"
    assert said in text
    assert "--" not in text
    assert str(caught.value).startswith(caught.value.args[0][:20])


def test_a_check_that_refuses_says_what_to_call(open_model: Path) -> None:
    found = edgepack.check(open_model, shapes={"x": (1, 4)})
    assert not found.ok
    assert 'edgepack.pack("' in found.hint
    assert "--" not in found.hint


def test_the_command_line_prints_options_as_they_are_typed(
    open_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pack", str(open_model)]) == 3
    assert "--shape x=" in capsys.readouterr().err
    (tmp_path / "there").mkdir()
    np.save(tmp_path / "there" / "x.npy", np.zeros(1))
    assert main(["pack", str(open_model), "-o", "there"]) == 2
    assert "with --output" in capsys.readouterr().err
