"""Estimators of scikit-learn, XGBoost and LightGBM beside ONNX Runtime: ``python benchmarks/classical.py``.

Each is trained here on synthetic data with a seed, exported as its users export it (skl2onnx, onnxmltools),
packed for this machine, verified, and timed on one thread: ``Session.run_into`` and ``InferenceSession.run``
in turns in one process, each call with other rows of the data, so that no branch is learnt by heart. Times
are medians of the turns, and a ratio is the median of those of the turns. What cannot be exported or packed
is listed with its reason. ``--write`` makes the tables of docs/classical-models.md. It needs what
requirements.txt lists for it:

    pip install -e . lightgbm onnxmltools onnxruntime scikit-learn skl2onnx xgboost
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import read_section, replace_section, table

import edgepack

PAGE = Path(__file__).parents[1] / "docs" / "classical-models.md"

#: Rows and features of the data; those of the first are what is run.
ROWS, FEATURES, CLASSES = 4000, 30, 4
RUN = 1000

#: Batches, and seconds of a turn of one engine.
BATCHES, TURN_SECONDS = (1, 16, 1000), 0.02


@dataclass
class Estimator:
    """What is trained.

    Attributes:
        make: makes it, untrained.
        data: "classes", "two classes", "numbers" (to be found) or "categories" (int64 features).
        exporter: skl2onnx, or onnxmltools' function for its package.
    """

    name: str
    make: Callable[[], Any]
    data: str = "classes"
    exporter: str = "skl2onnx"


@dataclass
class Result:
    """What became of it: ``error`` says why it failed. Times in microseconds by batch: edgepack's, ONNX
    Runtime's, and how many times as long the latter takes."""

    name: str
    error: str = ""
    library: int = 0
    params: int = 0
    times: dict[int, tuple[float, float, float]] = field(default_factory=dict)


def estimators() -> list[Estimator]:
    """All that are tried."""
    import lightgbm
    import xgboost
    from sklearn import ensemble, linear_model, naive_bayes, neural_network, pipeline, svm, tree
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    def forest(count: int, depth: int) -> Callable[[], Any]:
        return lambda: ensemble.RandomForestRegressor(count, max_depth=depth, n_jobs=-1, random_state=0)

    def chain(*steps: Any) -> Callable[[], Any]:
        return lambda: pipeline.make_pipeline(*steps)

    logistic = linear_model.LogisticRegression
    xgb, lgb = {"exporter": "xgboost"}, {"exporter": "lightgbm"}
    return [
        Estimator("LogisticRegression", logistic),
        Estimator("Ridge", linear_model.Ridge, "numbers"),
        Estimator(
            "SimpleImputer, StandardScaler, LogisticRegression",
            chain(SimpleImputer(), StandardScaler(), logistic()),
        ),
        Estimator(
            "OneHotEncoder, LogisticRegression",
            chain(OneHotEncoder(sparse_output=False), logistic()),
            "categories",
        ),
        Estimator("GaussianNB", naive_bayes.GaussianNB),
        Estimator("MLPClassifier", lambda: neural_network.MLPClassifier((32,), max_iter=50, random_state=0)),
        Estimator("SVC, rbf", svm.SVC),
        Estimator("SVC, rbf, with probabilities", lambda: svm.SVC(probability=True)),
        Estimator("SVR, rbf", svm.SVR, "numbers"),
        Estimator("DecisionTreeClassifier", lambda: tree.DecisionTreeClassifier(random_state=0)),
        *(
            Estimator(
                f"RandomForestRegressor, {count} trees of depth {depth}", forest(count, depth), "numbers"
            )
            for count in (10, 100, 500)
            for depth in (4, 8, 16)
        ),
        Estimator(
            "RandomForestClassifier, 100 trees of depth 8",
            lambda: ensemble.RandomForestClassifier(100, max_depth=8, n_jobs=-1, random_state=0),
        ),
        Estimator(
            "ExtraTreesClassifier, 100 trees, as deep as they get",
            lambda: ensemble.ExtraTreesClassifier(100, n_jobs=-1, random_state=0),
        ),
        Estimator(
            "GradientBoostingClassifier",
            lambda: ensemble.GradientBoostingClassifier(random_state=0),
            "two classes",
        ),
        Estimator(
            "HistGradientBoostingRegressor",
            lambda: ensemble.HistGradientBoostingRegressor(random_state=0),
            "numbers",
        ),
        Estimator("XGBClassifier, 100 rounds", lambda: xgboost.XGBClassifier(n_estimators=100), **xgb),
        Estimator(
            "XGBRegressor, 500 trees", lambda: xgboost.XGBRegressor(n_estimators=500), "numbers", **xgb
        ),
        Estimator("LGBMClassifier, 100 rounds", lambda: lightgbm.LGBMClassifier(verbose=-1), **lgb),
        Estimator(
            "LGBMRegressor, 500 trees",
            lambda: lightgbm.LGBMRegressor(n_estimators=500, verbose=-1),
            "numbers",
            **lgb,
        ),
    ]


def data_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and what is to be found."""
    from sklearn import datasets

    if kind == "numbers":
        x, y = datasets.make_regression(ROWS, FEATURES, n_informative=20, noise=10, random_state=0)
        return x.astype(np.float32), y
    classes = 2 if kind == "two classes" else CLASSES
    x, y = datasets.make_classification(ROWS, FEATURES, n_informative=15, n_classes=classes, random_state=0)
    if kind == "categories":
        return np.clip(x, -2, 2).round().astype(np.int64)[:, :8], y
    return x.astype(np.float32), y


def exported(one: Estimator, trained: Any, x: np.ndarray) -> onnx.ModelProto:
    """As the exporter's own examples do it, but without ZipMap, which makes a dictionary for each row."""
    if one.exporter == "skl2onnx":
        from skl2onnx import to_onnx

        classifies = hasattr(trained, "predict_proba")
        return to_onnx(trained, x[:1], options={"zipmap": False} if classifies else None)
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    convert = getattr(onnxmltools, f"convert_{one.exporter}")
    types = [("x", FloatTensorType([None, x.shape[1]]))]
    more = {"zipmap": False} if one.exporter == "lightgbm" else {}
    return convert(trained, initial_types=types, target_opset=15, **more)


def run(one: Estimator, folder: Path, rounds: int) -> Result:
    """Trains, exports, packs, verifies and times an estimator."""
    x, y = data_of(one.data)
    result = Result(one.name)
    trained = one.make().fit(x, y)
    try:
        model = exported(one, trained, x)
    except Exception as error:  # exporters raise what they happen to raise
        result.error = f"{one.exporter} cannot export it: {str(error).splitlines()[0][:120]}"
        return result
    file = folder / "model.onnx"
    onnx.save(model, file)
    try:
        for batch in BATCHES:
            result.times[batch] = timed(file, x[:RUN], batch, folder / f"bundle{batch}", rounds, result)
    except edgepack.EdgepackError as error:
        result.error = f"{error}"
    return result


def timed(
    file: Path, x: np.ndarray, batch: int, bundle: Path, rounds: int, result: Result
) -> tuple[float, float, float]:
    """Microseconds of both engines, and their ratio."""
    name = onnx.load(file, load_external_data=False).graph.input[0].name
    packed = edgepack.pack(file, output=bundle, shapes={name: (batch, x.shape[1])})
    checked = packed.verify()
    if not checked.ok:
        raise edgepack.EdgepackError(f"it is not what ONNX Runtime computes with a batch of {batch}")
    library, params = packed.manifest.artifact("shared"), packed.manifest.params
    result.library = library.nbytes if library else 0
    result.params = (bundle / params.file).stat().st_size if params.file else 0
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = (
        3  # some declare shapes of a batch of 1, of which it would write a line each run
    )
    peer = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    parts = [np.ascontiguousarray(x[at : at + batch]) for at in range(0, len(x) - batch + 1, batch)]
    with packed.load(threads=1) as session:
        outputs = {key: np.empty_like(value) for key, value in session.run({name: parts[0]}).items()}
        calls = (
            lambda part: session.run_into({name: part}, outputs),
            lambda part: peer.run(None, {name: part}),
        )
        turns = [[_turn(call, parts) for call in calls] for _ in range(rounds + 1)][1:]
    own, other = (statistics.median(turn[i] for turn in turns) * 1e6 for i in (0, 1))
    return own, other, statistics.median(b / a for a, b in turns)


def _turn(call: Callable[[np.ndarray], object], parts: Sequence[np.ndarray]) -> float:
    """Seconds of a call, over all parts, as often as fits."""
    count, begin = 0, time.perf_counter()
    while True:
        for part in parts:
            call(part)
        count += len(parts)
        took = time.perf_counter() - begin
        if took > TURN_SECONDS:
            return took / count


# The page --------------------------------------------------------------------------------------------------


def _time(microseconds: float) -> str:
    return f"{microseconds / 1000:.4f}" if microseconds < 100 else f"{microseconds / 1000:.3f}"


def tables(results: Sequence[Result], kept: str = "") -> str:
    """What works, with times in ms, and what does not.

    Args:
        kept: an earlier text, whose other estimators stay as they are there.
    """
    header = ["estimator", "library KiB", "params KiB"]
    for batch in BATCHES:
        header += [f"batch {batch}: ms", "ONNX Runtime ms", "ratio"]
    rows = {line.split(" | ")[0].strip("| "): line for line in kept.splitlines() if line.startswith("| ")}
    failed = {line[2:].split(": ")[0]: line for line in kept.splitlines() if line.startswith("- ")}
    for one in results:
        cells = [cell for b in BATCHES for cell in _cells(one.times[b])] if not one.error else []
        row = [one.name, f"{one.library / 1024:.1f}", f"{one.params / 1024:.1f}", *cells]
        for found in (rows, failed):
            found.pop(one.name, None)
        if one.error:
            failed[one.name] = f"- {one.name}: {one.error}"
        else:
            rows[one.name] = f"| {' | '.join(row)} |"
    order = [one.name for one in estimators()]
    lines = [table(header, []), *(rows[name] for name in order if name in rows)]
    said = [failed[name] for name in order if name in failed]
    return "\n".join([*lines, *(["", "What does not work:", "", *said] if said else [])])


def _cells(times: tuple[float, float, float]) -> list[str]:
    own, other, ratio = times
    return [_time(own), _time(other), f"**{ratio:.2f}**"]


def main() -> None:
    """Run what is asked for, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="estimators whose names have it")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="put them into docs/classical-models.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    for one in estimators():
        if options.only not in one.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            results.append(run(one, Path(folder), options.rounds))
        done = results[-1]
        ratios = ", ".join(f"batch {b}: {t[0]:.1f} us, ratio {t[2]:.2f}" for b, t in done.times.items())
        print(f"{done.name}: {done.error or ratios}", flush=True)
    print(tables(results))
    if options.write:
        kept = read_section("What works", PAGE) if options.only else ""
        replace_section("What works", tables(results, kept), "classical.py", PAGE)


if __name__ == "__main__":
    main()
