"""The device's verification of signatures: RFC 8032's vectors, what the library of others signs, and what no
verifier may take."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edgepack.render.sources import MODEL_SOURCE
from edgepack.resources import TEMPLATES
from tests.runtime.conftest import CHECKED
from workbench.mini import ARCH, VARIANTS, WARNINGS, make_sources, run

HERE = Path(__file__).parent
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
#: RFC 8032, 7.1: key, message, signature of tests 1, 2, 3 and SHA(abc).
RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd"
        "454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030"
        "3dca179c138ac17ad9bef1177331a704",
    ),
]
#: Points of small order in ways to write them that are not the least: y >= p, or -0.
NOT_CANONICAL = [P, P + 1, P + 18, P + 2**255, P + 1 + 2**255, 1 + 2**255, P - 1 + 2**255]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ed25519") / "ed25519"
    folders = [f"-I{TEMPLATES / 'runtime'}", f"-I{TEMPLATES}"]
    cc, flags = VARIANTS[CHECKED]
    flags = (*WARNINGS, "-Wno-unused-function", *flags, "-O2", "-pthread")
    command = [*cc, *flags, *folders, HERE / "ed25519.c", "-o", path, "-lm", "-ldl"]
    subprocess.run(command, check=True)
    return path


@pytest.mark.parametrize(
    "cc",
    [
        "clang -O0",
        "thumb-freestanding-eabi",
        pytest.param("gcc -O3", marks=pytest.mark.slow),
        pytest.param("x86_64-windows-gnu", marks=pytest.mark.slow),
    ],
)
def test_a_library_with_it_has_no_warnings(cc: str, tmp_path: Path) -> None:
    bundle = make_sources(tmp_path / "bundle", arch="arm" if cc.startswith("thumb") else ARCH)
    shutil.copytree(TEMPLATES / "runtime" / "signed", bundle.root / "src" / "runtime" / "signed")
    command = cc.split()
    if "-O" not in cc:
        command = [sys.executable, "-m", "ziglang", "cc", "-target", cc, "-fno-sanitize=all", "-O2"]
    if cc.startswith("thumb"):
        command.append("-mcpu=cortex_m0")
    words = ",".join(["0x01"] * 32)
    command += [
        f"-DEP_PARAMS_KEY={{{words}}}",
        f"-DEP_PARAMS_LAYOUT={{{words}}}",
        "-Wshadow",
        "-Wundef",
        "-Wvla",
    ]
    run([*command, *WARNINGS, *bundle.includes, "-c", bundle.root / MODEL_SOURCE, "-o", tmp_path / "out.o"])


def verified(program: Path, records: list[tuple[bytes, bytes, bytes]]) -> list[bool]:
    """For each signature, key and message."""
    data = b"".join(s + key + struct.pack("<I", len(m)) + m for s, key, m in records)
    done = subprocess.run([program], input=data, capture_output=True, check=True)
    return [line == b"1" for line in done.stdout.split()]


def signed(rng: random.Random, nbytes: int) -> tuple[bytes, bytes, bytes]:
    key, message = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32)), rng.randbytes(nbytes)
    return key.sign(message), key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw), message


def test_takes_what_is_right(program: Path) -> None:
    vectors = [(bytes.fromhex(s), bytes.fromhex(k), bytes.fromhex(m)) for k, m, s in RFC_8032]
    rng = random.Random(1)
    sizes = [*range(0, 260, 9), 80, 1023, 4096]  # over the borders of SHA-512's blocks
    records = [*vectors, *(signed(rng, nbytes) for nbytes in sizes)]
    assert verified(program, records) == [True] * len(records)


def test_refuses_a_changed_bit(program: Path) -> None:
    rng = random.Random(2)
    records = []
    whole = signed(rng, 80)
    for part in range(3):
        for bit in range(0, 8 * len(whole[part]), 3):
            changed = bytearray(whole[part])
            changed[bit // 8] ^= 1 << bit % 8
            records.append((*whole[:part], bytes(changed), *whole[part + 1 :]))
    assert not any(verified(program, records))  # type: ignore[arg-type]


def test_refuses_what_is_written_in_another_way(program: Path) -> None:
    """A signature has one form only: s below L, points as their least number, none with a negative zero."""
    rng = random.Random(3)
    records = []
    for _ in range(4):
        signature, key, message = signed(rng, 80)
        s = int.from_bytes(signature[32:], "little")
        for k in range(1, 16):
            if s + k * L < 2**256:
                records.append((signature[:32] + (s + k * L).to_bytes(32, "little"), key, message))
    zero, whole = bytes(32), (1).to_bytes(32, "little") + bytes(32)
    for number in NOT_CANONICAL:
        point = number.to_bytes(32, "little")
        records += [(point + zero, point, b""), (whole, point, b""), (point + zero, whole[:32], b"")]
    # No point of the curve has these y.
    records += [(whole, y.to_bytes(32, "little"), b"m") for y in range(2, 40) if not on_curve(y)]
    assert not any(verified(program, records))


def on_curve(y: int) -> bool:
    d = -121665 * pow(121666, P - 2, P) % P
    square = (y * y - 1) * pow(d * y * y + 1, P - 2, P) % P
    return pow(square, (P - 1) // 2, P) in (0, 1)
