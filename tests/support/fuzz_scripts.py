"""Feeds damaged TorchScript archives to what reads them: a case is a number, from which all follows.

``PYTHONPATH=build/torch python -m tests.support.fuzz_scripts --first 0 --count 20000`` prints the cases that
end otherwise than with exit code 0 or 3, ``--case 4711`` runs one, and leaves its file in the working folder.
What is refused takes milliseconds; where PyTorch is there, it compiles and runs the rest, and exports each
eighth. A loop without end is ended after ten seconds, as the command's time limit ends it.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from edgepack.compiler.frontend.torch.script.archive import check_script
from edgepack.errors import ConfigError, EdgepackError
from tests.support.forked_cases import main_of
from tests.support.mutate_script import damaged_archive
from tests.support.script_archives import ARCHIVES

__all__ = ["run_case", "write_case"]

#: Every so many cases a script that PyTorch reads is exported too.
_EXPORTED = 8
_SECONDS = 10


def write_case(case: int, folder: Path) -> Path:
    """The archive of a case."""
    good = list(ARCHIVES.values())
    return damaged_archive(good[case % len(good)], good[(case + 1) % len(good)], case, folder / "model.pt")


def run_case(case: int) -> tuple[int, str]:
    """The exit code of a case, and why."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = write_case(case, Path(name))
        try:
            if not _has_torch():
                check_script(model, Path(name) / "copy.pt")
            else:
                _run(model, Path(name), exported=case % _EXPORTED == 0)
        except ConfigError as error:  # of inputs that the damaged script takes, and the case knows nothing of
            return 3, error.message
        except EdgepackError as error:
            return error.exit_code, error.message
    return 0, ""


@cache
def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _run(model: Path, folder: Path, *, exported: bool) -> None:
    """Reads a script and runs it once; ``exported``: as a command does."""
    import torch

    from edgepack.compiler.frontend.torch.archive import script_program
    from edgepack.compiler.frontend.torch.script.loading import example_of_script, load_script

    script = load_script(model, folder)
    arguments = list(script.forward.schema.arguments)[1:]
    shapes = {one.name: (3, 2) for one in arguments if str(one.type) == "Tensor"}
    signal.alarm(_SECONDS)
    try:
        if exported:
            script_program(model, folder, shapes, {})
        else:
            given: Any = example_of_script(script, {}, shapes, str(model))
            with torch.no_grad():
                script(**given)
    except EdgepackError:
        raise
    except Exception:  # whatever a script raises as it runs; a command says it in a sentence
        if exported:
            raise
    finally:
        signal.alarm(0)


def main() -> int:
    """See above."""
    if _has_torch():
        import torch._dynamo

        torch.set_num_threads(1)  # a forked child has none of the others
    return main_of(run_case, write_case)


if __name__ == "__main__":
    sys.exit(main())
