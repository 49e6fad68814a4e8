"""Whether bsdtar takes a text for an mtree specification, which makes files, links and devices.

Source: libarchive's ``archive_read_support_format_mtree.c``. To it three lines of a word each are one too, as
at the begin of many a Python file, and make empty files of those names; such a text is no archive here.
"""

from __future__ import annotations

import re

from edgepack.release.archives.source import Source

__all__ = ["is_mtree"]

_LOOKED_AT = 256 << 10
_KEYWORD = (
    rb"(?:contents?|cksum|device|flags|gid|gname|ignore|inode|link|md5|md5digest|mode|nlink|nochange|optional"
    rb"|resdevice|ripemd160digest|rmd160|rmd160digest|sha1|sha1digest|sha256|sha256digest|sha384|sha384digest"
    rb"|sha512|sha512digest|size|tags|time|type|uid|uname)"
)
_PATH = rb"[!\"$-<>-~]+"
_VALUES = rb"(?:[ \t]+" + _KEYWORD + rb"(?:=[^ \t\r\n]+)?)"
#: Lines that its reader takes; the path first or last.
_LINE = re.compile(
    rb"[ \t]*(?:/set" + _VALUES + rb"+|/unset[ \t].*|" + _PATH + _VALUES + rb"*|"
    rb"(?:" + _KEYWORD + rb"(?:=[^ \t\r\n]+)?[ \t]+)+" + _PATH + rb")[ \t]*\\?"
)
#: What makes links, devices and folders.
_SAYS = re.compile(
    rb"(?:^|[ \t])type=(?:block|char|dir|fifo|file|link|socket)(?=[ \t\r\n\\]|$)", re.MULTILINE
)


def is_mtree(source: Source) -> bool:
    """Whether its first lines are all of an mtree specification, and some line says what is made."""
    text = source.read(0, _LOOKED_AT)
    if text.startswith(b"#mtree"):
        return True
    entries, more = 0, False
    for line in re.split(rb"\r\n|[\r\n]", text)[:-1]:  # what has no end of line is passed over
        bare = line.strip(b" \t")
        if not bare or bare.startswith(b"#"):
            continue
        if not more and not _LINE.fullmatch(line):
            return False
        more = bare.endswith(b"\\")
        entries += not bare.startswith((b"/set", b"/unset"))
        if entries >= 3:
            break
    return entries > 0 and any(_SAYS.search(chunk) for chunk in source.chunks())
