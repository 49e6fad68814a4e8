"""Who deletes, moves, links or writes files by their paths, and why it can mean nothing of others.

``private_files.ours_alone`` says what may be believed, ``bundle.writer.check_holds_only`` what may be
deleted. A call that is new here fails this test until somebody has thought about whose the file is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "edgepack"

#: What changes the file system by a path. ``replace`` is a file's where it has one argument, else a text's.
CHANGES = {
    *("rmtree", "rmdir", "unlink", "remove", "removedirs", "rename", "replace", "move", "copytree", "copy"),
    *("copy2", "copyfile", "link", "hardlink_to", "symlink", "symlink_to", "write_text", "write_bytes"),
}

#: In a temporary folder of this process alone (``temporary_folder``, ``workplace``, ``replacing``), in which
#: is nothing that another user could have put there.
TEMPORARY = """
pipeline/worker_process.py:_started
system/apple_metal.py:compile_library bundle/assemble.py:_build bundle/assemble.py:_copy_run
commands/export.py:_copied commands/compare.py:_samples commands/kept_stages.py:complete_stages
runners/results.py:run_samples
runners/results.py:_copy_program toolchains/nvcc.py:__call__ toolchains/rocm_linker.py:__call__
bundle/assemble.py:_write bundle/assemble.py:_write_sources bundle/checksums.py:write_sums
bundle/firmware/project.py:_link_flags bundle/firmware/project.py:write_sources formats/deb.py:_write_package
formats/oci.py:_write objectfiles/coff/format.py:shared objectfiles/coff/format.py:strip_debug
objectfiles/coff/relocatable.py:drop_exports objectfiles/coff/relocatable.py:hide_weak_defaults
objectfiles/elf/format.py:shared objectfiles/elf/relocatable.py:_edit objectfiles/macho/format.py:shared
objectfiles/macho/format.py:strip_debug objectfiles/macho/relocatable.py:hide_symbols
objectfiles/wasm/relocatable.py:hide_symbols pipeline/model_objects.py:write pipeline/worker_process.py:run
plan/binary.py:write_binaries
release/assemble.py:_joint release/assemble.py:assemble release/attestations.py:_write
release/output.py:write_sums release/processes.py:_call release/processes.py:do_call
report/build.py:write_report runners/metal_shim.py:_program runners/program.py:_path_of_text
runners/shim.py:compile_kernels
runners/strangers.py:_copy_folder signing/sums.py:sign_file toolchains/base.py:_hidden
toolchains/base.py:archive toolchains/emcc.py:_link_with_script
toolchains/freestanding.py:link_freestanding toolchains/zig.py:preparation commands/update.py:_trial
torch/compiled.py:_packed torch/kept.py:_store
pipeline/exported_file.py:_export
commands/tune_programs.py:_listed commands/tune_programs.py:_forget commands/tune_programs.py:discard
"""

#: By descriptors of folders that belong to this user alone (``OwnFolder``); links are not followed.
BY_DESCRIPTOR = """
system/private_files.py:remove system/private_files.py:rename pipeline/cache.py:forget_entry
pipeline/cache.py:_forget_file pipeline/cache_entry.py:write_entry pipeline/cache_secret.py:_make
release/unit_files.py:_take
release/work.py:_remove_unless_needed release/work.py:_write release/work.py:publish
system/temporary.py:_emptied system/temporary.py:_put_back system/temporary.py:_remove_if_dead
"""

#: In folders of this user alone that were asked for before: ``private_folder``, ``cache_folder``, the
#: release's work folder, a temporary folder whose marker and lock are this process's.
OWN_FOLDER = """
release/build.py:build release/build.py:stage runners/wine.py:_fill
runners/wine.py:_prefix system/temporary.py:_remove toolchains/zig.py:_without_leftovers
toolchains/zig_ios.py:libc_file
"""

#: One file, by a name that is free or whose file is a file and may be replaced; links are replaced, not
#: followed. The second word is what must be asked in the same module.
ASKED = {
    "system/atomic.py:replace_file": "",
    "system/atomic.py:replace_folder": "",
    "system/atomic.py:write_file": "O_EXCL",
    "system/atomic.py:_remove_left": "st_uid",
    "bundle/writer.py:workplace": "folder.rmdir",  # folders that it made, if they are empty
    "commands/export.py:_forget_signatures": "SIGNATURES",
    "system/log.py:_forget_old": "ours_alone",
}

#: What replaces folders, and what says before that nothing of others is in them.
FOLDERS = {
    "bundle/writer.py": "check_destination(",
    "commands/kept_stages.py": "check_stages_folder(",
    "release/output.py": "check_holds_only(",
}

#: Of edgepack's own sources: schemas that a developer writes anew.
DEVELOPERS = {"config/schema.py:write"}

#: Rooms that read files which others may have put there: bundles, releases, what runners get.
READING = (
    "bundle/",
    "release/",
    "runners/",
    "report/",
    "signing/",
    "commands/export.py",
    "commands/update.py",
)
#: Who opens a file there by other ways than ``read_regular``, ``find_damage`` and an ``OwnFolder``, and what
#: it is: this process's own temporary files, data of edgepack's own, the machine's, or a regular file by now.
OPENED = """
bundle/assemble.py:_read_json bundle/assemble.py:_unconfined bundle/assemble.py:_variants
bundle/assemble.py:_write_kernels
bundle/assemble.py:_write_sources bundle/compile_sources.py:included_files
bundle/firmware/boards.py:places_on_board
bundle/firmware/linker_script.py:_regions bundle/firmware/linker_script.py:linker_script
bundle/firmware/placement.py:move_params bundle/firmware/project.py:_link_flags
bundle/listed_files.py:copy_listed bundle/listed_files.py:find_damage bundle/merge_params.py:share_params
bundle/recipe.py:gpu_kernels release/archives/reader.py:check_archive release/identity.py:_own_sources
release/measure.py:_cpu release/processes.py:_call release/processes.py:do_call
release/starter.py:new_project release/unit_files.py:_take release/vendored.py:write release/work.py:_read
release/work.py:stage
runners/cuda_shim.py:run
runners/metal_shim.py:_program runners/metal_shim.py:run runners/ssh.py:copy runners/strangers.py:_copy
runners/strangers.py:_copy_file signing/sums.py:sign_file
"""


def _functions(does: Callable[[ast.AST], bool]) -> Iterator[str]:
    """``module:function`` of each function of which a node is such a one."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("compiler/"):  # the worker writes to its job's folder only
            continue
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and any(map(does, _own(function))):
                yield f"{name}:{function.name}"


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions in it."""
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef):
            yield node
            todo += ast.iter_child_nodes(node)


def _is_change(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "replace":
        return len(node.args) == 1 and not node.keywords
    if node.func.attr in {"copy", "remove"}:  # of lists and the like too; an OwnFolder removes safely
        return ast.unparse(node.func.value) in {"shutil", "os"}
    return node.func.attr in CHANGES


def _is_opening(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr == "open":  # a folder's descriptor has one too, which takes flags
        flags = any("os.O_" in ast.unparse(argument) for argument in node.args)
        return not flags or ast.unparse(function.value) == "os"
    return function.attr in {"read_text", "read_bytes"}


def test_files_of_others_are_read_in_one_way() -> None:
    """Which waits for no pipe, follows no link out, and stops at a size."""
    found = {name for name in _functions(_is_opening) if name.startswith(READING)}
    assert found - set(OPENED.split()) == set(), "read it by read_regular, or say whose it is (OPENED)"
    assert set(OPENED.split()) - found == set(), "gone: take them out of the table"


def test_whoever_changes_files_by_their_paths_knows_whose_they_are() -> None:
    known = {*TEMPORARY.split(), *BY_DESCRIPTOR.split(), *OWN_FOLDER.split(), *ASKED, *DEVELOPERS}
    found = set(_functions(_is_change))
    assert found - known == set(), "whose are these files? (see the tables above)"
    assert known - found == set(), "gone: take them out of the tables"


def test_what_is_asked_before_is_asked() -> None:
    for place, word in {**ASKED, **FOLDERS}.items():
        module = place.split(":", maxsplit=1)[0]
        assert word in (PACKAGE / module).read_text(encoding="utf-8"), place


def test_folders_are_replaced_by_one_function() -> None:
    """Which flushes them, exchanges them, and is called where it was asked what they hold."""
    callers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "replace_folder(" in path.read_text(encoding="utf-8") and path.name != "atomic.py"
    }
    assert callers == set(FOLDERS)
