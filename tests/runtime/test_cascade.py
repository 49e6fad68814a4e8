"""``runtime/cascade/cascade.h``: layers compute the rows that the plan says, and read no others than those
that are in windows."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.plan.cascade import Cascade, CascadeLayer, CascadeRead
from edgepack.resources import TEMPLATES

PROGRAM = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "cascade.h"

int main(void) {
    static const ep_layer layers[] = {LAYERS};
    static const ep_layer_read reads[] = {READS};
    ep_layer_rows rows[LAST + 1] = {{0, 0, 0}};
    unsigned char *windows = (unsigned char *)malloc(BYTES); /* an address sanitizer sees its ends */
    if (windows == NULL) {
        return 1;
    }
    while (rows[LAST].end < layers[LAST].rows) {
        uint32_t layer = ep_wanted_layer(layers, reads, STEP, LAST, rows);
        ep_make_room(layers, LAST, reads, layer, windows, rows);
        /* Each byte of a row says which row it is. */
        for (int32_t row = rows[layer].begin; row < rows[layer].end && layer < LAST; row++) {
            for (int32_t i = 0; i < layers[layer].row_bytes; i++) {
                windows[layers[layer].offset + (row - rows[layer].low) * layers[layer].row_bytes + i] =
                    (unsigned char)row;
            }
        }
        printf("%u %d %d", (unsigned)layer, (int)rows[layer].begin, (int)rows[layer].end);
        for (uint32_t r = layers[layer].read; r < layers[layer + 1].read; r++) {
            const ep_layer_read *read = &reads[r];
            const ep_layer *source = &layers[read->source];
            int32_t first = rows[layer].begin * read->stride - read->pad;
            int32_t end = (rows[layer].end - 1) * read->stride - read->pad + read->size;
            for (int32_t row = first > 0 ? first : 0; row < end && row < source->rows; row++) {
                const unsigned char *at =
                    windows + source->offset + (row - rows[read->source].low) * source->row_bytes;
                if (row < rows[read->source].low || at[0] != row || at[source->row_bytes - 1] != row) {
                    printf(" row %d of layer %u is not there", (int)row, (unsigned)read->source);
                }
            }
        }
        printf("\\n");
    }
    free(windows);
    return 0;
}
"""


def drawn(seed: int) -> Cascade:
    """Layers that read one or two earlier ones by windows of any size."""
    rng = random.Random(seed)
    layers, reads = [CascadeLayer("k", (), rng.randint(4, 40), rng.choice([1, 6, 16, 20]), 1)], []
    for reader in range(1, rng.randint(2, 7)):
        size, stride = rng.randint(1, 5), rng.randint(1, 3)
        pad = rng.randint(0, size - 1)
        source = reader - 1
        rows = (layers[source].rows + pad + rng.randint(0, size - 1) - size) // stride + 1
        reads.append(CascadeRead(source, reader, size, stride, pad))
        # A second source of as many rows, as a residual is.
        others = [i for i in range(reader - 1) if layers[i].rows == rows]
        if others and rng.random() < 0.7:
            reads.append(CascadeRead(rng.choice(others), reader, 1, 1, 0))
        layers.append(CascadeLayer("k", (), max(rows, 1), rng.choice([1, 6, 16, 20]), 1))
    cascade = Cascade(tuple(layers), tuple(reads), rng.choice([1, 2, 4]))
    at, placed = 0, []
    for layer, window in zip(layers, cascade.windows(), strict=True):
        placed.append(replace(layer, window=window, offset=at))
        at += -(-window * layer.row_bytes // 8) * 8
    return replace(cascade, layers=tuple(placed))


def windows_bytes(cascade: Cascade) -> int:
    return max(layer.offset + layer.window * layer.row_bytes for layer in cascade.layers) or 1


def test_rows_are_those_of_the_plan(tmp_path: Path) -> None:
    for seed in range(6):
        cascade = drawn(seed)
        reads = cascade.reads
        firsts = [sum(r.reader < number for r in reads) for number in range(len(cascade.layers) + 1)]
        sizes = [(one.rows, one.row_bytes, one.window, one.offset) for one in cascade.layers]
        text = PROGRAM
        for name, value in (
            ("LAYERS", json.dumps([[*s, f] for s, f in zip([*sizes, (0,) * 4], firsts, strict=True)])[1:-1]),
            ("READS", json.dumps([[r.source, r.reader, r.size, r.stride, r.pad] for r in reads])[1:-1]),
            ("LAST", str(len(cascade.layers) - 1)),
            ("STEP", str(cascade.step)),
            ("BYTES", str(windows_bytes(cascade))),
        ):
            text = text.replace(name, value.replace("[", "{").replace("]", "}"))
        source = tmp_path / f"rows{seed}.c"
        source.write_text(text)
        flags = [
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wconversion",
            "-Werror",
            "-Wno-sign-conversion",
        ]
        sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        include = f"-I{TEMPLATES / 'runtime' / 'cascade'}"
        program = tmp_path / f"rows{seed}"
        subprocess.run(["gcc", *flags, *sanitize, include, source, "-o", program], check=True)
        said = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
        assert said == [f"{v.layer} {v.begin} {v.end}" for v in cascade.visits()], seed


@pytest.mark.parametrize("seed", range(40))
def test_windows_hold_what_is_read_and_no_row_more(seed: int) -> None:
    """Of what a layer computes each row is in the window until its last reader is done."""
    cascade = drawn(seed)
    last = [0] * len(cascade.layers)
    most = [0] * len(cascade.layers)
    visits = list(cascade.visits())
    for visit in visits:
        last[visit.layer] = visit.end
        for read in cascade.reads:
            if read.reader == visit.layer:
                needed = min(
                    (visit.end - 1) * read.stride - read.pad + read.size, cascade.layers[read.source].rows
                )
                assert last[read.source] >= needed, seed
        most[visit.layer] = max(most[visit.layer], visit.end - visit.low)
    assert [*most[:-1], 0] == cascade.windows()
