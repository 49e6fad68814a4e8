"""A bundle on disk, as an object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import find_bundle
from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.config.option_checks import check_options, check_run, check_whole
from edgepack.options import PathLike, RunKeywords, RunOptions
from edgepack.system.boundary import guarded

if TYPE_CHECKING:
    from edgepack.client.session import Session
    from edgepack.config.device import Device
    from edgepack.runners.bench import Measurement
    from edgepack.runners.verify import Verification

__all__ = ["Bundle"]


class Bundle:
    """A bundle on disk.

    Args:
        path: its folder.
        stage_seconds: how long each stage took, where it was packed just now.

    Raises:
        ConfigError: there is no bundle, or its manifest cannot be read.
    """

    @guarded
    def __init__(self, path: PathLike, *, stage_seconds: Mapping[str, float] | None = None) -> None:
        self.path = find_bundle(Path(path))
        self.manifest: Manifest = load_manifest(self.path)
        self.stage_seconds = dict(stage_seconds or {})

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r})"

    @guarded
    def check_sums(self) -> int:
        """Compare all files with SHA256SUMS; returns how many. Raises CheckFailedError if one differs."""
        return check_sums(self.path, self.manifest)

    @guarded
    def check_signature(self, key: PathLike) -> str:
        """Check the signature over SHA256SUMS (``SHA256SUMS.minisig`` or ``.sig``), but no other file.

        Args:
            key: a public key of minisign or cosign: its file, ``env://NAME`` for an environment variable that
                holds it, or the line that ``minisign -P`` takes.

        Returns:
            what the signer said with it, minisign's trusted comment.

        Raises:
            CheckFailedError: there is no signature, it is another key's, or does not match.
            ConfigError: there is no such key, or ``edgepack[sign]`` is not installed.
        """
        from edgepack.signing.sums import check_signature, public_key

        return check_signature(self.path, public_key(os.fspath(key)))

    @guarded
    def verify(
        self,
        *,
        runner: str | None = None,
        device: PathLike | Device | None = None,
        threads: int | None = None,
        timeout: float | None = None,
        sandbox: bool = False,
        signature: PathLike | None = None,
    ) -> Verification:
        """Check the files, then run the bundle's own program on the recorded data.

        Args:
            runner: where to run it; default this machine, or the device's emulator.
            device: whose settings of the runner are taken: a device's name, a path to its YAML file, or the
                device; default what this machine has under the name of the bundle's device.
            threads: threads that compute; default what the device's profile says and, without an emulator,
                also one.
            timeout: seconds for each run of the program; default what the device's profile says.
            sandbox: run it under bubblewrap: it sees its bundle and the system's libraries, and changes
                nothing.
            signature: a public key, as for :meth:`check_signature`, which then comes first.

        Raises:
            CheckFailedError: a signature does not match, a file is damaged, or the program refuses or
                crashes. A mismatch is a result.
            ToolchainError: there is no runner for the device here, or the time is up.
        """
        from edgepack.runners.verify import verify

        options = RunOptions(runner, device, threads, timeout, sandbox)
        check_run(options)
        if signature is not None:
            self.check_signature(signature)
        self.check_sums()
        return verify(self.path, self.manifest, options)

    @guarded
    def bench(
        self,
        *,
        runs: int | None = None,
        warmup: int | None = None,
        profile: bool = False,
        variant: str | None = None,
        **options: Unpack[RunKeywords],
    ) -> Measurement:
        """Let the bundle's own program measure itself. Errors as in :meth:`verify`.

        Args:
            runs: runs that are measured; default 50, or 2 where instructions are counted, which is done in
                place of times for firmware under an emulator.
            warmup: runs before them; default 5, or none where instructions are counted.
            profile: time each step too; instructions are always counted by step.
            variant: device whose kernels are measured, of a library for several kinds of CPU; default those
                that the CPU takes.
            options: ``runner``, ``device``, ``threads``, ``timeout`` and ``sandbox`` as in :meth:`verify`.
        """
        from edgepack.runners.bench import BenchOptions, bench

        check_options(options, "bench")
        where = RunOptions(**options)
        check_run(where)
        if runs is not None:
            check_whole("runs", runs, least=1)
        if warmup is not None:
            check_whole("warmup", warmup, least=0)
        measured = BenchOptions(runs=runs, warmup=warmup, profile=profile, variant=variant, where=where)
        return bench(self.path, self.manifest, measured)

    @guarded
    def report(
        self,
        output: PathLike | None = None,
        *,
        bench: Measurement | PathLike | None = None,
        verification: Verification | PathLike | None = None,
        run: bool = False,
        force: bool = False,
        **options: Unpack[RunKeywords],
    ) -> Path:
        """Write a page about the bundle that opens from disk: one HTML file without scripts.

        Args:
            output: the file; default ``<name>-<device>.html`` in the working directory.
            bench: times of this bundle: what :meth:`bench` returned, or a file with what
                ``edgepack bench --json`` printed.
            verification: what :meth:`verify` returned, or a file with what ``edgepack verify --json``
                printed.
            run: run the bundle's program for what of both is not given. Where it cannot run here, the page
                says why; the times of an emulator are not taken.
            force: replace a file at the output.
            options: ``runner``, ``device``, ``threads``, ``timeout`` and ``sandbox`` as in :meth:`verify`.

        Returns:
            the file.

        Raises:
            CheckFailedError: as of :meth:`verify`, where it is run. Outputs that are wrong are no error: the
                page shows them.
            ConfigError: the file exists or cannot be written, or a result is of another bundle.
            ToolchainError: the runner that is named cannot run it here, or the time is up.
        """
        from edgepack.client.report import ReportInputs, report_of

        check_options(options, "report")
        where = RunOptions(**options)
        check_run(where)
        inputs = ReportInputs(bench, verification, where if run else None)
        return report_of(self.path, self.manifest, output, inputs, force=force).path

    def inspect(self) -> dict[str, Any]:
        """The manifest as plain data, and ``arena_use``: how many bytes of each arena are in use at each step
        of a run, and what is there at the peak (what ``edgepack inspect --json`` prints).

        Raises:
            ConfigError: the manifest's buffers are outside of the arena, or of steps that there are not.
        """
        from edgepack.bundle.live_memory import all_arena_uses

        uses = [use.to_json() for use in all_arena_uses(self.manifest)]
        return {**self.manifest.model_dump(mode="json"), "arena_use": uses}

    @guarded
    def load(
        self, *, threads: int | None = None, sessions: int | None = None, check: bool = False
    ) -> Session:
        """Open it in this process: see :func:`edgepack.load`."""
        from edgepack.client.session import Session

        return Session(self, threads=threads, sessions=sessions, check=check)
