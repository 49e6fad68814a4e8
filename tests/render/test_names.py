"""Names of models and tensors as C identifiers, strings and comments."""

from __future__ import annotations

from edgepack.render.names import c_identifier, c_string, model_symbol, printable, unique_identifiers


def test_identifiers() -> None:
    assert c_identifier("input.1") == "input_1"
    assert c_identifier("__a--b__") == "a_b"
    assert c_identifier("1x") == "x1x"
    assert c_identifier("größe") == "grosse" or c_identifier("größe") == "groe"
    assert c_identifier("漢字") == "x"
    assert model_symbol("ResNet-18") == "edgepack_model_ResNet_18"
    assert unique_identifiers(["a", "a.", "int", "a_2"], taken={"a_3"}) == ["a", "a_2", "int_", "a_2_2"]
    assert unique_identifiers(["x", "X"], upper=True) == ["X", "X_2"]


def test_strings_and_comments() -> None:
    assert c_string('a"\\?\n') == '"a\\"\\\\\\?\\012"'
    assert c_string("µ1") == '"\\302\\2651"'
    assert printable("a*/b/*c??/\n") == "a*|b|*c?/?"
