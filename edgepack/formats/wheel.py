"""A wheel: a package for pip with the library, the params and a typed module that calls it by ctypes.

Sources: PEP 427 (wheels), PEP 425 and 600 (tags), PEP 656 (musl), PEP 738 (Android), PEP 639 (licenses),
PEP 770 (bills of materials), and the specifications at packaging.python.org.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import keyword
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.abi import pool, structs
from edgepack.abi.header import header
from edgepack.bundle.layout import SBOM
from edgepack.bundle.manifest import Manifest
from edgepack.formats.archives import Entry, write_zip
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import Argument, argument_lists, package_name
from edgepack.formats.metadata import mail_address, pep440_version
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.render.templates import render
from edgepack.resources import TEMPLATES
from edgepack.text.printable import printable

__all__ = ["WHEEL", "import_line", "module_name", "platform_tags"]

_TEMPLATES = "formats/wheel"
_NAME = r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]"
#: Modules of Python's library that this Python does not have: removed since 3.10, or added since 3.10.
_OTHER_PYTHONS = frozenset(
    """
    aifc annotationlib asynchat asyncore audioop binhex cgi cgitb chunk compression crypt distutils
    imghdr imp lib2to3 mailcap msilib nis nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib
    tomllib uu xdrlib
    """.split()  # noqa: SIM905
)
_RESERVED_MODULES = frozenset({*sys.stdlib_module_names, *_OTHER_PYTHONS, "numpy", "pip", "setuptools"})
#: Names that arguments and fields of the module's code may not have: methods of named tuples, and its own.
_RESERVED = frozenset(
    {*keyword.kwlist, "count", "index", "self", "session", "np", "npt", "Outputs", "Session", "print"}
)
_SCALARS = {**{dtype: dtype for dtype in DTYPE_BYTES}, "bool": "bool_", "bfloat16": "uint16"}
#: What PEP 600 lets a library need; auditwheel gives no manylinux tag to one that needs more.
_MANYLINUX = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.[0-9]+|ld-linux[a-z0-9_.-]*\.so\.[0-9]+")
_ANDROID = {"aarch64": "arm64_v8a", "arm": "armeabi_v7a", "x86_64": "x86_64"}
_WINDOWS = {"x86_64": "win_amd64", "aarch64": "win_arm64"}


@dataclass(frozen=True)
class _PythonTensor:
    """An input or output as the templates name it. ``variable`` reads it from what ``run`` returned."""

    argument: Argument
    variable: str

    @property
    def name(self) -> str:
        return self.argument.name

    @property
    def identifier(self) -> str:
        return self.argument.identifier

    @property
    def literal(self) -> str:
        return ascii(self.argument.name)

    @property
    def dtype(self) -> str:
        return "uint16" if self.argument.dtype == "bfloat16" else self.argument.dtype

    @property
    def scalar(self) -> str:
        return self.argument.element

    @property
    def shape(self) -> str:
        return repr(self.argument.shape)

    @property
    def text(self) -> str:
        bits = ", the bits of bfloat16" if self.argument.dtype == "bfloat16" else ""
        return f"{self.dtype}{bits}, shape {self.shape}, the model's {_in_docstring(self.name)}"


def _in_docstring(text: str) -> str:
    """Text of others within a docstring: ASCII, on one line, and it cannot end the docstring."""
    return ascii(text).replace("\\", "\\\\").replace('"', '\\"')


def module_name(name: str) -> str:
    """What is imported: the model's name, unless that is a word of Python or a module of its library."""
    taken = keyword.iskeyword(name) or name in _RESERVED_MODULES or name.lower() in _RESERVED_MODULES
    return f"{name}_model" if taken else name


def import_line(name: str) -> str:
    """The statement that imports the package of a model of this name."""
    return f"import {module_name(name)}"


def _linux_tags(manifest: Manifest) -> list[str]:
    device, audit = manifest.device, _audit(manifest)
    arch = device.arch
    if arch == "arm":
        # Python's names of the machine; packaging.python.org has no manylinux of armv6.
        arch = "armv6l" if device.triple.startswith("armv6") else "armv7l"
    if device.libc == "musl":
        return [f"musllinux_1_2_{arch}"]
    others = [one for one in audit.get("needed", ()) if not _MANYLINUX.fullmatch(str(one))]
    if arch == "armv6l" or others or not device.triple.endswith(("gnu", "gnueabihf")):
        return [f"linux_{arch}"]
    found = re.fullmatch(r"2\.([0-9]{1,3})", str(audit.get("glibc") or "2.17"))
    minor = max(int(found[1]), 17) if found else 17
    # manylinux2014 is what versions of pip before 20.3 call it; piwheels and old Pis' pips know linux_armv7l.
    legacy = [f"manylinux2014_{arch}"] if minor == 17 and arch in ("x86_64", "aarch64") else []
    plain = [f"linux_{arch}"] if arch == "armv7l" else []
    return [*plain, *legacy, f"manylinux_2_{minor}_{arch}"]


def platform_tags(manifest: Manifest) -> list[str]:
    """Tags of the platforms where the bundle's shared library loads, in a file name's order; empty where
    Python has none. The glibc version is the newest of any symbol that the audit found in the library."""
    device = manifest.device
    if device.os == "linux":
        return sorted(_linux_tags(manifest))
    version = re.search(r"(?:macosx|android[a-z]*)([0-9]+)(?:\.([0-9]+))?", device.triple)
    if device.os == "macos" and version:
        arch = "arm64" if device.arch == "aarch64" else device.arch
        return [f"macosx_{version[1]}_{version[2] or 0}_{arch}"]
    if device.os == "android" and version and device.arch in _ANDROID:
        return [f"android_{version[1]}_{_ANDROID[device.arch]}"]
    if device.os == "windows" and device.arch in _WINDOWS:
        return [_WINDOWS[device.arch]]
    return []


def _audit(manifest: Manifest) -> dict[str, Any]:
    shared = manifest.artifact("shared")
    return shared.audit if shared is not None else {}


def _refusal(bundle: SourceBundle) -> str:
    manifest = bundle.manifest
    if not platform_tags(manifest):
        return f"Python has no name for the platform of {manifest.device.name}."
    if bundle.artifact("shared") is None:
        return "it has no shared library; pack for a device whose artifacts include `shared`."
    if manifest.runtime.abi_version != header().abi_version:
        return "its library has the interface of another version of edgepack; pack the model again."
    return "" if manifest.outputs else "its model has no outputs."


def _values(job: ExportJob, distribution: str, tags: Sequence[str]) -> dict[str, object]:
    manifest = job.bundle.manifest
    inputs, outputs = argument_lists(manifest, _SCALARS, _RESERVED)
    several = len(outputs) > 1
    taken = {one.identifier for one in (*inputs, *outputs)}
    results = outputs[0].identifier
    if several:
        results = "outputs" if "outputs" not in taken else "all_outputs_"
    summary = job.package.summary or f"The model {manifest.name}, compiled ahead of time"
    return {
        "name": manifest.name,
        "module": module_name(manifest.name),
        "distribution": distribution,
        "version": pep440_version(job.version),
        "title": _in_docstring(summary)[1:-1],
        "summary": summary,
        "device": printable(manifest.device.name),
        "inputs": [_PythonTensor(one, one.identifier) for one in inputs],
        "outputs": [
            _PythonTensor(one, f"{results}.{one.identifier}" if several else one.identifier)
            for one in outputs
        ],
        "several": several,
        "results": results,
        "returns": "Outputs" if several else f"npt.NDArray[np.{outputs[0].element}]",
        "library": Path(job.bundle.layout.shared).name,
        "params": f"{manifest.name}.params" if job.bundle.params else "",
        "symbol": manifest.symbol,
        "threads": manifest.device.threads,
        "license": job.package.license,
        "author": ", ".join(one for one in job.package.authors if "<" not in one),
        "author_email": ", ".join(mail_address(one) for one in job.package.authors if "<" in one),
        "homepage": job.package.homepage,
        "edgepack": manifest.edgepack,
        "tags": tags,
        "licenses": _licenses(job.bundle),
        "magic": hex(header().magic),
        "abi_version": header().abi_version,
        "statuses": [
            (value, ascii(status.name), ascii(status.text))
            for value, status in sorted(header().statuses.items())
        ],
    }


def _licenses(bundle: SourceBundle) -> list[str]:
    """Names of the files in LICENSES/."""
    found = (re.fullmatch(r"LICENSES/([A-Za-z0-9._-]+)", path) for path in bundle.files())
    return [match[1] for match in found if match]


def _write(job: ExportJob) -> Sequence[str]:
    given = package_name(job.package.name, job.name, _NAME, "a wheel: ASCII letters, digits, -, _ and .")
    distribution = re.sub(r"[-_.]+", "-", given).lower()
    tags = platform_tags(job.bundle.manifest)
    values = _values(job, distribution, tags)
    stem = f"{distribution.replace('-', '_')}-{values['version']}"
    file = f"{stem}-py3-none-{'.'.join(tags)}.whl"
    module, info = values["module"], f"{stem}.dist-info"
    library = job.bundle.artifact("shared")
    assert library is not None
    texts = {
        f"{module}/{name}": render(f"{_TEMPLATES}/{name}.j2", values)
        for name in ("__init__.py", "_header.py")
    }
    texts[f"{module}/_runtime.py"] = (TEMPLATES / _TEMPLATES / "_runtime.py").read_text(encoding="utf-8")
    texts[f"{module}/_structs.py"] = Path(structs.__file__).read_text(encoding="utf-8")
    texts[f"{module}/_pool.py"] = Path(pool.__file__).read_text(encoding="utf-8")
    texts[f"{module}/py.typed"] = ""
    readme = render(f"{_TEMPLATES}/readme.md.j2", {**values, "file": file})
    texts[f"{info}/METADATA"] = render(f"{_TEMPLATES}/METADATA.j2", {**values, "readme": readme})
    texts[f"{info}/WHEEL"] = render(f"{_TEMPLATES}/WHEEL.j2", values)
    entries = [Entry(path, text.encode()) for path, text in texts.items()]
    entries.append(Entry(f"{module}/{values['library']}", library, executable=True))
    if job.bundle.params is not None:
        entries.append(Entry(f"{module}/{values['params']}", job.bundle.params))
    for name in _licenses(job.bundle):
        entries.append(Entry(f"{info}/licenses/{name}", job.bundle.root / "LICENSES" / name))
    if (sbom := job.bundle.file(SBOM)) is not None:
        entries.append(Entry(f"{info}/sboms/{SBOM}", sbom))
    entries.append(Entry(f"{info}/RECORD", _record(entries, f"{info}/RECORD")))
    write_zip(job.folder / file, entries)
    return [file]


def _record(entries: Sequence[Entry], own: str) -> bytes:
    """RECORD: path, SHA-256 and bytes of each file, by which pip checks and uninstalls."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for entry in sorted(entries, key=lambda entry: entry.name):
        with entry.open() as content:
            digest = hashlib.sha256()
            while chunk := content.read(1 << 20):
                digest.update(chunk)
        name = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
        rows.writerow([entry.name, f"sha256={name}", entry.size])
    rows.writerow([own, "", ""])
    return text.getvalue().encode()


WHEEL = ExportFormat("A wheel: pip install, import, run on NumPy arrays", _refusal, _write)
