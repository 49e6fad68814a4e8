"""An Android NDK that is none: the tree, the driver and the link lines of a real one, with zig's clang in it.

What it makes are real ELF files for Android; its libc.so and libm.so only carry names. :func:`bionic` is what
qemu can run them with: glibc under bionic's names.
"""

from __future__ import annotations

import shutil
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
#: Architecture -> Debian's triple, and glibc's dynamic loader.
_GLIBC = {
    "aarch64": ("aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
    "arm": ("arm-linux-gnueabihf", "ld-linux-armhf.so.3"),
    "x86_64": ("x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
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


def bionic(root: Path, arch: str) -> list[str]:
    """Makes a folder with Android's dynamic loader and libraries, which are glibc's; returns the command that
    runs a program with them."""
    triple, loader = _GLIBC[arch]
    glibc = Path("/lib/x86_64-linux-gnu") if arch == "x86_64" else Path("/usr", triple, "lib")
    wide = arch != "arm"
    libraries = root / "system" / ("lib64" if wide else "lib")
    for folder in (root / "system" / "bin", libraries):
        folder.mkdir(parents=True)
    (root / "system" / "bin" / ("linker64" if wide else "linker")).symlink_to((glibc / loader).resolve())
    compiler = [f"{triple}-gcc", "-shared", "-fPIC", "-Wl,--no-as-needed"]
    for name, source in (
        ("libc", ["-w", str(HERE / "bionic.c"), "-ldl"]),
        ("libm", ["-lm"]),
        ("libdl", ["-ldl"]),
    ):
        output = libraries / f"{name}.so"
        _run([*compiler, f"-Wl,-soname,{name}.so", "-o", str(output), *source])
    return [f"qemu-{arch}", "-L", str(root), "-E", f"LD_LIBRARY_PATH={libraries}:{glibc}"]


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
    if machine == "arm":  # which divides by calling a function
        shutil.copyfile(_run(["arm-linux-gnueabihf-gcc", "-print-libgcc-file-name"]).strip(), builtins)


def _write(path: Path, template: str, **values: str) -> None:
    text = (HERE / template).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    path.write_text(text)
    path.chmod(0o755)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
