"""A project file that was read: where its values stand, and the devices and files that they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgepack.config.device import DEVICES, Device
from edgepack.config.document import Document, KeyPath, Origin, read
from edgepack.config.validate import validate
from edgepack.errors import ConfigError
from edgepack.release.project import PROJECT_FILE, Project
from edgepack.system.files import is_file

__all__ = ["ProjectFile", "load_project"]


@dataclass(frozen=True)
class ProjectFile:
    """A project that was read.

    Attributes:
        path: of its file, absolute.
        project: its content.
        devices: by the names that the project gives them, all fields known.
        document: where each value stands.
    """

    path: Path
    project: Project
    devices: dict[str, Device]
    document: Document

    @property
    def root(self) -> Path:
        """The folder that relative paths are meant from."""
        return self.path.parent

    def where(self, *path: str | int) -> Origin:
        """File and line of a value."""
        return self.document.origin(path)

    def file(self, text: str) -> Path:
        """A path that the project names."""
        return self.root / text


def load_project(path: Path) -> ProjectFile:
    """The project in a file, or in a folder's ``edgepack.yaml``.

    Raises:
        ConfigError: the file cannot be read, or what is wrong in it, with its line.
    """
    path = path / PROJECT_FILE if path.is_dir() else path
    if not path.exists():
        raise ConfigError(
            f"There is no project file {path}.", hint="`edgepack new FOLDER --model MODEL` writes one."
        )
    document = read(path)
    project = validate(Project, document)
    devices = {name: _device(name, document) for name in project.devices}
    loaded = ProjectFile(path.absolute(), project, devices, document)
    _check_files(loaded)
    return loaded


def _device(name: str, document: Document) -> Device:
    """The device of an entry: the one of its name, or what extends another one."""
    where = document.origin(("devices", name))
    try:
        return DEVICES.inline(name, document, ("devices", name))
    except ConfigError as error:
        if error.message.startswith(where.source):
            raise
        message = f"{where}: devices.{name}: {error.message}"
        raise ConfigError(message, hint=error.hint, detail=error.detail) from None


def _check_files(loaded: ProjectFile) -> None:
    for index, one in enumerate(loaded.project.matrix.overrides):
        for number, text in enumerate(one.tuned or ()):
            _check_file(loaded, ("matrix", "overrides", index, "tuned", number), text)
    for name, model in loaded.project.models.items():
        single = {"path": model.path, "custom": model.custom}
        files: dict[tuple[str | int, ...], str] = {(key,): text for key, text in single.items() if text}
        files |= {("inputs", key): text for key, text in model.inputs.items()}
        files |= {("expected", key): text for key, text in model.expected.items()}
        files |= {("tuned", number): text for number, text in enumerate(model.tuned or ())}
        for key, text in files.items():
            _check_file(loaded, ("models", name, *key), text)


def _check_file(loaded: ProjectFile, key: KeyPath, text: str) -> None:
    """Raise ConfigError where a path that the project names is none of a file."""
    if not is_file(loaded.file(text)):
        field = ".".join(map(str, key))
        raise ConfigError(
            f"{loaded.where(*key)}: {field}: there is no file {loaded.file(text)}",
            hint="Relative paths are meant from the folder of the project file.",
        )
