"""Names and places inside a bundle: the one module that knows where each file lies."""

from __future__ import annotations

import keyword
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.render.names import C_KEYWORDS, CPP_CLASS_KEYWORDS
from edgepack.system.files import as_text

__all__ = [
    "MANIFEST",
    "SBOM",
    "SUMS",
    "BundleLayout",
    "check_name",
    "chosen_name",
    "default_name",
    "find_bundle",
]

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
SBOM = "sbom.cdx.json"

#: Longest name: it becomes a C identifier, a file name and a CMake package.
MAX_NAME = 48

#: Headers of C, POSIX and Windows: ``include/<name>.h`` would stand before them.
_HEADERS = frozenset(
    """
    aio assert complex conio cpio ctype direct dirent dlfcn errno fcntl fenv float fmtmsg fnmatch
    ftw getopt glob grp iconv ifaddrs inttypes io iso646 langinfo libgen limits locale malloc math
    memory monetary mqueue ndbm netdb nl_types poll process pthread pwd regex resolv sched search
    semaphore setjmp signal spawn stdalign stdarg stdatomic stdbool stdckdint stddef stdint stdio
    stdlib stdnoreturn string strings syslog tar tchar termios tgmath threads time uchar ulimit
    unistd unwind utime utmp utmpx varargs wchar wctype windows winsock winsock2 wordexp
    """.split()  # noqa: SIM905
)
#: ``<name>_open`` is a function of POSIX, or ``<NAME>_NAME`` and the like a macro of a header.
_PREFIXES = frozenset(
    """
    c3 cp currency dbm fs group lc mcgif mq msocmdtextf pp sem shm unique uoi x509
    """.split()  # noqa: SIM905
)
#: ``<name>_open`` or ``<name>_run`` is a function of the loader program.
_OF_THE_LOADER = frozenset({"command", "json"})
# Keywords, and what a header named after the model would collide with.
_RESERVED = (
    C_KEYWORDS
    | CPP_CLASS_KEYWORDS
    | _HEADERS
    | _PREFIXES
    | _OF_THE_LOADER
    | {"main", "runtime", "edgepack", "platform", "model", "null", "linux", "unix"}
)


def default_name(model: Path) -> str:
    """The model file's stem as a lower-case C identifier: ``ResNet-18 (v2).onnx`` gives ``resnet_18_v2``."""
    name = _identifier(as_text(model.stem)).lower()
    if not name:
        return "model_1"
    if name in _RESERVED or keyword.iskeyword(name):
        name = f"model_{name}"[:MAX_NAME]
    return name


def chosen_name(text: str) -> str:
    """The name that a user chose, as a C identifier: ``2nd-net`` gives ``model_2nd_net``, ``Net18`` itself.

    Raises:
        ConfigError: nothing of it can be in one, or it is reserved.
    """
    name = _identifier(text)
    if not name:
        raise ConfigError(
            f"Nothing of the name {text!r} can be in a C identifier.",
            hint="Use letters, digits and single underscores: --name resnet18.",
        )
    return check_name(name)


def _identifier(text: str) -> str:
    """``text`` as a C identifier of at most 48 characters; "" where it has no ASCII letter and no digit."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    name = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")
    name = f"model_{name}" if name[:1].isdigit() else name
    return name[:MAX_NAME].rstrip("_")


def check_name(name: str) -> str:
    """``name`` if it can name a bundle.

    Raises:
        ConfigError: it is no C identifier of at most 48 characters, or it is reserved.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or len(name) > MAX_NAME or "__" in name:
        raise ConfigError(
            f"The name {name!r} is not a C identifier of at most {MAX_NAME} characters.",
            hint="Use letters, digits and single underscores, a letter first: --name resnet18.",
        )
    if name.lower() in _RESERVED:
        raise ConfigError(
            f"The name {name!r} is reserved: by C or C++, or for one of their headers.",
            hint=f"Choose another one: --name model_{name}.",
        )
    return name


@dataclass(frozen=True)
class BundleLayout:
    """Where the files of a bundle are, relative to its root (all paths with ``/``).

    Attributes:
        name: the model's name, a C identifier.
        os: the device's operating system (``linux``, ``macos``, ``windows``, ...): decides the suffixes.
    """

    name: str
    os: str = "linux"

    @property
    def shared(self) -> str:
        """The shared library."""
        if self.os == "windows":
            return f"lib/{self.name}.dll"
        if self.os in {"wasi", "emscripten"}:
            return f"lib/{self.name}.wasm"
        suffix = "dylib" if self.os in {"macos", "ios"} else "so"
        return f"lib/lib{self.name}.{suffix}"

    @property
    def threads(self) -> str:
        """The module with threads (WebAssembly)."""
        return f"lib/{self.name}-threads.wasm"

    @property
    def static(self) -> str:
        """The static library."""
        return f"lib/lib{self.name}.a"

    @property
    def program(self) -> str:
        """The loader program, built for the device."""
        return f"bin/{self.name}" + {
            "windows": ".exe",
            "wasi": ".wasm",
            "emscripten": ".wasm",
            "none": ".elf",
        }.get(self.os, "")

    @property
    def params(self) -> str:
        """The parameters (with ``--params file`` and ``caller``)."""
        return f"params/{self.name}.params"

    @property
    def artifacts(self) -> dict[str, str]:
        """What can be built, by kind."""
        return {"shared": self.shared, "static": self.static, "program": self.program}


def find_bundle(path: Path) -> Path:
    """The root folder of the bundle at ``path`` (the folder itself or its manifest.json).

    Raises:
        ConfigError: there is no bundle.
    """
    root = path.parent if path.name == MANIFEST and path.is_file() else path
    if (root / MANIFEST).is_file():
        return root
    what = (
        "does not exist"
        if not path.exists()
        else f"holds no {MANIFEST}"
        if path.is_dir()
        else "is not a folder"
    )
    raise ConfigError(
        f"{path} is not a bundle: it {what}.", hint="Give the folder that `edgepack pack` wrote."
    )
