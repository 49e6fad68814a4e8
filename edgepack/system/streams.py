"""What a process prints, up to as many bytes as its caller can bear."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import suppress
from typing import IO

__all__ = ["Output"]


class Output:
    """Reads the streams of a process that are pipes, each in a thread of its own.

    Args:
        process: with ``stdout`` and ``stderr`` that are pipes, or None.
        most: bytes of both together that are kept. What comes after them is not read.

    Attributes:
        stdout, stderr: what came so far.
        too_much: more than ``most`` came.

    Raises:
        RuntimeError: there are too many threads.
    """

    def __init__(self, process: subprocess.Popen[bytes], most: int) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.too_much = False
        self._process = process
        self._left = most
        self._changed = threading.Condition()
        streams = ((process.stdout, self.stdout), (process.stderr, self.stderr))
        self._reading = [stream for stream, _ in streams if stream is not None]
        for stream, kept in streams:
            if stream is not None:
                threading.Thread(target=self._read, args=(stream, kept), daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Waits until the streams have ended and the process too, or too much came; whether that is so."""
        late = time.monotonic() + seconds
        with self._changed:
            if not self._changed.wait_for(lambda: not self._reading or self.too_much, seconds):
                return False
        if self.too_much:
            return True
        try:
            self._process.wait(max(0.0, late - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, stream: IO[bytes], kept: bytearray) -> None:
        """Whoever reads a stream closes it: another one cannot know whether it is being read just now."""
        with stream, suppress(OSError, ValueError):
            while data := os.read(stream.fileno(), 1 << 16):
                with self._changed:
                    self.too_much |= len(data) > self._left
                    if self.too_much:
                        break
                    self._left -= len(data)
                    kept += data
        with self._changed:
            self._reading.remove(stream)
            self._changed.notify_all()
