"""Bills, provenance and reports of a release: complete, and valid for the tools of others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from edgepack.release.attestations import BILLS, PROVENANCE, REPORTS, package_bill, provenance
from edgepack.release.index import JointRecord, load_index
from tests.support.manifest import example


def wrong_with(bill: str) -> object:
    """What CycloneDX's own validator says of a bill; None if it is valid."""
    # Not above: this takes two seconds, which each process that collects tests would spend.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill)


def test_every_package_has_a_valid_bill(dist: Path) -> None:
    index = load_index(dist)
    for unit in index.units:
        (record,) = unit.packages
        text = (dist / BILLS / f"{record.path}.cdx.json").read_text(encoding="utf-8")
        assert wrong_with(text) is None
        bill = json.loads(text)
        package = bill["metadata"]["component"]
        digest = hashlib.sha256((dist / record.path).read_bytes()).hexdigest()
        assert package["hashes"] == [{"alg": "SHA-256", "content": digest}]
        assert package["licenses"] == [{"expression": "Apache-2.0"}]
        kinds = {one["type"] for one in bill["components"]}
        assert kinds == {"machine-learning-model", "data", "library", "file"}
        model = next(one for one in bill["components"] if one["type"] == "machine-learning-model")
        assert model["hashes"][0]["content"] == unit.model_sha256
        params = next(one for one in bill["components"] if one["name"].endswith(".params"))
        file = dist / unit.bundle / params["name"]
        assert params["hashes"][0]["content"] == hashlib.sha256(file.read_bytes()).hexdigest()
        tools = {one["name"] for one in bill["metadata"]["tools"]["components"]}
        assert {"apache-tvm", "edgepack", "zig"} <= tools
        report = (dist / REPORTS / unit.model / f"{unit.device}.html").read_text(encoding="utf-8")
        assert f"{unit.model} for {unit.device}" in report


def test_the_provenance_is_a_statement_of_in_toto(dist: Path) -> None:
    text = (dist / PROVENANCE).read_text(encoding="utf-8")
    parsed = json_format.Parse(text, statement_pb2.Statement())  # refuses fields that there are not
    Statement.copy_from_pb(parsed).validate()
    predicate = json.loads(text)["predicate"]
    json_format.ParseDict(predicate, provenance_pb2.Provenance())
    subjects = {one["name"]: one["digest"]["sha256"] for one in json.loads(text)["subject"]}
    assert len(subjects) == 4
    for name, digest in subjects.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    dependencies = predicate["buildDefinition"]["resolvedDependencies"]
    index = load_index(dist)
    assert dependencies[0] == {"name": "net.onnx", "digest": {"sha256": index.units[0].model_sha256}}
    assert any(one.get("uri", "").startswith("pkg:pypi/apache-tvm@") for one in dependencies)
    assert str(dist.parent) not in text and "metadata" not in predicate["runDetails"]


def test_a_package_of_several_devices_has_what_is_in_each(dist: Path) -> None:
    index = load_index(dist)
    record = JointRecord(
        path="net/all.aar",
        nbytes=1,
        sha256="ab" * 32,
        format="aar",
        model="net",
        devices=("linux-x86_64", "my-board"),
        inputs="cd" * 32,
    )
    device = example().device
    manifests = {
        name: example(device=device.model_copy(update={"name": name}).model_dump()) for name in record.devices
    }
    manifests = {f"net@{name}": manifest for name, manifest in manifests.items()}
    text = package_bill(index, record, list(manifests.values()))
    assert wrong_with(text) is None
    names = [one["bom-ref"] for one in json.loads(text)["components"]]
    assert names.count(f"model:{'ab' * 32}") == 1  # the same one
    assert {"file:my-board:bin/net", "file:linux-x86_64:bin/net", "weights:my-board"} <= set(names)
    joined = provenance(index.model_copy(update={"joint": (record,)}), manifests)
    assert "net/all.aar" in [one["name"] for one in json.loads(joined)["subject"]]
