"""What the npm package says of dtypes and names."""

from __future__ import annotations

import json
import re

import pytest

from edgepack.abi.header import header
from edgepack.render.javascript import js_array, js_key, js_member
from edgepack.resources import TEMPLATES

WEB = TEMPLATES / "web"


def test_each_dtype_has_the_same_array_in_types_and_at_run_time() -> None:
    table = dict(re.findall(r"^  (\w+): (\w+),$", (WEB / "dtypes.js").read_text(encoding="utf-8"), re.M))
    union = re.search(r"export type Dtype =([^;]*);", (WEB / "runtime.d.ts").read_text(encoding="utf-8"))
    dtypes = set(header().dtypes.values())
    assert union is not None and set(re.findall(r'"(\w+)"', union[1])) == dtypes
    assert table == {dtype: js_array(dtype) for dtype in dtypes}


@pytest.mark.parametrize("name", ["a b", "x:0", "1st", "é", 'q"\\', "a-b", "", "a\n*/", "__proto__"])
def test_a_name_that_is_no_identifier_is_quoted(name: str) -> None:
    assert json.loads(js_key(name)) == name
    assert js_member(name) == f"[{js_key(name)}]"


def test_an_identifier_stays_as_it_is() -> None:
    assert (js_key("logits_0"), js_member("logits_0")) == ("logits_0", ".logits_0")
