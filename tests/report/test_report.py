"""The report of a bundle: complete, the same for the same bundle, safe with names of others, legible."""

from __future__ import annotations

import json
import re
import shutil
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.errors import ConfigError
from edgepack.report.build import render_report
from edgepack.report.figures import byte_ticks, error_scale, shortened
from edgepack.report.results import read_bench, read_verification
from edgepack.resources import TEMPLATES
from edgepack.runners import browser, native
from edgepack.runners.base import Availability
from edgepack.text.printable import printable
from tests.support.devtools import file_url, open_page
from tests.support.manifest import example
from tools import report_picture

HOSTILE = [
    "<script>alert(1)</script>",
    "]]><b>x</b>",
    "\"'><img src=x onerror=alert(1)>",
    "\u202egnp.exe",
    "&lt;already",
    "--><!--",
    "{{ m.name }}",
    "x" * 300,
    "\ud800\x00",
]


class Reader(HTMLParser):
    """Elements, their attributes, and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def bench(**changes: Any) -> dict[str, Any]:
    times = {"runs_ms": [1.0, 2.0], "load_ms": 1, "first_result_ms": 3, "peak_rss_bytes": 4096}
    summary = {"min_ms": 1.0, "median_ms": 1.5, "p90_ms": 1.9, "p99_ms": 2.0}
    where = {"where": "this machine", "real_speed": True, "threads": 2}
    return {**where, **times, **summary, "steps_us": [12.0], **changes}


def verification(**changes: Any) -> dict[str, Any]:
    output = {"name": "output", "max_abs_err": 1e-6, "max_abs_ref": 2.0, "atol": 1e-5, "rtol": 1e-4}
    found = {**output, "elements": 6, "mismatches": 0, **changes}
    return {"ok": True, "where": "here", "threads": 1, "reference": "onnxruntime", "outputs": [found]}


def buffers(*rows: tuple[str, int, int, int, int]) -> dict[str, Any]:
    keys = ("name", "offset", "nbytes", "first_step", "last_step")
    memory = {"arena": 256, "lower_bound": 250, "peak_step": 0, "scratch_per_thread": 64}
    return {**memory, "buffers": [dict(zip(keys, row, strict=True)) for row in rows]}


def quantised(name: str) -> dict[str, Any]:
    output = {"name": name, "sqnr": 41.23, "max_error": 0.01, "largest": 2.0, "top1": 1.0}
    layer = {"name": name, "operator": name, "quantised": False, "sqnr": 38.76}
    record = {"mode": "int8", "sha256": "cd" * 32, "samples": 4, "kept_float": [name]}
    return {**record, "outputs": [output], "layers": [layer]}


def full(**changes: Any) -> str:
    """A report with everything in it."""
    memory = buffers(("tensor", 0, 128, 0, 0), ("scratch0", 128, 128, 0, 0))
    manifest = example(**{"memory": memory, **changes})
    timed, checked = read_bench(bench(), manifest), read_verification(verification(), manifest)
    return render_report(manifest, timed, checked)


def test_a_packed_bundle_has_a_page_with_all_its_parts(small_bundle: Bundle, tmp_path: Path) -> None:
    timed = small_bundle.bench(runs=2, warmup=0, profile=True)
    checked = small_bundle.verify()
    written = small_bundle.report(tmp_path / "page.html", bench=timed, verification=checked)
    page = Reader(written.read_text(encoding="utf-8"))
    assert page.tags.count("svg") == 5
    for part in (
        "Mul_0",
        "Add_0, Relu_0",
        "scaled: 128 B from 0 B on, steps 0 to 1",
        "multiply",
        "add + relu",
    ):
        assert part in page.text
    assert "sign" in page.text and "most in use: 128 B at step 0" in page.text
    with pytest.raises(ConfigError, match="exists"):
        small_bundle.report(written)
    (tmp_path / "bench.json").write_text(json.dumps(timed.to_json()))
    (tmp_path / "verify.json").write_text(json.dumps(checked.to_json()))
    options = ["--bench", f"{tmp_path}/bench.json", "--verification", f"{tmp_path}/verify.json"]
    again = tmp_path / "again.html"
    assert main(["report", str(small_bundle.path), "-o", str(again), *options]) == 0
    assert again.read_bytes() == written.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("again.html", "bench.json", "page.html", "verify.json")
    ]


def test_nothing_is_loaded_or_run_and_every_picture_is_described() -> None:
    text = full()
    page = Reader(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(value.startswith("#") for name, value in page.attributes if name == "href" and value)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert "url(" not in text and "@import" not in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 5
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        title, description = root[0], root[1]
        assert (title.tag, description.tag) == ("title", "desc") and title.text and description.text
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_the_report_in_the_documents_looks_as_reports_do() -> None:
    """`tools/report_picture.py` writes it anew: its style is today's, and so are its headings."""
    shown = report_picture.REPORT.read_text(encoding="utf-8")
    assert (TEMPLATES / "report" / "style.css").read_text(encoding="utf-8").strip() in shown
    template = "".join(path.read_text(encoding="utf-8") for path in (TEMPLATES / "report").glob("*.j2"))
    headings = re.findall(r"<h2[^>]*>([^<]*)</h2>", shown)
    assert len(headings) > 3 and all(heading in template for heading in headings)


def test_the_picture_in_the_documents_is_of_the_size_that_its_script_makes() -> None:
    """`tools/report_picture.py` makes both anew."""
    data = report_picture.PICTURE.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == report_picture.SIZE
    assert len(data) <= report_picture.MOST_BYTES


@pytest.mark.skipif(browser.find_browser() is None, reason="no browser is here: apt-get install chromium")
def test_a_browser_takes_a_picture_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "a page.html").write_text("<body style='background: #fff'>text")
    found = browser.find_browser()
    assert found is not None
    report_picture.picture(found, tmp_path / "a page.html", tmp_path / "out.png", (320, 200))
    assert struct.unpack(">II", (tmp_path / "out.png").read_bytes()[16:24]) == (320, 200)


def test_a_model_that_was_quantised_has_its_figures() -> None:
    model = {"file": "net.onnx", "sha256": "ab" * 32, "quantised": quantised("Conv_7")}
    page = Reader(full(model=model))
    assert all(part in page.text for part in ("Quantisation", "Conv_7 (float)", "41.2", "38.8", "100 %"))
    assert "4 samples of calibration data (random" in page.text


def test_without_results_and_for_older_bundles_there_is_less() -> None:
    page = Reader(render_report(example()))
    assert page.tags.count("svg") == 2  # sizes, work
    assert "Errors" not in page.text


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: name.encode("unicode_escape")[:12].decode())
def test_names_of_others_are_text(name: str) -> None:
    plain = Reader(full(model={"file": "net.onnx", "sha256": "ab" * 32, "quantised": quantised("layer")}))
    tensor = {"name": "output", "dtype": "float32", "shape": [2, 3], "nbytes": 24}
    manifest = example(
        model={**json.loads(example().to_json())["model"], "quantised": quantised(name)},
        memory=buffers((name, 0, 128, 0, 0), ("scratch0", 128, 128, 0, 0)),
        inputs=[{**tensor, "name": name}],
        outputs=[{**tensor, "name": name}],
        kernels=[{"symbol": "k", "ops": [name], "rule": name, "parameters": {name: name}, "flops": 6}],
        steps=[{"kernel": "k", "tasks": 2, "nodes": [name]}],
        device={**json.loads(example().to_json())["device"], "description": name},
        warnings=[name],
    )
    timed = read_bench(bench(where=name), manifest)
    text = render_report(manifest, timed, read_verification(verification(name=name), manifest))
    page = Reader(text)
    assert page.tags == plain.tags
    assert page.text.count(printable(name)) >= 19
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(picture)


def test_every_text_of_a_bundle_goes_through_printable() -> None:
    """Also in the title, which a browser shows beside those of other pages."""
    for file in (TEMPLATES / "report").glob("*.j2"):
        for expression in re.findall(r"\{\{(.*?)\}\}", file.read_text(encoding="utf-8")):
            if re.search(
                r"\bm\.|record\.|verification\.|bench\.where|tensor\.|buffer\.name|\.(note|parameters)\b",
                expression,
            ):
                assert re.search(
                    r"\| (printable|bytes|count|shape|format)|nbytes|_step|offset|'%|draw", expression
                ), expression


@pytest.mark.parametrize("field", ["name", "device"])
def test_a_bundle_does_not_say_where_its_report_goes(
    field: str, small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, outside = tmp_path / "bundle", tmp_path / "home"
    shutil.copytree(small_bundle.path, copy)
    data = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    (data if field == "name" else data["device"])["name"] = f"{outside}/x"
    (copy / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert main(["report", str(copy)]) == 2
    assert main(["report", str(copy), "--no-run"]) == 2
    assert not outside.exists() and not list((tmp_path / "work").iterdir())


def test_a_bundle_is_verified_and_measured_for_its_report(
    small_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(small_bundle.path), "-o", str(page), "--threads", "1", "--quiet"]) == 0
    shown = Reader(page.read_text(encoding="utf-8")).text
    assert "latency" in shown and "verified" in shown and "Time by kernel" in shown
    assert "measured:" not in shown
    assert main(["report", str(small_bundle.path), "-o", str(page), "--no-run", "--force"]) == 0
    plain = Reader(page.read_text(encoding="utf-8")).text
    assert "latency" not in plain and "verified" not in plain
    capsys.readouterr()


def test_what_cannot_run_here_is_said_on_the_page_and_is_an_error_where_it_was_asked_for(
    small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "available", lambda _: Availability(False, "", "It is for another CPU."))
    page = tmp_path / "page.html"
    assert main(["report", str(small_bundle.path), "-o", str(page)]) == 0
    said = "The runner native cannot run programs of host here. It is for another CPU."
    assert f"Neither verified nor measured: {said}" in Reader(page.read_text(encoding="utf-8")).text
    assert said in capsys.readouterr().err
    assert (
        main(["report", str(small_bundle.path), "-o", str(tmp_path / "no.html"), "--runner", "native"]) == 4
    )
    assert not (tmp_path / "no.html").exists()


def test_no_times_are_taken_of_an_emulator(
    small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "REAL_SPEED", False)
    text = small_bundle.report(tmp_path / "page.html", run=True).read_text(encoding="utf-8")
    shown = Reader(text).text
    assert "Not measured: An emulator runs it here" in shown
    assert "verified" in shown and "latency" not in shown


def test_wrong_outputs_are_shown_and_are_the_exit_code(small_bundle: Bundle, tmp_path: Path) -> None:
    checked = tmp_path / "verify.json"
    data = small_bundle.verify().to_json()
    data |= {"ok": False, "status": "mismatch"}
    data["outputs"][0]["mismatches"] = 3
    checked.write_text(json.dumps(data))
    page = tmp_path / "page.html"
    given = ["--verification", str(checked), "--no-run", "-o", str(page)]
    assert main(["report", str(small_bundle.path), *given]) == 1
    assert "FAILED" in page.read_text(encoding="utf-8")


def test_nodes_are_folded_where_there_are_several() -> None:
    """Their names are long, and a table with them was a page of 11,700 pixels."""
    text = full(steps=[{"kernel": "k", "tasks": 2, "nodes": ["a" * 40, "b", "c"]}])
    folded = re.search(r'<td class="nodes">(.*?)</td>', text)
    assert folded is not None
    assert (
        folded[1].startswith("<details><summary>3 nodes</summary><bdi>aaaa") and "<bdi>c</bdi>" in folded[1]
    )
    assert '<td class="nodes"><bdi>Add_0</bdi></td>' in full()


def test_a_bundle_without_times_has_no_empty_section() -> None:
    """As in a release: nothing was benched or verified. No figure, table or caption of times is left."""
    memory = buffers(("tensor", 0, 128, 0, 0), ("scratch0", 128, 128, 0, 0))
    text = render_report(example(memory=memory))
    sections = re.findall(r"<section\b.*?</section>", text, re.DOTALL)
    assert sections
    for section in sections:
        body = re.sub(r"<h2\b.*?</h2>", "", section, flags=re.DOTALL)
        assert re.search(r"<(svg|tbody>\s*<tr|dd)\b", body), section
        assert re.sub(r"<[^>]*>|\s", "", body), section
    for said in ("Measured on", "median", "latency", "-time"):
        assert said not in text, said


def test_counted_instructions_are_shown_in_place_of_times() -> None:
    counts = {"run": 12_345, "repeatable": True, "load": 678, "steps": [12_300]}
    counted = {"where": "a board", "real_speed": False, "threads": 1, "instructions": counts}
    text = render_report(example(), read_bench(counted, example()))
    for said in ("12,345 instructions for a run", "678 to open", "Instructions by step", "12,300, 100.0%"):
        assert said in text, said
    assert "Measured on" not in text and "Time by kernel" not in text
    with pytest.raises(ConfigError, match="2 steps and the bundle 1"):
        read_bench({**counted, "instructions": {**counts, "steps": [1, 2]}}, example())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (bench(steps_us=[1.0, 2.0]), "2 steps and the bundle 1"),
        (bench(runs_ms=[]), "no result of `edgepack bench`"),
        (bench(median_ms=float("nan")), "no result of `edgepack bench`"),
        (bench(variant="other"), "kernels for 'other'"),
        ({}, "no result of `edgepack bench`: field where"),
    ],
)
def test_another_bundles_times_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_bench(wrong, example())


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="other outputs"):
        read_verification(verification(name="else"), example())
    path = tmp_path / "x.json"
    for text in ("[" * 100_000, "{", '{"where": NaN}', "[]", '"text"'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"x\.json"):
            read_bench(path, example())
    with pytest.raises(ConfigError, match="cannot be read"):
        read_bench(tmp_path / "missing.json", example())


@pytest.mark.parametrize("row", [("b", 0, 128, 0, 1), ("b", 0, 128, 1, 0), ("b", 200, 57, 0, 0)])
def test_an_arena_that_contradicts_itself_is_refused(row: tuple[str, int, int, int, int]) -> None:
    with pytest.raises(ConfigError, match="arena has a buffer"):
        full(memory=buffers(row))


def test_mismatches_and_numbers_that_are_none_are_shown() -> None:
    manifest = example()
    checked = verification(max_abs_err="nan", mismatches=6)
    page = Reader(render_report(manifest, None, read_verification({**checked, "ok": False}, manifest)))
    assert "6 of 6 wrong" in page.text and "FAILED" in page.text and "nan" in page.text


def test_labels_and_ticks() -> None:
    assert shortened("a" * 50, 10) == "a" * 9 + "…"
    assert shortened("日本語日本語", 6) == "日本…"
    assert shortened("\u202e", 40) == "\\u202e"
    assert [text for _, text in byte_ticks(5 << 20)] == [
        "0",
        "1.0 MiB",
        "2.0 MiB",
        "3.0 MiB",
        "4.0 MiB",
        "5.0 MiB",
    ]
    assert byte_ticks(1)[-1] == (1, "1 B")
    scale = error_scale([1e-5, 0.0, 30.0])
    assert (scale.low, scale.high) == (-5, 2)
    assert scale.left == scale.at(0) < scale.at(1e-5 * 2) < scale.at(1) < scale.at(30) < scale.right
    assert scale.at(1e9) == scale.right


#: Of every text that is shown, the least contrast with what is behind it (WCAG 2).
CONTRAST = """(() => {
  const light = (rgb) => {
    const [r, g, b] = rgb.match(/[0-9.]+/g).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    const colour = getComputedStyle(e).backgroundColor;
    return colour !== "rgba(0, 0, 0, 0)" || !e.parentElement ? colour : behind(e.parentElement);
  };
  let least = 99;
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || e.closest("title, desc") || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const a = light(e.closest("svg") ? style.fill : style.color), b = light(behind(e));
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()"""
BOX = """(box => ({x: box.x + box.width / 2, y: box.y + scrollY + box.height / 2}))(
  document.querySelector("CSS").getBoundingClientRect())"""


@pytest.mark.skipif(browser.find_browser() is None, reason="no browser is here: apt-get install chromium")
def test_a_browser_shows_it_in_both_schemes_and_tells_a_screen_reader(tmp_path: Path) -> None:
    nodes = ["שלום", "日本語", "Add_0"]
    steps = [{"kernel": "k", "tasks": 2, "nodes": nodes}]
    (tmp_path / "page.html").write_text(full(steps=steps), encoding="utf-8")
    with open_page(file_url(tmp_path / "page.html")) as page:
        for scheme, box, scratch in (
            ("light", (0x2A, 0x78, 0xD6), (0xD9, 0x66, 0x2F)),
            ("dark", (0x39, 0x87, 0xE5), (0xD9, 0x59, 0x26)),
        ):
            page.colour_scheme(scheme)
            assert page.evaluate(CONTRAST) >= 4.5
            for css, colour in ((".box:not(.scratch)", box), (".box.scratch", scratch)):
                at = page.evaluate(BOX.replace("CSS", css))
                # The dashed line of the peak is in the middle of the only step.
                assert page.pixel(at["x"] + 40, at["y"]) == colour
        tree = page.accessible()
        pictures = {name: description for role, name, description in tree if role in {"image", "img"}}
        figures = ("Errors of the outputs", "Files and memory", "The arena over a run", "Work by operator")
        for figure in (*figures, "Time by kernel"):
            assert any(name.startswith(figure) for name in pictures), pictures
        headings = [name for role, name, _ in tree if role == "heading"]
        assert headings[0] == "net for raspberrypi4" and "Memory, work and kernels" in headings
        assert any("שלום" in name for role, name, _ in tree if role == "StaticText")
        assert sum(role == "columnheader" for role, _, _ in tree) >= 17
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=True
        )
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
