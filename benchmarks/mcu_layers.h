/* Layers of a network that keeps rows of the past between runs (a streaming wake word), for mcu_layers.c. The
 * data of one, `layers` and the sizes, are written by mcu_layers.py. SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

typedef enum { CONVOLUTION, DEPTHWISE, FULLY_CONNECTED } layer_kind;

typedef struct {
    layer_kind kind;
    int32_t rows, channels, outputs; /* of its window, which is all of its input; of its result, a row */
    int32_t kept, added; /* rows that are kept of runs before, and that a run adds; 0: all is new */
    int32_t state;       /* where the kept rows lie in the network's inputs, as bytes */
    int32_t returned;    /* where they go in its outputs */
    int32_t zero, result_zero, low, high;
    const int8_t *weights;
    const int32_t *bias, *multipliers, *shifts;
} layer;

/* Puts the kept rows that lie in `input` where the layers have them: before a run that is to be compared. */
void layers_start(const int8_t *input);

/* Runs the network; its result is the first bytes of `output`. 0 if CMSIS-NN takes all layers. */
int layers_run(const int8_t *input, int8_t *output);

/* Writes the kept rows behind a run to `output`. */
void layers_finish(int8_t *output);
