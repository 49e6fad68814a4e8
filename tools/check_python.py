"""Says in one sentence why a Python cannot be used, before pip says it in many. Runs on Python 3.6 too."""

import importlib.util
import sys

OLDEST = (3, 10)

if sys.version_info < OLDEST:
    sys.exit(
        f"edgepack needs Python {OLDEST[0]}.{OLDEST[1]} or newer; {sys.executable} is "
        f"{sys.version_info[0]}.{sys.version_info[1]}. Name another one: make PYTHON=python3.12 demo"
    )
for module in ("venv", "ensurepip"):
    if importlib.util.find_spec(module) is None:
        sys.exit(f"This Python has no {module} module; on Debian and Ubuntu: apt-get install python3-venv")
