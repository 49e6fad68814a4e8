"""What tests, benchmarks and tools share, and no user needs: it is in no wheel, and imports none of them.

``models``: the networks and operators that are tested and measured. ``compiled``: models to plans, and to
results in this process (``executor``). ``node_tests``: ONNX's own. ``mini``: a bundle of hand-written
kernels, which needs no TVM, and ``fuzz_targets``, which are built with it. ``stand_ins``: for devices and
kits that are not here.
"""

import os

# ONNX Runtime sends figures of its sessions to its maker unless it is told not to before it is imported;
# the compiler's process is (``edgepack/pipeline/worker_process.py``).
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
