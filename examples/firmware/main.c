/* Says what three images show, which stand for those of a sensor. */
#include "firmware.h"

#include <stripes.h>

enum { CHANNELS = 3, HEIGHT = 24, WIDTH = 32 };

typedef char size_is_the_models[CHANNELS * HEIGHT * WIDTH == STRIPES_INPUT_IMAGE_ELEMENTS ? 1 : -1];

/* Intermediate results. Not initialised: it takes no flash. */
static unsigned char memory[STRIPES_ARENA_BYTES]
    __attribute__((section(".bss.edgepack.session"), aligned(64)));
static float image[STRIPES_INPUT_IMAGE_ELEMENTS];
static float classes[STRIPES_OUTPUT_CLASSES_ELEMENTS];

/* Stripes of four pixels: plain, horizontal or vertical. */
static void draw(int kind) {
    for (int i = 0; i < (int)STRIPES_INPUT_IMAGE_ELEMENTS; i++) {
        int x = i % WIDTH, y = i / WIDTH % HEIGHT;
        int at = kind == 0 ? 0 : kind == 1 ? y : x;
        image[i] = at / 4 % 2 == 0 ? 0.2F : 0.8F;
    }
}

static int fail(ep_status status) {
    firmware_print(ep_status_string(status));
    firmware_print("\n");
    return 1;
}

int main(void) {
    static const char *const names[STRIPES_OUTPUT_CLASSES_ELEMENTS] = {"plain\n", "horizontal\n",
                                                                       "vertical\n"};
    ep_status status = EP_OK;
    for (int kind = 0; kind < 3 && status == EP_OK; kind++) {
        draw(kind);
        status = stripes_run_direct(memory, sizeof memory, image, classes);
        int best = 0;
        for (int i = 1; i < 3; i++) {
            best = classes[i] > classes[best] ? i : best;
        }
        if (status == EP_OK) {
            firmware_print(names[best]);
        }
    }
    return status == EP_OK ? 0 : fail(status);
}
