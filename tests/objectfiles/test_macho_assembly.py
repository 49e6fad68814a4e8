"""Machine code for Apple's systems in a program for Linux."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.errors import ToolchainError
from edgepack.objectfiles.macho.assembly import as_assembly
from edgepack.runners.shim import ZigCc, beneath

#: Loads of each size, constants, addresses in data, calls, a table of jumps; arguments on the stack.
APPLES = r"""
extern float expf(float);
static const float curve[4] = {1.5f, 2.5f, 3.5f, 4.5f};
static const unsigned char bytes[3] = {7, 8, 9};
static const short shorts[3] = {-300, 301, 302};
static const double doubles[2] = {0.125, 0.25};
const float *const places[2] = {&curve[2], &curve[3]};
int zeros[5], counter = 40;
typedef float four __attribute__((vector_size(16)));
typedef float *p;
int nine(p a, p b, p c, p d, p e, p f, p g, p h, p i, int lo, int hi) {
    for (int n = lo; n < hi; n++) {
        *(four *)a = *(const four *)curve;
        b[n] = expf(curve[n]) + *places[n & 1];
        c[n] = bytes[n] + shorts[n];
        d[n] = (float)doubles[n & 1] + counter++ + zeros[n];
        switch (n) {
        case 0: e[0] = h[0]; break;
        case 1: f[1] = g[1] * 2; break;
        case 2: i[2] = 5; break;
        default: i[3] = 9; e[1] = 4; zeros[4]++;
        }
    }
    return hi;
}
int eight(p a, p b, p c, p d, p e, p f, p g, p h, int lo, int hi) {
    *h = *a + *b + *c + *d + *e + *f + *g;
    return 100 * lo + hi;
}
int seven(p a, p b, p c, p d, p e, p f, p g, int lo, int hi) {
    return nine(a, b, c, d, e, f, g, g, g, lo, lo) * 0 + 100 * lo + hi;
}
"""

LINUX = r"""
#include <math.h>
#include <stdio.h>
typedef float *p;
int nine(p, p, p, p, p, p, p, p, p, int, int);
int eight(p, p, p, p, p, p, p, p, int, int);
int seven(p, p, p, p, p, p, p, int, int);
int main(void) {
    float x[9][4] __attribute__((aligned(16))) = {{0}};
    x[6][1] = 21;
    x[7][0] = 6;
    int hi = nine(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], 0, 4 - 1);
    int right = hi == 3 && x[0][3] == 4.5f && fabsf(x[1][1] - expf(2.5f) - 4.5f) < 1e-4f && x[2][0] == -293 &&
                x[2][2] == 311 && x[3][1] == 41.25f && x[4][0] == 6 && x[5][1] == 42 && x[8][2] == 5;
    printf("%d %d %d", right, eight(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], 3, 4),
           seven(x[0], x[1], x[2], x[3], x[4], x[5], x[6], 5, 6));
    return 0;
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_it_computes_the_same(level: str, tmp_path: Path) -> None:
    device = load_device("linux-aarch64")
    runner, _, hint = beneath(device)
    if runner is None:
        pytest.skip(hint)
    for name, text in (("apple.c", APPLES), ("linux.c", LINUX)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    build = ZigCc("aarch64", tmp_path, "the test")
    build("-target", "aarch64-macos", level, "-fno-sanitize=all", "-c", "apple.c", "-o", "apple.o")
    data = (tmp_path / "apple.o").read_bytes()
    pointers = {"nine": 9, "eight": 8, "seven": 7}
    (tmp_path / "apple.s").write_text(as_assembly(data, "apple.o", pointers), encoding="utf-8")
    build(*ZigCc.LINK, "apple.s", "linux.c", "-lm", "-o", "program")
    done = runner.run(device, [tmp_path / "program"], timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1 304 506")


def test_what_is_no_object() -> None:
    with pytest.raises(ToolchainError, match="is not a 64-bit Mach-O object"):
        as_assembly(b"\x7fELF", "kernels.o", {})
