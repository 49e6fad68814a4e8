"""What somebody else put into the cache does not get into a bundle."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from edgepack.errors import ConfigError, EdgepackWarning
from edgepack.pipeline import cache_entry
from edgepack.pipeline.cache import Cache
from edgepack.pipeline.cache_secret import SECRET_ENV, cache_secret
from edgepack.system.paths import config_dir
from edgepack.system.private_files import NotOursError, OwnFolder, check_around
from edgepack.system.temporary import cache_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners, modes and links are POSIX's")

KEY = "k" * 64


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(SECRET_ENV, raising=False)
    monkeypatch.setattr("sys.platform", "linux")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """With one entry."""
    results = tmp_path / "results"
    (results / "recorded").mkdir(parents=True)
    (results / "kernels.o").write_bytes(b"machine code")
    (results / "recorded" / "input_0.bin").write_bytes(b"x" * 40)
    cache = Cache(tmp_path / "cache")
    cache.store(KEY, results)
    return cache


def fetch(cache: Cache, key: str = KEY) -> dict[str, bytes] | None:
    """What the entry gives, by path; None if nothing."""
    out = cache.root.parent.parent / "a" / "b" / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    if not cache.fetch(key, out):
        return None
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def reseal(cache: Cache, files: dict[str, str], key: str = KEY) -> None:
    """An entry.json of any content with the seal that it would have had from this user."""
    text = json.dumps({"files": files}, indent=1).encode()
    (cache.root / KEY / "entry.json").write_bytes(text)
    seal = hmac.new(cache_secret(), key.encode() + b"\n" + text, hashlib.sha256).hexdigest()
    (cache.root / KEY / "entry.mac").write_text(seal)


def test_nobody_else_can_read_or_write_it(cache: Cache) -> None:
    for path in (cache.root.parent, cache.root, *cache.root.rglob("*"), config_dir() / "cache.key"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    cache.root.chmod(0o755)  # as an earlier release made it, and others cannot write to it
    cache.store("other", cache.root.parent.parent / "results")
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700


def test_content_and_digests_that_were_changed_together_are_not_believed(cache: Cache) -> None:
    entry = cache.root / KEY
    (entry / "kernels.o").write_bytes(b"evil code!!!")
    sums = json.loads((entry / "entry.json").read_text())
    sums["files"]["kernels.o"] = hashlib.sha256(b"evil code!!!").hexdigest()
    (entry / "entry.json").write_text(json.dumps(sums, indent=1))
    assert fetch(cache) is None
    assert not entry.exists()


def test_an_entry_is_not_believed_under_another_name(cache: Cache) -> None:
    (cache.root / KEY).rename(cache.root / "another model")
    assert fetch(cache, "another model") is None


@pytest.mark.parametrize(
    "name", ["../../x", "/tmp/x", "a/../../../x", "..", "a//b", "./x", "a\0b", "c:x", "a\\b"]
)
def test_a_name_that_leads_out_of_an_entry_is_refused(cache: Cache, name: str, tmp_path: Path) -> None:
    """Also with a right seal: the secret may get lost."""
    before = sorted(tmp_path.rglob("*"))
    reseal(cache, {name: hashlib.sha256(b"machine code").hexdigest()})
    assert fetch(cache) is None
    after = {path for path in tmp_path.rglob("*") if cache.root not in path.parents}
    assert after - set(before) <= {tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/out"}


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{", "[]", "3", '{"files": 3}', '{"files": {"x": 3}}', '{"files": []}']
)
def test_what_is_no_entry_is_forgotten(cache: Cache, text: str) -> None:
    """Also with a right seal."""
    (cache.root / KEY / "entry.json").write_text(text)
    seal = hmac.new(cache_secret(), f"{KEY}\n{text}".encode(), hashlib.sha256).hexdigest()
    (cache.root / KEY / "entry.mac").write_text(seal)
    assert fetch(cache) is None
    assert not (cache.root / KEY).exists()


@pytest.mark.parametrize("name", ["kernels.o", "recorded", "entry.json", "entry.mac", ""])
def test_links_in_an_entry_are_not_followed(cache: Cache, name: str, tmp_path: Path) -> None:
    path = cache.root / KEY / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert fetch(cache) is None
    assert (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["kernels.o", "entry.json", "entry.mac"])
def test_a_pipe_in_an_entry_does_not_hang(cache: Cache, name: str) -> None:
    (cache.root / KEY / name).unlink()
    os.mkfifo(cache.root / KEY / name)
    assert fetch(cache) is None


OPENINGS: dict[str, Callable[[Path], object]] = {
    "the cache": lambda root: root.chmod(0o777),
    "an entry": lambda root: (root / KEY).chmod(0o770),
    "a folder of it": lambda root: (root / KEY / "recorded").chmod(0o702),
    "a file of it": lambda root: (root / KEY / "kernels.o").chmod(0o620),
    "its list": lambda root: (root / KEY / "entry.json").chmod(0o666),
}


@pytest.mark.parametrize("what", OPENINGS)
def test_what_others_may_write_to_is_ignored_with_one_warning(cache: Cache, what: str) -> None:
    OPENINGS[what](cache.root)
    with pytest.warns(EdgepackWarning, match="others may write to it") as caught:
        assert fetch(cache) is None
        assert fetch(cache) is None
    assert len(caught) == 1


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root makes files of others")
@pytest.mark.parametrize("what", ["", KEY, f"{KEY}/recorded", f"{KEY}/kernels.o", f"{KEY}/entry.mac"])
def test_what_belongs_to_another_user_is_ignored(cache: Cache, what: str) -> None:
    os.chown(cache.root / what, 12345, 12345)
    with pytest.warns(EdgepackWarning, match="belongs to another user"):
        assert fetch(cache) is None
    if not what:
        with pytest.warns(EdgepackWarning, match="belongs to another user"):
            Cache(cache.root.parent).store("other", cache.root.parent.parent / "results")
        assert not (cache.root / "other").exists()


def test_a_folder_that_is_swapped_while_it_is_written_to_gets_nothing(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write to the folder around the cache may put a link in its place at any time."""
    theirs = tmp_path / "home of the victim"
    theirs.mkdir()

    def swap(folder: OwnFolder, key: str, directory: Path, secret: bytes) -> int:
        cache.root.rename(tmp_path / "moved")
        cache.root.symlink_to(theirs)
        return cache_entry.write_entry(folder, key, directory, secret)

    monkeypatch.setattr("edgepack.pipeline.cache.write_entry", swap)
    cache.store("other", tmp_path / "results")
    assert list(theirs.iterdir()) == []
    assert (tmp_path / "moved" / "other" / "kernels.o").exists()


def test_a_link_in_the_place_of_the_cache_is_not_followed(cache: Cache, tmp_path: Path) -> None:
    """Whoever may write to the folder around it could lead it to a home, whose old files would be removed."""
    home = tmp_path / "home of the victim"
    (home / ".ssh").mkdir(parents=True)
    os.utime(home / ".ssh", (0, 0))
    home.chmod(0o755)
    cache.root.rename(tmp_path / "moved")
    cache.root.symlink_to(home)
    assert fetch(cache) is None
    with pytest.warns(EdgepackWarning, match="is not used"):
        cache.store("other", tmp_path / "results")
    assert [path.name for path in home.iterdir()] == [".ssh"]
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_the_configuration_may_lie_elsewhere(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "config" / "edgepack").rename(tmp_path / "dotfiles")
    (tmp_path / "config" / "edgepack").symlink_to(tmp_path / "dotfiles")
    assert fetch(cache) is not None


def test_the_secret_is_made_once_and_stays(cache: Cache, tmp_path: Path) -> None:
    key = tmp_path / "config" / "edgepack" / "cache.key"
    assert [path.name for path in key.parent.iterdir()] == ["cache.key"]
    assert bytes.fromhex(key.read_text().strip()) == cache_secret()
    assert fetch(cache) is not None
    key.unlink()
    assert fetch(cache) is None  # on another machine


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "that others can read": (lambda key: key.chmod(0o640), "which is a secret"),
    "that is short": (lambda key: key.write_text("abc\n"), "64 hexadecimal digits"),
    "that is empty": (lambda key: key.write_text(""), "64 hexadecimal digits"),
    "that is a folder": (lambda key: (key.unlink(), key.mkdir()), "regular file"),
    "in a folder of all": (lambda key: key.parent.chmod(0o777), "others may write to it"),
    "behind a link": (lambda key: (key.rename(key.parent / "k"), key.symlink_to("k")), "is not used"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_with_a_secret_that_is_none_there_is_no_cache(cache: Cache, damage: str, tmp_path: Path) -> None:
    change, text = DAMAGES[damage]
    change(tmp_path / "config" / "edgepack" / "cache.key")
    with pytest.warns(EdgepackWarning, match=text) as caught:
        assert fetch(cache) is None
        cache.store("other", tmp_path / "results")
    assert len(caught) == 1
    assert not (cache.root / "other").exists()
    assert (cache.root / KEY).exists()


def test_without_a_place_for_the_secret_there_is_no_cache(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.warns(EdgepackWarning, match="is not used"):
        cache.store("other", tmp_path / "results")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.warns(EdgepackWarning, match="no home folder"):
        Cache(cache.root.parent).store("other", tmp_path / "results")


def test_machines_with_the_same_secret_share_a_cache(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_ENV, "s" * 32)
    assert fetch(cache) is None  # sealed by the user's own
    cache.store(KEY, tmp_path / "results")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another machine"))
    assert fetch(cache) is not None
    assert not (tmp_path / "another machine").exists()
    monkeypatch.setenv(SECRET_ENV, "secret")
    with pytest.raises(ConfigError, match="at least 32"):
        fetch(cache)


def test_a_tool_gets_a_cache_of_its_own_where_the_users_is_not_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache_folder("zig") == tmp_path / "cache" / "zig"
    assert stat.S_IMODE((tmp_path / "cache" / "zig").stat().st_mode) == 0o700
    (tmp_path / "cache" / "open").mkdir()
    (tmp_path / "cache" / "open").chmod(0o777)
    with pytest.warns(EdgepackWarning, match="others may write to it"):
        own = cache_folder("open")
    assert tmp_path not in own.parents
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert cache_folder("open") == own


def test_a_tools_cache_is_only_as_safe_as_the_folders_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool opens it by its path: who may rename a folder on the way puts another one there."""
    shared = tmp_path / "shared"
    (shared / "cache" / "zig").mkdir(parents=True, mode=0o700)
    shared.chmod(0o777)
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(shared / "cache"))
    with pytest.warns(EdgepackWarning, match="shared around it"):
        assert shared not in cache_folder("zig").parents
    shared.chmod(0o1777)  # as the system's folder for temporary files
    assert cache_folder("wine") == shared / "cache" / "wine"
    (shared / "cache" / "link").symlink_to(tmp_path)
    with pytest.warns(EdgepackWarning, match="is not used"):
        assert shared not in cache_folder("link").parents


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root makes files of others")
def test_a_tools_cache_in_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "theirs"))
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    with pytest.warns(EdgepackWarning, match="theirs around it"):
        assert tmp_path not in cache_folder("zig").parents


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_what_is_opened_by_its_path_is_a_copy_where_others_could_rename(
    cache: Cache, tmp_path: Path, mode: int
) -> None:
    """A library is opened after the check: somebody may have put another folder there by then."""
    with cache.opened(KEY) as folder:
        assert folder == cache.root / KEY
    shared = tmp_path / "shared"
    shared.mkdir()
    shutil.move(cache.root.parent, shared / "cache")
    shared.chmod(mode)
    moved = Cache(shared / "cache")
    with moved.opened(KEY) as folder:
        assert folder is not None and shared not in folder.parents
        (shared / "cache").rename(shared / "another")  # as whoever may write to the folder can
        assert (folder / "kernels.o").read_bytes() == b"machine code"
        assert (folder / "recorded/input_0.bin").stat().st_size == 40
    assert not folder.exists()
    (shared / "another").rename(shared / "cache")
    (moved.root / KEY / "kernels.o").write_bytes(b"evil code!!!")
    with moved.opened(KEY) as folder:
        assert folder is None


def test_a_link_on_the_way_that_others_may_replace_is_as_bad(cache: Cache, tmp_path: Path) -> None:
    """Where it leads to is this user's alone; the folder that the link lies in is not."""
    (shared := tmp_path / "shared").mkdir()
    (shared / "link").symlink_to(cache.root.parent.parent)
    shared.chmod(0o777)
    linked = Cache(shared / "link" / "cache")
    with linked.opened(KEY) as folder:
        assert folder is not None and folder != linked.root / KEY
        assert (folder / "kernels.o").read_bytes() == b"machine code"
    shared.chmod(0o1777)  # where nobody renames what is not theirs, as in /tmp
    with linked.opened(KEY) as folder:
        assert folder == linked.root / KEY


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_another_users_link_on_the_way_is_not_trusted(cache: Cache, tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    (shared / "link").symlink_to(cache.root.parent.parent)
    os.chown(shared / "link", 12345, 12345, follow_symlinks=False)
    shared.chmod(0o1777)
    with pytest.raises(NotOursError, match="link around it belongs to another user"):
        check_around(shared / "link" / "cache")
    with Cache(shared / "link" / "cache").opened(KEY) as folder:
        assert folder is not None and shared not in folder.parents


def test_links_that_go_round_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(NotOursError, match="more than"):
        check_around(tmp_path / "a" / "x")
    check_around(tmp_path / "." / "new" / ".." / "x")
