"""Runs the shell steps of workflows of GitHub and jobs of GitLab, with stand-ins for what only they have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Machine", "gitlab_server", "run_github_job", "run_gitlab_job"]

#: A program that says in ``$CALLS`` how it was called; gh has no release before.
_STAND_IN = """\
#!/bin/bash
echo "$(basename "$0") $*" >> "$CALLS"
[ "$(basename "$0") $2" != "gh download" ]
"""


@dataclass
class Machine:
    """A runner: its home, what stands in for programs that it has, and what it keeps of its jobs.

    Attributes:
        folder: for all of it.
        actions: names of the actions that steps used.
    """

    folder: Path
    actions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        programs = self.folder / "programs"
        programs.mkdir()
        for name in ("sudo", "apt-get", "gh"):
            (programs / name).write_text(_STAND_IN)
            (programs / name).chmod(0o755)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def calls(self) -> str:
        """How the stand-ins were called, a line each."""
        return (self.folder / "calls").read_text()

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """What a step sees: no network for pip, this Python, and nothing of this session's."""
        path = [str(self.folder / "programs"), str(Path(sys.executable).parent), os.environ["PATH"]]
        cache = {name: os.environ[name] for name in ("EDGEPACK_CACHE_DIR",) if name in os.environ}
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(self.home),
            "CALLS": str(self.folder / "calls"),
            "PIP_NO_INDEX": "1",
            # The wheel is installed beside this session's environment, which has what edgepack needs.
            "PIP_NO_DEPS": "1",
            "PIP_TARGET": str(self.folder / "installed"),
            "LANG": "C.UTF-8",
            **cache,
            **more,
        }

    def bash(self, script: str, environment: Mapping[str, str], folder: Path, options: str) -> None:
        """Run a script as the runner does; what it prints is a part of the error."""
        command = ["bash", "--noprofile", "--norc", *options.split(), "-c", script]
        env = self.environment(environment)
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def run_github_job(
    machine: Machine, text: str, name: str, folder: Path, context: Mapping[str, str], stored: Path
) -> dict[str, str]:
    """Run the steps of a job in ``folder``, a checkout.

    Args:
        context: what expressions (``github.sha``) stand for; one that is not there is an error.
        stored: where artifacts are kept.

    Returns:
        the outputs that its steps wrote.
    """
    workflow = yaml.safe_load(text)
    job = workflow["jobs"][name]
    options = "-eo pipefail" if workflow.get("defaults") else "-e"
    outputs, summary = machine.folder / "outputs", machine.folder / "summary"
    outputs.write_text("")
    fixed = {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary), "CI": "true"}
    fixed |= {f"GITHUB_{key[7:].upper()}": value for key, value in context.items() if key[:7] == "github."}
    for step in job["steps"]:
        if "uses" in step:
            _use(machine, step, folder, stored)
            continue
        given = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
        given = {key: _evaluated(str(value), context) for key, value in given.items()}
        assert "${{" not in step["run"], "an expression in a script is a hole"
        machine.bash(step["run"], {**fixed, **given}, folder, options)
    lines = (line.partition("=") for line in outputs.read_text().splitlines())
    return {key: value for key, _, value in lines}


def _evaluated(text: str, context: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: context[found[1]], text)


def _use(machine: Machine, step: Mapping[str, Any], folder: Path, stored: Path) -> None:
    """Do what an action would do to files."""
    action, given = step["uses"].partition("@")[0], step.get("with", {})
    machine.actions.append(action)
    match action:
        case "actions/checkout":
            assert given["persist-credentials"] is False
        case "actions/setup-python" | "actions/cache":
            pass
        case "actions/upload-artifact":
            shutil.copytree(folder / given["path"], stored / given["name"])
        case "actions/download-artifact":
            shutil.copytree(stored / given["name"], folder / given["path"])
        case _:
            raise AssertionError(f"no stand-in for {action}")


def run_gitlab_job(
    machine: Machine, text: str, name: str, folder: Path, variables: Mapping[str, str]
) -> None:
    """Run a job in ``folder``, which every user may write to, as GitLab's runner has it in a container."""
    document = yaml.safe_load(text)
    job = {**document.get(document[name].get("extends", ""), {}), **document[name]}
    given = {**document["variables"], **job.get("variables", {})}
    expanded = {"CI_PROJECT_DIR": str(folder), "CI": "true", **variables}
    for key, value in given.items():
        expanded[key] = re.sub(r"\$(CI_\w+)", lambda found: expanded[found[1]], str(value))
    folder.chmod(0o777)
    lines = [*job.get("before_script", []), *job["script"]]
    machine.bash("\n".join(["umask 0", *lines]), expanded, folder, "-eo pipefail")


@contextmanager
def gitlab_server() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The address of an API of GitLab that keeps what it is sent, by its path, and what it keeps; it has no
    release. What is sent without a job's token is refused."""
    kept: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def _receive(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            allowed = self.headers["JOB-TOKEN"] == "token"
            if allowed:
                kept[self.path] = content
            self.send_response(201 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps({}).encode())

        def do_GET(self) -> None:
            self.send_error(404)

        def do_PUT(self) -> None:
            self._receive()

        def do_POST(self) -> None:
            self._receive()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/api/v4", kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
