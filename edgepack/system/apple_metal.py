"""Apple's compiler of Metal libraries, which comes with Xcode; without it, the driver compiles their text."""

from __future__ import annotations

from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.system.paths import find_program
from edgepack.system.process import ask, run_checked

__all__ = ["compile_library", "metal_version"]

#: By the system in a triple: the SDK, and the option that names the oldest version that the library is for.
_SYSTEMS = {"macosx": ("macosx", "-mmacosx-version-min="), "ios": ("iphoneos", "-mios-version-min=")}

_SECONDS = 600.0


def metal_version() -> str:
    """The first line of ``xcrun metal --version``; "" where it is not installed."""
    xcrun = find_program("xcrun")
    lines = ask([xcrun, "--sdk", "macosx", "metal", "--version"]).strip().splitlines() if xcrun else []
    return lines[0].strip() if lines else ""


def compile_library(source: Path, output: Path, triple: str) -> None:
    """Makes a ``.metallib``, without "fast math", as the driver is asked to do of the text.

    Args:
        source: the text of the library.
        triple: what the program is for (``arm64-apple-macosx11.0``).

    Raises:
        ToolchainError: the compiler is missing or does not take the text.
    """
    system = triple.split("-")[2]
    name = system.rstrip("0123456789.")
    sdk, oldest = _SYSTEMS[name]
    tools = ["xcrun", "--sdk", sdk]
    language = f"-std={'macos' if name == 'macosx' else 'ios'}-metal2.3"
    air = output.with_suffix(".air")
    command = [*tools, "metal", language, f"{oldest}{system.removeprefix(name)}", "-fno-fast-math", "-c"]
    try:
        run_checked([*command, str(source), "-o", str(air)], what="xcrun metal", timeout=_SECONDS)
        run_checked(
            [*tools, "metallib", str(air), "-o", str(output)], what="xcrun metallib", timeout=_SECONDS
        )
    finally:
        air.unlink(missing_ok=True)
    if not output.is_file():
        raise ToolchainError(f"xcrun metallib wrote no {output.name}.")
