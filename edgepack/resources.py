"""Where edgepack's data lie: the folders ``templates/`` and ``toolchains/`` of the repository.

A wheel holds them inside the package (``edgepack/data``); a checkout, and an editable install of one, has
them beside it. So they are found from any working directory, however edgepack was installed.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["DEVICES", "PACKAGE", "TEMPLATES", "TOOLCHAINS", "data_folder"]

#: The folder of the package ``edgepack``.
PACKAGE = Path(__file__).resolve().parent


def data_folder(package: Path = PACKAGE) -> Path:
    """The folder that holds ``templates/`` and ``toolchains/``.

    Args:
        package: the package's own folder.

    Raises:
        RuntimeError: neither a wheel's data nor a checkout's is there: the installation is damaged.
    """
    for folder in (package / "data", package.parent):
        if (folder / "templates" / "runtime").is_dir() and (folder / "toolchains" / "devices").is_dir():
            return folder
    raise RuntimeError(f"edgepack's data are missing beside {package}: install edgepack again")


#: What bundles are rendered from: C, CMake, JavaScript, Markdown.
TEMPLATES = data_folder() / "templates"
#: A YAML file for each toolchain.
TOOLCHAINS = data_folder() / "toolchains"
#: A YAML file for each device.
DEVICES = TOOLCHAINS / "devices"
