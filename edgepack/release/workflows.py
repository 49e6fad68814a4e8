"""``edgepack new --ci``: the files by which GitHub or GitLab checks a project and releases it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.release.project import PROJECT_FILE
from edgepack.release.vendored import Vendored
from edgepack.render.templates import render
from edgepack.system.atomic import write_file
from edgepack.system.files import is_text

__all__ = ["WORKFLOWS", "workflow", "write_workflows"]

#: By who runs them: each template, and the place of what is made of it in a repository.
WORKFLOWS = {
    "github": {
        "github-check": ".github/workflows/edgepack-check.yml",
        "github-release": ".github/workflows/edgepack-release.yml",
    },
    "gitlab": {"gitlab": ".gitlab-ci.yml"},
}

#: Debian's packages of what runs programs of 64- and 32-bit ARM and RISC-V, of Linux and of Cortex-M.
_EMULATORS = (
    "qemu-user qemu-system-arm qemu-system-misc libc6-arm64-cross libc6-armhf-cross libc6-riscv64-cross"
)


def write_workflows(folder: Path, kinds: Sequence[str], edgepack: Vendored) -> list[Path]:
    """Write the files into the repository that holds a project's folder; into the folder where none does.

    Args:
        folder: the project file's.
        kinds: keys of :data:`WORKFLOWS`.
        edgepack: what they install.

    Returns:
        the workflows, and the wheel that they install.

    Raises:
        ConfigError: there is one already.
    """
    folder = folder.resolve()
    root = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)
    project = (folder / PROJECT_FILE).relative_to(root).as_posix()
    if not is_text(project):
        raise ConfigError(f"The path {project} is no UTF-8, which YAML needs.", hint="Rename it.")
    targets = {root / place: template for kind in kinds for template, place in WORKFLOWS[kind].items()}
    if there := next((target for target in targets if os.path.lexists(target)), None):
        raise ConfigError(
            f"{there} exists.",
            hint="Have the workflow written into another folder, and take over what you need.",
        )
    wheel = edgepack.write(root)
    for target, template in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, workflow(template, project, edgepack).encode())
    return [*targets, *wheel]


def workflow(template: str, project: str, edgepack: Vendored) -> str:
    """The text of a workflow.

    Args:
        template: its name in :data:`WORKFLOWS`.
        project: path of the project file in the repository.
        edgepack: what pip installs.
    """
    values = {
        "project": project,
        "edgepack": edgepack.place,
        "sha256": edgepack.sha256,
        "emulators": _EMULATORS,
    }
    spelled = {name: json.dumps(text, ensure_ascii=False) for name, text in values.items()}
    return render(f"release/{template}.yml.j2", spelled)
