/* Keywords in a stream of samples: a ring buffer that a microphone's interrupt fills, features of each frame,
 * a network every fifth frame, scores over some runs. Nothing is allocated. */
#ifndef KEYWORDS_H
#define KEYWORDS_H

#include <kws.h>
#include <stdint.h>

#include "features.h"

enum {
    RING_SAMPLES = 4096, /* a power of two: a quarter of a second */
    WORDS = 12,
    FRAMES = 49,       /* a second */
    FRAMES_A_RUN = 5,  /* the network runs every 100 ms */
    RUNS_TOGETHER = 3, /* whose scores are averaged */
    THRESHOLD = 60,    /* percent */
    QUIET_FRAMES = 25  /* between keywords: half a second */
};

/* One writes (the interrupt), one reads. */
typedef struct ring {
    int16_t samples[RING_SAMPLES];
    volatile uint32_t written; /* ever since; wraps */
    volatile uint32_t read;
    volatile uint32_t lost; /* samples for which there was no room */
} ring;

typedef struct keywords {
    ring ring;
    ep_model model;
    ep_session *session;
    int16_t frame[FRAME_SAMPLES];
    uint32_t filled;
    float mel[FRAMES][MELS];
    int16_t peak[FRAMES];
    uint32_t frames; /* ever since */
    int8_t scores[RUNS_TOGETHER][WORDS];
    uint32_t runs;
    uint32_t quiet_until; /* a frame */
    int last;             /* the keyword that is still in the second, or -1 */
    int8_t input[FRAMES * COEFFICIENTS];
} keywords;

/* What a run of the network said. */
typedef struct heard {
    uint32_t ms;    /* from the start of the stream to the end of the second that was looked at */
    int word;       /* with the highest score */
    int percent;    /* its score, the average of some runs */
    int is_keyword; /* above the threshold, neither silence nor unknown, and told for the first time */
} heard;

extern const char *const keywords_names[WORDS];

/* With memory of KWS_SESSION_BYTES bytes, aligned to 64. */
ep_status keywords_open(keywords *self, void *memory, size_t memory_bytes);

/* From the interrupt: samples of 16 kHz. What the ring has no room for is lost, and counted. */
void keywords_write(keywords *self, const int16_t *samples, size_t count);

/* From the main loop, as often as possible. Reads what was written up to the next run of the network: 1 if
 * `result` has one and there may be more, 0 if samples are missing, less if the network failed (-status). */
int keywords_poll(keywords *self, heard *result);

#endif
