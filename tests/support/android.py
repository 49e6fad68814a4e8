"""An Android NDK that is none: the tree, the driver and the link lines of a real one, with zig's clang in it.

What it makes are real ELF files for Android; its libc.so and libm.so only carry names. :func:`bionic` is a
folder with which qemu can run what was made for arm64: glibc under bionic's names.
"""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

__all__ = ["LEVEL", "REVISION", "bionic", "make_ndk"]

HERE = Path(__file__).parent / "ndk"
REVISION = "27.2.12479018"
LEVEL = 24

#: Folder of an architecture's libraries -> target.
TARGETS = {
    "aarch64-linux-android": "aarch64-linux-android24",
    "arm-linux-androideabi": "armv7a-linux-androideabi24",
    "x86_64-linux-android": "x86_64-linux-android24",
}
_LIBRARIES = ("libc", "libm", "libdl", "liblog")


def make_ndk(root: Path, host: str = "linux-x86_64") -> Path:
    """Write the tree; returns its root."""
    spec = find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    zig = Path(spec.origin).parent
    prebuilt = root / "toolchains" / "llvm" / "prebuilt" / host
    resource = prebuilt / "lib" / "clang" / "22"
    for folder in (prebuilt / "bin", resource / "lib" / "linux", prebuilt / "sysroot" / "usr" / "include"):
        folder.mkdir(parents=True)
    (resource / "include").symlink_to(zig / "lib" / "include")
    (root / "source.properties").write_text(f"Pkg.Desc = Android NDK\nPkg.Revision = {REVISION}\n")
    _write(prebuilt / "bin" / "clang", "clang.in", ZIG=str(zig / "zig"), LIB=str(zig / "lib"))
    for tool, word in (("ld.lld", "ld.lld"), ("llvm-ar", "ar")):
        _write(prebuilt / "bin" / tool, "tool.in", ZIG=str(zig / "zig"), TOOL=word)
    for libraries, target in TARGETS.items():
        _sysroot(prebuilt, libraries, target)
    return root


def bionic(root: Path) -> Path:
    """A folder for ``qemu-aarch64 -L``: Android's dynamic loader and libraries, which are glibc's."""
    system = root / "system"
    for folder in (system / "bin", system / "lib64"):
        folder.mkdir(parents=True)
    glibc = Path("/usr/aarch64-linux-gnu/lib")
    (system / "bin" / "linker64").symlink_to((glibc / "ld-linux-aarch64.so.1").resolve())
    compiler = ["aarch64-linux-gnu-gcc", "-shared", "-fPIC", "-Wl,--no-as-needed"]
    for name, source in (("libc", ["-w", str(HERE / "bionic.c")]), ("libm", ["-lm"]), ("libdl", ["-ldl"])):
        output = system / "lib64" / f"{name}.so"
        _run([*compiler, f"-Wl,-soname,{name}.so", "-o", str(output), *source])
    for library in glibc.glob("lib*.so.*"):
        (system / "lib64" / library.name).symlink_to(library.resolve())
    return root


def _sysroot(prebuilt: Path, libraries: str, target: str) -> None:
    """What the linker takes of bionic: start files and stubs of its libraries, as an NDK has them."""
    folder = prebuilt / "sysroot" / "usr" / "lib" / libraries / str(LEVEL)
    folder.mkdir(parents=True)
    clang = [str(prebuilt / "bin" / "clang"), f"--target={target}", "-O1", "-fPIC", "-w"]
    empty = folder / "empty.c"
    empty.write_text("")
    for name, source in (
        ("crtbegin_dynamic", HERE / "crtbegin.c"),
        ("crtbegin_so", empty),
        ("crtend_android", empty),
        ("crtend_so", empty),
    ):
        _run([*clang, "-c", str(source), "-o", str(folder / f"{name}.o")])
    for name in _LIBRARIES:
        names = HERE / f"{name}.txt"
        lines = names.read_text().splitlines() if names.exists() else []
        words = [word for line in lines if not line.startswith("#") for word in line.split()]
        stub = folder / f"{name}.c"
        stub.write_text("".join(f"void {word}(void) {{}}\n" for word in words))
        link = [
            "-shared",
            "-nostdlib",
            "-fno-builtin",
            f"-Wl,-soname,{name}.so",
            "-Wl,-z,max-page-size=16384",
        ]
        _run([*clang, *link, str(stub), "-o", str(folder / f"{name}.so")])
        stub.unlink()
    machine = libraries.partition("-")[0]
    builtins = (
        prebuilt / "lib" / "clang" / "22" / "lib" / "linux" / f"libclang_rt.builtins-{machine}-android.a"
    )
    for archive in (builtins, folder / "libunwind.a"):
        _run([str(prebuilt / "bin" / "llvm-ar"), "rcsD", str(archive)])


def _write(path: Path, template: str, **values: str) -> None:
    text = (HERE / template).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    path.write_text(text)
    path.chmod(0o755)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
