"""The file of tuned schedules: small JSON for a repository, which ``edgepack tune`` writes and a pack reads.

docs/tuning.md has its form. It is written the same way each time (sorted, a value on a line, numbers of four
digits), so that a diff shows what a measurement changed; where two people's files were merged by hand, or a
group stands there twice, :func:`merge_tuned` says what counts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from edgepack.config.document import Document, Origin
from edgepack.config.models import Frozen
from edgepack.config.validate import shortened, validate
from edgepack.errors import ConfigError
from edgepack.plan.tuned import TunedChoice
from edgepack.system.atomic import write_file
from edgepack.system.files import read_regular

__all__ = [
    "TUNED_VERSION",
    "TunedFile",
    "check_writable",
    "merge_tuned",
    "read_all_tuned",
    "read_tuned",
    "tuned_digest",
    "write_tuned",
]

#: The form of the file, by which one is known.
TUNED_VERSION = 1
_KEY = "edgepack_tuned"
#: Bytes of a file: some 200,000 schedules that were tried.
_LARGEST = 8 << 20
#: Characters of a text, lists and mappings inside each other in a schedule, bits of its numbers.
_LONGEST, _DEEPEST, _BITS = 10_000, 4, 63
#: Digits of gains and ratios: clocks repeat no more.
_DIGITS = 4
_AGAIN = "`edgepack tune` writes such a file; a damaged one is in your repository's history as it was."

#: Times of schedules that were tried, by kind of CPU, group and digest of the schedule.
Tried = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class TunedFile:
    """What a file of tuned schedules says.

    Attributes:
        choices: one for each group on each kind of CPU, sorted by these.
        tried: what was measured, so that it need not be measured again: by kind of CPU, by group and by the
            schedule's digest, the time by the rule's own choice divided by the time with this schedule.
    """

    choices: tuple[TunedChoice, ...] = ()
    tried: Tried = field(default_factory=dict)

    @property
    def cpus(self) -> tuple[str, ...]:
        """The kinds of CPU and GPU that it has choices for, sorted."""
        return tuple(sorted({choice.cpu for choice in self.choices}))

    def for_cpus(self, kinds: Iterable[str]) -> tuple[TunedChoice, ...]:
        """The choices for these kinds of CPU or GPU."""
        wanted = frozenset(kinds)
        return tuple(choice for choice in self.choices if choice.cpu in wanted)


def read_tuned(path: Path) -> TunedFile:
    """The tuned schedules in a file.

    Raises:
        ConfigError: it cannot be read, is larger than 8 MiB, is of another form, or what is wrong in it.
    """
    data = _parsed(path)
    if not isinstance(data, dict) or _KEY not in data:
        raise ConfigError(f"{path} is no file of tuned schedules: it has no {_KEY}.", hint=_AGAIN)
    if (form := data[_KEY]) != TUNED_VERSION or isinstance(form, bool):
        raise _other_form(path, data)
    found = validate(_File, Document(data, {(): Origin(str(path))}))
    choices = tuple(TunedChoice(**choice.model_dump()) for choice in found.choices)
    return merge_tuned([TunedFile(choices, found.tried)])


def read_all_tuned(paths: Iterable[Path]) -> TunedFile:
    """Several files as one, as :func:`merge_tuned` has it. Raises ConfigError as :func:`read_tuned` does."""
    return merge_tuned([read_tuned(path) for path in paths])


def write_tuned(path: Path, file: TunedFile) -> None:
    """Write a file whole, in the place of one that may be there.

    Raises:
        ConfigError: it cannot be written, or would be larger than what is read.
    """
    merged = merge_tuned([file])
    data = {
        _KEY: TUNED_VERSION,
        "choices": [replace(one, gain=_rounded(one.gain)).to_json() for one in merged.choices],
        "tried": {
            cpu: {
                group: {digest: _rounded(ratio) for digest, ratio in ratios.items()}
                for group, ratios in groups.items()
            }
            for cpu, groups in merged.tried.items()
        },
    }
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"
    if len(text) > _LARGEST:
        raise ConfigError(
            f"{path} would have {len(text)} bytes, more than the {_LARGEST} that are read.",
            hint="Write the schedules of some models, or of one kind of CPU, to a file of their own.",
        )
    try:
        write_file(path, text.encode("ascii"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.", hint="Choose another file."
        ) from error


def check_writable(path: Path) -> None:
    """Raise ConfigError where :func:`write_tuned` could not write the file: before a search, not after it."""
    folder = path.parent
    why = "is no folder" if not folder.is_dir() else "" if os.access(folder, os.W_OK) else "is read-only"
    if why:
        raise ConfigError(f"{path} cannot be written: {folder} {why}.", hint="Choose another file.")


def merge_tuned(files: Iterable[TunedFile]) -> TunedFile:
    """Several files as one, whatever their order.

    Of two choices for the same group on the same kind of CPU the one that was measured counts, not the one
    whose instructions were counted; then the larger gain; then that of the later version of edgepack. Of two
    measurements of the same schedule the larger one counts.
    """
    choices: dict[tuple[str, str], TunedChoice] = {}
    tried: dict[str, dict[str, dict[str, float]]] = {}
    for file in files:
        for choice in file.choices:
            key = (choice.cpu, choice.group)
            choices[key] = max(choices.get(key, choice), choice, key=_rank)
        for cpu, groups in file.tried.items():
            for group, ratios in groups.items():
                known = tried.setdefault(cpu, {}).setdefault(group, {})
                known.update({digest: max(ratio, known.get(digest, 0.0)) for digest, ratio in ratios.items()})
    return TunedFile(tuple(choices[key] for key in sorted(choices)), tried)


def tuned_digest(choices: Sequence[TunedChoice]) -> str:
    """SHA-256, in hex, of the choices' canonical JSON: sorted by CPU and group, keys sorted, no spaces."""
    ordered = sorted(choices, key=lambda one: (one.cpu, one.group))
    return hashlib.sha256(_canonical([one.to_json() for one in ordered]).encode("ascii")).hexdigest()


def _rank(choice: TunedChoice) -> tuple[Any, ...]:
    return not choice.counted, choice.gain, _numbers(choice.version), _canonical(choice.to_json())


def _numbers(version: str) -> list[int]:
    """A version's numbers, by which later ones are larger."""
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)]


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _rounded(value: float) -> float:
    """A number of :data:`_DIGITS` digits, as a float: JSON then has ``1.0`` however it was made."""
    return float(f"{value:.{_DIGITS}g}")


def _parsed(path: Path) -> Any:
    """Plain data of a file. ConfigError has its line where it is no JSON."""
    try:
        content = read_regular(path, _LARGEST)
    except FileNotFoundError:
        raise ConfigError(
            f"There is no file of tuned schedules {path}.", hint="Check the path; `edgepack tune` writes one."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", hint=_AGAIN) from None
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text ({error.reason})", hint=_AGAIN) from None
    except json.JSONDecodeError as error:
        hint = _AGAIN
        if re.search(rb"^(<{7}|={7}|>{7})", content, re.MULTILINE):
            hint = "git left both sides of a merge in it: save each as a file, and give both with --tuned."
        raise ConfigError(f"{path}:{error.lineno}: is not JSON: {error.msg}", hint=hint) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{path} is not JSON that can be read: {shortened(reason)}.", hint=_AGAIN) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping, each key of which is given once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {twice[:80]!r} is given twice in a mapping")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _other_form(path: Path, data: Mapping[str, Any]) -> ConfigError:
    maker = _maker(data.get("choices"))
    return ConfigError(
        f"{path} is of form {shortened(repr(data[_KEY]))[:40]}; this edgepack reads form {TUNED_VERSION}.",
        hint=f"Install {maker}, which wrote it, or run `edgepack tune` with this one.",
    )


def _maker(choices: Any) -> str:
    """What wrote a file of another form: the latest edgepack that measured what is in it."""
    entries = choices if isinstance(choices, list) else []
    versions = [one.get("version") for one in entries if isinstance(one, dict)]
    said = [one for one in versions if isinstance(one, str) and re.fullmatch(r"[0-9][0-9a-z.+]{0,30}", one)]
    return f"edgepack {max(said, key=_numbers)}" if said else "a later edgepack"


def _text(value: str) -> str:
    if bad := re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", value):
        raise ValueError(f"holds the character {bad[0]!r}, which no such text has")
    return value


def _plain(value: Any, depth: int = 0) -> None:
    """Raise ValueError for what no schedule holds."""
    if isinstance(value, (dict, list, tuple)):
        if depth >= _DEEPEST:
            raise ValueError(f"has more than {_DEEPEST} lists and mappings inside each other")
        for one in [*value, *value.values()] if isinstance(value, dict) else value:
            _plain(one, depth + 1)
    elif isinstance(value, str):
        _text(value)
    elif isinstance(value, int) and value.bit_length() > _BITS:
        raise ValueError(f"has a number of more than {_BITS} bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("has a number that is not finite")


def _schedule(value: dict[str, Any]) -> dict[str, Any]:
    _plain(value)
    return {key: _lists(item) for key, item in value.items()}


def _lists(value: Any) -> Any:
    """Lists, which the check of a document made tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


_Text = Annotated[str, Field(min_length=1, max_length=_LONGEST), AfterValidator(_text)]
#: How many times as fast: a number above 0.
_Ratio = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class _Choice(Frozen):
    cpu: _Text
    group: _Text
    rule: _Text
    schedule: Annotated[dict[str, Any], AfterValidator(_schedule)]
    gain: _Ratio
    counted: bool = False
    version: Annotated[str, Field(max_length=100), AfterValidator(_text)] = ""


class _File(Frozen):
    edgepack_tuned: int
    choices: tuple[_Choice, ...]
    tried: dict[_Text, dict[_Text, dict[_Text, _Ratio]]] = Field(default={})
