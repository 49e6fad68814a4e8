"""The file of tuned schedules: written and read, merged, and refused in a sentence where it is damaged."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from edgepack.config import tuned
from edgepack.config.tuned import TunedFile, merge_tuned, read_tuned, tuned_digest, write_tuned
from edgepack.errors import ConfigError
from edgepack.plan.tuned import TunedChoice

A53, M4 = "aarch64 cortex-a53 latency", "thumbv7em cortex-m4 latency"
DENSE, CONV = "dense float32[1,64]", "conv2d int8[1,8,8,16] relu"


def choice(cpu: str = A53, group: str = DENSE, gain: float = 1.25, **more: Any) -> TunedChoice:
    return TunedChoice(
        cpu, group, "dense", more.pop("schedule", {"tile": [4, 8], "unroll": None}), gain, **more
    )


FILE = TunedFile(
    (choice(A53, CONV), choice(A53, DENSE, version="1.2.0"), choice(M4, DENSE, counted=True)),
    {A53: {DENSE: {"0a1b": 1.25, "ffee": 0.5}, CONV: {"0a1b": 1.0}}},
)


def test_what_is_written_is_read_and_written_again_as_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    write_tuned(path, TunedFile(FILE.choices[::-1], FILE.tried))
    assert read_tuned(path) == FILE
    before = path.read_bytes()
    write_tuned(path, read_tuned(path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["tuned.json"]
    assert FILE.for_cpus([M4, "other"]) == FILE.choices[2:] and FILE.cpus == (A53, M4)


def test_numbers_have_four_digits_and_each_value_a_line(tmp_path: Path) -> None:
    """So that a diff has the lines of what was measured anew."""
    write_tuned(
        path := tmp_path / "a", TunedFile((choice(gain=1.23456789),), {A53: {DENSE: {"x": 12.34567}}})
    )
    before = path.read_text(encoding="utf-8").splitlines()
    assert '   "gain": 1.235,' in before and '    "x": 12.35' in before
    write_tuned(path, TunedFile((choice(gain=1.5),), {A53: {DENSE: {"x": 12.34567, "y": 2}}}))
    after = path.read_text(encoding="utf-8").splitlines()
    assert set(after) - set(before) == {'   "gain": 1.5,', '    "x": 12.35,', '    "y": 2.0'}


def test_of_two_choices_the_measured_one_counts_then_the_faster_then_the_later() -> None:
    ranked = [
        choice(gain=9.0, counted=True, version="9.0.0"),
        choice(gain=1.0, version="9.9.0"),
        choice(gain=2.0, version="0.9.0"),
        choice(gain=2.0, version="0.10.0"),
    ]
    for files in itertools.permutations(ranked):
        assert merge_tuned([TunedFile((one,)) for one in files]).choices == (ranked[-1],)
    for worse, better in itertools.pairwise(ranked):
        assert merge_tuned([TunedFile((better,)), TunedFile((worse,))]).choices == (better,)
    alike = [choice(schedule={"tile": n}) for n in (1, 2)]
    assert merge_tuned([TunedFile((one,)) for one in alike]) == merge_tuned([TunedFile(tuple(alike[::-1]))])


def test_what_was_tried_is_united() -> None:
    more = TunedFile((choice(M4, CONV),), {A53: {DENSE: {"0a1b": 2.0, "new": 3.0}}, M4: {CONV: {"x": 1.0}}})
    merged = merge_tuned([FILE, more])
    assert merged == merge_tuned([more, FILE]) == merge_tuned([merged, FILE, more])
    assert merged.tried == {
        A53: {DENSE: {"0a1b": 2.0, "ffee": 0.5, "new": 3.0}, CONV: {"0a1b": 1.0}},
        M4: {CONV: {"x": 1.0}},
    }
    assert len(merged.choices) == 4


def test_a_group_that_a_merge_by_hand_left_twice_is_one(tmp_path: Path) -> None:
    entries = [one.to_json() for one in (choice(gain=1.5), choice(gain=2.5), choice(M4))]
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({"edgepack_tuned": 1, "choices": entries}), encoding="utf-8")
    assert read_tuned(path) == TunedFile((choice(gain=2.5), choice(M4)), {})


def test_the_digest_is_of_what_is_chosen_in_any_order() -> None:
    assert tuned_digest(FILE.choices) == tuned_digest(FILE.choices[::-1])
    others = [FILE.choices[:2], (choice(A53, CONV, schedule={"tile": [8, 4]}), *FILE.choices[1:])]
    assert len({tuned_digest(one) for one in (FILE.choices, *others)}) == 3


ENTRY = choice().to_json()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", ":1: is not JSON: Expecting value", "history"),
        ('{\n "edgepack_tuned": 1,\n "choices": [,]}', ":3: is not JSON: ", "history"),
        (
            '{\n<<<<<<< HEAD\n "a": 1\n=======\n "a": 2\n>>>>>>> b\n}',
            ":2: is not JSON: ",
            "both with --tuned",
        ),
        ("[]", "is no file of tuned schedules: it has no edgepack_tuned", ""),
        ('{"choices": []}', "it has no edgepack_tuned", ""),
        ('{"edgepack_tuned": 2}', "is of form 2; this edgepack reads form 1", "Install a later edgepack"),
        (
            '{"edgepack_tuned": 2, "choices": [{"version": "9.9"}, {"version": "9.10"}, {"version": 3}]}',
            "is of form 2",
            "Install edgepack 9.10,",
        ),
        ('{"edgepack_tuned": true}', "is of form True", ""),
        ('{"edgepack_tuned": 1}', "choices: is missing", ""),
        ('{"edgepack_tuned": 1, "choices": [], "choices": []}', "the key 'choices' is given twice", ""),
        ('{"edgepack_tuned": 1, "choices": NaN}', "NaN is not a number of JSON", ""),
        ('{"edgepack_tuned": 1, "choices": ' + "[" * 100_000, "nested too deep", ""),
        ('{"edgepack_tuned": 1, "choices": [' + "9" * 5000 + "]}", "is not JSON that can be read", ""),
        ("\ud800", ":1: is not UTF-8 text", ""),
    ],
)
def test_what_is_no_such_file_is_said(text: str, message: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError, match=message) as caught:
        read_tuned(path)
    assert caught.value.message.startswith(str(path))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gain": "2"}, r"choices\.1\.gain: must be a valid number, found '2'"),
        ({"gain": 0}, r"choices\.1\.gain: must be greater than 0"),
        ({"gain": 10**400}, r"choices\.1\.gain: "),
        ({"gain": True}, r"choices\.1\.gain: "),
        ({"counted": 1}, r"choices\.1\.counted: must be true or false, found 1"),
        ({"rule": None}, r"choices\.1\.rule: must be a text, found nothing"),
        ({"cpu": ""}, r"choices\.1\.cpu: "),
        ({"group": "x" * 10_001}, r"choices\.1\.group: "),
        ({"group": "a\nb"}, r"choices\.1\.group: holds the character '\\n'"),
        ({"schedule": [1]}, r"choices\.1\.schedule: must be a mapping, found a list"),
        ({"schedule": {"a": [[[[1]]]]}}, r"choices\.1\.schedule: has more than 4 lists and mappings"),
        ({"schedule": {"a": 1 << 64}}, r"choices\.1\.schedule: has a number of more than 63 bits"),
        ({"schedule": {"\ud800": 1}}, r"choices\.1\.schedule: holds the character"),
        ({"gian": 2}, r"choices\.1\.gian: unknown key"),
    ],
)
def test_the_entry_that_is_wrong_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(
        json.dumps({"edgepack_tuned": 1, "choices": [ENTRY, {**ENTRY, **changes}]}), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=message):
        read_tuned(path)


def test_files_that_cannot_be_read_or_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="There is no file of tuned schedules"):
        read_tuned(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tuned(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_tuned(tmp_path / "none" / "tuned.json", FILE)
    write_tuned(path := tmp_path / "tuned.json", FILE)
    monkeypatch.setattr(tuned, "_LARGEST", path.stat().st_size - 1)
    with pytest.raises(ConfigError, match="it has more than"):
        read_tuned(path)
    with pytest.raises(ConfigError, match=r"more than the \d+ that are read"):
        write_tuned(path, FILE)


def test_a_damaged_file_is_read_or_refused(tmp_path: Path) -> None:
    """Cut off at each byte, and with bytes replaced, left out and doubled."""
    path, rng = tmp_path / "tuned.json", random.Random(37)
    write_tuned(path, FILE)
    good = path.read_bytes()
    damaged = [good[:length] for length in range(0, len(good) - 2, 3)]
    parts = [
        b"{}",
        b"[]",
        b"null",
        b"-1",
        b"1e999",
        b"NaN",
        b'"',
        b"\\ud800",
        b"\xff",
        b"9" * 400,
        b"true",
        b",",
    ]
    for _ in range(600):
        at, size = rng.randrange(len(good)), rng.randrange(12)
        put = rng.choice([rng.randbytes(1), rng.choice(parts), b"", good[at : at + 2 * size]])
        damaged.append(good[:at] + put + good[at + size :])
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            found = read_tuned(path)
        except ConfigError as error:
            refused += 1
            assert error.message.startswith(str(path)) and "\n" not in error.message
            continue
        write_tuned(path, found)
        tuned_digest(read_tuned(path).choices)
    assert len(damaged) // 2 < refused < len(damaged)
