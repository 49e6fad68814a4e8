"""Which NVRTC is for a driver of CUDA, and what of NVRTC's that driver takes: by their CUDA versions."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["nvrtc_for", "takes_cubins"]


def nvrtc_for(majors: Collection[int], driver: str) -> int:
    """The major version of NVRTC that is used, of those that are installed.

    Args:
        majors: at least one.
        driver: CUDA version of the oldest driver ("11.4"); "" for one as new as NVRTC.

    Returns:
        The newest; for a named driver the newest that is no later than its major version, else the least
        that is, which compiles for the oldest GPUs.
    """
    if not driver:
        return max(majors)
    fitting = [major for major in majors if major <= _numbers(driver)[0]]
    return max(fitting) if fitting else min(majors)


def takes_cubins(driver: str, nvrtc: str) -> bool:
    """Whether a driver of one CUDA version ("11.4") takes cubins of another's NVRTC: of an older one, and
    since CUDA 11 of any minor version of its own major one (CUDA Compatibility, "Minor Version
    Compatibility")."""
    own, other = _numbers(driver), _numbers(nvrtc)
    return other <= own or (other[0] == own[0] and own[0] >= 11)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
