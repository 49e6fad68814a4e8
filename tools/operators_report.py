"""docs/operators.md and tables of results, from what tools/node_tests.py recorded."""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from edgepack.compiler.frontend.onnx.rewrites import REWRITES
from edgepack.compiler.frontend.onnx.support import SEQUENCES
from workbench.node_tests import NodeTest, load_tests

__all__ = ["classical", "contributed", "lists", "table", "write"]

Records = Mapping[str, Mapping[str, Any]]

_HEAD = """\
# Operators

Which of ONNX's operators edgepack compiles, as ONNX's own node tests say: {total} models of one operator each
(or of the functions that define it), with inputs, outputs and a tolerance. {how} `tools/node_tests.py` runs
them and writes this page; onnx {version}.

**{passed} of the {scope} in scope pass ({share:.1f} %).** Out of scope are {excluded}.

An operator that is not here is refused with a sentence that names it. Inputs that decide about shapes or axes
(`axes`, `shape`, `pads`, `k` and the like) have to be constants of the model, as exporters write them.

The shapes that depend on data are those of Compress, NonMaxSuppression, NonZero and Unique; with a maximum
of entries ([varying-sizes.md](varying-sizes.md)) their tests pass too, which
`pytest -m slow tests/compiler/frontend/onnx/test_bounded_shapes.py` runs. Random numbers with a seed are
constants, the same in every run: what `onnx.reference` draws, by NumPy's `RandomState(seed)` (the Mersenne
Twister MT19937). Without a seed they are refused, and a Multinomial always is.

Opsets are those of the tests' models; older ones go through the same converters. Types are those of the tests
that pass, inputs and outputs together.

## What passes

| operator | tests | opsets | types | what does not pass |
|---|---:|---|---|---|
"""

_PACKED = "Each was packed for\na machine with x86-64, opened through the C ABI, run, and compared."
_QUICK = "The kernels of\neach were compiled for x86-64, run step by step, and their results compared."

#: Tests whose results differ for a reason that is known: patterns of their names.
_KNOWN = {
    r"test_attention_.*_bf16.*": "computed in float32; the test rounds to bfloat16 after every operator",
    r"test_dft_inverse.*": "3e-15 where the test has 2e-7",
    r"test_resize_downsample_scales_(linear|cubic)_align_corners": "corners are those of "
    "the last element, as with ONNX Runtime",
}

_NOT_RUN = {"status": "not run", "detail": "not run"}


LISTS = """\
## Lists of tensors and optional values

These are no work: which tensors a list has is known when the model is packed, and what is left is a Split, a
Slice, a Gather, a Concat, or nothing
([Lists of tensors](models.md#lists-of-tensors-and-optional-values)). Their node tests are run with tensors as
inputs and outputs, of which the model makes its lists; programs of them are drawn and compared with ONNX
Runtime (`tests/compiler/frontend/onnx/test_lists.py`)."""

CLASSICAL = """\
## Classical models

skl2onnx and onnxmltools write operators of the domain `ai.onnx.ml` for estimators of scikit-learn, XGBoost
and LightGBM ([Classical models](classical-models.md)). ONNX has few node tests of them; each form is compared
with ONNX Runtime (`tests/compiler/frontend/onnx/test_classical.py`, `test_classical_trees.py`). Those of
texts are refused (CategoryMapper, DictVectorizer, keys and categories that are texts), but for labels, which
become indices."""

CONTRIBUTED = """\
## Operators of ONNX Runtime

ONNX Runtime's transformer optimiser, its quantiser and Optimum write operators of the domain `com.microsoft`.
These become standard ones, and then the kernels of attention and norms; each is compared with ONNX Runtime
(`tests/compiler/frontend/onnx/test_rewrites.py`, `test_contrib.py`, `test_quantised.py`). Forms that its CPU
kernels lack are refused, and a `GroupQueryAttention` with a past, or whose lengths are no constants.
`SimplifiedLayerNormalization`, which has no domain of its own, belongs to them.

Those of integers become DequantizeLinear, a standard operator, QuantizeLinear (QDQ), and where scales are
known at run time only, DynamicQuantizeLinear and MatMulInteger: the forms that the quantiser writes itself.
Results that lie in the middle of two steps may be one step off, for its kernels round at other places.
A `DynamicQuantizeLSTM`, which quantises its state anew in every step, is written step by step, up to 128 of
them. The `QOrdered` operators, which are for NVIDIA's GPUs, are refused."""


def table(records: Records) -> str:
    """Results by operator, those that do not all pass first."""
    lines = [f"{'operator':34}{'pass':>6}{'refused':>9}{'wrong':>7}{'internal':>10}{'excluded':>10}"]
    rows = []
    for operator, tests in _by_operator().items():
        counts = Counter(records[test.name]["status"] for test in tests if test.name in records)
        rows.append((operator, counts))
    rows.sort(key=lambda row: (row[1].total() == row[1]["pass"] + row[1]["excluded"], row[0]))
    for operator, c in rows:
        lines.append(
            f"{operator:34}{c['pass']:6}{c['refused']:9}{c['wrong']:7}{c['internal']:10}{c['excluded']:10}"
        )
    passed, scope, _ = _totals(records)
    lines.append(f"{passed} of {scope} in scope pass: {100 * passed / max(1, scope):.1f} %")
    return "\n".join(lines)


def write(records: Records, path: Path, *, quick: bool) -> None:
    """Writes the page. A test without a result does not count as one that passes, and is named as not run.

    Args:
        quick: the results are those of kernels, not of packs.
    """
    tests = load_tests()
    records = {name: records.get(name, _NOT_RUN) for name in tests}
    passed, scope, excluded = _totals(records)
    text = _HEAD.format(
        total=len(tests),
        how=_QUICK if quick else _PACKED,
        version=onnx.__version__,
        passed=passed,
        scope=scope,
        share=100 * passed / scope,
        excluded=_listed(f"{reason} ({count})" for reason, count in excluded.most_common()),
    )
    nothing = []
    for operator, group in _by_operator().items():
        inside = [test for test in group if not test.excluded]
        good = [test for test in inside if records[test.name]["status"] == "pass"]
        if not inside:
            continue
        bad = [test for test in inside if test not in good]
        if not good:
            nothing.append((operator, bad))
            continue
        opsets = sorted({test.opset for test in good})
        span = f"{opsets[0]} to {opsets[-1]}" if len(opsets) > 1 else str(opsets[0])
        cells = (f"`{operator}`", f"{len(good)}/{len(inside)}", span, _types(good), _reasons(bad, records))
        text += f"| {' | '.join(cells)} |\n"
    if nothing:
        text += "\n## What does not\n\n| operator | tests | why |\n|---|---:|---|\n"
    for operator, bad in nothing:
        text += f"| `{operator}` | {len(bad)} | {_reasons(bad, records)} |\n"
    path.write_text(text + lists() + classical() + contributed(), encoding="utf-8", newline="\n")


def lists() -> str:
    """The section about operators of lists."""
    return f"\n{LISTS}\n\n{_names(sorted(SEQUENCES))}\n"


def classical() -> str:
    """The section about operators of ai.onnx.ml."""
    names = sorted({name for domain, name in REWRITES if domain == "ai.onnx.ml"} | {"ZipMap"})
    return f"\n{CLASSICAL}\n\n{_names(names)}\n"


def contributed() -> str:
    """The section about ONNX Runtime's own operators, which ONNX has no tests of."""
    names = sorted(name for domain, name in REWRITES if domain == "com.microsoft")
    return f"\n{CONTRIBUTED}\n\n{_names(names)}\n"


def _names(names: Sequence[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 116)


def _by_operator() -> dict[str, list[NodeTest]]:
    groups: dict[str, list[NodeTest]] = defaultdict(list)
    for test in load_tests().values():
        groups[test.operator].append(test)
    return dict(sorted(groups.items(), key=lambda item: (item[0].rpartition(".")[0], item[0].lower())))


def _totals(records: Records) -> tuple[int, int, Counter[str]]:
    """How many pass, how many are in scope, and how many are not, by reason."""
    counts = Counter(record["status"] for record in records.values())
    excluded = Counter(test.excluded for test in load_tests().values() if test.excluded)
    return counts["pass"], counts.total() - counts["excluded"], excluded


def _types(tests: Iterable[NodeTest]) -> str:
    names = set()
    for test in tests:
        for value in (*test.model.graph.input, *test.model.graph.output):
            name = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
            names.add({"float": "float32", "double": "float64"}.get(name, name))
    return ", ".join(sorted(names, key=lambda name: (re.sub(r"\d.*", "", name), len(name), name)))


def _reasons(tests: Iterable[NodeTest], records: Records) -> str:
    """Names of the tests by why they do not pass."""
    found: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        record = records[test.name]
        reason = {"wrong": "another result", "internal": "internal error"}.get(record["status"], "")
        if record["status"] == "wrong":
            known = (why for pattern, why in _KNOWN.items() if re.fullmatch(pattern, test.name))
            reason = next(known, reason)
        if not reason:
            first, *rest = [line for line in record["detail"].splitlines() if line.strip()]
            reason = f"{first} {rest[0]}" if first.startswith("TVM cannot") and rest else first
        reason = re.sub(r"'[^']*'|\([^)]*a node without name\)", "", reason)
        found[re.sub(r"\s+", " ", reason).strip().replace("|", "\\|")].append(test.name.removeprefix("test_"))
    return "; ".join(f"{reason[:120]}: {_some(names)}" for reason, names in found.items())


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown


def _listed(items: Iterable[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
