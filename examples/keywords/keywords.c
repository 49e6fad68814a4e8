#include "keywords.h"

#include <math.h>

#define INPUT_SCALE KWS_INPUT_INPUT_1_SCALE
#define INPUT_ZERO KWS_INPUT_INPUT_1_ZERO_POINT
#define SCORE_SCALE KWS_OUTPUT_IDENTITY_SCALE
#define SCORE_ZERO KWS_OUTPUT_IDENTITY_ZERO_POINT

enum { SILENCE = 10 };

typedef char size_is_the_networks[FRAMES * COEFFICIENTS == KWS_INPUT_INPUT_1_ELEMENTS ? 1 : -1];
typedef char words_are_the_networks[WORDS == KWS_OUTPUT_IDENTITY_ELEMENTS ? 1 : -1];

const char *const keywords_names[WORDS] = {"Down",  "Go",   "Left", "No",  "Off",     "On",
                                           "Right", "Stop", "Up",   "Yes", "Silence", "Unknown"};

ep_status keywords_open(keywords *self, void *memory, size_t memory_bytes) {
    ep_options options = EP_OPTIONS_INIT;
    options.memory = memory;
    options.memory_bytes = memory_bytes;
    self->ring.written = self->ring.read = self->ring.lost = 0;
    self->filled = self->frames = self->runs = self->quiet_until = 0;
    self->last = -1;
    ep_status status = kws_open(NULL, &self->model);
    return status == EP_OK ? ep_session_create(&self->model, &options, &self->session) : status;
}

void keywords_write(keywords *self, const int16_t *samples, size_t count) {
    ring *ring = &self->ring;
    uint32_t written = ring->written;
    for (size_t i = 0; i < count; i++) {
        if (written - ring->read >= RING_SAMPLES) {
            ring->lost += (uint32_t)(count - i);
            break;
        }
        ring->samples[written++ % RING_SAMPLES] = samples[i];
    }
    ring->written = written; /* last: the reader sees samples that are there */
}

/* Moves what there is into the frame; nonzero when that is full. */
static int fill_frame(keywords *self) {
    ring *ring = &self->ring;
    uint32_t read = ring->read, written = ring->written;
    while (read != written && self->filled < FRAME_SAMPLES) {
        self->frame[self->filled++] = ring->samples[read++ % RING_SAMPLES];
    }
    ring->read = read;
    return self->filled == FRAME_SAMPLES;
}

/* Features of the frame; its last samples are the first ones of the next frame. */
static void take_frame(keywords *self) {
    uint32_t place = self->frames++ % FRAMES;
    int16_t peak = 0;
    for (unsigned i = 0; i < FRAME_SAMPLES; i++) {
        peak = self->frame[i] > peak ? self->frame[i] : peak;
    }
    self->peak[place] = peak;
    features_mel(self->frame, self->mel[place]);
    self->filled = FRAME_SAMPLES - FRAME_STEP;
    for (unsigned i = 0; i < FRAME_SAMPLES - FRAME_STEP; i++) {
        self->frame[i] = self->frame[i + FRAME_STEP];
    }
}

static int8_t quantised(float value) {
    float rounded = rintf(value / INPUT_SCALE) + (float)INPUT_ZERO;
    return (int8_t)(rounded < -128.0F ? -128.0F : rounded > 127.0F ? 127.0F : rounded);
}

/* The last second, as loud as its loudest sample: the network was trained with that. */
static void make_input(keywords *self) {
    int peak = 1;
    for (unsigned i = 0; i < FRAMES; i++) {
        peak = self->peak[i] > peak ? self->peak[i] : peak;
    }
    for (unsigned i = 0; i < FRAMES; i++) {
        float mfcc[COEFFICIENTS];
        features_mfcc(self->mel[(self->frames + i) % FRAMES], (float)peak, mfcc);
        for (unsigned k = 0; k < COEFFICIENTS; k++) {
            self->input[i * COEFFICIENTS + k] = quantised(mfcc[k]);
        }
    }
}

static void decide(keywords *self, heard *result) {
    unsigned together = self->runs < RUNS_TOGETHER ? self->runs : RUNS_TOGETHER;
    int best = 0, most = -1;
    for (int word = 0; word < WORDS; word++) {
        int sum = 0;
        for (unsigned i = 0; i < together; i++) {
            sum += self->scores[i][word] - SCORE_ZERO;
        }
        if (sum > most) {
            most = sum;
            best = word;
        }
    }
    uint32_t samples = (self->frames - 1) * FRAME_STEP + FRAME_SAMPLES;
    result->ms = samples / 16;
    result->word = best;
    result->percent = (int)((float)(most * 100) * SCORE_SCALE / (float)together);
    int keyword = best < SILENCE && result->percent >= THRESHOLD ? best : -1;
    result->is_keyword = keyword >= 0 && keyword != self->last && self->frames >= self->quiet_until;
    if (result->is_keyword) {
        self->quiet_until = self->frames + QUIET_FRAMES;
        self->last = keyword;
    } else if (keyword < 0) {
        self->last = -1;
    }
}

int keywords_poll(keywords *self, heard *result) {
    while (fill_frame(self)) {
        take_frame(self);
        if (self->frames >= FRAMES && (self->frames - FRAMES) % FRAMES_A_RUN == 0) {
            make_input(self);
            ep_status status = kws_run(self->session, self->input, self->scores[self->runs % RUNS_TOGETHER]);
            if (status != EP_OK) {
                return -(int)status;
            }
            self->runs++;
            decide(self, result);
            return 1;
        }
    }
    return 0;
}
