/* Layers that are computed a few rows at a time, so that windows of rows lie in memory instead of whole
 * tensors. Included by model.c where a model has such layers. SPDX-License-Identifier: Apache-2.0 */
#ifndef EP_CASCADE_H
#define EP_CASCADE_H

/* A layer's output: its rows, bytes of a row, the rows that its window holds and where this lies in the
 * memory for windows; and the first of what it reads of other layers. */
typedef struct ep_layer {
    int32_t rows;
    int32_t row_bytes;
    int32_t window;
    int32_t offset;
    uint32_t read;
} ep_layer;

/* Row y of the reader is made of `size` rows of `source` from y * stride - pad on. */
typedef struct ep_layer_read {
    uint32_t source;
    uint32_t reader;
    int32_t size;
    int32_t stride;
    int32_t pad;
} ep_layer_read;

/* Rows [begin, end) of a layer are those that it computes now; the first one in its window is `low`. */
typedef struct ep_layer_rows {
    int32_t begin;
    int32_t end;
    int32_t low;
} ep_layer_rows;

#if defined(__GNUC__)
typedef uint32_t __attribute__((may_alias)) ep_any_word;
#endif

/* Moves bytes from `distance` above to `to`, lower ones first. */
static inline void ep_move_down(unsigned char *to, size_t distance, size_t nbytes) {
    size_t i = 0;
#if defined(__GNUC__)
    if ((((uintptr_t)to | distance) & 3) == 0) {
        for (; i + 16 <= nbytes; i += 16) {
            ep_any_word *words = (ep_any_word *)(void *)(to + i);
            const ep_any_word *from = (const ep_any_word *)(const void *)(to + i + distance);
            words[0] = from[0];
            words[1] = from[1];
            words[2] = from[2];
            words[3] = from[3];
        }
    }
#endif
    for (; i < nbytes; i++) {
        to[i] = to[i + distance];
    }
}

/* The layer that computes rows now: the first that `layer` waits for, or itself. Up to `step` of them. */
static inline uint32_t ep_wanted_layer(const ep_layer *layers, const ep_layer_read *reads, int32_t step,
                                       uint32_t layer, ep_layer_rows *rows) {
    uint32_t read = layers[layer].read;
    int32_t left = layers[layer].rows - rows[layer].end;
    int32_t end = rows[layer].end + (left < step ? left : step);
    while (read < layers[layer + 1].read) {
        const ep_layer_read *one = &reads[read];
        int32_t needed = (end - 1) * one->stride - one->pad + one->size;
        int32_t there = rows[one->source].end;
        read++;
        if (there < needed && there < layers[one->source].rows) {
            layer = one->source;
            read = layers[layer].read;
            left = layers[layer].rows - there;
            end = there + (left < step ? left : step);
        }
    }
    rows[layer].begin = rows[layer].end;
    rows[layer].end = end;
    return layer;
}

/* Makes room in a layer's window for the rows that it computes now: those that are not read any more leave.
 */
static inline void ep_make_room(const ep_layer *layers, uint32_t last, const ep_layer_read *reads,
                                uint32_t layer, unsigned char *windows, ep_layer_rows *rows) {
    const ep_layer *one = &layers[layer];
    int32_t low = rows[layer].begin;
    if (layer == last || rows[layer].end - rows[layer].low <= one->window) {
        return;
    }
    for (uint32_t i = 0; i < layers[last + 1].read; i++) {
        if (reads[i].source == layer) {
            int32_t first = rows[reads[i].reader].end * reads[i].stride - reads[i].pad;
            low = first < low ? first : low;
        }
    }
    low = low > 0 ? low : 0;
    ep_move_down(windows + one->offset, (size_t)(low - rows[layer].low) * (size_t)one->row_bytes,
                 (size_t)(rows[layer].begin - low) * (size_t)one->row_bytes);
    rows[layer].low = low;
}

#endif
