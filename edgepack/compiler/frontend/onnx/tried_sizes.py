"""Sizes of inputs that a model runs with, found by trying: for a hint, and for who chose others."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.model_file import external_files, read_model
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.compiler.frontend.onnx.open_dims import UnboundSizesError
from edgepack.compiler.frontend.onnx.proposed_sizes import ModelInput, Proposal, Scale
from edgepack.compiler.frontend.onnx.sampling import drawn_inputs
from edgepack.compiler.frontend.onnx.shapes import inner_graphs
from edgepack.compiler.frontend.onnx.usual_sizes import grows, is_length
from edgepack.errors import EdgepackError, ModelError

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["Compiles", "check_run", "explained"]

#: Prepares the model with options, as far as a check or a pack does.
Compiles = Callable[[ImportOptions], None]

#: Times as large as the first sizes, as they are tried.
_FACTORS = (2, 4, 8, 16, 32, 64)
#: Height and width of images that models want beside the usual ones: lines of text, and squares.
_LINES, _SQUARES = ((48, 320), (32, 320), (64, 256)), (256, 320, 128, 64, 32, 640)
_IMAGES = (*_LINES, *((side, side) for side in _SQUARES))
#: What sizes are rounded up to before they are made larger: of networks that halve an image and double it.
_MULTIPLE = 32
#: Seconds of all trials of a model, and of one run; bytes of a model's files, above which nothing is tried;
#: elements of an input.
_SECONDS, _RUN_SECONDS, _BYTES, _ELEMENTS = 20.0, 8.0, 400 << 20, 1 << 24
#: What ONNX Runtime writes before and around the reason.
_AROUND = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : |.*?Status Message: |\S*\.(?:cc|h):\d+ .*?\) (?=\w)", re.S
)
#: What is said of sizes that leave nothing of a tensor, or of which an operator makes less than nothing.
_OF_SIZES = re.compile(
    r"size 0|size -|negative|empty|has none|no element|exceed|too small|larger|at least|\b0 elem|-\d", re.I
)
#: How the errors begin that have ONNX Runtime's reason, of a reference too.
_CANNOT_RUN = "ONNX Runtime cannot run the model"
#: What ONNX Runtime says of what it does not know, whatever the sizes.
_UNKNOWN = (
    "not a registered",
    "not supported",
    "not implemented",
    "terminate flag",
    "no opset import",
    "unsupported",
)


def explained(model: Path, options: ImportOptions, error: ModelError, compiles: Compiles) -> ModelError:
    """The error of a model with open sizes, with sizes that it runs with: those of an error that asks for
    them, or larger ones than the user's, where these leave nothing of a tensor, or ONNX Runtime cannot run
    it; else the error itself.

    Args:
        model: the user's file.
        options: what the user said of it.
        compiles: prepares the model with other options; raises EdgepackError where that cannot be.
    """
    if options.custom or sum(file.stat().st_size for file in (model, *_beside(model))) > _BYTES:
        return error
    trials = _Trials(model, options, compiles)
    if isinstance(error, UnboundSizesError):
        return _with_tried_hint(trials, error)
    return _of_small_sizes(trials, error) or error


def check_run(model: Path, options: ImportOptions) -> None:
    """Raise ModelError where ONNX Runtime cannot run a model with the user's sizes, as a pack does."""
    if options.custom or not (options.shapes or options.dims):
        return
    if reason := _Trials(model, options, lambda _: None).refusal(Proposal({}, {})):
        raise ModelError(f"{_CANNOT_RUN}: {reason}.", hint="Choose other sizes.")


def _beside(model: Path) -> Sequence[Path]:
    try:
        return external_files(model)
    except EdgepackError:
        return ()


class _Trials:
    """Runs a model with sizes, for a while."""

    def __init__(self, model: Path, options: ImportOptions, compiles: Compiles) -> None:
        self.model, self.options, self._compiles = model, options, compiles
        self._end = time.monotonic() + _SECONDS
        #: Whether it has graphs of which a run of ONNX Runtime may have taken some only.
        self._branches = False

    def _with(self, sizes: Proposal) -> ImportOptions:
        shapes, dims = {**self.options.shapes, **sizes.shapes}, {**self.options.dims, **sizes.dims}
        return replace(self.options, shapes=shapes, dims=dims)

    def first_that_works(self, proposals: Iterable[Proposal]) -> tuple[Proposal | None, str]:
        """The first sizes with which the model runs and compiles, and why those before it did not, "" if they
        are the first ones. None where there are none, or no time to find them: then those are sought that
        ONNX Runtime alone runs it with."""
        run_by_onnxruntime, why = None, ""
        refused = ""
        for sizes in proposals:
            if time.monotonic() > self._end:
                break
            answer = self.refusal(sizes)
            if answer is None:
                break
            if not answer:
                run_by_onnxruntime = run_by_onnxruntime or (sizes, why)
                if not self._branches or not (answer := self.uncompiled(sizes)):
                    return sizes, why
                if answer == refused:  # by something else than sizes
                    break
                refused = answer
            why = why or answer
        return run_by_onnxruntime or (None, why)

    def uncompiled(self, sizes: Proposal) -> str:
        """Why edgepack does not compile the model with these sizes; "" if it does."""
        try:
            self._compiles(self._with(sizes))
        except EdgepackError as error:
            return (error.detail.splitlines() or [error.message])[0]
        return ""

    def refusal(self, sizes: Proposal) -> str | None:
        """Why ONNX Runtime does not run the model with these sizes; "" if it does; None where that is not
        known."""
        try:
            model = open_model(self.model, self._with(sizes))
        except ModelError as error:
            return error.message.rstrip(".")
        except EdgepackError:
            return None
        self._branches = any(True for node in model.graph.node for _ in inner_graphs(node))
        shapes = [[dim for dim in item.shape or () if isinstance(dim, int)] for item in model_inputs(model)]
        if any(math.prod(shape) > _ELEMENTS for shape in shapes):
            return f"an input of more than {_ELEMENTS:,} elements is not tried"
        try:
            session = create_session(model)
            return _first(_failure(session, arrays) for arrays in drawn_inputs(model, 0, {}))
        except MemoryError:
            return None
        except Exception as error:  # onnxruntime's errors share no base class of their own
            return _reason(error)


def _first(failures: Iterator[str | None]) -> str | None:
    """ "" if a run of several did not fail; else why the first one did."""
    found = list(_until_it_runs(failures))
    return "" if "" in found else found[0]


def _until_it_runs(failures: Iterator[str | None]) -> Iterator[str | None]:
    for failure in failures:
        yield failure
        if not failure:
            return


def _failure(session: onnxruntime.InferenceSession, arrays: dict[str, NDArray[Any]]) -> str | None:
    import onnxruntime

    options = onnxruntime.RunOptions()
    timer = threading.Timer(_RUN_SECONDS, setattr, (options, "terminate", True))
    timer.start()
    try:
        session.run(None, arrays, options)
    except MemoryError:
        return None
    except Exception as error:  # as above
        return _reason(error)
    finally:
        timer.cancel()
    return ""


def _reason(error: Exception) -> str | None:
    """ONNX Runtime's reason in a line; None where it lacks something, and the sizes may be right."""
    text = str(error).strip()
    if any(word in text.lower() for word in _UNKNOWN):
        return None
    text = " ".join(_AROUND.sub("", text).split())
    return text[:240].rstrip(".") or type(error).__name__


def _with_tried_hint(trials: _Trials, error: UnboundSizesError) -> ModelError:
    """The error with sizes that were tried, in place of the usual ones where these are too small."""
    usual = error.asked.proposal()
    scales = [Scale(), *(Scale(image=image) for image in _IMAGES), *map(Scale, _FACTORS)]
    proposals = {str(sizes): sizes for sizes in map(error.asked.proposal, scales)}
    found, why = trials.first_that_works(proposals.values())
    if found == usual or not why:
        return error
    if found is None:
        detail = f"The model does not run with these, nor with others that were tried: {why}"
        return ModelError(error.message, hint=error.hint, detail=detail)
    return ModelError(
        error.message,
        hint=f"Choose {error.choice}, for example: {found} (with {usual} the model does not run)",
    )


def _of_small_sizes(trials: _Trials, error: ModelError) -> ModelError | None:
    """What is said of a model that does not run with the sizes that the user chose; None where it does, or
    nothing was to choose."""
    chosen = _chosen(trials.model, trials.options)
    if chosen is None or (refused := trials.refusal(Proposal({}, {}))) is None:
        return None
    if not refused and not _OF_SIZES.search(f"{error.message} {error.detail}"):
        return None
    found, _ = trials.first_that_works(chosen.larger())
    cannot, why = "ONNX Runtime cannot run the model with it", refused
    if not refused:
        cannot, why = (
            "the model cannot be compiled with it",
            trials.uncompiled(Proposal({}, {})) or error.message,
        )
    why = why.rstrip(".")
    if found is not None and (refused or not trials.uncompiled(found)):
        what = "too small" if chosen.is_multiple(found) else "not a size that the model takes"
        hint = f"{found} works, the smallest that was tried."
        return ModelError(f"{chosen.given} is {what}: {cannot} ({why}).", hint=hint)
    if not refused or error.message.startswith(_CANNOT_RUN):
        return None  # its reason is said already
    return ModelError(
        f"ONNX Runtime cannot run the model with {chosen.given}: {why}.",
        hint="Choose other sizes.",
        detail="\n".join(filter(None, [error.message, error.detail])),
    )


class _Chosen:
    """The sizes that the user chose, of what the model leaves open, less batches.

    Attributes:
        given: the options of these.
    """

    def __init__(self, options: ImportOptions, inputs: Sequence[ModelInput]) -> None:
        self.shapes = {name: tuple(shape) for name, shape in options.shapes.items()}
        self.dims = dict(options.dims)
        self.open = {item.name: _growing(item) for item in inputs if item.name in self.shapes}
        names = {item.shape[i] for item in inputs if item.shape is not None for i in _growing(item)}
        self.names = {name for name in self.dims if name in names}
        self.given = self._changed(lambda size: size)

    def __bool__(self) -> bool:
        return bool(self.names or any(self.open.values()))

    def _changed(self, change: Callable[[int], int]) -> Proposal:
        shapes = {
            name: tuple(change(n) if i in self.open[name] else n for i, n in enumerate(shape))
            for name, shape in self.shapes.items()
            if self.open.get(name)
        }
        return Proposal(shapes, {name: change(self.dims[name]) for name in self.dims if name in self.names})

    def larger(self) -> Iterator[Proposal]:
        """Sizes to try: rounded up, then larger ones."""
        rounded = self._changed(lambda size: -(-size // _MULTIPLE) * _MULTIPLE)
        if rounded != self.given:
            yield rounded
        for factor in _FACTORS:
            yield self._times(factor)

    def is_multiple(self, sizes: Proposal) -> bool:
        """Whether these are the user's several times, so that these were too small."""
        return any(sizes == self._times(factor) for factor in _FACTORS)

    def _times(self, factor: int) -> Proposal:
        return self._changed(lambda size: size * factor)


def _growing(item: ModelInput) -> set[int]:
    """Which dimensions of an input may be larger: all that are open but batches, channels and states."""
    shape = item.shape or ()
    return {
        index
        for index, dim in enumerate(shape)
        if not isinstance(dim, int)
        and grows(shape, index)
        and (index > 0 or len(shape) == 1 or (isinstance(dim, str) and is_length(dim)))
    }


def _chosen(model: Path, options: ImportOptions) -> _Chosen | None:
    """What the user chose; None where that is nothing that may be larger."""
    if options.inputs:
        return None
    inputs = model_inputs(read_model(model, weights=False))
    return _Chosen(options, inputs) or None
