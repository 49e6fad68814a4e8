/* Buffers and the files that fill them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTE = 0x5a, ALIGNMENT = 64 };

/* Block: room to align, guard, the tensor, guard. */
static int buffer_make(const tensors *to, size_t index, const ep_tensor *tensor, ep_buffer *buffer) {
    size_t nbytes = (size_t)tensor->nbytes;
    size_t total = nbytes + 2 * ALIGNMENT + 2 * TENSORS_GUARD;
    unsigned char *block = malloc(total);
    if (nbytes != tensor->nbytes || block == NULL) {
        free(block);
        return 1;
    }
    size_t skip = (ALIGNMENT - (uintptr_t)block % ALIGNMENT) % ALIGNMENT + TENSORS_GUARD;
    skip += to->skew != 0 ? ep_dtype_bytes(tensor->dtype) : 0;
    memset(block, GUARD_BYTE, total);
    memset(block + skip, 0, nbytes);
    to->blocks[index] = block;
    buffer->data = block + skip;
    buffer->nbytes = nbytes;
    return 0;
}

int tensors_make(tensors *to, const ep_descriptor *model, int skewed) {
    size_t inputs = model->input_count;
    size_t outputs = model->output_count;
    to->model = model;
    to->skew = skewed ? 1 : 0;
    to->inputs = calloc(inputs + 1, sizeof *to->inputs);
    to->outputs = calloc(outputs + 1, sizeof *to->outputs);
    to->run_inputs = calloc(inputs + 1, sizeof *to->run_inputs);
    to->blocks = calloc(inputs + outputs + 1, sizeof *to->blocks);
    if (to->inputs == NULL || to->outputs == NULL || to->run_inputs == NULL || to->blocks == NULL) {
        return 1;
    }
    for (size_t i = 0; i < inputs; i++) {
        if (buffer_make(to, i, &model->inputs[i], &to->inputs[i]) != 0) {
            return 1;
        }
        to->run_inputs[i].data = to->inputs[i].data;
        to->run_inputs[i].nbytes = to->inputs[i].nbytes;
    }
    for (size_t i = 0; i < outputs; i++) {
        if (buffer_make(to, inputs + i, &model->outputs[i], &to->outputs[i]) != 0) {
            return 1;
        }
    }
    return 0;
}

void tensors_free(tensors *of) {
    if (of->blocks != NULL) {
        for (size_t i = 0; i < (size_t)of->model->input_count + of->model->output_count; i++) {
            free(of->blocks[i]);
        }
    }
    free(of->blocks);
    free(of->inputs);
    free(of->outputs);
    free(of->run_inputs);
}

static int guards_intact(const ep_buffer *buffers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char *before = (const unsigned char *)buffers[i].data - TENSORS_GUARD;
        const unsigned char *after = (const unsigned char *)buffers[i].data + buffers[i].nbytes;
        for (size_t j = 0; j < TENSORS_GUARD; j++) {
            if (before[j] != GUARD_BYTE || after[j] != GUARD_BYTE) {
                return 0;
            }
        }
    }
    return 1;
}

int tensors_guards_intact(const tensors *of) {
    return guards_intact(of->inputs, of->model->input_count) &&
           guards_intact(of->outputs, of->model->output_count);
}

char *file_read(const char *path, size_t *nbytes) {
    enum { STEP = 1 << 16, MOST = 16 << 20 };
    size_t used = 0;
    size_t room = STEP;
    FILE *file = system_read(path);
    char *text = file != NULL ? malloc(room + 1) : NULL;
    while (text != NULL) {
        used += fread(text + used, 1, room - used, file);
        if (used < room) {
            break;
        }
        char *larger = room < MOST ? realloc(text, room + STEP + 1) : NULL;
        if (larger == NULL) {
            free(text);
        }
        text = larger;
        room += STEP;
    }
    if (text != NULL && ferror(file)) {
        free(text);
        text = NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    if (text != NULL) {
        text[used] = 0;
        *nbytes = used;
    }
    return text;
}

int tensor_load(const ep_buffer *tensor, const char *path) {
    FILE *file = system_read(path);
    if (file == NULL) {
        return report_error("FILE", "The file cannot be opened", path);
    }
    size_t got = fread(tensor->data, 1, tensor->nbytes, file);
    int more = got == tensor->nbytes && fgetc(file) != EOF;
    fclose(file);
    if (got != tensor->nbytes || more) {
        return report_error("FILE", "The file does not have the tensor's size in bytes", path);
    }
    return LOADER_OK;
}

int tensors_load(const ep_buffer *to, size_t count, const char *folder, const char *kind) {
    for (size_t i = 0; i < count; i++) {
        char path[LOADER_PATH];
        int length = snprintf(path, sizeof path, "%s/%s_%u.bin", folder, kind, (unsigned)i);
        if (length < 0 || (size_t)length >= sizeof path) {
            return report_error("FILE", "The path is too long", folder);
        }
        int result = tensor_load(&to[i], path);
        if (result != LOADER_OK) {
            return result;
        }
    }
    return LOADER_OK;
}

/* Numerical Recipes' linear congruential generator; the upper bits are good enough to fill a tensor. */
static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

void tensors_fill(const tensors *to) {
    uint32_t state = 1;
    for (size_t i = 0; i < to->model->input_count; i++) {
        const ep_tensor *tensor = &to->model->inputs[i];
        unsigned char *data = to->inputs[i].data;
        uint32_t size = ep_dtype_bytes(tensor->dtype);
        memset(data, 0, to->inputs[i].nbytes);
        for (size_t j = 0; j < to->inputs[i].nbytes / size; j++) {
            uint32_t value = next_random(&state);
            float real = (float)value / 65536.0f;
            double wide = (double)real;
            uint16_t half = (uint16_t)(0x3800u + (value & 0x3ffu)); /* 0.5 to 1 */
            uint32_t bits;
            memcpy(&bits, &real, sizeof bits);
            uint16_t brain = (uint16_t)(bits >> 16);
            switch (tensor->dtype) {
            case EP_FLOAT32:
                memcpy(data + j * size, &real, sizeof real);
                break;
            case EP_FLOAT64:
                memcpy(data + j * size, &wide, sizeof wide);
                break;
            case EP_FLOAT16:
                memcpy(data + j * size, &half, sizeof half);
                break;
            case EP_BFLOAT16:
                memcpy(data + j * size, &brain, sizeof brain);
                break;
            default:
                data[j * size] =
                    (unsigned char)(value & 1u); /* the lowest byte: all targets are little-endian */
            }
        }
    }
}
