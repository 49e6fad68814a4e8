"""What the tests of package formats share: names of others, hostile metadata, programs of ecosystems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from edgepack.api import Bundle, export
from edgepack.bundle.manifest import Manifest, Tensor
from edgepack.commands.export import source_bundle
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.metadata import PackageMetadata
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.resources import TEMPLATES
from tests.support.pages import foreign_tags
from tests.support.worker import COLUMNS, ROWS, reference

__all__ = [
    "CONSUMERS",
    "HOSTILE_NAMES",
    "METADATA",
    "TEMPLATES",
    "assert_same_bytes",
    "blocks",
    "extract",
    "hostile",
    "kotlinc",
    "on",
    "recorded",
    "run",
    "tool",
    "write",
]

#: Programs that use packages.
CONSUMERS = Path(__file__).parents[1] / "formats" / "consumers"

#: Names of tensors that would end a string, a comment or a line somewhere, or are words of a language.
HOSTILE_NAMES = (
    'quote" + evil() + "',
    "back\\slash\\",
    "line\nend\r\n#define evil",
    "comment */ evil() /* // \\u002a\\u002f",
    "]]> --> <script>evil</script> <evil a='b'/> [x](javascript:evil) &amp;",
    "../../etc/passwd",
    "${evil} $(evil) `evil` {{ evil }} %s {}",
    "\u202eevil\u2028\u0000\x1b[31m",
    "größe 漢字 \U0001f600",
    "class",
    "Class",
    "self",
    "func",
    "session",
    "1st",
    "",
    "a.b",
    "a:b",
    "x" * 300,
    "'''\"\"\"|`",
)
#: What metadata may hold and no format may be broken by.
METADATA = PackageMetadata(
    version="1.2.0-beta.1",
    summary="<script>x</script> [x](javascript:x) "
    "Says \"hi\" to 'you' \\ ]]> --> */ ${evil} $(evil) `evil` <b>&amp; größe 漢字 | %s {{ x }} #{x}",
    license="Apache-2.0 OR MIT",
    authors=['Zoë "Q" O\'Neil ]] */ \\ <zoe@example.org>', "Plain Name"],
    homepage="https://example.org/?a='b'&c=$(evil)#]]*/\\",
)


def tool(name: str, *places: str) -> str:
    """A program's path; the test is skipped where it is missing."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *places]))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def kotlinc() -> tuple[list[str], str]:
    """Kotlin's compiler, and its library on a class path; the test is skipped where it is missing.

    ``pip install kotlin-jupyter-kernel`` brings both, in jar files.
    """
    spec = find_spec("run_kotlin_kernel")
    jars = sorted(Path(spec.origin).with_name("jars").glob("*.jar")) if spec and spec.origin else []
    found = {part: path for part in ("-all", "kotlin-stdlib-") for path in jars if part in path.stem}
    if len(found) != 2:
        pytest.skip("Kotlin's compiler is not installed: pip install kotlin-jupyter-kernel")
    compiler, library = found.values()
    command = [tool("java"), "-cp", str(compiler), "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler"]
    return [*command, "-no-stdlib", "-no-reflect", "-Werror"], str(library)


def run(*command: str | Path, cwd: Path, code: int = 0, **environment: str) -> str:
    """What a program says; it must end with ``code``."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, f"{command}\n{done.stdout}"
    return done.stdout


def blocks(readme: Path, language: str) -> list[str]:
    """The fenced blocks of a README in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", readme.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def hostile(bundle: Bundle) -> SourceBundle:
    """A bundle whose manifest has hostile names and every dtype: twenty inputs and as many outputs.

    Its library does not have them: what is made of it is compiled, not run.
    """
    dtypes = list(DTYPE_BYTES)
    tensors = tuple(
        Tensor(name=name, dtype=dtype, shape=(2, 3), nbytes=6 * DTYPE_BYTES[dtype])
        for name, dtype in zip(HOSTILE_NAMES, dtypes * 2, strict=False)
    )
    scalars = tuple(one.model_copy(update={"shape": (), "nbytes": one.nbytes // 6}) for one in tensors)
    source = source_bundle(bundle.path)
    manifest: Manifest = source.manifest.model_copy(update={"inputs": tensors, "outputs": scalars})
    return SourceBundle(source.root, manifest)


def on(bundle: SourceBundle, **device: str) -> SourceBundle:
    """As if it were for another device."""
    changed = bundle.manifest.device.model_copy(update=device)
    return SourceBundle(bundle.root, bundle.manifest.model_copy(update={"device": changed}))


def write(
    one: ExportFormat, bundles: Sequence[SourceBundle], folder: Path, package: PackageMetadata = METADATA
) -> list[Path]:
    """The packages of a format, by its own function."""
    package.check()
    folder.mkdir(parents=True)
    assert not any(one.refusal(bundle) for bundle in bundles)
    made = [folder / name for name in one.write(ExportJob(bundles, package, folder))]
    for path in made:
        _check_readmes(path, folder.with_name(f"{folder.name} unpacked"))
    return made


def _check_readmes(archive: Path, folder: Path) -> None:
    """What is Markdown in a package has no HTML and no link of another's text."""
    try:
        shutil.unpack_archive(archive, folder, "zip" if zipfile.is_zipfile(archive) else "gztar")
    except shutil.ReadError:
        return
    for readme in folder.rglob("*.md"):
        assert not foreign_tags(readme), readme


def assert_same_bytes(name: str, bundles: Sequence[Bundle], made: Path, folder: Path, **package: str) -> None:
    """A format makes the file ``made`` again of copies elsewhere, with other times and another umask."""
    copies = []
    for index, bundle in enumerate(bundles):
        copies.append(folder / f"another place {index}" / bundle.path.name)
        shutil.copytree(bundle.path, copies[-1], copy_function=shutil.copy)
    old = os.umask(0o077)
    try:
        (again,) = export(copies, name, folder / "again", **package)  # type: ignore[arg-type]
    finally:
        os.umask(old)
    assert again.name == made.name
    assert again.read_bytes() == made.read_bytes()


def extract(archive: Path, folder: Path) -> Path:
    """The folder with the package's files."""
    if archive.suffix in {".gz", ".tgz"}:
        folder.mkdir()
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    else:
        shutil.unpack_archive(archive, folder, "zip")
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 else folder


def recorded(bundle: Bundle, folder: Path) -> None:
    """Writes recorded.h, for check_firmware.c of CONSUMERS."""
    x = np.fromfile(bundle.path / "test" / "input_0.bin", "f4").reshape(ROWS, COLUMNS)
    output, sign = reference(x)
    arrays = (("float", "recorded", x), ("float", "expected", output), ("signed char", "expected_sign", sign))
    (folder / "recorded.h").write_text(
        "".join(
            f"static const {kind} {name}[] = {{{', '.join(f'{v:.9g}' for v in data.ravel())}}};\n"
            for kind, name, data in arrays
        )
    )
