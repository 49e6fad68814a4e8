"""Times bundles on an NVIDIA GPU beside PyTorch (eager, and torch.compile with CUDA graphs), JAX (jit), ONNX
Runtime's CUDA provider and TensorRT, batch 1.

    python benchmarks/gpu.py pack FOLDER      # anywhere: needs edgepack with its compiler; no GPU
    python benchmarks/gpu.py time FOLDER      # where the GPU is: needs Python, and what is compared with

``pack`` writes for each network and precision a bundle, a program that times it from GPU memory to GPU memory
(``gpu_time.c``, with the bundle inside), the ONNX file, and the network's nodes for PyTorch and JAX
(NETWORK.json; weights are drawn anew there, which changes no time). ``time`` imports nothing of edgepack, and
needs neither a compiler nor the internet: FOLDER and this folder are all that is carried to the machine with
the GPU.

Exit code of ``time``: 0 if every bundle was timed, 3 if there is no GPU ("not timed: no GPU"), 1 if a bundle
failed. An engine that is missing or fails has "not timed" and why in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NETWORKS = ("resnet18", "resnet50", "mobilenetv2", "bert", "vit_tiny", "unet")
PRECISIONS = ("fp32", "fp16")
ENGINES = ("eager", "compiled", "jax", "onnxruntime", "tensorrt")
HERE = Path(__file__).resolve().parent

#: Multiply-adds that a multiprocessor starts in a cycle, by compute capability: of float32, and of float16
#: with float32 sums by tensor cores (NVIDIA's architecture whitepapers).
MULTIPLY_ADDS = {
    **{75: (64, 512), 80: (64, 1024), 86: (128, 512), 87: (128, 512), 89: (128, 512), 90: (128, 2048)},
    **{100: (128, 4096), 120: (128, 512)},
}

#: Exit code of ``time`` where there is no GPU.
NO_GPU = 3


# Where the bundles are made ------------------------------------------------------------------------------


def pack(folder: Path, networks: list[str], precisions: list[str], device: str) -> None:
    """Bundles, programs, models and graphs."""
    from gpu_graph import graph_of
    from networks import BENCHMARKS

    import edgepack
    from edgepack.bundle.manifest import load_manifest
    from workbench.models import save

    for name in networks:
        model = save(BENCHMARKS[name](), folder, f"{name}.onnx")
        (folder / f"{name}.json").write_text(json.dumps(graph_of(model)), encoding="utf-8")
        for precision in precisions:
            place = folder / f"{name}-{precision}"
            # Params for the CPU's kernels are carried too, so the smallest ones.
            edgepack.pack(model, device, place, precision=precision, optimize="size", force=True)
            build_timer(place, load_manifest(place).symbol)
            size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
            print(f"{place}: {size / 2**20:.1f} MiB", flush=True)


def build_timer(bundle: Path, symbol: str) -> None:
    """``gpu_time`` in the bundle's folder, for 64-bit Linux."""
    library = next((bundle / "lib").glob("*.a"))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", "-O2"]
    command += [f"-DMODEL={symbol}", f"-I{bundle / 'include'}", str(HERE / "gpu_time.c"), str(library)]
    subprocess.run([*command, "-ldl", "-lpthread", "-lm", "-o", str(bundle / "gpu_time")], check=True)


# Where the GPU is ----------------------------------------------------------------------------------------


def run_program(command: list[str | Path], cwd: Path, limit: float) -> dict[str, Any]:
    """The line of JSON that a program of a bundle prints; {"error": ...} where it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        lines = done.stdout.strip().splitlines()
        found: dict[str, Any] = json.loads(lines[-1] if lines else "")
    except subprocess.TimeoutExpired:
        return {"error": f"no end within {limit:g} s"}
    except OSError as error:
        return {"error": str(error)}
    except ValueError:
        said = [*done.stderr.strip().splitlines(), f"exit code {done.returncode}"]
        return {"error": said[0][:120]}
    if found.get("status", "ok") != "ok":
        return {"error": str(found.get("error", found["status"]))}
    return found


def time_bundle(bundle: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Microseconds of a run from GPU memory to GPU memory ("device_us") and with copies from and to the
    process ("host_us"), whether the outputs are right ("verified"), and what the GPU is; or "error"."""
    (params,) = (bundle / "params").glob("*.params")
    (program,) = (p for p in (bundle / "bin").iterdir() if p.is_file())
    for executable in (program, bundle / "gpu_time"):
        executable.chmod(0o755)
    counts = [str(options.warmup), str(options.runs)]
    device = run_program([bundle / "gpu_time", bundle, params, *counts], bundle, options.limit)
    if "error" in device:
        return device
    bench = ["bench", "test", "--variant", "cuda", "--warmup", counts[0], "--runs", counts[1]]
    host = run_program([program, *bench], bundle, options.limit)
    verified = run_program([program, "verify", "test", "--variant", "cuda"], bundle, options.limit)
    if "error" in host:
        return host
    return {
        **device,
        "device_us": min(device["run_us"]),
        "host_us": 1000 * statistics.median(host["runs_ms"]),
        "verified": "error" not in verified,
    }


def limits(bundle: Path, found: dict[str, Any], precision: str) -> dict[str, float]:
    """The least microseconds that the card allows a run: by its bandwidth, its arithmetic, and the gaps
    between launches; without those of which the driver does not tell enough."""
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    (variant,) = (v for v in manifest["variants"] if v["gpu"])
    kernels = {kernel["symbol"]: kernel for kernel in variant["kernels"]}
    launched = [kernels[step["kernel"]] for step in variant["steps"] if step.get("kernel") in kernels]
    least: dict[str, float] = {}
    bandwidth = 2e3 * found["memory_khz"] * found["bus_bits"] / 8
    if bandwidth:
        least["bytes"] = 1e6 * sum(kernel["bytes_moved"] for kernel in launched) / bandwidth
    per_cycle = MULTIPLY_ADDS.get(found["capability"])
    if per_cycle and found["clock_khz"]:
        peak = 2e3 * per_cycle[precision == "fp16"] * found["multiprocessors"] * found["clock_khz"]
        least["operations"] = 1e6 * sum(kernel["flops"] for kernel in launched) / peak
    if found["gap_us"]:
        least["launches"] = found["gap_us"] * len(launched)
    return least


def timed(run: Callable[[], Any], wait: Callable[[], Any], options: argparse.Namespace) -> float:
    """Microseconds of a run: the least of seven series, each waited for once."""
    for _ in range(options.warmup):
        run()
    wait()
    found = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(options.runs):
            run()
        wait()
        found.append((time.perf_counter() - start) / options.runs)
    return 1e6 * min(found)


def time_torch(graph: Path, precision: str, engine: str, options: argparse.Namespace) -> dict[str, float]:
    """PyTorch, eager or compiled; float16 in all of its tensors where that is the precision, TF32 never."""
    import torch
    from gpu_torch import Network, inputs_of

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    described = json.loads(graph.read_text(encoding="utf-8"))
    dtype = torch.float16 if precision == "fp16" else torch.float32
    network = Network(described, dtype).cuda().eval()
    on_host = inputs_of(described, dtype)
    on_gpu = [x.cuda() for x in on_host]
    function = network if engine == "eager" else torch.compile(network, mode="max-autotune", fullgraph=True)

    def host_to_host() -> None:
        for output in function(*[x.cuda(non_blocking=True) for x in on_host]):
            output.cpu()

    with torch.inference_mode():
        device_us = timed(lambda: function(*on_gpu), torch.cuda.synchronize, options)
        return {"device_us": device_us, "host_us": timed(host_to_host, torch.cuda.synchronize, options)}


def time_onnxruntime(model: Path, precision: str, options: argparse.Namespace) -> dict[str, float]:
    """ONNX Runtime's CUDA provider with CUDA graphs, TF32 off; it has no float16 of a float32 model."""
    if precision != "fp32":
        raise NotImplementedError("it runs a model in the precision of its file")
    import numpy as np
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise NotImplementedError("this ONNX Runtime has no CUDA")
    providers = [("CUDAExecutionProvider", {"enable_cuda_graph": "1", "use_tf32": "0"})]
    session = onnxruntime.InferenceSession(str(model), providers=providers)
    rng = np.random.default_rng(0)
    arrays = {
        i.name: rng.standard_normal(i.shape).astype(np.float32)
        if i.type == "tensor(float)"
        else np.ones(i.shape, np.int64 if "64" in i.type else np.int32)
        for i in session.get_inputs()
    }
    bound = session.io_binding()
    for name, array in arrays.items():
        bound.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output in session.get_outputs():
        bound.bind_output(output.name, "cuda")
    device_us = timed(lambda: session.run_with_iobinding(bound), bound.synchronize_outputs, options)
    plain = onnxruntime.InferenceSession(str(model), providers=[("CUDAExecutionProvider", {"use_tf32": "0"})])
    return {
        "device_us": device_us,
        "host_us": timed(lambda: plain.run(None, arrays), lambda: None, options),
    }


def time_tensorrt(model: Path, precision: str, options: argparse.Namespace) -> dict[str, float]:
    """TensorRT, its engine built here, TF32 off; memory of the GPU is PyTorch's."""
    import tensorrt
    import torch

    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    if not tensorrt.OnnxParser(network, logger).parse_from_file(str(model)):
        raise NotImplementedError("it does not parse the model")
    config = builder.create_builder_config()
    config.clear_flag(tensorrt.BuilderFlag.TF32)
    if precision == "fp16":
        config.set_flag(tensorrt.BuilderFlag.FP16)
    built = builder.build_serialized_network(network, config)
    engine = tensorrt.Runtime(logger).deserialize_cuda_engine(built)
    context = engine.create_execution_context()
    stream = torch.cuda.Stream()
    held, copies = [], []
    for number in range(engine.num_io_tensors):
        name = engine.get_tensor_name(number)
        dtype = getattr(torch, tensorrt.nptype(engine.get_tensor_dtype(name)).__name__)
        on_gpu = torch.ones(tuple(engine.get_tensor_shape(name)), dtype=dtype, device="cuda")
        on_host = on_gpu.cpu().pin_memory()
        inward = engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT
        copies.append((on_gpu, on_host) if inward else (on_host, on_gpu))
        held.append(on_gpu)
        context.set_tensor_address(name, on_gpu.data_ptr())
    context.execute_async_v3(stream.cuda_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        context.execute_async_v3(torch.cuda.current_stream().cuda_stream)

    def host_to_host() -> None:
        for to, source in copies:
            if to.is_cuda:
                to.copy_(source, non_blocking=True)
        graph.replay()
        for to, source in copies:
            if not to.is_cuda:
                to.copy_(source, non_blocking=True)
        torch.cuda.synchronize()

    return {
        "device_us": timed(graph.replay, torch.cuda.synchronize, options),
        "host_us": timed(host_to_host, lambda: None, options),
    }


def time_engine(engine: str, folder: Path, name: str, precision: str, options: Any) -> dict[str, Any]:
    """An engine in this process; {"error": why} where it is missing or fails."""
    try:
        if engine in ("eager", "compiled"):
            return time_torch(folder / f"{name}.json", precision, engine, options)
        if engine == "jax":
            from gpu_jax import time_jax

            return time_jax(folder / f"{name}.json", precision, options, timed)
        function = {"onnxruntime": time_onnxruntime, "tensorrt": time_tensorrt}[engine]
        return function(folder / f"{name}.onnx", precision, options)
    except Exception as error:  # one engine's failure is not the others'
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:120]}


def in_process(engine: str, folder: Path, name: str, precision: str, options: Any) -> dict[str, Any]:
    """The same in a process of its own: engines share no memory of the GPU, and none ends the others."""
    command = [sys.executable, __file__, "engine", str(folder), engine, name, precision]
    command += ["--warmup", str(options.warmup), "--runs", str(options.runs)]
    return run_program(list(command), HERE, options.limit)


def has_gpu() -> bool:
    """Whether the driver of NVIDIA's is there and has a GPU."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def rows(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each bundle in the folder, with all engines."""
    for name in options.networks:
        for precision in options.precisions:
            bundle = folder / f"{name}-{precision}"
            if not bundle.is_dir():
                continue
            row: dict[str, Any] = {"network": name, "precision": precision}
            row["edgepack"] = time_bundle(bundle, options)
            if "error" not in row["edgepack"]:
                row["limits_us"] = limits(bundle, row["edgepack"], precision)
            for engine in options.engines:
                row[engine] = in_process(engine, folder, name, precision, options)
            yield row


def shown(row: dict[str, Any], engines: list[str]) -> str:
    """A row as a paragraph."""
    lines = [f"{row['network']} {row['precision']}"]
    own = row["edgepack"]
    for engine in ("edgepack", *engines):
        found = row[engine]
        if "error" in found:
            lines.append(f"  {engine:12} not timed: {found['error']}")
            continue
        ratio = ""
        if engine != "edgepack" and "device_us" in own:
            ratio = f"  edgepack takes {own['device_us'] / found['device_us']:.2f} of it"
        lines.append(f"  {engine:12} {found['device_us']:9.1f} us   host {found['host_us']:9.1f} us{ratio}")
    if not own.get("verified", True):
        lines.append("  the outputs are wrong")
    for what, least in row.get("limits_us", {}).items():
        lines.append(f"  {least / own['device_us']:6.1%} of the card's limit by {what} ({least:.1f} us)")
    return "\n".join(lines)


def time_all(options: argparse.Namespace) -> int:
    """Times and prints everything; returns the exit code."""
    if not has_gpu():
        print("not timed: no GPU")
        return NO_GPU
    found = []
    for row in rows(options.folder, options):
        print(shown(row, options.engines), flush=True)
        found.append(row)
        # Written each time: a machine may be taken away.
        target = Path(os.environ.get("OUT", options.folder)) / "gpu.json"
        target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wrong = [row for row in found if "error" in row["edgepack"] or not row["edgepack"]["verified"]]
    return 1 if wrong or not found else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["pack", "time", "engine"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("which", nargs="*", help="of `engine`: ENGINE NETWORK PRECISION")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--device", default="cuda-desktop", help="what is packed for")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one engine and network")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    return options


def main() -> int:
    options = parsed()
    if options.command == "pack":
        options.folder.mkdir(parents=True, exist_ok=True)
        sys.path.insert(0, str(HERE.parent))
        pack(options.folder, options.networks, options.precisions, options.device)
        return 0
    if options.command == "engine":
        engine, name, precision = options.which
        print(json.dumps(time_engine(engine, options.folder, name, precision, options)))
        return 0
    return time_all(options)


if __name__ == "__main__":
    sys.exit(main())
