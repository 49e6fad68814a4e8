"""Bundles whose manifest or program say what none would: that is one sentence, never an internal error."""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import Bundle
from edgepack.bundle.limits import check_limits
from edgepack.bundle.manifest import load_manifest
from edgepack.cli.main import main
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError, EdgepackError, ToolchainError
from edgepack.runners.base import host_os
from tests.runners.test_recorded import bundle
from tests.support.manifest import example


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


#: What takes the place of a field.
VALUES: tuple[Any, ...] = (
    *(None, -1, 0, 2**62, 2**70, 10**400, 1e308, -1e308, 5e-324, "", "x\x1b\n", "9" * 5000, True),
    *([], {}, ["a", 1], [[1]], {"needed": 5}, {"needed": [1, [2]], "exported": {}}),
    *(_nested(20), _nested(30), _nested(100), _nested(300), _nested(900), {"a": _nested(250)}),
)


def _full() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(example().to_json())
    data["footprint"] = {"parts": [{"name": "a", "flash": 1, "ram": 2, "note": "n"}], "flash": 1, "ram": 2}
    code = {key: data[key] for key in ("memory", "kernels", "steps")}
    return {**data, "variants": [{"name": "v", **code}]}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield from _places(inner, (*path, key))


@pytest.mark.parametrize("cases", [250, pytest.param(None, marks=pytest.mark.slow)])
def test_a_manifest_with_any_field_replaced_is_shown_or_refused(
    cases: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = list(itertools.product(_places(_full()), VALUES, ([], ["--json"], ["--kernels"])))
    for place, value, options in random.Random(14).sample(every, cases or len(every)):
        data = copy.deepcopy(_full())
        owner = data
        for key in place[:-1]:
            owner = owner[key]
        owner[place[-1]] = value
        (tmp_path / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
        code = main(["inspect", str(tmp_path), *options])
        captured = capsys.readouterr()
        assert code in (0, 2), (place, str(value)[:60], options, captured.err)
        if code == 0 and options == ["--json"]:
            json.loads(captured.out)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [{"b": 2**63}]}, "more than 63 bits"),
        ([-(10**400)], "more than 63 bits"),
        ({"a": 1e999}, "not finite"),
        ([[float("nan")]], "not finite"),
        (_nested(33), "nested more than 32 deep"),
    ],
)
def test_bounds_of_what_others_say(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_limits(data)
    check_limits([_nested(30), 2**63 - 1, -(2**63), 1e308, "text", None, True, {}])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
@pytest.mark.parametrize("name", ["manifest.json", "SHA256SUMS"])
def test_a_pipe_or_a_device_in_the_place_of_a_file_is_not_waited_for(name: str, tmp_path: Path) -> None:
    root = bundle(tmp_path / "bundle", {})
    manifest = load_manifest(root)
    (root / name).unlink()
    os.mkfifo(root / name)

    def read() -> None:
        if name == "manifest.json":
            load_manifest(root)
        else:
            from edgepack.bundle.checksums import check_sums

            check_sums(root, manifest)

    for _ in range(2):
        with pytest.raises(
            EdgepackError, match=r"cannot be read: .*not a regular file|cannot be read: Invalid"
        ):
            read()
        (root / name).unlink()
        (root / name).symlink_to("/dev/zero")


OUTPUT = {
    "name": "y",
    "max_abs_err": 0,
    "max_abs_ref": 1,
    "atol": 0,
    "rtol": 0,
    "elements": 6,
    "mismatches": 0,
}
SAID = {"status": "ok", "threads": 1, "outputs": [OUTPUT]}
TIMES = {
    "status": "ok",
    "threads": 1,
    "load_ms": 1,
    "first_result_ms": 1,
    "peak_rss_bytes": 1,
    "arena_bytes": 1,
}


@pytest.mark.skipif(host_os() != "linux", reason="the program is a script of this machine")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        *(("verify", {key: value for key, value in SAID.items() if key != missing}) for missing in SAID),
        ("verify", {**SAID, "threads": "many"}),
        ("verify", {**SAID, "threads": 10**400}),
        ("verify", {**SAID, "outputs": 3}),
        ("verify", {**SAID, "outputs": [{**OUTPUT, "elements": None}]}),
        ("verify", {**SAID, "outputs": [{**OUTPUT, "max_abs_err": []}]}),
        ("verify", {**SAID, "outputs": []}),
        ("verify", {**SAID, "more": _nested(900)}),
        ("verify", "[" * 100_000),
        ("verify", [1]),
        ("verify", "\x1b[2J"),
        ("bench", {**TIMES, "runs_ms": []}),
        ("bench", {**TIMES, "runs_ms": [1.0] * 3}),
        ("bench", {**TIMES, "runs_ms": "12"}),
        ("bench", {**TIMES, "runs_ms": [1e999, 1]}),
        ("bench", {**TIMES, "runs_ms": [1, 1], "peak_rss_bytes": 10**400}),
        ("bench", {**TIMES, "runs_ms": [1, 1], "steps_us": [1] * 9}),
    ],
)
def test_whatever_a_program_prints_is_a_result_or_one_sentence(
    command: str, said: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = load_device("host")
    kind = {"arch": machine.arch, "os": machine.os, "libc": machine.libc, "runner": {"name": "native"}}
    root = bundle(tmp_path / "bundle", kind, 'cat "$0.txt"')
    (root / "bin" / "net.txt").write_text(said if isinstance(said, str) else json.dumps(said))
    arguments = [command, str(root), *(["--runs", "2"] if command == "bench" else [])]
    assert main(arguments) == 1
    assert main([*arguments, "--json"]) == 1
    assert capsys.readouterr().err.replace("\n", "").isprintable()


@pytest.mark.skipif(host_os() != "linux", reason="the program is a script of this machine")
def test_what_it_prints_when_all_is_well_is_a_result(tmp_path: Path) -> None:
    machine = load_device("host")
    kind = {"arch": machine.arch, "os": machine.os, "libc": machine.libc, "runner": {"name": "native"}}
    root = bundle(tmp_path / "bundle", kind, 'cat "$0.$1"')
    (root / "bin" / "net.verify").write_text(json.dumps(SAID))
    (root / "bin" / "net.bench").write_text(json.dumps({**TIMES, "runs_ms": [1, 2], "steps_us": [5]}))
    assert Bundle(root).verify().ok
    assert Bundle(root).bench(runs=2, profile=True).steps_us == (5.0,)
    with pytest.raises(CheckFailedError, match="measured 2 runs, not 3"):
        Bundle(root).bench(runs=3)


def test_a_step_without_a_kernel_is_told() -> None:
    from edgepack.runners.profile import profile_entries

    manifest = example(steps=[{"kernel": "other", "tasks": 1}])
    with pytest.raises(ConfigError, match="name the kernel 'other', which it has not"):
        profile_entries(manifest, [1.0])


@pytest.mark.skipif(host_os() != "linux", reason="the program is a script of this machine")
def test_a_program_that_prints_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack.system.process._MOST_PRINTED", 1 << 20)
    machine = load_device("host")
    kind = {"arch": machine.arch, "os": machine.os, "libc": machine.libc, "runner": {"name": "native"}}
    root = bundle(tmp_path / "bundle", kind, "while :; do head -c 200000 /dev/zero; sleep 0.05; done")
    with pytest.raises(ToolchainError, match="net printed more than 1 MiB, and was ended"):
        Bundle(root).verify(timeout=60)
