/* A program of somebody who has only the bundle: runs the mini model; argv[1] is its params file. */
#include <stdio.h>

#include <mini.h>

int main(int argc, char **argv) {
    static float x[MINI_INPUT_DATA_ELEMENTS];
    static float y[MINI_OUTPUT_DATA_ELEMENTS];
    static int8_t small[MINI_INPUT_SMALL_NUMBERS_ELEMENTS] = {3, 2, 1, 0, 3, 2, 1, 0};
    static uint16_t halves[MINI_OUTPUT_HALVES_ELEMENTS];
    static uint8_t flags[MINI_OUTPUT_INT_ELEMENTS];
    static int64_t longs[MINI_OUTPUT_X_ELEMENTS];
    ep_model model;
    ep_session *session = NULL;
    ep_status status = mini_open(argc > 1 ? argv[1] : NULL, &model);
    if (status == EP_OK) {
        status = ep_session_create(&model, NULL, &session);
    }
    if (status == EP_OK) {
        status = mini_run(session, x, small, y, halves, flags, longs);
    }
    ep_session_destroy(session);
    ep_model_close(&model);
    printf("%s %d %d\n", ep_status_name(status), (int)longs[0], flags[1]);
    return status != EP_OK;
}
