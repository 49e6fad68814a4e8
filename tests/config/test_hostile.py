"""A file of somebody else's does no more than be refused, with file and line: it takes no interpreter down,
does not hang, fills no memory, and gives no path."""

from __future__ import annotations

import os
import random
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest

from edgepack.config.custom import load_custom
from edgepack.config.device import DEVICES, load_device, resolve_device
from edgepack.config.document import parse
from edgepack.config.show import as_yaml
from edgepack.config.toolchain import TOOLCHAINS, load_toolchain, resolve_toolchain
from edgepack.errors import ConfigError

# case: text of a device file, what the message says behind the file
DEVICES_OF_OTHERS: dict[str, tuple[str, str]] = {
    "50,000 brackets": ("llvm: " + "[" * 50_000, r":1: more than 32 lists"),
    "50,000 braces": ("a:\n " + "{a: " * 50_000, r":2: more than 32 lists"),
    "3,000 nested maps": ("".join(f"{' ' * n}k:\n" for n in range(500)), r":33: more than 32 lists"),
    "sequences in sequences": ("a: " + "- " * 3_000, r":1: "),
    "40,000 keys": ("".join(f"k{n}: 1\n" for n in range(40_000)), r"\(it has more than 262144 bytes\)"),
    "4,000 keys": ("".join(f"k{n}: 1\n" for n in range(4_000)), r":\d+: more than 2000 values in one file"),
    "a name that leads out": (
        'extends: raspberrypi4\nname: "../../x"\n',
        r":2: name: '../../x' is not a name",
    ),
    "an absolute name": ("extends: raspberrypi4\nname: /tmp/x\n", r":2: name: '/tmp/x' is not a name"),
    "a name of dots": ('extends: raspberrypi4\nname: ".."\n', r":2: name: '..' is not a name"),
    "a name like an option": ("extends: raspberrypi4\nname: --force\n", r":2: name: '--force' is not a name"),
    "a long name": (f"extends: raspberrypi4\nname: {'x' * 300}\n", r":2: name: 'x{80}' is not a name"),
    "an empty name": ('extends: raspberrypi4\nname: ""\n', r":2: name: '' is not a name"),
    "a name of two lines": ('extends: raspberrypi4\nname: "a\\nb"\n', r":2: name: 'a\\nb' is not a name"),
    "a name that colours": (
        'extends: raspberrypi4\nname: "\\e[31mx"\n',
        r":2: name: holds the character '\\x1b'",
    ),
    "a NUL": (
        'extends: raspberrypi4\nrunner:\n  program: "a\\0b"\n',
        r":3: runner.program: holds the character",
    ),
    "half of a character": ('extends: raspberrypi4\ndescription: "\\ud800"\n', r":2: "),
    "a NUL itself": ("extends: raspberrypi4\nthreads: 1\0\n", r":\d: is not valid YAML"),
    "a key with a NUL": ('extends: raspberrypi4\n"thr\\0eads": 1\n', r":2: holds the character"),
    "a large number": (
        f"extends: raspberrypi4\nthreads: {'9' * 5000}\n",
        r":2: threads: '9{80}' is not a valid int",
    ),
    "a large hexadecimal": (
        f"extends: raspberrypi4\nthreads: 0x{'f' * 9000}\n",
        r":2: threads: '0xf+' is not a valid",
    ),
    "a large size": (
        "extends: raspberrypi4\ncpu:\n  l1d: 99999999999 GiB\n",
        r":3: cpu.l1d: '99999999999 GiB' is more",
    ),
    "a size of 400 digits": (
        f"extends: raspberrypi4\ncpu:\n  l1d: {'9' * 400} GiB\n",
        r":3: cpu.l1d: '9+' is more",
    ),
    "a size that is no number": (
        "extends: raspberrypi4\npage_size: .nan\n",
        r":2: page_size: '.nan' is not a valid float",
    ),
    "infinity": ("extends: raspberrypi4\nthreads: 1e999\n", r":2: threads: '1e999' is not a valid float"),
    "a long time": (
        "extends: raspberrypi4\nrunner: {timeout: 99999999999999}\n",
        r":2: runner.timeout: must be",
    ),
    "no variable": (
        "extends: raspberrypi4\nrunner: {environment: {A=B: x}}\n",
        r":2: runner.environment.A=B",
    ),
    "a base of nobody's": ("extends: ~nobody-of-this-name/x.yaml\n", r":1: extends: there is no device file"),
    "a base with a long name": (f"extends: {'x' * 5000}\n", r":1: extends: there is no device 'xxx"),
    "a base with a long path": (f"extends: ./{'x' * 5000}.yaml\n", r":1: extends: there is no device file"),
    "a base that is a device": ("extends: /dev/zero\n", r":1: extends: there is no device file"),
    "a merge key": ("extends: raspberrypi4\n<<: {threads: 3}\n", r":2: <<: unknown key"),
    "a tag": ("extends: !!python/object/apply:os.system [id]\n", r":1: extends: the tag"),
    "two documents": ("extends: raspberrypi4\n---\nthreads: 1\n", r":\d: is not valid YAML"),
    "a long value": (
        f"extends: raspberrypi4\ndescription: {'x' * 20_000}\n",
        r":2: description: has more than",
    ),
    "a long unknown key": (f"extends: raspberrypi4\n{'x' * 900}: 1\n", r":2: x{300}\.\.\."),
    "a glibc of the far future": (
        f"extends: raspberrypi4\naudit: {{glibc: '{'9' * 4400}.1'}}\n",
        r":2: audit.glibc: ",
    ),
    "a library that is an option": (
        "extends: raspberrypi4\nlibraries: [m, '-Wl,-x']\n",
        r":2: libraries.1: .*found '-Wl,-x'",
    ),
    "a library that is a line": (
        "extends: raspberrypi4\nlibraries: ['m\"];\\timport os']\n",
        r":2: libraries.0: ",
    ),
    "a library of two lines": ('extends: raspberrypi4\nlibraries: ["m\\nEvil: yes"]\n', r":2: libraries.0: "),
    "a triple of nothing": ("extends: raspberrypi4\nllvm: {triple: ''}\n", r":2: llvm.triple: "),
}


@pytest.mark.parametrize("case", DEVICES_OF_OTHERS)
def test_a_hostile_device_is_refused_with_file_and_line(case: str, tmp_path: Path) -> None:
    text, message = DEVICES_OF_OTHERS[case]
    path = tmp_path / "theirs.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError) as caught:
        load_device(path)
    found = caught.value.message
    assert re.match(re.escape(str(path)) + (message if message[0] == ":" else ".*" + message), found), found
    assert len(found) < 6_000
    assert found.isprintable()


TOOLCHAINS_OF_OTHERS: dict[str, tuple[str, str]] = {
    "an empty command": (
        'family: zig\nexecutables: {zig: [""]}\n',
        r":2: executables.zig.0: '' is not a command",
    ),
    "a blank command": (
        'family: zig\nexecutables: {zig: ["  "]}\n',
        r":2: executables.zig.0: .* names no program",
    ),
    "an empty word": (
        "family: zig\nexecutables: {zig: [\"''\"]}\n",
        r":2: executables.zig.0: .* names no program",
    ),
    "an unclosed quote": (
        'family: zig\nexecutables:\n  zig: ["\'zig"]\n',
        r":3: executables.zig.0: .* no closing",
    ),
    "no module": (
        'family: zig\nexecutables: {zig: ["{python} -m"]}\n',
        r":2: executables.zig.0: .* no module",
    ),
    "a module of one": ('family: zig\nexecutables: {zig: ["{python} -m a.b"]}\n', r":2: executables.zig.0: "),
    "no variable": ("extends: zig\nenvironment: {'': x}\n", r":2: environment"),
    "a long time": ("extends: zig\ntimeout: 99999999999999\n", r":2: timeout: must be"),
    "a name that leads out": ('extends: zig\nname: "../x"\n', r":2: name: '../x' is not a name"),
}


@pytest.mark.parametrize("case", TOOLCHAINS_OF_OTHERS)
def test_a_hostile_toolchain_is_refused_with_file_and_line(case: str, tmp_path: Path) -> None:
    text, message = TOOLCHAINS_OF_OTHERS[case]
    path = tmp_path / "theirs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_toolchain(path)
    assert re.match(re.escape(str(path)) + message, caught.value.message), caught.value.message


def test_a_chain_of_1500_files_is_refused(tmp_path: Path) -> None:
    for number in range(1500):
        (tmp_path / f"d{number}.yaml").write_text(f"extends: ./d{number + 1}.yaml\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="more than 16 files that extend each other"):
        load_device(tmp_path / "d0.yaml")


def test_a_chain_of_ten_files_is_not(tmp_path: Path) -> None:
    for number in range(10):
        text = f"extends: ./d{number + 1}.yaml\n" if number < 9 else "extends: raspberrypi4\n"
        (tmp_path / f"d{number}.yaml").write_text(text, encoding="utf-8")
    assert load_device(tmp_path / "d0.yaml").llvm.cpu == "cortex-a72"


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices are POSIX's")
@pytest.mark.parametrize("what", ["pipe", "endless", "large", "folder"])
def test_what_is_no_file_is_not_read(what: str, tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "endless":
        path.symlink_to("/dev/zero")
    elif what == "large":
        path.touch()
        os.truncate(path, 1 << 30)
    else:
        path.mkdir()
    for load in (load_device, load_toolchain, load_custom):
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            load(path)


@pytest.mark.parametrize(
    "name", ["x" * 5000, "a\0b", "x" * 5000 + "/y", "~nobody-of-this-name/x.yaml", "\ud800"]
)
def test_a_name_that_no_file_can_have_is_unknown(name: str) -> None:
    with pytest.raises(ConfigError, match="there is no device"):
        load_device(name)


def test_a_folder_that_cannot_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [str(tmp_path / "file"), "~nobody-of-this-name", "x" * 5000]
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", os.pathsep.join(places))
    assert "raspberrypi4" in DEVICES.names()
    assert load_device("raspberrypi4").name == "raspberrypi4"


@pytest.mark.skipif(os.name != "posix", reason="elsewhere all names are text")
def test_a_device_whose_path_is_no_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/ger\xe4t.yaml"))
    try:
        path.write_text("extends: raspberrypi4\n", encoding="utf-8")
    except OSError:
        pytest.skip("this file system takes no such names")
    assert load_device(path).name == "ger\ufffdt"
    path.write_text("extends: raspberrypi4\nthreads: x\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="threads"):
        load_device(path)


def test_merging_large_files_is_not_quadratic() -> None:
    """Two of as many values as are allowed, in less than a tenth of what comparing each with each takes."""
    from edgepack.config.document import merge

    base = parse("\n".join(f"a{n}: {{x: 1}}" for n in range(900)), "a.yaml")
    over = parse("\n".join(f"b{n}: {{x: 1}}" for n in range(900)), "b.yaml")
    seen = 0

    class Counted(dict):  # type: ignore[type-arg]
        def items(self):  # type: ignore[no-untyped-def]
            nonlocal seen
            for item in super().items():
                seen += 1
                yield item

    object.__setattr__(base, "origins", Counted(base.origins))
    merged = merge(base, over)
    assert len(merged.data) == 1800
    assert seen <= 2 * len(base.origins)


#: What is put in the place of a part of a built-in file.
_VALUES = (
    *(
        "[",
        "]",
        "{",
        "}",
        "[" * 40,
        "{a: " * 40,
        "&a",
        "*a",
        "!!python/name:os.system",
        "!!int",
        "? ",
        "- ",
        "| ",
        ">",
    ),
    *(
        '"',
        "'",
        '""',
        "~",
        "null",
        "true",
        "no",
        ".nan",
        ".inf",
        "-.inf",
        "1e999",
        "-1",
        "0",
        "9" * 30,
        "0x" + "f" * 30,
    ),
    *(
        '"\\0"',
        '"\\e[2J"',
        '"\\ud83d"',
        "../../x",
        "/dev/zero",
        "~root",
        "~nobody-of-this-name",
        "é",
        "\u2028",
        "\0",
    ),
    *(
        "x" * 400,
        "extends",
        "extends: host",
        "detect: true",
        "name: ..",
        "---",
        "...",
        "%YAML 9.9",
        "\t",
        "\r",
        "\ufeff",
    ),
    *("99999999999 GiB", "1.5 B", "{python} -m", "{target}", "{0}", "%s", "#", ": ", "a: b: c", "<<", "="),
)


def _mutated(text: str, draw: random.Random) -> str:
    for _ in range(draw.randint(1, 4)):
        lines = text.split("\n")
        line = draw.randrange(len(lines))
        match draw.randrange(7):
            case 0:
                lines.insert(line, draw.choice(lines))
            case 1:
                del lines[line]
            case 2:
                lines[line] = " " * draw.randrange(9) + lines[line].lstrip()
            case 3:
                key, colon, _ = lines[line].partition(":")
                lines[line] = f"{key}{colon} {draw.choice(_VALUES)}"
            case 4:
                lines.insert(line, f"{draw.choice(_VALUES)}: {draw.choice(_VALUES)}")
            case 5:
                at = draw.randrange(len(lines[line]) + 1)
                lines[line] = lines[line][:at] + draw.choice(_VALUES) + lines[line][at:]
            case _:
                at = draw.randrange(len(lines[line]) + 1)
                lines[line] = lines[line][:at] + chr(draw.randrange(0x250)) + lines[line][at + 1 :]
        text = "\n".join(lines)
    return text


CUSTOM = """operators:
  - operator: Clamp
    domain: acme
    symbol: acme_clamp
    source: clamp.c
    outputs: [{shape: [1, "inputs[0][1]"], dtype: float32}]
    arguments: ["inputs[0].size", 3, 1.5]
    reference: clamp.py:clamp
"""


def _fuzz_custom(seeds: range, folder: Path) -> None:
    (folder / "clamp.c").touch()
    (folder / "clamp.py").touch()
    path = folder / "custom.yaml"
    for seed in seeds:
        path.write_bytes(_mutated(CUSTOM, random.Random(seed)).encode("utf-8", "replace"))
        with suppress(ConfigError):
            load_custom(path)


def _fuzz(seeds: range, folder: Path) -> int:
    """How many of the mutated files still are what they were."""
    built_in = [
        (kind, path) for kind in (DEVICES, TOOLCHAINS) for path in sorted(kind.directory.glob("*.yaml"))
    ]
    good = 0
    for seed in seeds:
        draw = random.Random(seed)
        kind, original = draw.choice(built_in)
        path = folder / f"{original.stem}-{seed}.yaml"
        path.write_bytes(_mutated(original.read_text(encoding="utf-8"), draw).encode("utf-8", "replace"))
        start = time.monotonic()
        try:
            resolved = resolve_device(path) if kind is DEVICES else resolve_toolchain(path)
        except ConfigError as error:
            assert error.message, seed
        else:
            as_yaml(resolved)  # type: ignore[arg-type]
            good += 1
        assert time.monotonic() - start < 10, f"seed {seed} takes long"
        path.unlink()
    return good


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    good = _fuzz(range(300), tmp_path)
    assert 10 < good < 290
    _fuzz_custom(range(100), tmp_path)


@pytest.mark.slow
def test_many_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    assert _fuzz(range(1_000, 31_000), tmp_path) > 1_000
    _fuzz_custom(range(1_000, 11_000), tmp_path)
