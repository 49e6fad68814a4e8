"""The bill of materials is valid CycloneDX, complete, and the same for the same bundle."""

from __future__ import annotations

import json

from edgepack.bundle.sbom import render_sbom
from tests.support.manifest import example


def test_is_valid_cyclonedx() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(render_sbom(example()))
    assert error is None, error


def test_names_model_params_artifacts_and_tools() -> None:
    bom = json.loads(render_sbom(example()))
    components = {component["name"]: component for component in bom["components"]}
    assert set(components) == {
        "net.onnx",
        "edgepack-runtime",
        "bin/net",
        "lib/libnet.so",
        "params/net.params",
    }
    assert components["net.onnx"]["type"] == "machine-learning-model"
    assert components["bin/net"]["hashes"] == [{"alg": "SHA-256", "content": "ef" * 32}]
    tools = {tool["name"]: tool["version"] for tool in bom["metadata"]["tools"]["components"]}
    assert tools == {"apache-tvm": "0.27.0", "numpy": "2.0.0", "zig": "zig 0.14.0"}


def test_has_no_time_and_a_serial_number_from_the_content() -> None:
    bom = json.loads(render_sbom(example()))
    assert "timestamp" not in bom["metadata"]
    assert bom["serialNumber"].startswith("urn:uuid:")
    assert render_sbom(example()) == render_sbom(example())
    assert (
        json.loads(render_sbom(example(name="other", symbol="edgepack_model_other")))["serialNumber"]
        != bom["serialNumber"]
    )
