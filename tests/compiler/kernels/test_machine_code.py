"""What the innermost loop of a kernel's assembly has, on microcontrollers."""

from __future__ import annotations

import pytest

from edgepack.compiler.kernels.predict.machine_code import InnerLoop, inner_loop

#: A loop around one with two products, which spills a sum, and another loop with one product.
THUMB = """
kernel:
@ %bb.0:
	push.w	{r4, r5, r6, lr}
	.p2align 2
.LBB0_1:                                @ %rows
	movs	r6, #8
.LBB0_2:                                @ %inner
	ldrd	r4, r5, [r0], #8
	ldr	r3, [sp, #4]                    @ 4-byte Reload
	smlad	r2, r4, r5, r2
	smlabb	r3, r4, r5, r3
	str	r3, [sp, #4]                    @ 4-byte Spill
	subs	r6, #1
	bne.w	.LBB0_2
	str	r2, [r1], #4
	subs	r7, #1
	bne	.LBB0_1
.LBB0_3:
	vldmia	r0!, {s0, s1, s2}
	vmla.f32	s3, s0, s1
	cmp	r0, r1
	bne	.LBB0_3
	pop.w	{r4, r5, r6, pc}
"""

RISCV = """
kernel:
.LBB0_1:
	lb	a3, 0(a0)
	lw	a4, 0(a1)
	mul	a3, a3, a4
	add	a2, a2, a3
	addi	a0, a0, 1
	bne	a0, a5, .LBB0_1
	j	.LBB0_3
.LBB0_3:
	sw	a2, 0(a6)
	ret
"""

HELIUM = """
kernel:
	dls	lr, r2
.LBB0_1:
	vldrb.u8	q0, [r0], #16
	vldrb.u8	q1, [r1], #16
	vmladava.s8	r4, q0, q1
	le	lr, .LBB0_1
	bx	lr
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (THUMB, InnerLoop(instructions=7, products=2, accesses=4)),
        (RISCV, InnerLoop(instructions=6, products=1, accesses=2)),
        (HELIUM, InnerLoop(instructions=4, products=1, accesses=2)),
        ("kernel:\n\tsmlad\tr0, r1, r2, r0\n\tbx\tlr\n", None),
    ],
    ids=["thumb", "riscv", "helium", "no loop"],
)
def test_the_innermost_loop_with_most_products(text: str, expected: InnerLoop | None) -> None:
    assert inner_loop(text) == expected
