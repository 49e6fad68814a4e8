"""Whether an archive can be unpacked without harm, and to the same files by every tool. Nothing is written.

One way for all kinds: an archive is read strictly, in the form that ordinary tools write, and what is left
over, said twice, or read differently by two tools is refused with the reason. ``reader.py`` goes through
archives in archives; ``kinds.py`` knows them by their bytes; ``tar.py``, ``zip.py``, ``ar.py`` and
``streams.py`` read one kind each; ``names.py`` and ``tree.py`` say which entries may lie beside each other.
"""

from edgepack.release.archives.reader import check_archive

__all__ = ["check_archive"]
