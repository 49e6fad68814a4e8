"""Fixtures that several rooms share."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench  # noqa: F401 - before ONNX Runtime: what it says must not be sent
from edgepack.api import Bundle, pack
from tests.support import fake, shared_worker
from tests.support.model import write_model

#: About how many seconds the longest files take (`pytest --durations=0` says how long their tests do).
SECONDS = {
    "test_end_to_end.py": 45,
    "torch/test_compile.py": 60,
    "compiler/frontend/torch/test_programs.py": 50,
    "targets/test_quantised_forms.py": 30,
    "targets/test_cortex_m.py": 27,
    "compiler/kernels/test_operators.py": 26,
    "runtime/test_c_programs.py": 23,
    "compiler/kernels/test_gpu.py": 23,
    "cli/test_pack.py": 21,
    "compiler/kernels/test_winograd.py": 20,
    "compiler/kernels/test_winograd_integers.py": 18,
    "compiler/kernels/test_anchors.py": 18,
    "targets/test_chromium.py": 18,
    "cli/test_devices.py": 17,
    "compiler/kernels/test_grouped_units.py": 16,
    "runtime/test_portability.py": 16,
    "compiler/kernels/test_quantised.py": 16,
    "test_doc_commands.py": 15,
    "release/test_strangers.py": 15,
    "runners/test_ssh.py": 15,
    "targets/test_linux.py": 15,
    "targets/test_ram_budget.py": 14,
    "compiler/frontend/onnx/test_quantised_networks.py": 13,
    "compiler/kernels/test_recurrent.py": 13,
    "release/archives/test_ordinary.py": 12,
    "compiler/kernels/test_sliding_window.py": 12,
    "compiler/kernels/test_weight_panels.py": 12,
    "compiler/frontend/tflite/test_subgraphs.py": 11,
    "compiler/planner/test_weight_prefetch.py": 10,
    "compiler/frontend/tflite/test_operators.py": 10,
    "targets/test_wasm.py": 10,
    "runners/test_ssh_boards.py": 9,
    "runtime/test_project.py": 9,
    "compiler/kernels/test_emulated_instructions.py": 9,
    "release/test_release.py": 9,
    "compiler/frontend/onnx/test_regions.py": 9,
    "compiler/planner/test_levels.py": 9,
    "system/test_process.py": 9,
    "formats/test_aar.py": 8,
    "test_install.py": 8,
    "compiler/planner/test_networks.py": 8,
    "compiler/graph/test_layout.py": 8,
    "test_node_tests.py": 8,
    "targets/test_tiles.py": 8,
    "runners/test_adb.py": 8,
    "compiler/planner/test_placement.py": 8,
    "targets/test_short_code.py": 7,
    "compiler/kernels/test_winograd_lines.py": 7,
    "targets/test_memories.py": 7,
    "test_house.py": 7,
    "compiler/kernels/test_assembly.py": 7,
    "compiler/planner/test_concat_in_place.py": 7,
    "targets/test_apple.py": 7,
    "release/archives/test_tools.py": 7,
    "targets/test_npm.py": 7,
    "text/test_spelling.py": 7,
    "runtime/test_fuzz.py": 7,
    "test_references.py": 7,
    "runtime/test_loader.py": 7,
    "bundle/test_consumers.py": 7,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process of pytest-xdist waits for another one's last file.

    ``make test`` hands out whole files, for what a file compiles is compiled in each process that has a part
    of it.
    """
    root = Path(__file__).parent
    items.sort(key=lambda item: -SECONDS.get(item.path.relative_to(root).as_posix(), 0))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of slow tests only are left out where no slow test is run: they have thousands."""
    if collection_path.suffix != ".py" or config.option.markexpr != "not slow":
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8") or None


def pytest_sessionstart() -> None:
    """Nothing that is collected is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Python looks for garbage less often, and not among what was collected: a million objects that stay."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_unconfigure() -> None:
    """So that libraries do not take what is still there at the end for leaked."""
    gc.unfreeze()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name holds what names of folders may hold."""
    path = tmp_path / "a folder, é"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX file that tests/support/worker.py has results for, in a folder with a difficult name."""
    return write_model(tmp_path_factory.mktemp("mödel folder") / "small.onnx")


@pytest.fixture(scope="session")
def small_bundle(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The small model packed for this machine by the fake worker; not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        return pack(small_model, "host", tmp_path_factory.mktemp("bündle folder") / "small")


@pytest.fixture(scope="session", autouse=True)
def _one_worker() -> Iterator[None]:
    """All packs of this process are compiled by one child."""
    with pytest.MonkeyPatch.context() as patch, shared_worker.installed(patch.setattr):
        yield
