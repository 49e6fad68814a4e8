"""The project file: what it may say, what it means, and that mistakes are named with file, line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from edgepack.errors import ConfigError
from edgepack.release.index import SCHEMA_FILE as INDEX_SCHEMA
from edgepack.release.index import json_schema
from edgepack.release.matrix import units_of
from edgepack.release.project import SCHEMA_FILE, schema_text
from edgepack.release.project_file import load_project
from edgepack.release.starter import new_project

TEXT = """\
name: fleet
version: 1.2.0
authors: [Ada <ada@example.org>]
models:
  net: {path: net.onnx, params: embed, summary: Finds cats}
  other: {path: net.onnx, inputs: {x: x.npy}, opt_level: 1, tuned: [net.onnx, ./x.npy]}
devices:
  linux-aarch64:
  raspberrypi4:
    formats: [zip, tar.gz]
  my-board:
    extends: linux-aarch64
    cpu: {l2: 512 KiB}
matrix:
  exclude: ["other@raspberry*"]
  overrides:
    - match: "net@*"
      optimize: size
      budgets: {text: 30 kB}
    - match: "net@my-board"
      params: caller
      tuned: [x.npy]
      formats: []
      budgets: {arena: 1 MiB}
budgets: {text: 1 MB, slower: 5}
"""


def write(folder: Path, text: str = TEXT) -> Path:
    for name in ("net.onnx", "x.npy"):
        (folder / name).touch()
    (folder / "edgepack.yaml").write_text(text, encoding="utf-8")
    return folder / "edgepack.yaml"


def test_the_matrix_is_what_the_file_says(tmp_path: Path) -> None:
    loaded = load_project(write(tmp_path))
    units = {unit.name: unit for unit in units_of(loaded)}
    assert list(units) == [
        *("net@linux-aarch64", "other@linux-aarch64", "net@raspberrypi4"),
        *("net@my-board", "other@my-board"),
    ]
    mine, other = units["net@my-board"], units["other@my-board"]
    assert (mine.options.params, mine.options.optimize, mine.formats) == ("caller", "size", ())
    assert (mine.budgets.text, mine.budgets.arena, mine.budgets.slower) == (30_000, 1 << 20, 5.0)
    assert (other.options.params, other.options.optimize) == (None, "latency")
    assert (mine.options.opt_level, other.options.opt_level) == (3, 1)
    assert other.options.inputs == {"x": tmp_path / "x.npy"}
    assert units["net@raspberrypi4"].formats == ("zip", "tar.gz")
    assert units["net@raspberrypi4"].profile.llvm.cpu == "cortex-a72"
    assert (mine.profile.name, mine.profile.cpu.l2, mine.profile.arch) == ("my-board", 512 << 10, "aarch64")
    assert mine.options.tuned == (tmp_path / "x.npy",)
    assert other.options.tuned == (tmp_path / "net.onnx", tmp_path / "x.npy")
    assert units["net@raspberrypi4"].options.tuned == ()
    assert (mine.package.version, mine.package.summary) == ("1.2.0", "Finds cats")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1.2.0", "1.2", r":2: version: must be a text, found 1\.2"),
        ("1.2.0", "'1.2'", r":2: version: '1\.2' is no version of a package"),
        ("net: {path", "class: {path", r":5: models\.class: The name 'class' is reserved"),
        (
            "path: net.onnx, params",
            "path: no.onnx, params",
            r":5: models\.net\.path: there is no file .*no\.onnx",
        ),
        ("./x.npy", "y.npy", r":6: models\.other\.tuned\.1: there is no file .*y\.npy"),
        ("tuned: [x.npy]", "tuned: [y]", r":22: matrix\.overrides\.1\.tuned\.0: there is no file"),
        ("tuned: [x.npy]", "tuned: x.npy", r":22: matrix\.overrides\.1\.tuned: must be a list"),
        ("x.npy", "y.npy", r":6: models\.other\.inputs\.x: there is no file"),
        ("l2: 512", "l4: 512", r":13: cpu\.l4: unknown key"),
        ("extends: linux-", "extends: limux-", r":12: extends: there is no device 'limux-aarch64'"),
        ("  linux-aarch64:\n", "  linux-arch64:\n", r":8: devices\.linux-arch64: there is no device"),
        ("  linux-aarch64:\n", "  x/y.yaml:\n", r":8: devices\.x/y\.yaml: 'x/y\.yaml' is not a name"),
        ("  linux-aarch64:\n", "  y.yaml:\n", r":8: devices\.y\.yaml: 'y\.yaml' is not a name"),
        (
            "  my-board:",
            "  LINUX-aarch64: {extends: host}\n  my-board:",
            r":7: devices: .* are the same name",
        ),
        ("other: {path", "Net: {path", r":4: models: 'net' and 'Net' are the same name on some file systems"),
        ("embed", "embedd", r":5: models\.net\.params: must be 'file', 'embed' or 'caller', found 'embedd'"),
        ("raspberry*", "strawberry*", r":15: matrix\.exclude\.0: 'other@strawberry\*' matches no model"),
        ("formats: []", "formats: [zap]", r":23: formats: There is no package format 'zap'"),
        (
            "formats: [zip, tar.gz]",
            "formats: [zap]",
            r":10: devices\.raspberrypi4\.formats: There is no package format 'zap'",
        ),
        ("text: 30 kB", "txt: 3", r":19: matrix\.overrides\.0\.budgets\.txt: unknown key"),
        ('exclude: ["other@raspberry*"]', 'exclude: ["*"]', r":14: matrix: nothing is left of it"),
        ("Ada <ada@example.org>", '"A\\nEvil: 1"', r":3: authors: 'A\\nEvil: 1' is no author"),
        ("slower: 5", "slower: -5", r":25: budgets\.slower: "),
        ("budgets: {text: 1", "signing: {password_env: A}\nbudgets: {text: 1", r":25: signing: give key"),
        ("name: fleet\nversion: 1", "nmae: fleet\nversion: 1", r":1: nmae: unknown key"),
        ("net: {path", "net: a.onnx\n  b: {path", r":5: models\.net: must be a mapping, found 'a\.onnx'"),
        ("name: fleet", "name: a/b", r":1: name: 'a/b' is not a name"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_field(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in TEXT
    path = write(tmp_path, TEXT.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        units_of(load_project(path))
    assert re.search(message, caught.value.message), caught.value.message


def test_what_is_misspelt_comes_before_what_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT.replace("name:", "nmae:").replace("devices:", "devcies:"))
    with pytest.raises(ConfigError) as caught:
        load_project(path)
    assert caught.value.hint.startswith("Did you mean 'name'? Allowed here: name, version,")
    first, *others = caught.value.detail.splitlines()
    assert first == f"{path}:7: devcies: unknown key; did you mean 'devices'?"
    assert others[-2:] == [f"{path}:1: name: is missing", f"{path}:1: devices: is missing"]
    with pytest.raises(ConfigError, match=r"There is no project file .*none\.yaml") as caught:
        load_project(tmp_path / "none.yaml")
    assert "edgepack new" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["../evil", "a b", "*/", "int", 'a"b', "a\\nb", "x" * 300, "größe", "a__b", "_", "", "con/../x"]
)
def test_a_name_that_is_no_identifier_names_no_model(name: str, tmp_path: Path) -> None:
    key = json.dumps(name.replace("\\n", "\n"))
    with pytest.raises(ConfigError, match=r"edgepack\.yaml:\d+: "):
        load_project(write(tmp_path, TEXT.replace("  net: {", f"  {key}: {{")))


@pytest.mark.parametrize(
    "name", ["../evil", "a/b", 'a"b', "a\nb", ".hidden", "x" * 101, "a*", "c:", "é\u202e"]
)
def test_a_name_that_is_no_folder_names_no_device(name: str, tmp_path: Path) -> None:
    key = json.dumps(name, ensure_ascii=False)
    text = TEXT.replace("  my-board:", f"  {key}:").replace("net@my-board", "net@*")
    with pytest.raises(ConfigError, match=r"edgepack\.yaml:\d+: "):
        load_project(write(tmp_path, text))


def test_the_schemas_are_those_of_the_models() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "run python -m edgepack.release.project"
    assert INDEX_SCHEMA.read_text(encoding="utf-8") == json_schema(), "run python -m edgepack.release.index"


def test_the_schema_takes_what_loads_and_finds_mistakes(tmp_path: Path) -> None:
    import jsonschema

    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(yaml.safe_load(TEXT))
    for old, new in (("l2: 512", "l4: 512"), ("embed", "embedd"), ("budgets: {arena", "budget: {arena")):
        assert not validator.is_valid(yaml.safe_load(TEXT.replace(old, new)))


def test_a_new_project_loads_and_editors_find_its_schema(small_model: Path, tmp_path: Path) -> None:
    import jsonschema

    hostile = tmp_path / 'a "quoted" folder, é'
    path = new_project(hostile, small_model)
    text = path.read_text(encoding="utf-8")
    found = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert found is not None
    schema = json.loads((hostile / found[1]).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))
    (unit, *_) = units_of(load_project(hostile))
    assert unit.path.samefile(small_model)
    with pytest.raises(ConfigError, match="exists"):
        new_project(hostile)
    with pytest.raises(ConfigError, match=r"models\.model_model\.path: there is no file"):
        load_project(new_project(tmp_path / "empty"))
