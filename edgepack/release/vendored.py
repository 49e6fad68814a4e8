"""The edgepack that a project's CI installs: its own repository at a commit, or a wheel in the project's.

Nothing is installed by edgepack's name from an index, for nobody says whose that is there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.system.atomic import write_file
from edgepack.system.files import sha256_file
from edgepack.system.installation import origin
from edgepack.system.process import run_checked
from edgepack.system.temporary import temporary_folder

__all__ = ["Vendored", "vendored"]

#: Where a wheel lies in the project's repository.
FOLDER = "ci"
_REPOSITORY = re.compile(r"git\+[a-z]+://\S+@[0-9a-f]{40}")
_WHEEL = re.compile(r"edgepack-[0-9][0-9A-Za-z.+]*-py3-none-any\.whl")
_HINT = (
    "Give a wheel of edgepack (`python -m pip wheel --no-deps CHECKOUT` makes one), or its repository: "
    "--edgepack FILE.whl, --edgepack git+https://HOST/OWNER/edgepack@COMMIT."
)
#: Seconds in which pip makes a wheel of a checkout; it may have to fetch what builds it.
_PATIENCE = 300


@dataclass(frozen=True)
class Vendored:
    """What CI installs.

    Attributes:
        place: as the workflow has it: an address, or a path in the repository.
        sha256: of the wheel; "" for an address.
        wheel: the file to be copied to ``place``; None for an address.
    """

    place: str
    sha256: str = ""
    wheel: Path | None = None

    def write(self, root: Path) -> list[Path]:
        """Copy the wheel into the repository; one that is there stays.

        Returns:
            the wheel's path there, if there is one.

        Raises:
            ConfigError: another file lies there.
        """
        if self.wheel is None:
            return []
        target = root / self.place
        if target.is_file() and sha256_file(target) == self.sha256:
            return [target]
        if target.exists():
            raise ConfigError(f"{target} is another wheel of edgepack.", hint="Remove it.")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, self.wheel.read_bytes())
        return [target]


@contextmanager
def vendored(given: str | None = None) -> Iterator[Vendored]:
    """What CI is to install, while a wheel that is made for it is there.

    Args:
        given: a wheel's path, or ``git+https://HOST/OWNER/edgepack@COMMIT``; default this edgepack, of which
            a wheel is made if it is from a checkout.

    Raises:
        ConfigError: it is neither, there is no such file, or nothing says where this edgepack is from.
        ToolchainError: pip cannot make a wheel of the checkout.
    """
    if given is None:
        place = origin()
        if place is None:
            raise ConfigError("It is not known where this edgepack was installed from.", hint=_HINT)
        if place.kind == "checkout":
            with temporary_folder() as folder:
                yield _of_wheel(_built(Path(place.place), folder))
            return
        given = place.place
    if given.startswith("git+"):
        if not _REPOSITORY.fullmatch(given):
            raise ConfigError(
                f"{given} names no commit: CI would install what changes.",
                hint="git+https://HOST/OWNER/edgepack@ and the 40 digits of a commit.",
            )
        yield Vendored(given)
        return
    yield _of_wheel(Path(given))


def _of_wheel(wheel: Path) -> Vendored:
    if not _WHEEL.fullmatch(wheel.name):
        raise ConfigError(f"{wheel} is no wheel of edgepack.", hint=_HINT)
    if not wheel.is_file():
        raise ConfigError(f"There is no {wheel}.", hint=_HINT)
    return Vendored(f"{FOLDER}/{wheel.name}", sha256_file(wheel), wheel)


def _built(checkout: Path, folder: Path) -> Path:
    """A wheel of a checkout. What builds it is fetched where it is not installed."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    isolated = [] if find_spec("hatchling") is None else ["--no-build-isolation"]
    command += [*isolated, "--wheel-dir", str(folder), str(checkout)]
    run_checked(command, what="Making a wheel of edgepack for CI", timeout=_PATIENCE, hint=_HINT)
    return next(folder.glob("*.whl"))
