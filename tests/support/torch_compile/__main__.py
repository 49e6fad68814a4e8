"""Runs models under ``torch.compile(model, backend="edgepack")``, in a process that has PyTorch, and prints
what came of each as JSON. ``python -m tests.support.torch_compile [slow | kept]``."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import torch
from torch._dynamo.backends.registry import list_backends, register_backend

import edgepack.torch as edgepack_torch
from tests.support import shared_worker
from tests.support.torch_compile.cached import kept, keys
from tests.support.torch_compile.compared import Kept
from tests.support.torch_compile.networks import (
    constants_that_change,
    exported_for_tvm,
    few_networks,
    networks,
    surroundings,
)
from tests.support.torch_compile.results import (
    eager_with_a_sentence,
    explained,
    memory,
    plain_loops,
    readme,
    refused_options,
    results_of_many_kinds,
    schedulers_of_the_environment,
    sizes_that_vary,
    tuned_schedules,
)

QUICK = (
    *(
        readme,
        few_networks,
        results_of_many_kinds,
        memory,
        sizes_that_vary,
        explained,
        eager_with_a_sentence,
        refused_options,
    ),
    schedulers_of_the_environment,
    kept,
    keys,
    exported_for_tvm,
)
SLOW = (networks, constants_that_change, surroundings, tuned_schedules, plain_loops)


PARTS = {"slow": SLOW, "kept": (kept,)}


def main() -> None:
    """Everything, each part by its name."""
    torch.manual_seed(0)
    logging.getLogger("edgepack.torch").addHandler(Kept())
    found: dict[str, Any] = {"listed": "edgepack" in list_backends()}
    if not found["listed"]:  # an installation of another version than this one
        register_backend(edgepack_torch.backend, name="edgepack")
    with shared_worker.installed(setattr):
        for part in PARTS[sys.argv[1]] if sys.argv[1:] else QUICK:
            found[part.__name__] = part()
            torch._dynamo.reset()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
