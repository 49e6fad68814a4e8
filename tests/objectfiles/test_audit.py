"""When the library that reads object files is imported: it takes half a second or more."""

from __future__ import annotations

import subprocess
import sys


def test_lief_is_imported_in_the_background_and_not_before() -> None:
    program = """
import sys, threading
import edgepack.commands.pack
from edgepack.objectfiles.audit import load_in_background
assert "lief" not in sys.modules
load_in_background()
for one in threading.enumerate():
    if one is not threading.current_thread():
        one.join(60)
assert "lief" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
