"""Stands in for Apple's xcrun: refuses what Apple's ar and clang do not take, lets zig do the work and writes
each command to a file. What is known of Apple's: their manual pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Apple's name of a target -> zig's.
TARGETS = {
    "arm64-apple-macos11.0": "aarch64-macos.11.0",
    "arm64-apple-ios14.0": "aarch64-ios.14.0",
    "arm64-apple-ios14.0-simulator": "aarch64-ios.14.0-simulator",
}


def main() -> int:
    """The program."""
    option, _, tool, *arguments = words = sys.argv[1:]
    line = " ".join([f"ZERO_AR_DATE={os.environ.get('ZERO_AR_DATE')}", *words])
    with Path(os.environ["XCRUN_LOG"]).open("a", encoding="utf-8") as log:
        log.write(line + "\n")
    if option != "--sdk" or tool not in {"clang", "ar"}:
        print(f"xcrun: error: unable to find utility {tool!r}", file=sys.stderr)
        return 72
    if tool == "clang" and arguments == ["--version"]:
        print("Apple clang version 16.0.0 (clang-1600.0.26.6)\nTarget: arm64-apple-darwin24.0.0")
        return 0
    if tool == "ar" and "D" in arguments[0]:
        print("ar: illegal option -- D", file=sys.stderr)
        return 1
    zig = [sys.executable, "-m", "ziglang"]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": os.environ["XCRUN_ZIG_CACHE"]}
    if tool == "ar":
        command = [*zig, "ar", *arguments]
    else:
        if arguments[0] != "-target":
            print("clang: error: no -target", file=sys.stderr)
            return 1
        # Without -O zig would build a runtime of checks.
        level = [] if any(argument.startswith("-O") for argument in arguments) else ["-O2"]
        options = ["-target", TARGETS[arguments[1]], "-fno-sanitize=all", "-rtlib=none"]
        command = [*zig, "cc", *options, *level, *arguments[2:]]
        if "ios" in arguments[1]:
            environment["ZIG_LIBC"] = os.environ["XCRUN_LIBC"]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
