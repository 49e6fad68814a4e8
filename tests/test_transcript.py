"""The transcript of README.md: how it is made of what `make demo` prints, and how old it may be."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgepack.api import Bundle
from examples import beside_onnxruntime
from tools import terminal, this_cpu, transcript
from tools.svg import IMAGES, THEMES

ROOT = Path(__file__).parents[1]
#: Commits to kernels and planner after which the transcript is made anew. On each busy day of November 2026
#: there were 44 to 67: what shows in the demo's figures takes about a day of them. Fewer would have everybody
#: refresh numbers that have not changed, on whatever busy machine they have; many more, and README.md would
#: show times that nobody gets.
MOST_COMMITS = 60

PRINTED = """\
make[1]: Entering directory '/x'
Installing edgepack into .venv ...
.venv/bin/python examples/resnet18.py demo/resnet18.onnx
demo/resnet18.onnx: 69 nodes
.venv/bin/edgepack pack demo/resnet18.onnx --device host
[   0.1 s] find the toolchain
[  12.9 s] llvm
resnet18.onnx for host: demo/resnet18-host (7.6 s)

  a table
make[1]: Leaving directory '/x'

What next:
  .venv/bin/edgepack check MODEL.onnx
"""

PAGE = """# Page

<!-- transcript: written by tools/transcript.py -->

old

<!-- transcript: end -->

<!-- tested-on: written by tools/transcript.py -->

| CPU | instructions | how |
|---|---|---|
| AMD EPYC, Zen 5 | AVX-512, VNNI | as it is, quiet and busy |
| the same, as a Haswell | AVX2 | `tools/on_cpu.py haswell -- make test` |

<!-- tested-on: end -->
The end.
"""


def committed() -> str:
    return transcript.README.read_text(encoding="utf-8")


def test_progress_and_what_comes_next_are_left_out_and_the_rest_is_kept() -> None:
    steps = transcript.steps_of(PRINTED)
    assert [step.command for step in steps] == [
        "python examples/resnet18.py demo/resnet18.onnx",
        "edgepack pack demo/resnet18.onnx --device host",
    ]
    assert steps[1].lines == ("resnet18.onnx for host: demo/resnet18-host (7.6 s)", "", "  a table")
    page = transcript.written(PAGE, steps, "abc1234", "On a machine.")
    assert transcript.read(page) == steps and transcript.kernels_of(page) == "abc1234"
    assert "old" not in page and page.endswith("The end.\n")
    assert transcript.written(page, steps, "abc1234", "On a machine.") == page


def test_a_tested_machine_replaces_its_own_row_and_no_other() -> None:
    page = transcript.merged(PAGE, "AMD EPYC, Zen 5", "AVX-512, VNNI", "as it is, 2026-11-25")
    assert "| as it is, 2026-11-25 |" in page and "quiet and busy" not in page
    page = transcript.merged(page, "X", "AVX2", "`tools/on_cpu.py haswell -- make test`, 2026-11-26")
    assert "| X | AVX2 | `tools/on_cpu.py haswell -- make test`, 2026-11-26 |" in page
    assert "the same, as a Haswell" not in page
    page = transcript.merged(page, "Intel Xeon", "AVX2", "as it is, 2026-11-27")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 5 and rows[-1] == "| Intel Xeon | AVX2 | as it is, 2026-11-27 |"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks of a part transcript"):
        transcript.written("# Page\n", [], "abc1234", "")


def test_the_transcript_has_the_commands_of_the_demo() -> None:
    """A changed Makefile needs another transcript: `tools/transcript.py`."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", ".venv/.installed", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    steps = transcript.steps_of(done.stdout.replace('echo "', ""))
    assert len(steps) > 3
    assert [step.command for step in transcript.read(committed())] == [step.command for step in steps]


def test_the_demo_measures_a_bundle_beside_onnxruntime(
    small_model: Path,
    small_bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(beside_onnxruntime, "TURNS", 1)
    arguments = ["beside_onnxruntime.py", str(small_model), str(small_bundle.path), "--threads", "1"]
    monkeypatch.setattr("sys.argv", arguments)
    beside_onnxruntime.main()
    printed = capsys.readouterr().out
    found = re.fullmatch(r"edgepack (\S+) ms, ONNX Runtime \S+ (\S+) ms, (\S+) times as long .*\n", printed)
    assert found is not None, printed
    ours, other, ratio = map(float, found.groups())
    assert ours > 0 and other > 0 and ratio > 0
    assert "least of 20 runs in 1 turns, 1 threads" in printed


def test_the_transcript_is_hardly_older_than_the_kernels() -> None:
    newer = transcript.newer_commits(transcript.kernels_of(committed()))
    if newer is None:
        pytest.skip("there is no history here, or not all of it")
    assert newer <= MOST_COMMITS, "run tools/transcript.py on a quiet machine"


@pytest.mark.parametrize("name", THEMES)
def test_the_terminal_shows_the_transcript(name: str) -> None:
    """`tools/transcript.py --draw` draws it anew."""
    drawn = (IMAGES / f"terminal-{name}.svg").read_text(encoding="utf-8")
    steps = transcript.read(committed())
    assert drawn == terminal.draw([(step.command, step.lines) for step in steps], THEMES[name])
    root = ElementTree.fromstring(drawn)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "foreignObject", "image"} and "url(http" not in drawn
    shown = [element.text for element in root.iter() if element.get("class") == "m l"]
    assert shown == [
        line.strip() for step in steps for line in (f"$ {step.command}", *step.lines) if line.strip()
    ]


AMD = {"vendor_id": "AuthenticAMD", "model name": "AMD EPYC 9654 96-Core Processor", "flags": "sse2 avx avx2"}


@pytest.mark.parametrize(
    ("info", "name", "instructions"),
    [
        ({**AMD, "cpu family": "25", "model": "17"}, "AMD EPYC 9654, Zen 4", "AVX2"),
        (
            {**AMD, "cpu family": "26", "model": "2", "flags": "avx2 avx512f avx512_vnni avx_vnni"},
            "AMD EPYC 9654, Zen 5",
            "AVX-512, VNNI",
        ),
        (
            {
                "vendor_id": "GenuineIntel",
                "cpu family": "6",
                "model": "143",
                "model name": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
                "flags": "avx2 avx512f avx512_vnni amx_int8",
            },
            "Intel Xeon Platinum 8481C, Sapphire Rapids",
            "AVX-512, VNNI, AMX",
        ),
        ({"Model": "Raspberry Pi 5", "Features": "fp asimd asimddp"}, "Raspberry Pi 5", "NEON, dot products"),
    ],
)
def test_a_cpu_is_named_by_its_microarchitecture(info: dict[str, str], name: str, instructions: str) -> None:
    assert (this_cpu.name(info), this_cpu.instructions(info)) == (name, instructions)
