"""PTX for drivers that are older than the NVRTC that wrote it.

A driver refuses PTX whose ``.version`` is later than its own, whatever the instructions in it. NVRTC always
writes the version of its toolkit. Here the text gets the version of the driver, after each instruction,
modifier and directive was found to be in that version of the language (PTX ISA, "Release Notes" and the "PTX
ISA Notes" of each instruction). What is not known here is refused.
"""

from __future__ import annotations

import re

from edgepack.errors import ToolchainError

__all__ = ["isa_of", "lowered"]

#: PTX ISA of each CUDA (PTX ISA, "Release Notes", table "PTX Release History").
_ISA = {
    (10, 0): (6, 3),
    (10, 1): (6, 4),
    (10, 2): (6, 5),
    **{(11, minor): (7, minor) for minor in range(9)},
    **{(12, minor): (8, minor) for minor in range(6)},
    (12, 6): (8, 5),
    (12, 7): (8, 6),
    (12, 8): (8, 7),
    (12, 9): (8, 8),
    **{(13, minor): (9, minor) for minor in range(4)},
}

#: First ISA that has the target of a compute capability (the same table); those up to 7.5 are in all above.
_TARGETS = {
    **{80: (7, 0), 86: (7, 1), 87: (7, 4), 88: (9, 0), 89: (7, 8), 90: (7, 8), 100: (8, 6), 101: (8, 6)},
    **{103: (8, 8), 110: (9, 0), 120: (8, 7), 121: (8, 8)},
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What PTX ISA 6.3 has, of all that NVRTC makes of kernels: opcodes, and modifiers behind them.
_OPCODES = _words(
    "abs add and bar bfe bfi bra brev clz copysign cos cvt cvta div ex2 exit fma ld lg2 mad max min mov mul "
    "neg not or popc prmt rcp rem ret rsqrt selp setp shf shl shr sin sqrt st sub testp xor"
)
_MODIFIERS = _words(
    "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 pred v2 v4 rn rz rm rp rni rzi rmi rpi ftz sat "
    "approx full wide lo hi l r wrap clamp uni sync to global shared local const param nc volatile relaxed "
    "eq ne lt le gt ge ls hs equ neu ltu leu gtu geu num nan and or xor finite infinite number notanumber "
    "normal subnormal"
)
#: Conversions alone have float16 in each of these versions; of its arithmetic some is later.
_HALF = re.compile(r"(cvt|ld|st|mov)\.[\w.]*\bf16\b")
#: What is later: the instructions of tensor cores, and of copies to shared memory.
_LATER = (
    (re.compile(r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.f16\.f16\.f32"), (6, 5)),
    (re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x[124]\.shared\.b16"), (6, 5)),
    (re.compile(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32"), (7, 0)),
    (re.compile(r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32\.tf32\.f32"), (7, 0)),
    (re.compile(r"cvt\.rna\.tf32\.f32"), (7, 0)),
    (re.compile(r"cp\.async\.(cg\.shared\.global|commit_group|wait_group)"), (7, 0)),
)
_DIRECTIVES = _words(
    "version target address_size visible weak extern func entry param reg local shared global const align "
    "maxntid minnctapersm pragma"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"\s*[$%\w]+:(?!:)")
_INSTRUCTION = re.compile(r"\s*(?:@!?%?\w+\s+)?([a-z]\w*(?:\.\w+|::\w+)*)")
_DIRECTIVE = re.compile(r"(?<![\w.}])\.([a-z_]\w*)")
_VERSION = re.compile(r"^\.version\s+(\d+)\.(\d+)", re.MULTILINE)


def isa_of(cuda: str) -> tuple[int, int]:
    """The PTX ISA that the driver of a CUDA ("10.2") takes; that of the last one known for a later minor.

    Raises:
        ToolchainError: it is before 10.0, or of a major version that is not known here.
    """
    wanted = tuple(int(part) for part in cuda.split("."))
    known = [isa for version, isa in _ISA.items() if version[0] == wanted[0] and version <= wanted]
    if not known:
        raise ToolchainError(
            f"gpu.cuda: no PTX is known that a driver of CUDA {cuda} takes.",
            hint=f"It is known for CUDA 10.0 to {max(_ISA)[0]}.{max(_ISA)[1]}.",
        )
    return max(known)


def lowered(ptx: bytes, cuda: str, capability: int) -> bytes:
    """The same PTX with the version that a driver takes.

    Args:
        ptx: what NVRTC made for ``capability`` (10 * major + minor); may end in a zero.
        cuda: the driver's CUDA version, "10.2".

    Raises:
        ToolchainError: the driver's version of PTX lacks the target, or something that is used.
    """
    isa = isa_of(cuda)
    text = ptx.decode("ascii")
    found = _VERSION.search(text)
    if found is None or (int(found[1]), int(found[2])) <= isa:
        return ptx
    if capability > 75 and _TARGETS.get(capability, (99, 0)) > isa:
        raise _refused(f"the target sm_{capability}", isa, cuda)
    for what in _used(text):
        if not _has(what, isa):
            raise _refused(what, isa, cuda)
    return _VERSION.sub(f".version {isa[0]}.{isa[1]}", text, count=1).encode("ascii")


def _refused(what: str, isa: tuple[int, int], cuda: str) -> ToolchainError:
    return ToolchainError(
        f"The GPU's kernels need {what}, which PTX ISA {isa[0]}.{isa[1]} is not known to have: no driver of "
        f"CUDA {cuda} would take them.",
        hint="Install an NVRTC that is no newer than the driver, or raise gpu.cuda and the driver.",
    )


def _used(text: str) -> set[str]:
    """Instructions with their modifiers, and directives with a dot before them."""
    used: set[str] = set()
    for statement in re.split(r"[;{}\n]", _COMMENT.sub(" ", text)):
        bare = _LABEL.sub("", statement, count=1)
        if bare.lstrip().startswith(".pragma"):
            used.add(bare.strip())
        elif bare.lstrip().startswith("."):
            used |= {f".{name}" for name in _DIRECTIVE.findall(bare)}
        elif found := _INSTRUCTION.match(bare):
            used.add(found[1])
    return used


def _has(what: str, isa: tuple[int, int]) -> bool:
    if what.startswith(".pragma"):
        return what == '.pragma "nounroll"'
    if what.startswith("."):
        name = what.removeprefix(".")
        return name in _DIRECTIVES or name in _MODIFIERS
    for pattern, first in _LATER:
        if pattern.fullmatch(what):
            return first <= isa
    opcode, *modifiers = what.split(".")
    allowed = _MODIFIERS | {"f16"} if _HALF.match(what) else _MODIFIERS
    return opcode in _OPCODES and allowed.issuperset(modifiers)
