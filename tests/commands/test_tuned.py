"""Tuned schedules that a pack takes: the jobs get those for their CPU, the manifest says so, and the bundle
is the same each time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgepack
from edgepack.cli.main import main
from edgepack.commands.compiled_targets import targets_of, tuned_for, variants_of
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile, tuned_digest, write_tuned
from edgepack.errors import ConfigError, EdgepackWarning
from edgepack.options import PackOptions
from edgepack.pipeline.job import Job
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.tuned import TunedChoice
from edgepack.system.files import list_files
from tests.support import fake
from workbench.models import build, save

HOST = load_device("host").cpu_target().cpu_kind
FEW, OTHERS = "dense float32[4,8]", "no such group"


def choice(cpu: str = HOST, group: str = FEW, gain: float = 1.5) -> TunedChoice:
    return TunedChoice(cpu, group, "dense", {"unroll": 2}, gain, version="0.1.0")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The fake worker's jobs, as it reads them."""
    asked: list[dict[str, Any]] = []
    run = Worker.run

    def noting(self: Worker, job: Job, folder: Path, *rest: Any, **more: Any) -> Any:
        asked.append({"task": job.task, **job.to_json()})
        return run(self, job, folder, *rest, **more)

    monkeypatch.setattr(Worker, "run", noting)
    fake.install("ok", monkeypatch.setattr)
    yield asked


@pytest.fixture
def tuned(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of choices."""

    def write(*choices: TunedChoice, name: str = "tuned.json") -> Path:
        write_tuned(tmp_path / name, TunedFile(choices))
        return tmp_path / name

    return write


def taken(jobs: list[dict[str, Any]], task: str) -> list[list[dict[str, Any]]]:
    return [job["tuned"] for job in jobs if job["task"] == task]


def test_the_job_gets_what_is_for_its_cpu_and_the_manifest_says_so(
    small_model: Path, jobs: list[dict[str, Any]], tuned: Callable[..., Path], tmp_path: Path
) -> None:
    slow, fast = choice(gain=1.25), choice(gain=1.75)
    files = [tuned(fast, choice("other")), tuned(slow, choice(HOST, OTHERS), name="more.json")]
    bundle = edgepack.pack(small_model, "host", tmp_path / "a", tuned=files, cache=False)
    expected = [fast, choice(HOST, OTHERS)]
    assert taken(jobs, "compile") == [[one.to_json() for one in expected]]
    record = bundle.manifest.options.tuned
    assert record is not None
    assert (record.choices, record.sha256) == (2, tuned_digest(expected))
    options = ["--tuned", str(files[1]), "--tuned", str(files[0]), "--no-cache", "-q"]
    assert main(["pack", str(small_model), "-o", str(tmp_path / "b"), *options]) == 0
    assert edgepack.Bundle(tmp_path / "b").manifest.options == bundle.manifest.options
    plain = edgepack.pack(small_model, "host", tmp_path / "c", cache=False)
    assert taken(jobs, "compile")[-1] == [] and plain.manifest.options.tuned is None
    assert "tuned" not in json.loads((tmp_path / "c/manifest.json").read_text(encoding="utf-8"))["options"]


def test_a_check_gets_them_too(
    small_model: Path, jobs: list[dict[str, Any]], tuned: Callable[..., Path]
) -> None:
    edgepack.check(small_model, "host", tuned=[tuned(choice(), choice("other"))])
    assert taken(jobs, "check") == [[choice().to_json()]]
    found = edgepack.check(small_model, "cortex-m4", tuned=[tuned(choice("one"), choice("two"))])
    assert taken(jobs, "check")[1:] == [[]]
    (said,) = [text for text in found.warnings if "no tuned schedules for cortex-m4" in text]
    assert said.endswith("there are those for: 'one', 'two'")


def test_each_target_of_a_library_gets_its_own(tuned: Callable[..., Path]) -> None:
    """A GPU also those of the CPU beside it. What kernels are chosen for decides too."""
    device = load_device("linux-x86_64").model_copy(update={"variants": ("linux-x86_64-v3",)})
    devices = [*variants_of(device), device]
    targets = [target for _, target in targets_of(devices, PackOptions())]
    kinds = [target.cpu_kind for target in targets]
    assert len(set(kinds)) == 2
    path = tuned(*map(choice, kinds), choice("other"))
    found = tuned_for(devices, PackOptions(tuned=[path]))
    assert [found.of(target) for target in targets] == [(choice(kind),) for kind in kinds]
    small = tuned_for(devices, PackOptions(tuned=[path], optimize="size"))
    assert small.choices == () and f"is {kinds[-1].replace('latency', 'size')!r}" in small.warning
    gpu = load_device("opencl-generic")
    graphics, cpu = (target for _, target in targets_of([gpu], PackOptions()))
    assert (graphics.kind, cpu.kind) == ("gpu", "cpu")
    own = choice(graphics.tuned_kinds[0])
    found = tuned_for([gpu], PackOptions(tuned=[tuned(choice(cpu.cpu_kind), own, choice("other"))]))
    assert found.of(cpu) == (choice(cpu.cpu_kind),) and found.of(graphics) == (own, *found.of(cpu))
    half = tuned_for([gpu], PackOptions(tuned=[tuned(own)], precision="fp16"))
    assert half.choices == () and "and of GPU 'gpu opencl" in half.warning and " fp16 " in half.warning


def test_a_file_that_says_that_nothing_is_faster_is_no_mistake(tmp_path: Path) -> None:
    def said(cpu: str) -> str:
        path = tmp_path / "tuned.json"
        write_tuned(path, TunedFile((), {cpu: {FEW: {"0123456789ab": 0.98}}}))
        return tuned_for([load_device("host")], PackOptions(tuned=[path])).warning

    assert said(HOST) == ""
    assert "no tuned schedules for host" in said("other")


@pytest.mark.usefixtures("jobs")
def test_a_file_without_choices_for_the_cpu_is_said_and_changes_nothing(
    small_model: Path, tuned: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.warns(EdgepackWarning, match="no tuned schedules for host, .* there are those for: 'other'"):
        bundle = edgepack.pack(small_model, "host", tmp_path / "a", tuned=[tuned(choice("other"))])
    assert bundle.manifest.options.tuned is None
    many = tuned(*(choice(f"cpu {n}") for n in range(20)))
    said = tuned_for([load_device("host")], PackOptions(tuned=[many])).warning
    assert said.endswith("'cpu 14', 'cpu 15', 12 more")


@pytest.mark.parametrize("value", ["tuned.json", [3], 3])
def test_files_that_are_none_are_refused(value: Any, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tuned of pack is a list of paths of files"):
        edgepack.pack(small_model, "host", tmp_path / "out", tuned=value)
    with pytest.raises(ConfigError, match="There is no file of tuned schedules"):
        edgepack.pack(small_model, "host", tmp_path / "out", tuned=[tmp_path / "none.json"])
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("jobs")
def test_an_update_needs_the_same_choices(
    small_model: Path, tuned: Callable[..., Path], tmp_path: Path
) -> None:
    file, other = tuned(choice()), tuned(choice(gain=2.0), name="other.json")
    packed = edgepack.pack(small_model, "host", tmp_path / "packed", tuned=[file]).path
    plain = edgepack.pack(small_model, "host", tmp_path / "plain").path
    for bundle, files, message in (
        (packed, [], "was packed with 1 tuned schedules"),
        (packed, [other], "was packed with other tuned schedules than those of .*other.json"),
        (packed, [tuned(choice("other"), name="cpu.json")], "was packed with other tuned schedules"),
        (plain, [file], "was packed without tuned schedules, and .*tuned.json has 1 for its CPU"),
    ):
        with pytest.raises(ConfigError, match=message):
            edgepack.update(bundle, small_model, tmp_path / "new.params", tuned=files)
    assert not (tmp_path / "new.params").exists()
    made = edgepack.update(packed, small_model, tmp_path / "new.params", tuned=[file])
    assert made.params_id == edgepack.Bundle(packed).manifest.params.id


def test_a_pack_with_tuned_schedules_is_reproducible(tuned: Callable[..., Path], tmp_path: Path) -> None:
    """By the compiler itself, nothing from the cache, the choices from one file or from two."""
    model = save(build("mlp"), tmp_path)
    device = load_device("host").model_copy(update={"artifacts": ("shared",)})
    one, other = choice(), choice(HOST, OTHERS)
    given = [[tuned(one, other)], [tuned(other, name="b.json"), tuned(one, name="a.json")]]
    first, second = (
        edgepack.pack(model, device, tmp_path / f"{number}", tuned=files, cache=False).path
        for number, files in enumerate(given)
    )
    assert list_files(first) == list_files(second)
    assert [
        name for name in list_files(first) if (first / name).read_bytes() != (second / name).read_bytes()
    ] == []
