"""New weights for a library that is in use: taken where they are right and signed, refused where not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgepack
from edgepack.bundle.checksums import write_sums
from edgepack.cli.main import main
from edgepack.errors import CheckFailedError, ConfigError, ModelError
from edgepack.options import PackKeywords, PackOptions
from edgepack.render.params_file import HEADER, read_params, signed_message
from edgepack.signing.sums import secret_key
from edgepack.system.files import list_files
from tests.support import fake
from tests.support.worker import COLUMNS, ROWS
from workbench.models.builder import Graph


def minisign_keys(folder: Path, name: str) -> Path:
    arguments = ["-G", "-W", "-p", f"{name}.pub", "-s", f"{name}.sec"]
    subprocess.run(["minisign", *arguments], cwd=folder, check=True, capture_output=True)
    return folder / f"{name}.sec"


@pytest.fixture(scope="module")
def place(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, models, a custom operator in ``ops`` and, with other C, in ``other``, and ``bundle``, which was
    packed with ``weights.pub`` and ``ops``."""
    folder = tmp_path_factory.mktemp("updates")
    for name in ("weights", "other"):
        minisign_keys(folder, name)
    model = onnx.load(small_model)
    for name in ("retrained", "network", "wrong"):
        model.doc_string = name  # the cache goes by the bytes, and knows nothing of the fake worker's mode
        onnx.save(model, folder / f"{name}.onnx")
    for ops in ("ops", "other"):
        (folder / ops).mkdir()
        (folder / ops / "twice.c").write_text(f"/* {ops} */\n")
        (folder / ops / "ops.yaml").write_text("operators: [{operator: Twice, symbol: t, source: twice.c}]\n")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        options: PackKeywords = {"params_key": folder / "weights.pub", "custom": folder / "ops/ops.yaml"}
        edgepack.pack(small_model, "host", folder / "bundle", name="small", **options)
    return folder


def updated(
    place: Path, mode: str, output: Path, *, key: str = "weights", ops: str = "ops", version: int = 0
) -> edgepack.Update:
    custom, secret = place / ops / "ops.yaml", place / f"{key}.sec"
    model = place / f"{mode}.onnx"
    with pytest.MonkeyPatch.context() as patch:
        fake.install(mode, patch.setattr)
        return edgepack.update(
            place / "bundle", model, output, key=secret, params_version=version, custom=custom
        )


@pytest.fixture(scope="module")
def fresh(place: Path) -> edgepack.Update:
    return updated(place, "retrained", place / "new.params")


def opened(place: Path, params: Path, folder: Path) -> edgepack.Session:
    """The bundle's library with these params."""
    copy = folder / "copy"
    if not copy.exists():
        shutil.copytree(place / "bundle", copy)
    # A new file in the place of the old one: the library of an earlier session may still be mapped.
    shutil.copyfile(params, copy / "params" / "new")
    (copy / "params" / "new").replace(copy / "params" / "small.params")
    return edgepack.load(copy)


def test_the_library_computes_what_the_retrained_model_does(
    place: Path, fresh: edgepack.Update, tmp_path: Path
) -> None:
    assert fresh.verification.ok and fresh.path == place / "new.params"
    assert read_params(fresh.path).params_id.hex() == fresh.params_id
    x = np.linspace(-2, 2, ROWS * COLUMNS, dtype="f4").reshape(ROWS, COLUMNS)
    rng = np.random.default_rng(8)
    scale, bias = rng.standard_normal(COLUMNS).astype("f4"), rng.standard_normal(COLUMNS).astype("f4")
    with opened(place, fresh.path, tmp_path) as session:
        session.check_params()
        np.testing.assert_allclose(session.run(x)["output"], np.maximum(x * scale + bias, 0), rtol=1e-5)
    with edgepack.load(place / "bundle") as session:
        session.check_params()
        assert not np.allclose(session.run(x)["output"], np.maximum(x * scale + bias, 0))
    assert [path.name for path in place.glob(".update*")] == []


@pytest.fixture(scope="module")
def unsigned(place: Path, small_bundle: edgepack.Bundle) -> edgepack.Update:
    """New params for a library that trusts no key."""
    with pytest.MonkeyPatch.context() as patch:
        fake.install("retrained", patch.setattr)
        return edgepack.update(small_bundle.path, place / "retrained.onnx", place / "unsigned.params")


class Opener:
    """A program that opens a bundle's model with options."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        self.program = folder / "open"
        source = Path(__file__).parents[1] / "runtime" / "open_with.c"
        library = bundle / "lib" / "libsmall.a"
        command = ["cc", "-Wall", "-Werror", f"-I{bundle / 'include'}", source, library]
        subprocess.run([*command, "-lm", "-pthread", "-o", self.program], check=True)

    def __call__(self, params: Path, version: int = 0, *ids: str) -> str:
        command = [self.program, params, str(version), *ids]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_a_caller_lists_params_that_are_taken_too(
    place: Path, small_bundle: edgepack.Bundle, unsigned: edgepack.Update, tmp_path: Path
) -> None:
    """By a library that trusts no key; their data are hashed, for an id alone is easily written."""
    opened = Opener(small_bundle.path, tmp_path)
    own, new, other = small_bundle.path / "params/small.params", unsigned.path, "ab" * 32
    assert unsigned.verification.ok
    assert opened(new) == opened(new, 0, other) == "EP_E_PARAMS_MODEL"
    assert opened(new, 0, other, unsigned.params_id) == "EP_OK EP_OK"
    assert opened(own, 0, unsigned.params_id) == "EP_OK EP_OK"
    content = bytearray(new.read_bytes())
    content[-1] ^= 1
    (tmp_path / "changed").write_bytes(content)
    assert opened(tmp_path / "changed", 0, unsigned.params_id) == "EP_E_PARAMS_HASH"
    content[48:80] = own.read_bytes()[48:80]  # data of one, id of another
    (tmp_path / "renamed").write_bytes(content)
    assert opened(tmp_path / "renamed", 0, small_bundle.manifest.params.id) == "EP_OK EP_E_PARAMS_HASH"
    # Nothing that is signed, so nothing has a version.
    assert opened(own, 1) == "EP_E_PARAMS_OLD"
    assert opened(own, 1, small_bundle.manifest.params.id) == "EP_OK EP_OK"


def test_a_caller_refuses_params_of_a_lower_version(
    place: Path, fresh: edgepack.Update, tmp_path: Path
) -> None:
    """The version is under the signature; the library's own params have none."""
    opened, own = Opener(place / "bundle", tmp_path), place / "bundle/params/small.params"
    made = updated(place, "retrained", tmp_path / "seventh", version=7)
    assert (read_params(made.path).version, read_params(fresh.path).version) == (7, 0)
    assert [opened(made.path, least) for least in (0, 7, 8)] == ["EP_OK EP_OK"] * 2 + ["EP_E_PARAMS_OLD"]
    assert [opened(fresh.path, least) for least in (0, 1)] == ["EP_OK EP_OK", "EP_E_PARAMS_OLD"]
    assert [opened(own, least) for least in (0, 1)] == ["EP_OK EP_OK", "EP_E_PARAMS_OLD"]
    assert opened(fresh.path, 8, fresh.params_id) == "EP_OK EP_OK"  # whom the caller lists
    for least, version in ((0, 0), (0, 6), (8, 8), (8, 2**64 - 1)):
        content = bytearray(made.path.read_bytes())
        content[120:128] = version.to_bytes(8, "little")
        (tmp_path / "other").write_bytes(content)
        assert opened(tmp_path / "other", least) == "EP_E_PARAMS_SIGNATURE"
    content = bytearray(own.read_bytes())
    content[120:128] = (9).to_bytes(8, "little")
    (tmp_path / "raised").write_bytes(content)
    assert opened(tmp_path / "raised", 8) == "EP_E_PARAMS_OLD"


def test_a_device_refuses_foreign_weights(place: Path, fresh: edgepack.Update, tmp_path: Path) -> None:
    good = fresh.path.read_bytes()
    fields = list(HEADER.unpack(good[: HEADER.size]))
    at, data = fields[10], fields[4]

    def status(content: bytes) -> str:
        (tmp_path / "x.params").write_bytes(content)
        with pytest.raises(CheckFailedError) as caught, opened(place, tmp_path / "x.params", tmp_path):
            pass
        return str(caught.value)

    def flipped(position: int) -> bytes:
        return good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]

    assert "EP_E_PARAMS_SIGNATURE" in status(flipped(at))
    assert "not signed by the key that the library trusts" in status(flipped(at + 63))
    assert "EP_E_PARAMS_SIGNATURE" in status(flipped(48))  # the id
    for position in (data, len(good) - 1):
        assert "EP_E_PARAMS_HASH" in status(flipped(position))
    for wrong in (0, 1, 127, fields[2] - 63, 2**32 - 1):  # where the signature is said to lie
        assert "EP_E_PARAMS_SIGNATURE" in status(good[:112] + wrong.to_bytes(4, "little") + good[116:])
    own = (place / "bundle/params/small.params").read_bytes()
    assert "EP_E_PARAMS_HASH" in status(own[:-1] + bytes([own[-1] ^ 1]))


def test_a_signature_is_for_one_layout(place: Path, fresh: edgepack.Update, tmp_path: Path) -> None:
    """What the same key signed for another library is refused."""
    key, good = secret_key(place / "weights.sec"), fresh.path.read_bytes()
    at = HEADER.unpack(good[: HEADER.size])[10]
    params_id = read_params(fresh.path).params_id
    layout = bytes.fromhex(edgepack.Bundle(place / "bundle").manifest.params.layout)
    for wanted in (layout, bytes(32)):
        signature = key.sign_raw(signed_message(wanted, params_id))
        (tmp_path / "x.params").write_bytes(good[:at] + signature + good[at + 64 :])
        if wanted == layout:
            opened(place, tmp_path / "x.params", tmp_path).close()
            continue
        with pytest.raises(CheckFailedError, match="EP_E_PARAMS_SIGNATURE"):
            opened(place, tmp_path / "x.params", tmp_path)


def test_what_is_no_update_is_refused(
    place: Path, small_bundle: edgepack.Bundle, fresh: edgepack.Update, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="trusts another key"):
        updated(place, "retrained", tmp_path / "x", key="other")
    with pytest.raises(ConfigError, match="exists"):
        updated(place, "retrained", fresh.path)
    with pytest.raises(ConfigError, match="another network from step 1 on"):
        updated(place, "network", tmp_path / "x")
    with pytest.raises(ConfigError, match="trusts no key"):
        edgepack.update(small_bundle.path, place / "retrained.onnx", tmp_path / "x", key="none")
    with pytest.raises(ConfigError, match=r"C of custom operators differs: src/custom/twice\.c"):
        updated(place, "retrained", tmp_path / "x", ops="other")
    with pytest.raises(ConfigError, match=r"has custom operators, computed by src/custom/twice\.c"):
        edgepack.update(place / "bundle", place / "retrained.onnx", tmp_path / "x")
    with pytest.raises(ConfigError, match="has no custom operators, and ops declares some"):
        edgepack.update(small_bundle.path, place / "retrained.onnx", tmp_path / "x", custom="ops")
    for key, version in ((None, 1), (place / "weights.sec", -1), (place / "weights.sec", 2**63)):
        with pytest.raises(ConfigError, match=f"cannot have the version {version}"):
            edgepack.update(
                place / "bundle", place / "retrained.onnx", tmp_path / "x", key=key, params_version=version
            )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_the_program_does_not_compute_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="does not compute what"):
        updated(place, "wrong", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def changed(bundle: Path, copy: Path, **fields: dict[str, object]) -> Path:
    """A copy of a bundle whose manifest says something else, with sums that fit."""
    shutil.copytree(bundle, copy)
    manifest = copy / "manifest.json"
    data = json.loads(manifest.read_text(encoding="utf-8"))
    for name, values in fields.items():
        data[name].update(values)
    manifest.write_text(json.dumps(data), encoding="utf-8")
    write_sums(copy)
    return copy


def test_what_is_not_of_the_bundle_is_not_copied(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to /dev/zero fills the disk, one to a file of the user's shows it to the bundle's program."""
    bundle, seen = shutil.copytree(place / "bundle", tmp_path / "bundle"), []
    (tmp_path / "secret").write_text("secret")
    (bundle / "x").symlink_to("/dev/zero")
    (bundle / "lib" / "secret").symlink_to(tmp_path / "secret")
    os.mkfifo(bundle / "pipe")
    (bundle / "large").touch()
    os.truncate(bundle / "large", 1 << 43)

    def verify(root: Path, *_: object) -> None:
        seen.extend(list_files(root))
        raise ModelError("seen")

    monkeypatch.setattr("edgepack.commands.update.verify", verify)
    fake.install("retrained", monkeypatch.setattr)
    with pytest.raises(ModelError, match="seen"):
        edgepack.update(
            bundle,
            place / "retrained.onnx",
            tmp_path / "x",
            key=place / "weights.sec",
            custom=place / "ops/ops.yaml",
        )
    files = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert sorted(seen) == sorted(one["path"] for one in files)


@pytest.mark.parametrize("field", ["toolchain", "device"])
@pytest.mark.parametrize(
    "form", ["{folder}/evil.yaml", "./evil.yaml", "evil.yaml", "evil", "../evil", "zig\n"]
)
def test_a_bundle_names_no_files_of_devices_and_toolchains(
    field: str,
    form: str,
    small_bundle: edgepack.Bundle,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files name programs that are started: only those that the user names are read."""
    (tmp_path / "cc").write_text(f"#!/bin/sh\n>> '{tmp_path}/started'\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    commands = f"executables: {{cc: ['{tmp_path}/cc'], ar: ['{tmp_path}/cc']}}"
    (tmp_path / "tools.yaml").write_text(f"extends: zig\n{commands}\n")
    text = (
        f"extends: zig\n{commands}\n" if field == "toolchain" else "extends: host\ntoolchain: ./tools.yaml\n"
    )
    (tmp_path / "evil.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    wrong: dict[str, dict[str, object]] = {field: {"name": form.format(folder=tmp_path)}}
    bundle = changed(small_bundle.path, tmp_path / "bundle", **wrong)
    fake.install("retrained", monkeypatch.setattr)
    with pytest.raises(ConfigError, match=rf"{field}\.name|the {field} 'evil', which is not known here"):
        edgepack.update(bundle, place / "retrained.onnx", tmp_path / "x", sandbox=True)
    assert not (tmp_path / "started").exists()


def test_the_user_names_his_own_device_and_toolchain(
    place: Path, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text("extends: zig\n")
    (tmp_path / "other.yaml").write_text("extends: host\n")
    (tmp_path / "board.yaml").write_text(f"extends: host\ntoolchain: {tmp_path}/own.yaml\nname: Brett-é\n")
    fake.install("ok", monkeypatch.setattr)
    bundle = edgepack.pack(small_model, tmp_path / "board.yaml", tmp_path / "bundle").path
    fake.install("retrained", monkeypatch.setattr)
    model = place / "retrained.onnx"
    with pytest.raises(ConfigError, match="device 'Brett-é', which is not known here"):
        edgepack.update(bundle, model, tmp_path / "x")
    with pytest.raises(ConfigError, match="toolchain 'own', which is not known here"):
        edgepack.update(bundle, model, tmp_path / "x", device=tmp_path / "other.yaml")
    assert edgepack.update(bundle, model, tmp_path / "a", device=tmp_path / "board.yaml").path.is_file()
    command = ["update", bundle, "--model", model, "-o", tmp_path / "b", "--device", tmp_path / "other.yaml"]
    assert main([*map(str, command), "--toolchain", str(tmp_path / "own.yaml"), "-q"]) == 0
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


def test_only_bundles_that_ask_for_it_have_it(place: Path, small_bundle: edgepack.Bundle) -> None:
    signed, plain = place / "bundle", small_bundle.path
    assert (signed / "src/runtime/signed/ed25519.c").is_file()
    assert not (plain / "src/runtime/signed").exists()
    assert "EP_PARAMS_KEY" not in (plain / "src/model.c").read_text()
    key = json.loads((signed / "manifest.json").read_text())["params"]["key"]
    assert len(key) == 64 and small_bundle.manifest.params.key == ""
    assert len(small_bundle.manifest.params.layout) == 64


def test_the_command(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["update", str(place / "bundle"), "--model", str(place / "none.onnx")]
    command += ["-o", str(tmp_path / "x"), "--custom", str(place / "ops/ops.yaml")]
    assert main([*command, "--key", str(place / "weights.pub"), "-q"]) == 2
    assert main([*command, "--key", str(place / "weights.sec"), "-q"]) == 3
    assert "none.onnx does not exist" in capsys.readouterr().err


def test_limits_of_the_model_are_passed_on(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[PackOptions] = []

    def pack(model: Path, device: str, output: Path, options: PackOptions, progress: object) -> None:
        given.append(options)
        raise ModelError("seen")

    monkeypatch.setattr("edgepack.commands.update.pack_model", pack)
    command = ["update", str(place / "bundle"), "--model", str(place / "retrained.onnx")]
    command += ["-o", str(tmp_path / "x"), "--custom", str(place / "ops/ops.yaml"), "-q"]
    assert main([*command, "--max-nodes", "12345", "--max-constant-bytes", "678"]) == 3
    assert [(one.max_nodes, one.max_constant_bytes) for one in given] == [(12345, 678)]


@pytest.mark.slow
def test_a_real_network_gets_new_weights(tmp_path: Path) -> None:
    """Convolutions, a residual and a product, retrained: all weights are others. Then one that is another
    network: of another width."""

    def network(name: str, seed: int, width: int = 16) -> Path:
        g = Graph("net", seed=seed)
        x = g.conv_bn(g.input("x", (1, 3, 16, 16)), 3, width, 3, act="Relu")
        y = g.conv(x, width, width, 3)
        y = g.op("Relu", g.op("Add", x, y))
        g.output(g.linear(g.op("Flatten", g.op("GlobalAveragePool", y)), width, 10))
        onnx.save(g.model(), tmp_path / name)
        return tmp_path / name

    minisign_keys(tmp_path, "k")
    first = network("a.onnx", 1)
    bundle = edgepack.pack(first, "host", tmp_path / "bundle", params_key=tmp_path / "k.pub", name="net")
    made = edgepack.update(bundle.path, network("b.onnx", 2), tmp_path / "b.params", key=tmp_path / "k.sec")
    assert made.verification.ok
    with pytest.raises(ConfigError, match="another network"):
        edgepack.update(bundle.path, network("c.onnx", 3, 24), tmp_path / "c.params", key=tmp_path / "k.sec")


@pytest.mark.slow
def test_a_network_with_a_custom_operator_gets_new_weights(tmp_path: Path) -> None:
    """Its declaration is read anew, and the operator computes what the recorded outputs say."""
    example = Path(__file__).parents[2] / "examples/custom_operator"
    subprocess.run([sys.executable, example / "model.py", tmp_path / "a.onnx"], check=True)
    model = onnx.load(tmp_path / "a.onnx")
    for one in model.graph.initializer:
        one.raw_data = (-np.frombuffer(one.raw_data, "f4")).tobytes()
    onnx.save(model, tmp_path / "b.onnx")
    shutil.copytree(example, tmp_path / "ops")
    bundle = edgepack.pack(tmp_path / "a.onnx", "host", tmp_path / "bundle", custom=example / "ops.yaml")
    command = ["update", bundle.path, "--model", tmp_path / "b.onnx", "-o", tmp_path / "b.params"]
    assert main([*map(str, command), "--custom", str(tmp_path / "ops/ops.yaml"), "-q"]) == 0
    with (tmp_path / "ops/hard_shrink.c").open("a") as file:
        file.write("/* changed */\n")
    with pytest.raises(ConfigError, match=r"C of custom operators differs: src/custom/hard_shrink\.c"):
        custom = tmp_path / "ops/ops.yaml"
        edgepack.update(bundle.path, tmp_path / "b.onnx", tmp_path / "c.params", custom=custom)
