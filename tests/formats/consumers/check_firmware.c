/* Runs the program that a package's README prints on the recorded input, on a board of qemu, and compares. EXAMPLE is its
 * file; recorded.h has the input and what is expected. As C, for ESP-IDF with its entry, or, for Arduino, as C++. */
#ifdef __cplusplus
extern "C" {
#endif
int main(void);
void firmware_exit(int status);
void firmware_print(const char *text);
#ifdef __cplusplus
}
static const char *printed;
static struct {
    void begin(long) {}
    void println(const char *text) { printed = text; }
} Serial;
static void delay(int) {}
#elif defined(ESP_PLATFORM)
#include <stdio.h>
static const char *printed;
#define printf(format, text) (printed = (text))
#else
#define main example
#endif

#include EXAMPLE

#undef main

#include "recorded.h"

int main(void) {
    for (int i = 0; i < 32; i++) {
        input[i] = recorded[i];
        output[i] = -1;
        sign[i] = 99;
    }
#ifdef __cplusplus
    setup();
    loop();
    int failed = printed != ep_status_string(EP_OK);
    firmware_print(printed);
#elif defined(ESP_PLATFORM)
    app_main();
    int failed = printed != ep_status_string(EP_OK);
#else
    int failed = example() != EP_OK;
#endif
    for (int i = 0; i < 32; i++) {
        float difference = output[i] - expected[i];
        failed |= !(difference < 1e-5f && difference > -1e-5f) || sign[i] != expected_sign[i];
    }
    firmware_print(failed ? "wrong\n" : "right\n");
    return failed;
}
