"""What a program, or a board in its place, prints in the place of a result: one sentence, whatever it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.api import Bundle
from edgepack.bundle.manifest import Manifest
from edgepack.cli.main import main
from edgepack.errors import CheckFailedError
from edgepack.runners.base import host_os
from edgepack.runners.bench import BenchOptions, bench
from edgepack.runners.verify import verify

pytestmark = pytest.mark.skipif(host_os() == "windows", reason="the bundle's program becomes a shell script")

OUTPUT = {
    **{"name": "y", "max_abs_err": 0, "max_abs_ref": 1, "atol": 1e-6, "rtol": 1e-3},
    **{"elements": 10, "mismatches": 0},
}
VERIFIED = {"status": "ok", "threads": 1, "outputs": [OUTPUT]}
MEASURED = {
    **{"status": "ok", "threads": 1, "load_ms": 1, "first_result_ms": 1, "peak_rss_bytes": 1},
    **{"arena_bytes": 1, "runs_ms": [1.0]},
}
HUGE = "9" * 5000
ODD: list[Any] = [
    None,
    True,
    -1,
    1 << 62,
    1e308,
    "",
    "nan",
    HUGE,
    "\x1b[2J\n\u202e\x00",
    "x" * 70_000,
    [],
    [[]],
    {},
]


@pytest.fixture
def bundle(small_bundle: Bundle, tmp_path: Path) -> Bundle:
    """The small bundle, whose program prints the files that are named after its first argument."""
    place = tmp_path / "bundle"
    shutil.copytree(small_bundle.path, place)
    copy = Bundle(place)
    program = copy.manifest.artifact("program")
    assert program is not None
    (place / program.path).write_text(f'#!/bin/sh\ncat "{tmp_path}/$1"; exit 0\n')
    return copy


def answer(bundle: Bundle, **results: Mapping[str, Any] | str) -> None:
    for name, result in results.items():
        text = result if isinstance(result, str) else json.dumps(result)
        (bundle.path.parent / name).write_text(text)


def with_variant(bundle: Bundle) -> Manifest:
    return bundle.manifest.model_copy(update={"variants": (SimpleNamespace(name="avx2"),)})


def attempt(bundle: Bundle, *, variants: bool = False) -> None:
    """Verify and measure; a result or the right error."""
    manifest = with_variant(bundle) if variants else bundle.manifest
    for ask in (verify, bench):
        options = (BenchOptions(runs=1, warmup=0),) if ask is bench else ()
        try:
            ask(bundle.path, manifest, *options)  # type: ignore[operator]
        except CheckFailedError as error:
            assert len(error.message) < 2000 and len(str(error)) < 20_000
            assert str(error).replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize(
    "field", ["status", "threads", "outputs", "code", "message", "name", "elements", "atol", "load_ms"]
)
def test_a_field_that_is_something_else(bundle: Bundle, field: str) -> None:
    for value in ODD:
        output = {**OUTPUT, field: value} if field in OUTPUT else OUTPUT
        answer(
            bundle, verify={**VERIFIED, "outputs": [output], field: value}, bench={**MEASURED, field: value}
        )
        attempt(bundle)


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "3", '"ok"', "{", "[" * 100_000, '{"status": "ok"}', '{"status": {}}'),
        *(
            '{"status": "ok", "threads": 1e999}',
            '{"status": NaN}',
            '{"status": "\\ud800"}',
            f'{{"status": {HUGE}}}',
        ),
        *("\x1b[2J", "<html>", '{"status": "ok"}{"status": "ok"}', '{"a":' * 1000),
    ],
)
def test_a_text_that_is_no_result(bundle: Bundle, text: str) -> None:
    answer(bundle, verify=text, bench=text, info=text)
    attempt(bundle)


@pytest.mark.parametrize("code", [{}, [], None, "EP_E_OTHER", 3])
def test_a_refusal_of_a_variant_that_is_none(bundle: Bundle, code: Any) -> None:
    info = {"status": "ok", "variants": [{"name": "avx2", "missing_cpu_features": ""}]}
    answer(bundle, info=info, verify={"status": "no", "code": code, "message": {"a": "b"}})
    with pytest.raises(CheckFailedError, match="The bundle's program refused to run"):
        verify(bundle.path, with_variant(bundle))


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 200_000, "--other", "sse", "", "\x1b[2J"])
def test_a_variant_that_the_bundle_does_not_have_is_not_asked_for(bundle: Bundle, name: str) -> None:
    """Its name would be an argument of the program."""
    info = {"status": "ok", "variants": [{"name": name, "missing_cpu_features": ""}]}
    answer(bundle, info=info, verify=VERIFIED)
    with pytest.raises(CheckFailedError, match="a result that edgepack does not understand") as caught:
        verify(bundle.path, with_variant(bundle))
    assert len(str(caught.value)) < 2000


def test_a_message_of_any_length_is_a_sentence(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    answer(bundle, verify={"status": "no", "code": "E" * 1_000_000, "message": "\x1b[2J\n" * 1_000_000})
    assert main(["verify", str(bundle.path)]) == 1
    error = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("edgepack: error"))
    assert len(error) < 2000 and error.isprintable() and error.endswith(".")


def test_a_cpu_that_is_said_to_lack_anything(bundle: Bundle) -> None:
    answer(
        bundle,
        verify={"status": "no", "code": "EP_E_CPU", "message": "no"},
        info={"status": "ok", "missing_cpu_features": "x" * 1_000_000},
    )
    with pytest.raises(CheckFailedError, match="refused to run") as caught:
        verify(bundle.path, bundle.manifest)
    assert len(caught.value.message) < 2000
