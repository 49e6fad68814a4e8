/* Says what a camera sees: `camera WIDTH HEIGHT [FRAMES_PER_SECOND] < frames`.
 *
 * Frames are I420 (a plane of brightness, two of colour with half the width and height), without anything
 * between them. One thread reads them; the newest waits for the network, and the one that it replaces is
 * dropped. With a rate, recorded frames are read at that rate, as from a camera. */
#define _POSIX_C_SOURCE 200809L

#include <stripes.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const size_t SHAPE[] = STRIPES_INPUT_IMAGE_SHAPE;
static const char *const NAMES[STRIPES_OUTPUT_CLASSES_ELEMENTS] = {"plain", "horizontal", "vertical"};

/* Three frames: one is read into, one waits, one is computed. Whoever is done with one exchanges it. */
struct camera {
    size_t width, height, nbytes;
    double rate; /* of recorded frames; 0: as they come */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned char *waiting;
    int fresh; /* the one that waits has not been taken */
    int ended;
    unsigned long read, dropped;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void sleep_until(double moment) {
    struct timespec time = {(time_t)moment, (long)(1e9 * (moment - (double)(time_t)moment))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
    }
}

static void *read_frames(void *argument) {
    struct camera *camera = argument;
    unsigned char *reading = malloc(camera->nbytes), *old;
    double begin = now();
    while (reading != NULL && fread(reading, camera->nbytes, 1, stdin) == 1) {
        if (camera->rate > 0) {
            sleep_until(begin + (double)camera->read / camera->rate);
        }
        pthread_mutex_lock(&camera->mutex);
        camera->read++;
        camera->dropped += (unsigned long)camera->fresh;
        camera->fresh = 1;
        old = camera->waiting;
        camera->waiting = reading;
        reading = old;
        pthread_cond_signal(&camera->changed);
        pthread_mutex_unlock(&camera->mutex);
    }
    pthread_mutex_lock(&camera->mutex);
    camera->ended = 1;
    pthread_cond_signal(&camera->changed);
    pthread_mutex_unlock(&camera->mutex);
    free(reading);
    return NULL;
}

/* Exchanges the caller's frame for the newest one; 0 where there will be none. */
static int take(struct camera *camera, unsigned char **frame) {
    pthread_mutex_lock(&camera->mutex);
    while (!camera->fresh && !camera->ended) {
        pthread_cond_wait(&camera->changed, &camera->mutex);
    }
    int taken = camera->fresh;
    if (taken) {
        unsigned char *newest = camera->waiting;
        camera->waiting = *frame;
        *frame = newest;
        camera->fresh = 0;
    }
    pthread_mutex_unlock(&camera->mutex);
    return taken;
}

/* Mean of a plane's pixels that fall into pixel (x, y) of the tensor. */
static float mean(const unsigned char *plane, size_t width, size_t height, size_t x, size_t y) {
    size_t left = x * width / SHAPE[3], right = (x + 1) * width / SHAPE[3];
    size_t top = y * height / SHAPE[2], bottom = (y + 1) * height / SHAPE[2];
    unsigned long sum = 0;
    right += right == left;
    bottom += bottom == top;
    for (size_t row = top; row < bottom; row++) {
        for (size_t column = left; column < right; column++) {
            sum += plane[row * width + column];
        }
    }
    return (float)sum / (float)((right - left) * (bottom - top));
}

static float unit(float value) {
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* Frame to tensor: smaller, from YCbCr of limited range (ITU-R BT.601) to red, green and blue from 0 to 1. */
static void convert(const struct camera *camera, const unsigned char *frame, float *image) {
    size_t plane = SHAPE[2] * SHAPE[3], half = (camera->width / 2) * (camera->height / 2);
    const unsigned char *blue = frame + camera->width * camera->height, *red = blue + half;
    for (size_t y = 0; y < SHAPE[2]; y++) {
        for (size_t x = 0; x < SHAPE[3]; x++) {
            float luma = (mean(frame, camera->width, camera->height, x, y) - 16) / 219;
            float cb = (mean(blue, camera->width / 2, camera->height / 2, x, y) - 128) / 224;
            float cr = (mean(red, camera->width / 2, camera->height / 2, x, y) - 128) / 224;
            float *pixel = image + y * SHAPE[3] + x;
            pixel[0] = unit(luma + 1.402F * cr);
            pixel[plane] = unit(luma - 0.344136F * cb - 0.714136F * cr);
            pixel[2 * plane] = unit(luma + 1.772F * cb);
        }
    }
}

/* A line whenever what is seen changes; the number of frames that were computed, and the seconds that took.
 */
static ep_status watch(struct camera *camera, ep_session *session, unsigned long *computed, double *busy) {
    static float image[STRIPES_INPUT_IMAGE_ELEMENTS], classes[STRIPES_OUTPUT_CLASSES_ELEMENTS];
    unsigned char *frame = malloc(camera->nbytes);
    size_t seen = STRIPES_OUTPUT_CLASSES_ELEMENTS;
    ep_status status = frame == NULL ? EP_E_NO_MEMORY : EP_OK;
    while (status == EP_OK && take(camera, &frame)) {
        double begin = now();
        convert(camera, frame, image);
        status = stripes_run(session, image, classes);
        *busy += now() - begin;
        *computed += status == EP_OK;
        size_t best = 0;
        for (size_t i = 1; i < STRIPES_OUTPUT_CLASSES_ELEMENTS; i++) {
            best = classes[i] > classes[best] ? i : best;
        }
        if (status == EP_OK && best != seen) {
            printf("%s (%.3f) in frame %lu\n", NAMES[best], (double)classes[best], *computed);
            fflush(stdout);
            seen = best;
        }
    }
    free(frame);
    return status;
}

static int run(struct camera *camera, ep_session *session) {
    pthread_t reader;
    unsigned long computed = 0;
    double busy = 0, begin = now();
    camera->waiting = malloc(camera->nbytes);
    if (camera->waiting == NULL || pthread_create(&reader, NULL, read_frames, camera) != 0) {
        fputs("no memory or no thread\n", stderr);
        return 1;
    }
    ep_status status = watch(camera, session, &computed, &busy);
    if (status != EP_OK) {
        fprintf(stderr, "%s\n", ep_status_string(status));
        return 1; /* the reader ends with the program */
    }
    pthread_join(reader, NULL);
    double seconds = now() - begin;
    printf("%lu frames in %.1f s: %lu computed (%.1f/s, %.2f ms each), %lu dropped\n", camera->read, seconds,
           computed, (double)computed / seconds, computed > 0 ? 1e3 * busy / (double)computed : 0.0,
           camera->dropped);
    free(camera->waiting);
    return 0;
}

int main(int argc, char **argv) {
    struct camera camera = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    ep_model model;
    ep_session *session = NULL;
    if (argc < 3 || argc > 4) {
        fputs("usage: camera WIDTH HEIGHT [FRAMES_PER_SECOND] < frames\n", stderr);
        return 2;
    }
    camera.width = strtoul(argv[1], NULL, 10);
    camera.height = strtoul(argv[2], NULL, 10);
    camera.rate = argc > 3 ? strtod(argv[3], NULL) : 0;
    if (camera.width < 2 || camera.height < 2 || camera.width > 8192 || camera.height > 8192 ||
        camera.width % 2 || camera.height % 2) {
        fputs("width and height are even numbers up to 8192\n", stderr);
        return 2;
    }
    camera.nbytes = camera.width * camera.height * 3 / 2;
    ep_status status = stripes_open(NULL, &model);
    if (status == EP_OK) {
        status = ep_session_create(&model, NULL, &session);
    }
    if (status != EP_OK) {
        fprintf(stderr, "%s\n", ep_status_string(status));
        return 1;
    }
    int code = run(&camera, session);
    if (code == 0) {
        ep_session_destroy(session);
        ep_model_close(&model);
    }
    return code;
}
