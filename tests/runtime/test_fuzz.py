"""Nothing that the runtime or the loader reads can make it touch memory that is not its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.fuzz_targets import TARGETS, Build, corpus, link
from workbench.mini import run

HERE = Path(__file__).parent
COUNT = {"fuzz_session": 12, "fuzz_loader": 60}


@pytest.mark.parametrize("target", TARGETS)
def test_corrupted_input_is_handled(build: Build, target: str, tmp_path: Path) -> None:
    program = tmp_path / target
    bundle = link(build, target, program, (HERE / "fuzz_main.c",))
    files = corpus(target, bundle.params, bundle.root / "test", tmp_path)
    run([program, "1", str(COUNT.get(target, 2000)), *files])
