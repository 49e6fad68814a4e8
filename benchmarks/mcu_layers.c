/* A streaming network by CMSIS-NN's functions, as one would write it by hand: the rows that a layer keeps lie
 * before those that a run adds, the layer before writes into that place, and a run moves them up by what it
 * added. Nothing else is copied. Compiled by mcu_instructions.py with what mcu_layers.py writes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mcu_layers.h"

#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"
#include "mcu_network.h"

enum { COUNT = sizeof layers / sizeof layers[0] };

/* What arm_depthwise_conv_s8_opt_get_buffer_size asks for of the largest layer; no other function asks for
 * any. */
#if defined(ARM_MATH_MVEI)
enum { SCRATCH_BYTES = 4 * CH_IN_BLOCK_MVE * MOST_ROWS };
#else
enum { SCRATCH_BYTES = 2 * MOST_BYTES };
#endif

static int8_t rows[COUNT][(MOST_BYTES + 15) / 16 * 16] __attribute__((aligned(16)));
static int16_t scratch[SCRATCH_BYTES / 2] __attribute__((aligned(16)));

/* Words upwards, which overlapping rows allow; no compiler makes a call of it. */
static void move(int8_t *to, const int8_t *from, int32_t bytes) {
    uint32_t *target = (uint32_t *)to;
    const uint32_t *source = (const uint32_t *)from;
    for (int32_t i = 0; i < bytes / 4; i++) {
        target[i] = source[i];
        __asm__ volatile("");
    }
}

static int32_t kept_bytes(const layer *one) {
    return one->kept * one->channels;
}

static int run_layer(const layer *one, const int8_t *data, int8_t *result) {
    const cmsis_nn_context context = {scratch, SCRATCH_BYTES};
    const cmsis_nn_dims bias = {1, 1, 1, one->outputs}, made = {1, 1, 1, one->outputs};
    const cmsis_nn_per_channel_quant_params each = {(int32_t *)one->multipliers, (int32_t *)one->shifts};
    if (one->kind == DEPTHWISE) {
        const cmsis_nn_dims in = {1, one->rows, 1, one->channels};
        const cmsis_nn_dw_conv_params params = {-one->zero, one->result_zero,     1, {1, 1}, {0, 0},
                                                {1, 1},     {one->low, one->high}};
        return arm_depthwise_conv_wrapper_s8(&context, &params, &each, &in, data, &in, one->weights, &bias,
                                             one->bias, &made, result);
    }
    if (one->kind == CONVOLUTION) {
        /* A window of all rows is one pixel with as many channels, for which CMSIS-NN copies nothing. */
        const cmsis_nn_dims in = {1, 1, 1, one->rows * one->channels};
        const cmsis_nn_dims filter = {one->outputs, 1, 1, one->rows * one->channels};
        const cmsis_nn_conv_params params = {-one->zero, one->result_zero, {1, 1},
                                             {0, 0},     {1, 1},           {one->low, one->high}};
        return arm_convolve_wrapper_s8(&context, &params, &each, &in, data, &filter, one->weights, &bias,
                                       one->bias, &made, result);
    }
    const cmsis_nn_dims in = {1, 1, 1, one->channels}, filter = {one->channels, 1, 1, one->outputs};
    const cmsis_nn_fc_params params = {-one->zero, 0, one->result_zero, {one->low, one->high}};
    const cmsis_nn_per_tensor_quant_params all = {one->multipliers[0], one->shifts[0]};
    return arm_fully_connected_s8(&context, &params, &all, &in, data, &filter, one->weights, &bias, one->bias,
                                  &made, result);
}

void layers_start(const int8_t *input) {
    for (int i = 0; i < COUNT; i++) {
        for (int32_t k = 0; k < kept_bytes(&layers[i]); k++) {
            rows[i][k] = input[layers[i].state + k];
        }
    }
}

int layers_run(const int8_t *input, int8_t *output) {
    move(rows[0] + kept_bytes(&layers[0]), input, layers[0].added * layers[0].channels);
    for (int i = 0; i < COUNT; i++) {
        const layer *one = &layers[i];
        int8_t *result = i + 1 < COUNT ? rows[i + 1] + kept_bytes(one + 1) : output;
        if (run_layer(one, rows[i], result) != 0) {
            return 1;
        }
        move(rows[i], rows[i] + one->added * one->channels, kept_bytes(one));
    }
    return 0;
}

void layers_finish(int8_t *output) {
    for (int i = 0; i < COUNT; i++) {
        for (int32_t k = 0; k < kept_bytes(&layers[i]); k++) {
            output[layers[i].returned + k] = rows[i][k];
        }
    }
}
