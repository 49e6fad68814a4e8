"""The model as one file of C and its header, the runtime amalgamated, beside the kernels' object file.

The bundle's ``src/model.c`` includes the whole runtime already; here each of its includes that lies in the
bundle is put in its place. Params that the bundle embeds become words of C, for an assembler that includes a
file would have to be told where it lies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import package_name
from edgepack.formats.prefix import c_example
from edgepack.plan.types import ALIGNMENT
from edgepack.render.templates import render
from edgepack.text.printable import printable

__all__ = ["C_SINGLE_FILE"]

_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]+)[>"]')
_DEEPEST = 20
#: Bytes of params that a C compiler reads in seconds, as words.
_MOST_EMBEDDED = 32 << 20
#: What includes the params in model.c, in one piece or in several.
_EMBEDDED = re.compile(
    r"#if !defined\(EP_PARAMS_FILE\).*EP_HIDDEN extern const unsigned char ep_embedded_\w+\[\];\n",
    re.DOTALL,
)
_LABEL = re.compile(r"EP_HIDDEN extern const unsigned char (ep_embedded_\w+)\[\];\n")
#: The section of params whose device names no memories.
_SECTION = ".rodata.edgepack"


def _objects(bundle: SourceBundle) -> list[str]:
    """The kernels' object files, one for each kind of CPU."""
    return [path for path in bundle.files() if re.fullmatch(r"src/kernels[0-9]*\.o", path)]


def _params(bundle: SourceBundle) -> str:
    """The params file in the bundle, which is there in every mode; "" if it is not."""
    path = bundle.layout.params
    return path if path in bundle.files() else ""


def _refusal(bundle: SourceBundle) -> str:
    files, device = bundle.files(), bundle.manifest.device
    if device.os in {"wasi", "emscripten"}:
        return "a page or node takes a whole module; `--format npm` makes a package of it."
    if "src/model.c" not in files or not _objects(bundle) or not _params(bundle):
        return "it has no sources and kernels (src/), or no params; pack the model again."
    size = (bundle.root / _params(bundle)).stat().st_size
    if bundle.params is None and size > _MOST_EMBEDDED:
        return f"its params have {size >> 20} MiB, too many to embed as C; pack it with `--params file`."
    return ""


def _amalgamated(bundle: SourceBundle, path: str, header: str) -> str:
    """The text of a file of the bundle with what it includes in its place; ``header`` for the model's own."""
    there = {one for one in bundle.files() if one.startswith(("src/", "include/"))}
    return "".join(_lines(bundle.root, path, there, header))


def _lines(root: Path, path: str, there: Collection[str], header: str, depth: int = 0) -> Iterator[str]:
    if depth > _DEEPEST:
        raise ConfigError(f"{root / path} includes itself.", hint="Pack the model again.")
    folder = PurePosixPath(path).parent
    for line in (root / path).read_text(encoding="utf-8").splitlines(keepends=True):
        match = _INCLUDE.match(line)
        name = match[1] if match else ""
        places = [str(folder / name), f"src/{name}", f"include/{name}"]
        found = next((place for place in places if place in there), "") if match else ""
        if header and found == "include/edgepack/runtime.h":
            yield f'#include "{header}"\n'
        elif found:
            yield from _lines(root, found, there, header, depth + 1)
        elif not name.startswith(("gpu/", "signed/")):  # which a bundle has that needs it
            yield line


def _embedded(text: str, bundle: SourceBundle) -> str:
    """model.c with the params as words in it."""
    blocks = _EMBEDDED.findall(text)
    labels = _LABEL.findall(blocks[0]) if len(blocks) == 1 else []
    pieces = _pieces(bundle)
    if len(labels) != len(pieces):
        raise ConfigError(
            "This bundle embeds its params in a way that this edgepack does not know.",
            hint="Pack the model again, or with `--params file`.",
        )
    made = (
        "#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n"
        '#error "the params are little-endian"\n#endif\n'
    ) + "".join(_words(label, *piece) for label, piece in zip(labels, pieces, strict=True))
    return _EMBEDDED.sub(lambda _: made, text)


def _pieces(bundle: SourceBundle) -> list[tuple[str, bytes]]:
    """The sections of the params, and what model.c puts into each: behind the first, the id comes before."""
    params, file = bundle.manifest.params, (bundle.root / _params(bundle)).read_bytes()
    begin = len(file) - params.nbytes
    identity = bytes.fromhex(params.id).ljust(ALIGNMENT, b"\0")
    found: list[tuple[str, bytes]] = []
    for section, part in _sections(bundle):
        data = file[begin + part.start : begin + part.stop]
        found.append((section, (identity if found else file[:begin]) + data))
    return found


def _sections(bundle: SourceBundle) -> list[tuple[str, slice]]:
    """The sections of embedded params, and which bytes of the params data each has."""
    params = bundle.manifest.params
    found = [(one.section, slice(one.offset, one.offset + one.nbytes)) for one in params.sections]
    return found or [(_SECTION, slice(0, params.nbytes))]


def _words(label: str, section: str, data: bytes) -> str:
    """C of an array in a section, and what it is called."""
    data += bytes(-len(data) % 8)
    words = [f"0x{int.from_bytes(data[at : at + 8], 'little'):x}u" for at in range(0, len(data), 8)]
    lines = (",".join(words[at : at + 8]) for at in range(0, len(words), 8))
    return (
        f'#if defined(__ELF__)\n__attribute__((section("{section}"), aligned(64)))\n'
        "#else\n__attribute__((aligned(64)))\n#endif\n"
        f"static const uint64_t {label}_words[] = {{\n" + ",\n".join(lines) + "\n};\n"
        f"#define {label} ((const unsigned char *){label}_words)\n"
    )


def _write(job: ExportJob) -> Sequence[str]:
    bundle, name = job.bundle, job.name
    what = "an archive: ASCII letters, digits, +, -, . and _"
    base = package_name(job.package.name, name, r"[A-Za-z0-9][A-Za-z0-9+._-]*", what)
    stem = f"{base}-{bundle.manifest.device.name}-{job.version}-c"
    source = re.sub(r"\A/\*.*?\*/\n", "", _amalgamated(bundle, "src/model.c", f"{name}.h"), flags=re.DOTALL)
    if bundle.params is None:
        source = _embedded(source, bundle)
    made_by = f"edgepack {bundle.manifest.edgepack}"
    head = f"/* {name}: the model and its runtime in one file. Generated by {made_by}.\n"
    objects = {path: f"{name}_{PurePosixPath(path).name}" for path in _objects(bundle)}
    head += f" * Link with {', '.join(objects.values())}. SPDX-License-Identifier: Apache-2.0 */\n"
    shared = bundle.manifest.artifact("shared")
    needed = [str(one) for one in shared.audit.get("needed", ())] if shared else []
    values = {
        "name": name,
        "version": job.version,
        "summary": job.package.summary or f"{name}, a model compiled ahead of time",
        "device": printable(bundle.manifest.device.name),
        "triple": bundle.manifest.device.triple,
        "objects": " ".join(objects.values()),
        "libm": not shared or any(one.startswith("libm.") for one in needed),
        "bare": bundle.manifest.device.bare_metal,
        "embedded": bundle.params is None,
        "sections": [f"`{section}`" for section, _ in _sections(bundle)],
        "edgepack": bundle.manifest.edgepack,
        **c_example(job, f'#include "{name}.h"'),
    }
    texts = {
        f"{name}.c": head + source,
        f"{name}.h": _amalgamated(bundle, f"include/{name}.h", ""),
        "README.md": render("formats/c/readme.md.j2", values),
    }
    entries = [Entry(path, text.encode()) for path, text in texts.items()]
    entries += [Entry(to, bundle.root / path) for path, to in objects.items()]
    if bundle.params:
        entries.append(Entry(f"{name}.params", bundle.params))
    entries += job.licenses()
    write_tar_gz(job.folder / f"{stem}.tar.gz", [entry.below(stem) for entry in entries])
    return [f"{stem}.tar.gz"]


C_SINGLE_FILE = ExportFormat("One file of C, its header and the kernels' object", _refusal, _write)
