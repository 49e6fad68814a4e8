"""What `edgepack new --ci` writes: jobs are run step by step, with stand-ins for GitHub and GitLab."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from edgepack.cli.new import command
from edgepack.errors import ConfigError
from edgepack.release.check import check_release
from edgepack.release.interface import new_project
from edgepack.release.vendored import Vendored
from edgepack.release.workflows import WORKFLOWS, workflow
from tests.support.workflows import Machine, gitlab_server, run_github_job, run_gitlab_job

PROJECT = """\
name: fleet
version: 1.2.0
models: {net: {path: net.onnx}}
devices: {linux-x86_64: {formats: [tar.gz, zip]}}
"""
ROOT = Path(__file__).resolve().parents[2]
CHECK, RELEASE = WORKFLOWS["github"].values()
COMMIT = "git+https://example.org/edgepack@" + "0123456789" * 4
WHEEL = "edgepack-0.1.0-py3-none-any.whl"


@pytest.fixture
def repository(project: Path) -> Path:
    """A repository with a project in a folder of it, and all workflows, which install this edgepack."""
    new_project(project / "models", ci=list(WORKFLOWS))
    return project


@pytest.fixture
def project(small_model: Path, tmp_path: Path) -> Path:
    """A repository with a project in a folder of it."""
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "models").mkdir()
    shutil.copyfile(small_model, root / "models" / "net.onnx")
    (root / "models" / "edgepack.yaml").write_text(PROJECT)
    return root


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """What is named as a wheel of edgepack is."""
    path = tmp_path / WHEEL
    path.write_bytes(b"PK")
    return path


def test_workflows_lie_where_they_are_looked_for_and_leave_the_project_file_alone(project: Path) -> None:
    repository = project
    new_project(repository / "models", ci=list(WORKFLOWS), edgepack=COMMIT)
    assert (repository / "models" / "edgepack.yaml").read_text() == PROJECT
    for place in (CHECK, RELEASE, ".gitlab-ci.yml"):
        document = yaml.safe_load((repository / place).read_text())
        variables = document.get("env") or document["variables"]
        assert variables["PROJECT"] == "models/edgepack.yaml"
        assert (variables["EDGEPACK"], variables["EDGEPACK_SHA256"]) == (COMMIT, "")
    with pytest.raises(ConfigError, match=r"edgepack-check\.yml exists"):
        new_project(repository / "models", ci=["github"], edgepack=COMMIT)
    with pytest.raises(ConfigError, match="There is no workflow for 'jenkins'"):
        new_project(repository / "models", ci=["jenkins"])


def test_a_new_project_and_its_workflow_are_written_together(small_model: Path, tmp_path: Path) -> None:
    path = new_project(tmp_path / "new", small_model, ["gitlab"], COMMIT)
    assert path.is_file() and (tmp_path / "new" / ".gitlab-ci.yml").is_file()


def test_what_to_do_next_is_said(small_model: Path, tmp_path: Path) -> None:
    model = ["--model", str(small_model)]
    for more, said in (
        ([], r"Next: name your models and devices in \S+\nThen: edgepack release \S+ --dry-run"),
        (model, r"Next: edgepack release \S+ --dry-run"),
        ([*model, "--ci", "github", "--edgepack", COMMIT], r"--dry-run.*\nThen: commit these files .* a tag"),
    ):
        done = CliRunner().invoke(command, [str(tmp_path / f"of {len(more)}"), *more])
        assert done.exit_code == 0 and re.search(said.replace(r"\S+", ".*"), done.output), done.output


def test_a_wheel_is_copied_into_the_repository_with_its_sum(project: Path, wheel: Path) -> None:
    new_project(project / "models", ci=["github"], edgepack=wheel)
    variables = yaml.safe_load((project / CHECK).read_text())["env"]
    assert (project / variables["EDGEPACK"]).read_bytes() == b"PK"
    assert variables["EDGEPACK_SHA256"] == hashlib.sha256(b"PK").hexdigest()
    new_project(project / "models", ci=["gitlab"], edgepack=wheel)  # the same wheel does for both
    (project / ".gitlab-ci.yml").unlink()
    wheel.write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"ci/edgepack.*\.whl is another wheel of edgepack"):
        new_project(project / "models", ci=["gitlab"], edgepack=wheel)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("edgepack==0.1.0", "edgepack==0.1.0 is no wheel of edgepack"),
        ("other-1.0-py3-none-any.whl", "is no wheel of edgepack"),
        (f"nowhere/{WHEEL}", "There is no nowhere"),
        ("git+https://example.org/edgepack@main", "names no commit"),
    ],
)
def test_what_ci_cannot_be_told_to_install_is_refused_before_a_file_is_written(
    project: Path, given: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        new_project(project / "models", ci=["github"], edgepack=given)
    assert not (project / CHECK).exists()


@pytest.mark.parametrize(
    ("edgepack", "wanted"),
    [
        (Vendored(COMMIT), f"edgepack[sign,wasm] @ {COMMIT}"),
        (Vendored(WHEEL, hashlib.sha256(b"PK").hexdigest()), f"./{WHEEL}[sign,wasm]"),
        (Vendored("tools/edgepack"), "./tools/edgepack[sign,wasm]"),
        (Vendored("edgepack==0.1.0"), "./edgepack==0.1.0[sign,wasm]"),
        (Vendored(WHEEL, "0" * 64), None),
    ],
)
def test_a_job_installs_from_the_repository_or_a_commit_and_checks_the_sum(
    edgepack: Vendored, wanted: str | None, wheel: Path
) -> None:
    """pip never gets a name that it would look for on an index."""
    document = yaml.safe_load(workflow("github-check", "edgepack.yaml", edgepack))
    script = next(
        step["run"] for step in document["jobs"]["plan"]["steps"] if step.get("name") == "Install edgepack"
    )
    command = ["bash", "--noprofile", "--norc", "-e", "-c", 'python() { printf "%s\n" "$@"; }\n' + script]
    env = {"PATH": os.environ["PATH"], **document["env"]}
    done = subprocess.run(command, cwd=wheel.parent, env=env, capture_output=True, text=True, check=False)
    if wanted is None:
        assert done.returncode != 0 and "install" not in done.stdout
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-4:] == ["-m", "pip", "install", wanted]


@pytest.mark.slow
def test_a_checkout_s_wheel_is_made_for_ci(repository: Path) -> None:
    variables = yaml.safe_load((repository / CHECK).read_text())["env"]
    with zipfile.ZipFile(repository / variables["EDGEPACK"]) as archive:
        assert "edgepack/data/templates/release/install.sh.j2" in archive.namelist()


@pytest.mark.slow
def test_a_pull_request_is_built_and_verified_without_a_secret(repository: Path, tmp_path: Path) -> None:
    text = (repository / CHECK).read_text()
    assert "secrets." not in text and "write" not in text and "github.token" not in text
    machine = Machine(tmp_path / "machine")
    found = run_github_job(machine, text, "plan", repository, {}, tmp_path)
    (device,) = json.loads(found["devices"])
    assert device == "linux-x86_64"
    run_github_job(machine, text, "check", repository, {"matrix.device": device}, tmp_path)
    assert all(one.status != "failed" for one in check_release(repository / "dist"))
    assert "# fleet 1.2.0" in (machine.folder / "summary").read_text()
    assert "qemu-user" in machine.calls and "gh " not in machine.calls
    assert "actions/upload-artifact" not in machine.actions


@pytest.mark.slow
def test_a_tag_becomes_a_release_of_github_with_its_packages(repository: Path, tmp_path: Path) -> None:
    text = (repository / RELEASE).read_text()
    machine, stored, empty = Machine(tmp_path / "machine"), tmp_path / "stored", tmp_path / "empty"
    empty.mkdir()
    context = {"github.ref_name": "v1.2.0", "github.token": "token", "github.repository": "o/r"}
    run_github_job(machine, text, "build", repository, {**context, "secrets.RELEASE_KEY": ""}, stored)
    run_github_job(machine, text, "publish", empty, context, stored)
    created = machine.calls.splitlines()[-1]
    assert created.startswith("gh release create v1.2.0 --verify-tag --notes-file assets/RELEASE.md ")
    names = [Path(word).name for word in created.split() if word.startswith("assets/")][1:]
    _check_assets(empty / "assets", names, tmp_path)
    with pytest.raises(AssertionError, match=r"The tag is v9, and models/edgepack\.yaml has version 1\.2\.0"):
        wrong = {**context, "github.ref_name": "v9", "secrets.RELEASE_KEY": ""}
        run_github_job(machine, text, "build", repository, wrong, tmp_path / "more")


def _check_assets(folder: Path, names: list[str], tmp_path: Path) -> None:
    """What is published: the packages with the sums that the release has for them, and the whole release."""
    assert sorted(names) == [
        "RELEASE.md",
        "SHA256SUMS",
        "net-linux-x86_64-1.2.0.tar.gz",
        "net-linux-x86_64-1.2.0.zip",
        "release.json",
        "release.tar.gz",
    ]
    with tarfile.open(folder / "release.tar.gz") as archive:
        archive.extractall(tmp_path / "taken")  # what this test has packed itself
    findings = check_release(tmp_path / "taken" / "dist")
    assert {one.status for one in findings if one.what != "signature"} == {"ok"}
    package = folder / "net-linux-x86_64-1.2.0.zip"
    assert package.read_bytes() == next((tmp_path / "taken").rglob(package.name)).read_bytes()


@pytest.mark.slow
def test_gitlab_checks_with_a_cache_and_publishes_a_tag(repository: Path, tmp_path: Path) -> None:
    text = (repository / ".gitlab-ci.yml").read_text()
    machine = Machine(tmp_path / "machine")
    with gitlab_server() as (api, kept):
        variables = {"CI_API_V4_URL": api, "CI_PROJECT_ID": "7", "CI_JOB_TOKEN": "token"}
        variables |= {"EDGEPACK_CACHE_DIR": str(machine.home / ".cache" / "edgepack")}
        run_gitlab_job(machine, text, "check", repository, variables)
        assert (repository / ".cache" / "edgepack" / "zig").is_dir() and not kept
        variables["CI_COMMIT_TAG"] = "v1.2.0"
        shutil.move(
            repository / ".cache" / "edgepack", machine.home / ".cache" / "edgepack"
        )  # saves a minute
        run_gitlab_job(_again(machine), text, "build", repository, variables)
        run_gitlab_job(machine, text, "publish", repository, variables)
    request = json.loads(kept.pop("/api/v4/projects/7/releases"))
    packages = "/api/v4/projects/7/packages/generic/release/v1.2.0/"
    assert (request["tag_name"], request["description"][:14]) == ("v1.2.0", "# fleet 1.2.0\n")
    links = request["assets"]["links"]
    assert {one["url"].removeprefix(api[: -len("/api/v4")]) for one in links} == set(kept)
    assert {one["direct_asset_path"] for one in links} == {f"/{one['name']}" for one in links}
    uploaded = tmp_path / "uploaded"
    uploaded.mkdir()
    for path, content in kept.items():
        (uploaded / path.removeprefix(packages)).write_bytes(content)
    _check_assets(uploaded, [path.removeprefix(packages) for path in kept], tmp_path)


def _again(machine: Machine) -> Machine:
    """The next job's home has nothing of the one before but the compiler's cache."""
    shutil.rmtree(machine.home / "release")
    return machine


@pytest.mark.parametrize("name", ["github-check", "github-release"])
def test_every_action_is_pinned_and_no_job_has_more_rights_than_it_needs(name: str) -> None:
    text = workflow(name, "edgepack.yaml", Vendored(COMMIT))
    actions = re.findall(r"uses: (\S+)", text)
    assert actions and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)
    document = yaml.safe_load(text)
    rights = {job: one["permissions"] for job, one in document["jobs"].items()}
    assert document["permissions"] == {}
    assert rights.pop("publish", {"contents": "write"}) == {"contents": "write"}
    assert all(one == {"contents": "read"} for one in rights.values())
    assert (name == "github-check") == ("actions/cache" in text)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """All workflows, and the one that publishes the documents."""
    found = [ROOT / ".github" / "workflows" / "docs.yml"]
    for template, place in (pair for places in WORKFLOWS.values() for pair in places.items()):
        found.append(tmp_path / place)
        found[-1].parent.mkdir(parents=True, exist_ok=True)
        found[-1].write_text(workflow(template, "edgepack.yaml", Vendored(COMMIT)), encoding="utf-8")
    return found


def test_zizmor_finds_no_weakness_in_a_workflow(files: list[Path]) -> None:
    """A part of the tests' packages, but for systems that have no wheel of it."""
    paths = [path for path in files if path.parent.name == "workflows"]
    done = _linted("zizmor", "--offline", "--no-progress", "--persona", "auditor", *map(str, paths))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_are_what_the_schemas_of_github_and_gitlab_say(files: list[Path]) -> None:
    """``python -m pip install check-jsonschema`` brings both schemas."""
    for path in files:
        schema = "github-workflows" if path.parent.name == "workflows" else "gitlab-ci"
        done = _linted("check-jsonschema", "--builtin-schema", f"vendor.{schema}", str(path))
        assert done.returncode == 0, done.stdout + done.stderr


def _linted(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
