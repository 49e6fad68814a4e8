"""How parts are found: built-in ones, and those that other packages bring by entry points."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import zipfile
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from edgepack import registry
from edgepack.errors import ConfigError
from edgepack.registry import KINDS, RUNNERS, TOOLCHAINS, Registry


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.noun.replace(" ", "_"))
def test_every_built_in_part_is_there(kind: Registry) -> None:
    assert kind.own()
    for name in kind.own():
        assert kind.find(name) is not None
        assert kind.origin(name) == ""
    assert set(kind.own()) <= set(kind.names())


def test_families_bear_the_names_that_they_are_found_by() -> None:
    assert {name: TOOLCHAINS.find(name).family for name in TOOLCHAINS.built_in} == {
        name: name for name in TOOLCHAINS.built_in
    }


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError, match="There is no runner 'quemu'") as caught:
        RUNNERS.find("quemu")
    assert "Did you mean qemu?" in caught.value.hint
    assert "wasmtime" in caught.value.hint


def test_built_in_parts_win_and_broken_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("native", "edgepack.runners.wine", RUNNERS.group),
        EntryPoint("mine", "edgepack.runners.native", RUNNERS.group),
        EntryPoint("broken", "edgepack.no_such_module", RUNNERS.group),
    ]
    monkeypatch.setattr(registry, "_points", lambda group: points)
    assert RUNNERS.find("native") is import_module("edgepack.runners.native")
    assert RUNNERS.find("mine") is import_module("edgepack.runners.native")
    assert {"broken", "mine", "native", "ssh"} < set(RUNNERS.names())
    with pytest.raises(ConfigError, match=r"'broken' \(edgepack.no_such_module\) cannot be imported"):
        RUNNERS.find("broken")


#: Somebody else's package: a frontend for files that say how wide a ReLU is, a compiler family, a
#: platform's files, a runner.
EXTERNAL = {
    "elsewhere/__init__.py": "",
    "elsewhere/relu.py": """
        import json
        from onnx import TensorProto, helper, save_model
        from edgepack.compiler.frontend import onnx
        from edgepack.compiler.frontend.onnx import load

        def model_files(model):
            return (model,)

        def _onnx(model, folder):
            width = json.loads(model.read_text())["relu"]
            x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, width]) for n in "xy")
            graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
            made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
            save_model(made, folder / "relu.onnx")
            return folder / "relu.onnx"

        def prepare(model, options, folder):
            return onnx.prepare(_onnx(model, folder), options, folder)

        def record(model, options, folder, *, seed, inputs):
            return onnx.record(folder / "relu.onnx", options, folder, seed=seed, inputs=inputs)
    """,
    "elsewhere/compiler.py": """
        from edgepack.toolchains.zig import ZigToolchain

        class Elsewhere(ZigToolchain):
            family = "elsewhere"
    """,
    "elsewhere/runner.py": """
        from edgepack.runners import native
        from edgepack.runners.native import REAL_SPEED, run

        def available(device):
            return native.available(device)._replace(where="elsewhere")
    """,
    "elsewhere/package.py": """
        def package_files(recipe, plan, manifest):
            return {"elsewhere.txt": f"{manifest.name} has {len(plan.steps)} step\\n"}
    """,
    "elsewhere-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.2\n",
    "elsewhere-1.2.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "elsewhere-1.2.dist-info/entry_points.txt": """
        [edgepack.frontends]
        relu = elsewhere.relu
        [edgepack.toolchains]
        elsewhere = elsewhere.compiler:Elsewhere
        [edgepack.runners]
        elsewhere = elsewhere.runner
        [edgepack.platform_files]
        linux = elsewhere.package:package_files
    """,
}


def installed(folder: Path) -> Path:
    """The package, built and installed by pip; the folder to be put on Python's path."""
    wheel = folder / "elsewhere-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in EXTERNAL.items():
            archive.writestr(name, textwrap.dedent(text))
        lines = "".join(f"{name},,\n" for name in (*EXTERNAL, "elsewhere-1.2.dist-info/RECORD"))
        archive.writestr("elsewhere-1.2.dist-info/RECORD", lines)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


def test_another_package_brings_frontend_compiler_platforms_files_and_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = installed(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(site))  # for the worker
    monkeypatch.syspath_prepend(str(site))
    (tmp_path / "elsewhere.yaml").write_text(
        "family: elsewhere\ndescription: of somebody else\n"
        'executables: {zig: ["{python} -m ziglang"]}\ninstall: pip install ziglang\n'
    )
    (tmp_path / "board.yaml").write_text(
        "extends: host\ncompilers: {elsewhere: {target: x86_64-linux-gnu}}\ntoolchain: elsewhere\n"
    )
    (tmp_path / "wide.relu").write_text(json.dumps({"relu": 37}))
    monkeypatch.setenv("EDGEPACK_TOOLCHAIN_PATH", str(tmp_path))
    from edgepack.api import pack

    bundle = pack(tmp_path / "wide.relu", str(tmp_path / "board.yaml"), tmp_path / "out", cache=False)
    assert bundle.manifest.toolchain.family == "elsewhere"
    assert bundle.manifest.inputs[0].shape == (1, 37)
    assert (bundle.path / "elsewhere.txt").read_text() == "wide has 1 step\n"
    result = bundle.verify(runner="elsewhere")
    assert result.ok
    assert registry.FRONTENDS.origin("relu") == "elsewhere 1.2"
