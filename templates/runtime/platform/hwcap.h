/* What the platform says about a CPU that cannot be asked itself: words and bits as Linux has them
 * (getauxval, asm/hwcap.h), whatever the system. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_HWCAP_H
#define EDGEPACK_HWCAP_H

/* The words: Linux's AT_HWCAP and AT_HWCAP2. */
enum { EP_AT_HWCAP = 16, EP_AT_HWCAP2 = 26 };

/* aarch64 */
enum {
    EP_A64_FP = 1 << 0,
    EP_A64_ASIMD = 1 << 1,
    EP_A64_FPHP = 1 << 9,
    EP_A64_ASIMDHP = 1 << 10,
    EP_A64_ASIMDDP = 1 << 20,
    EP_A64_SVE = 1 << 22,
    EP_A64_I8MM = 1 << 13, /* of EP_AT_HWCAP2 */
    EP_A64_BF16 = 1 << 14  /* of EP_AT_HWCAP2 */
};

/* 32-bit Arm */
enum { EP_A32_NEON = 1 << 12, EP_A32_VFP3 = 1 << 13, EP_A32_VFP4 = 1 << 16 };

/* RISC-V: a bit for each letter of the extensions */
enum { EP_RISCV_V = 1 << ('v' - 'a') };

#endif
