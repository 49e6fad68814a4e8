/* What someone who has only the bundle writes: runs the model once and prints the outputs. */
#include <small.h>

#include <stdio.h>

int main(int argc, char **argv) {
    static float input[SMALL_INPUT_INPUT_ELEMENTS];
    static float output[SMALL_OUTPUT_OUTPUT_ELEMENTS];
    static int8_t sign[SMALL_OUTPUT_SIGN_ELEMENTS];
    ep_model model;
    ep_session *session = NULL;
    for (int i = 0; i < SMALL_INPUT_INPUT_ELEMENTS; i++) {
        input[i] = (float)(i % 5) - 2.0f;
    }
    ep_status status = small_open(argc > 1 ? argv[1] : NULL, &model);
    if (status == EP_OK) {
        status = ep_session_create(&model, NULL, &session);
    }
    if (status == EP_OK) {
        status = small_run(session, input, output, sign);
    }
    if (status != EP_OK) {
        fprintf(stderr, "%s\n", ep_status_string(status));
        return 1;
    }
    for (int i = 0; i < SMALL_OUTPUT_OUTPUT_ELEMENTS; i++) {
        printf("%.9g %d\n", (double)output[i], sign[i]);
    }
    ep_session_destroy(session);
    ep_model_close(&model);
    return 0;
}
