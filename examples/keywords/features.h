/* Mel frequency cepstral coefficients as MLPerf Tiny's keyword spotter was trained with (mlcommons/tiny,
 * benchmark/training/keyword_spotting/get_dataset.py): TensorFlow's tf.signal, 16 kHz, frames of 30 ms every
 * 20 ms. */
#ifndef FEATURES_H
#define FEATURES_H

#include <stdint.h>

enum { FRAME_SAMPLES = 480, FRAME_STEP = 320, MELS = 40, COEFFICIENTS = 10 };

/* Magnitudes of a frame in each band, in the samples' unit. Takes 3 KB of stack. */
void features_mel(const int16_t *samples, float *mel);

/* Coefficients of a frame, as if its samples had been divided by `peak`, which is at least 1. */
void features_mfcc(const float *mel, float peak, float *mfcc);

#endif
