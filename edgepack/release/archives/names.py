"""Names of entries that mean the same file in every file system and to every tool.

Sources: learn.microsoft.com "Naming Files, Paths, and Namespaces"; UnZip 6.0 ``mapname`` (drops ``;1``);
libarchive's reader of tar and zip (AppleDouble files ``._x`` on macOS).
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PureWindowsPath

__all__ = ["key_of", "wrong_with"]

_LONGEST, _LONGEST_PART, _MOST_PARTS = 1024, 255, 64
_FORBIDDEN = frozenset('<>:"|?*\\')
#: Devices of Windows, with any extension.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|clock\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE)
#: What Windows may call another file of the folder as well.
_SHORT = re.compile(r"(?=[^.]{1,8}(\.|$))[^.]{1,6}~[0-9]{1,6}(\.[^.]{0,3})?")
#: UnZip takes a number behind ";" for a version of VMS, and drops it.
_VERSION = re.compile(r".*;[0-9]*")


def key_of(part: str) -> str:
    """What is the same for two names in a folder that some file system takes for one."""
    folded = unicodedata.normalize("NFD", part).casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", folded).casefold())


def wrong_with(name: str) -> str:
    """Why no entry may be called so, as a sentence's end (``leads out of its folder``); "" for a good name.

    Args:
        name: with ``/`` between its parts, and none at its ends but where it is absolute.
    """
    parts = name.split("/")
    if ".." in parts or name.startswith("/") or PureWindowsPath(name).drive:
        return "leads out of its folder"
    if "\\" in name or "" in parts or "." in parts or not name.isprintable():
        return "is no plain path"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in Unicode's form NFC, into which bsdtar brings it"
    if len(name) > _LONGEST or len(parts) > _MOST_PARTS:
        return "is too long"
    return next((why for part in parts if (why := _wrong_part(part))), "")


def _wrong_part(part: str) -> str:
    if _FORBIDDEN & set(part):
        return "has a character that Windows has in no name"
    if part[-1] in " .":
        return f"ends with {part[-1]!r}, which Windows drops"
    if _DEVICE.fullmatch(part):
        return "is the name of a device of Windows"
    if _SHORT.fullmatch(part):
        return "may be another file's short name on Windows"
    if _VERSION.fullmatch(part):
        return "ends with a version, which unzip drops"
    if part.startswith("._") or part == "__MACOSX":
        return "is no file but another one's attributes on macOS"
    try:
        long = len(part.encode("utf-8")) > _LONGEST_PART
    except UnicodeEncodeError:
        return "is no plain path"
    return "is too long" if long else ""
