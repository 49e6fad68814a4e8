"""Signatures over SHA256SUMS: public tools verify what is signed here, and what they sign is verified."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from nacl.secret import SecretBox

from edgepack.api import Bundle, export, pack, sign
from edgepack.bundle.checksums import write_sums
from edgepack.cli.main import main
from edgepack.errors import CheckFailedError, ConfigError, EdgepackWarning
from edgepack.options import PackageKeywords
from edgepack.signing.sums import PASSWORD, check_signature, is_encrypted, public_key, secret_key, sign_sums

SUMS = f"{'ab' * 32}  lib/libnet.so\n"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``m.pub``, ``m.sec`` of minisign, ``c.pub``, ``c.key`` of openssl, and the same of another one."""
    folder = tmp_path_factory.mktemp("kéys")
    for name in ("m", "other-m"):
        minisign(folder, "-G", "-W", "-p", f"{name}.pub", "-s", f"{name}.sec")
    for name in ("c", "other-c"):
        openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
        openssl(folder, "ec", "-in", f"{name}.key", "-pubout", "-out", f"{name}.pub")
    return folder


def minisign(folder: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["minisign", *arguments], cwd=folder, check=True, capture_output=True, text=True, input=typed
    )


def openssl(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True).stdout


@pytest.fixture
def release(tmp_path: Path) -> Path:
    (tmp_path / "SHA256SUMS").write_text(SUMS)
    return tmp_path


def encrypted(keys: Path, folder: Path, password: str) -> Path:
    """``m.sec`` as minisign encrypts it, but at the least cost."""
    data = base64.b64decode((keys / "m.sec").read_text().splitlines()[1])
    salt, operations, memory = bytes(range(32)), 32768, 16 << 20
    secret = data[54 : 54 + 72]
    secret += hashlib.blake2b(b"Ed" + secret, digest_size=32).digest()
    stream = hashlib.scrypt(password.encode(), salt=salt, n=1024, r=8, p=1, dklen=104, maxmem=64 << 20)
    hidden = bytes(a ^ b for a, b in zip(secret, stream, strict=True))
    packed = struct.pack("<2s2s2s32sQQ104s", b"Ed", b"Sc", b"B2", salt, operations, memory, hidden)
    path = folder / "encrypted.sec"
    path.write_text(f"untrusted comment: encrypted\n{base64.b64encode(packed).decode()}\n")
    return path


def cosign_key(keys: Path, folder: Path, password: str, kind: str = "SIGSTORE") -> Path:
    """``c.key`` as cosign keeps it: scrypt, secretbox, JSON, PEM."""
    der = openssl(keys, "pkcs8", "-topk8", "-nocrypt", "-in", "c.key", "-outform", "DER")
    salt, nonce = bytes(32), bytes(24)
    key = hashlib.scrypt(password.encode(), salt=salt, n=1024, r=8, p=1, dklen=32)

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    envelope = {
        "kdf": {"name": "scrypt", "params": {"N": 1024, "r": 8, "p": 1}, "salt": text(salt)},
        "cipher": {"name": "nacl/secretbox", "nonce": text(nonce)},
        "ciphertext": text(SecretBox(key).encrypt(der, nonce).ciphertext),
    }
    body = base64.encodebytes(json.dumps(envelope).encode()).decode()
    path = folder / "cosign.key"
    name = f"ENCRYPTED {kind} PRIVATE KEY"
    path.write_text(f"-----BEGIN {name}-----\n{body}-----END {name}-----\n")
    return path


def test_minisign_verifies_what_is_signed_here(keys: Path, release: Path) -> None:
    made = sign_sums(release, secret_key(keys / "m.sec"), "models 1.2.0")
    assert made.name == "SHA256SUMS.minisig"
    said = minisign(release, "-V", "-m", "SHA256SUMS", "-p", str(keys / "m.pub")).stdout
    assert "Trusted comment: models 1.2.0" in said
    first = made.read_bytes()
    assert sign_sums(release, secret_key(keys / "m.sec"), "models 1.2.0").read_bytes() == first
    assert check_signature(release, public_key(keys / "m.pub")) == "models 1.2.0"
    line = (keys / "m.pub").read_text().splitlines()[1]
    assert check_signature(release, public_key(line)) == "models 1.2.0"
    with pytest.raises(subprocess.CalledProcessError):
        minisign(release, "-V", "-m", "SHA256SUMS", "-p", str(keys / "other-m.pub"))
    assert [path.name for path in sorted(release.iterdir())] == ["SHA256SUMS", "SHA256SUMS.minisig"]


def test_what_minisign_signs_is_verified(keys: Path, release: Path) -> None:
    arguments = ("-S", "-m", "SHA256SUMS", "-s", str(keys / "m.sec"))
    minisign(release, *arguments, "-t", "by hand")
    assert check_signature(release, public_key(keys / "m.pub")) == "by hand"
    with pytest.raises(CheckFailedError, match="was made with the key"):
        check_signature(release, public_key(keys / "other-m.pub"))
    minisign(release, *arguments, "-l")
    with pytest.raises(CheckFailedError, match="older kind"):
        check_signature(release, public_key(keys / "m.pub"))


def test_encrypted_keys_of_minisign(
    keys: Path, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = encrypted(keys, tmp_path, "pässword")
    typed = "pässword\n"
    minisign(release, "-S", "-m", "SHA256SUMS", "-s", str(path), "-t", "t", typed=typed)  # it is such a key
    theirs = (release / "SHA256SUMS.minisig").read_text().splitlines()[1:]
    ours = sign_sums(release, secret_key(path, "pässword"), "t").read_text().splitlines()[1:]
    assert ours == theirs
    with pytest.raises(ConfigError, match="encrypted, and there is no password"):
        secret_key(path)
    monkeypatch.setenv(PASSWORD, "wrong")
    with pytest.raises(ConfigError, match=r"password of .* is wrong"):
        secret_key(path)


@pytest.mark.slow
def test_a_key_that_minisign_encrypted_itself(release: Path) -> None:
    minisign(release, "-G", "-p", "k.pub", "-s", "k.sec", typed="secret\nsecret\n")
    sign_sums(release, secret_key(release / "k.sec", "secret"))
    minisign(release, "-V", "-m", "SHA256SUMS", "-p", "k.pub")


@pytest.mark.parametrize("kind", ["plain", "SIGSTORE", "COSIGN", "pkcs8"])
def test_openssl_verifies_what_is_signed_as_cosign_does(
    kind: str, keys: Path, release: Path, tmp_path: Path
) -> None:
    key = keys / "c.key"
    if kind == "pkcs8":
        key = tmp_path / "pkcs8.key"
        options = ("-topk8", "-passout", "pass:pw", "-in", str(keys / "c.key"), "-out", str(key))
        openssl(keys, "pkcs8", *options)
    elif kind != "plain":
        key = cosign_key(keys, tmp_path, "pw", kind)
    made = sign_sums(release, secret_key(key, "pw"))
    assert made.name == "SHA256SUMS.sig"
    (tmp_path / "der").write_bytes(base64.b64decode(made.read_text()))
    command = ("dgst", "-sha256", "-verify", str(keys / "c.pub"), "-signature", "der", "SHA256SUMS")
    assert openssl(tmp_path, *command) == b"Verified OK\n"
    assert check_signature(release, public_key(keys / "c.pub")) == ""
    first = made.read_bytes()
    assert sign_sums(release, secret_key(key, "pw")).read_bytes() == first
    if kind != "plain":
        for password in ("wrong", None):
            with pytest.raises(ConfigError, match="password"):
                secret_key(key, password)
    with pytest.raises(CheckFailedError, match="does not match"):
        check_signature(release, public_key(keys / "other-c.pub"))


def test_what_has_the_form_of_a_key_is_a_key_whatever_files_there_are(
    keys: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker's folder may hold files of any name, and his key in them."""
    sign_sums(release, secret_key(keys / "other-m.sec"))
    trusted, foreign = ((keys / f"{name}.pub").read_text() for name in ("m", "other-m"))
    line = trusted.splitlines()[1]
    pem = (keys / "c.pub").read_text()
    texts = (line, f"{line}\r", f" {line}\n", trusted, trusted.strip(), pem, line[:-1], f"{line}A")
    for number, given in enumerate(texts):
        folder = release / str(number)  # with a / at its end, one key is a folder in another's path
        folder.mkdir()
        monkeypatch.chdir(folder)
        try:
            Path(given).parent.mkdir(parents=True, exist_ok=True)
            Path(given).write_text(foreign)
        except OSError:
            assert given == pem  # a path's part can be too long
        with pytest.raises((CheckFailedError, ConfigError), match=r"made with the key|nobody|no public"):
            check_signature(release, public_key(given))
    monkeypatch.chdir(release / "0")
    monkeypatch.setenv("KEY", line)
    Path("env:").mkdir()
    Path("env:/KEY").write_text(foreign)
    assert public_key("env://KEY") == public_key(line) == public_key(trusted)
    assert public_key("env:/KEY") == public_key(keys / "other-m.pub")  # a path
    assert public_key(f"./{line}") == public_key(keys / "other-m.pub")  # as the shell says that it is a file


@pytest.mark.parametrize("key", ["m", "c"])
def test_what_was_changed_is_refused(key: str, keys: Path, release: Path) -> None:
    public = public_key(keys / f"{key}.pub")
    with pytest.raises(CheckFailedError, match="nobody signed it"):
        check_signature(release, public)
    made = sign_sums(release, secret_key(keys / ("m.sec" if key == "m" else "c.key")))
    good = made.read_text()
    (release / "SHA256SUMS").write_text(SUMS.replace("a", "b"))
    with pytest.raises(CheckFailedError, match="does not match"):
        check_signature(release, public)
    (release / "SHA256SUMS").write_text(SUMS)
    lines = good.splitlines(keepends=True)
    wrong = ["", "\n", "\udcff\n", "AA\n" * 4, good * 2, good.replace("file:", "fine:"), lines[0] + good]
    for text in wrong if key == "m" else wrong[:4]:
        made.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(CheckFailedError):
            check_signature(release, public)


def test_keys_that_are_none_are_refused(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openssl(tmp_path, "genrsa", "-out", "rsa.key", "1024")
    openssl(tmp_path, "rsa", "-in", "rsa.key", "-pubout", "-out", "rsa.pub")
    (tmp_path / "text").write_text("a text\nof two lines\n")
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_text("")
    damaged = cosign_key(keys, tmp_path, "pw")
    damaged.write_text(damaged.read_text().replace("A", "B", 5))
    curve = ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:SM2")
    openssl(tmp_path, *curve, "-out", "sm2.key")
    openssl(tmp_path, "pkey", "-in", "sm2.key", "-pubout", "-out", "sm2.pub")
    assert not is_encrypted(tmp_path / "empty")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "text", tmp_path / "bytes", tmp_path / "empty"):
        for read in (secret_key, public_key):
            with pytest.raises(ConfigError):
                read(path)
    for path in (keys / "m.pub", keys / "c.pub", tmp_path / "rsa.key", tmp_path / "sm2.key", damaged):
        with pytest.raises(ConfigError):
            secret_key(path, "pw")
    for path in (keys / "m.sec", keys / "c.key", tmp_path / "rsa.pub", tmp_path / "sm2.pub"):
        with pytest.raises(ConfigError):
            public_key(path)
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(ConfigError, match="'NO_KEY' with the key is not set"):
        secret_key("env://NO_KEY")


@pytest.mark.parametrize(
    "wrong",
    [
        b"[" * 40000,
        b"{}",
        b'{"kdf": null}',
        *(
            b'{"kdf": {"name": "scrypt", "params": {"N": %s, "r": 8, "p": 1}, "salt": %s}, ' % pair
            + b'"cipher": {"name": "nacl/secretbox", "nonce": "AAAA"}, "ciphertext": "AAAA"}'
            for pair in (
                (b"1024", b"1"),
                (b"1e400", b'""'),
                (b"0", b'""'),
                (b"1024", b'"AAAA"'),
                (b"9" * 40, b'""'),
            )
        ),
    ],
    ids=lambda wrong: wrong[-60:].decode()[:40],
)
def test_a_key_like_cosigns_that_says_odd_things_is_refused(wrong: bytes, tmp_path: Path) -> None:
    name, path = "ENCRYPTED SIGSTORE PRIVATE KEY", tmp_path / "cosign.key"
    path.write_text(f"-----BEGIN {name}-----\n{base64.b64encode(wrong).decode()}\n-----END {name}-----\n")
    with pytest.raises(ConfigError, match="is damaged, or its password is wrong"):
        secret_key(path, "pw")


def test_a_bundle_is_signed_and_verified_by_the_commands(
    small_bundle: Bundle,
    keys: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(small_bundle.path, copy)
    monkeypatch.setenv("THE_KEY", (keys / "m.sec").read_text())
    assert main(["sign", str(copy), "--key", "env://THE_KEY"]) == 0
    assert "SHA256SUMS.minisig" in capsys.readouterr().out
    assert main(["verify", str(copy), "--signature", str(keys / "m.pub"), "-q"]) == 0
    assert main(["verify", str(copy), "--signature", str(keys / "other-m.pub"), "-q"]) == 1
    assert main(["verify", str(copy), "--signature", str(keys / "c.pub"), "-q"]) == 1
    assert Bundle(copy).check_signature(keys / "m.pub") == "file:SHA256SUMS"
    assert main(["export", str(copy), "--format", "tar.gz", "-o", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "not signed" not in printed.err
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", printed.out.splitlines()[-1], "-C", tmp_path / "unpacked"], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert Bundle(unpacked).verify(signature=keys / "m.pub").ok
    assert main(["sign", str(tmp_path), "--key", str(keys / "m.sec")]) == 2
    assert main(["sign", str(copy), "--key", str(keys / "m.sec"), "--comment", "a\nb"]) == 2


def _bundle(bundle: Path) -> str:
    """Change a file of a bundle; its name."""
    (bundle / "README.md").write_text("changed")
    return "README.md"


def _sums(bundle: Path) -> str:
    """Change a file of a bundle and its sum, but not the manifest."""
    _bundle(bundle)
    write_sums(bundle)
    return "README.md"


def _missing(bundle: Path) -> str:
    (bundle / "params" / "small.params").unlink()
    return "params/small.params"


@pytest.mark.parametrize("change", [_bundle, _sums, _missing])
def test_what_differs_from_its_sums_is_not_signed(
    change: Callable[[Path], str],
    small_bundle: Bundle,
    keys: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A signature says whose files they are: whoever signs is told that they are not what was packed."""
    copy = tmp_path / "bundle"
    shutil.copytree(small_bundle.path, copy)
    name = change(copy)
    assert main(["sign", str(copy), "--key", str(keys / "m.sec")]) == 1
    assert name in capsys.readouterr().err
    assert not list(copy.glob("SHA256SUMS.*")) and not list(copy.glob(".SHA256SUMS*"))
    with pytest.raises(ConfigError, match="neither a bundle nor a release"):
        sign(copy / "include", keys / "m.sec")


def test_packages_are_signed(small_bundle: Bundle, keys: Path, tmp_path: Path) -> None:
    """Each by a file beside it, which goes when the package is replaced by another."""
    copy, place = tmp_path / "bundle", tmp_path / "dist"
    shutil.copytree(small_bundle.path, copy)
    formats, options = ["cmake", "zip"], PackageKeywords(package_version="1.0.0")
    made = export(copy, formats, place, sign_key=keys / "m.sec", **options)
    assert [path.suffix for path in made] == [".gz", ".minisig", ".zip", ".minisig"]
    for package in made[::2]:
        said = minisign(place, "-V", "-m", package.name, "-p", str(keys / "m.pub")).stdout
        assert f"Trusted comment: file:{package.name}" in said
    (package, signature) = export(copy, "zip", tmp_path / "other", sign_key=keys / "c.key", **options)
    (tmp_path / "der").write_bytes(base64.b64decode(signature.read_text()))
    command = ("dgst", "-sha256", "-verify", str(keys / "c.pub"), "-signature", "der", str(package))
    assert openssl(tmp_path, *command) == b"Verified OK\n"
    with pytest.raises(ConfigError, match=r"tar\.gz\.minisig exists"):
        package.unlink()
        made[0].unlink()
        made[2].unlink()
        export(copy, formats, place, sign_key=keys / "m.sec", **options)
    assert sorted(place.iterdir()) == sorted(made[1::2])

    export(copy, formats, place, sign_key=keys / "m.sec", force=True, **options)
    sign(copy, keys / "m.sec")
    with pytest.warns(EdgepackWarning, match=r"bundle is signed, its packages are not \(`sign_key=`\)"):
        export(copy, formats, place, force=True, **options)
    # The prefix is the same as before; the archive holds a signature now: the one over it is gone.
    assert sorted(place.iterdir()) == sorted({*made} - {made[3]})
    for key in ("none.sec", "m.pub"):
        with pytest.raises(ConfigError):
            export(copy, "zip", tmp_path / "none", sign_key=keys / key)
    with pytest.raises(ConfigError, match="no package to sign"):
        pack(tmp_path / "model.onnx", sign_key=keys / "m.sec")
    assert not (tmp_path / "none").exists()
