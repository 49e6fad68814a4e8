"""Names of others: whatever a command prints, no byte of them acts on the terminal, and JSON stays JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.api import Bundle
from edgepack.cli.check import _shown
from edgepack.cli.main import main
from edgepack.cli.output import heading, say, table
from edgepack.errors import ConfigError
from edgepack.plan.model_check import CheckedStep, ModelCheck, Refused
from edgepack.text.printable import printable
from tests.support.manifest import example

#: A line end, a window's title, the screen cleared, C1's CSI, DEL, bidi override and isolate, a BOM, a tag.
HOSTILE = "a\nwarning: b\r\x1b]0;c\x07\x1b[2J\x9b31m\x7f\u202e\u2066\ufeff\U000e0041\x1b[1mz"


def test_characters_that_do_not_show_as_themselves_are_spelled_out() -> None:
    assert printable("Größe 尺寸 x") == "Größe 尺寸 x"
    assert printable("a\x1b[1m\x9b\u202e\udc80\0") == r"a\x1b[1m\x9b\u202e\udc80\x00"
    assert printable("a\tb\nc\r", keep="\n\t") == "a\tb\nc\\r"
    assert printable(HOSTILE).isprintable()
    assert str(ConfigError(HOSTILE, hint=HOSTILE, detail=HOSTILE)).replace("\n", "").isprintable()


def _hostile_bundle(root: Path) -> Path:
    """A bundle's folder with a manifest whose texts are all hostile, but for paths and choices."""
    root.mkdir()
    manifest = example(warnings=[HOSTILE])
    data = json.loads(manifest.to_json())

    def spoil(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {k: spoil(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [spoil(one, key) for one in value]
        return HOSTILE if isinstance(value, str) and key in texts else value

    # All other texts have a form, which nothing hostile has.
    texts = {"description", "note", "reference", "rule", "ops", "nodes", "needed", "warnings"}
    spoiled = spoil(data)
    assert isinstance(spoiled, dict)
    for tensor in (*spoiled["inputs"], *spoiled["outputs"]):
        tensor["name"] = HOSTILE
    spoiled["model"]["file"] = HOSTILE.replace("/", "")
    (root / "manifest.json").write_text(json.dumps(spoiled), encoding="utf-8")
    return root


def _hostile_model(path: Path) -> Path:
    shape = [HOSTILE, 3]
    graph = helper.make_graph(
        [helper.make_node("Relu", [HOSTILE], ["t"], name=HOSTILE), helper.make_node(HOSTILE, ["t"], ["y"])],
        HOSTILE,
        [helper.make_tensor_value_info(HOSTILE, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, producer_name=HOSTILE, opset_imports=opsets), str(path))
    return path


def _plain(text: str) -> None:
    assert text
    assert not re.search(
        r"[^\n\x20-\U0010ffff]|[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]", text
    )
    assert not re.search(r"^warning: b", text, re.MULTILINE), "a name begins a line of its own"


@pytest.mark.parametrize(
    "arguments", [["inspect", "--kernels"], ["inspect", "--json"], ["verify"], ["bench"]]
)
def test_commands_of_bundles_print_no_byte_that_acts(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*arguments, str(_hostile_bundle(tmp_path / HOSTILE.replace("/", "")))])
    captured = capsys.readouterr()
    assert code == (0 if arguments[0] == "inspect" else 1)
    _plain(captured.out + captured.err)
    if "--json" in arguments:
        data = json.loads(captured.out)
        assert data["inputs"][0]["name"] == data["warnings"][0] == HOSTILE


def test_a_models_summary_prints_no_byte_that_acts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(_hostile_model(tmp_path / (HOSTILE.replace("/", "") + ".onnx")))]) == 0
    captured = capsys.readouterr()
    _plain(captured.out + captured.err)


@pytest.mark.parametrize("ok", [True, False])
def test_what_check_found_prints_no_byte_that_acts(ok: bool) -> None:
    found = ModelCheck(
        ok,
        model=HOSTILE,
        device=HOSTILE,
        message=HOSTILE,
        hint=HOSTILE,
        refused=(Refused(HOSTILE, (HOSTILE,), HOSTILE),),
        steps=(CheckedStep(HOSTILE, (HOSTILE,), (HOSTILE,), 1, 1),),
        warnings=(HOSTILE,),
    )
    _plain(_shown(found, 1.0))


@pytest.mark.parametrize(
    "arguments", [["devices"], ["doctor", "--device"], ["devices", "--json"], ["pack", "-d"]]
)
def test_commands_of_devices_print_no_byte_that_acts(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    text = json.dumps(HOSTILE)
    file = tmp_path / "board\x1b[2J.yaml"
    file.write_text(
        f"extends: linux-aarch64\ndescription: {text}\nrunner: {{program: {text}}}\ntoolchain: gcc\n"
    )
    (tmp_path / "bad.yaml").write_text(f"extends: {text}\n")
    named = {"doctor": [str(file)], "pack": [str(tmp_path / "bad.yaml"), "no-model"]}.get(arguments[0], [])
    main([*arguments, *named])
    captured = capsys.readouterr()
    _plain(captured.out + captured.err)


def test_a_wrong_argument_is_repeated_without_what_acts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "x.onnx", "--shape", f"\x1b[2J{HOSTILE}"]) == 2
    assert main(["\x1b[2J"]) == 2
    _plain(capsys.readouterr().err)


def test_bold_is_the_only_style_and_names_have_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgepack.cli.output._styled", lambda: True)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    say(table([["\x1b[1ma\n"]], header=[HOSTILE]) + "\n" + heading("\x1b[0mb"))
    out = capsys.readouterr().out
    assert (out.count("\x1b[1m"), out.count("\x1b[0m"), out.count("\x1b")) == (2, 2, 4)


def test_no_command_prints_by_another_way() -> None:
    folder = Path(sys.modules["edgepack.cli.output"].__file__ or "").parent
    for path in folder.glob("*.py"):
        found = re.findall(r"\bclick\.echo\(|\bprint\(|\.write\(", path.read_text(encoding="utf-8"))
        # What a signal's end says holds no name; the table of a release says what is printable().
        allowed = {
            "output.py": ["click.echo("],
            "signals.py": ["print("],
            "release_display.py": ["print("],
            "streams.py": [".write(", "print("],  # the stream that all others print on, and its own failure
        }.get(path.name, [])
        assert found == allowed, path.name


def test_a_terminal_of_another_encoding_gets_all_that_it_can_show(small_bundle: Bundle) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from edgepack.cli.output import say; say('Größe \\udc80 尺')"],
        env={"PYTHONIOENCODING": "latin-1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode("latin-1").strip() == "Größe \\udc80 \\u5c3a"
