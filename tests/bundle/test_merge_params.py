"""One params file for several plans."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.bundle.merge_params import share_params
from edgepack.errors import InternalError
from edgepack.plan.types import ALIGNMENT, Constant, Plan
from edgepack.render.params_file import read_params, write_params
from workbench.mini import mini_plan


def _plan(contents: dict[str, bytes], blob: Path) -> Plan:
    data, constants = b"", []
    for name, content in contents.items():
        data += bytes(-len(data) % ALIGNMENT)
        digest = hashlib.sha256(content).hexdigest()
        constants.append(Constant(name, "uint8", (len(content),), len(content), digest, len(data)))
        data += content
    data += bytes(-len(data) % ALIGNMENT)
    blob.write_bytes(data)
    return replace(mini_plan(), constants=tuple(constants), params_bytes=len(data), params_growth=0)


def test_equal_tensors_are_stored_once_and_each_plan_finds_its_own(tmp_path: Path) -> None:
    wide = {"bias": b"b" * 40, "weights": b"w" * 1000}
    narrow = {"weights": b"n" * 900, "bias": b"b" * 40, "more": b"m" * 64}
    blobs = [tmp_path / "wide", tmp_path / "narrow"]
    plans = [_plan(wide, blobs[0]), _plan(narrow, blobs[1])]
    shared = share_params(plans, ["wide", "narrow"], blobs, tmp_path / "both")
    data = (tmp_path / "both").read_bytes()
    for plan, contents in zip(shared, (wide, narrow), strict=True):
        assert plan.params_bytes == len(data)
        for constant, content in zip(plan.constants, contents.values(), strict=False):
            assert constant.offset % ALIGNMENT == 0
            assert data[constant.offset : constant.offset + constant.nbytes] == content
    assert data.count(b"b" * 40) == 1
    assert shared[1].params_growth == len(data) - plans[1].params_bytes
    params_id = write_params(shared[1], tmp_path / "both", tmp_path / "file")
    listed = read_params(tmp_path / "file")
    assert listed.params_id == params_id
    assert {c.name for c in listed.constants} == {"weights", "bias", "more", "weights (wide)", "bias (wide)"}


def test_params_that_end_early_are_refused(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    plan = _plan({"weights": b"w" * 1000}, blob)
    blob.write_bytes(b"w" * 10)
    with pytest.raises(InternalError, match="end within 'weights'"):
        share_params([plan], ["wide"], [blob], tmp_path / "out")
