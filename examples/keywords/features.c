#include "features.h"

#include <math.h>

#include "tables.h"

enum { HALF = 256, BITS = 8, BINS = 129 }; /* complex points; bins up to 4 kHz */

/* Fast Fourier transform of 256 complex points in place, radix 2. */
static void transform(float *re, float *im) {
    for (unsigned i = 0; i < HALF; i++) {
        unsigned reversed = 0;
        for (unsigned bit = 0; bit < BITS; bit++) {
            reversed |= (i >> bit & 1U) << (BITS - 1 - bit);
        }
        if (reversed > i) {
            float r = re[i], m = im[i];
            re[i] = re[reversed];
            im[i] = im[reversed];
            re[reversed] = r;
            im[reversed] = m;
        }
    }
    for (unsigned size = 2; size <= HALF; size *= 2) {
        unsigned half = size / 2, step = 2 * HALF / size; /* the circle has 512 places */
        for (unsigned start = 0; start < HALF; start += size) {
            for (unsigned k = 0; k < half; k++) {
                unsigned a = start + k, b = a + half;
                float c = circle_cos[k * step], s = circle_sin[k * step];
                float r = re[b] * c + im[b] * s, m = im[b] * c - re[b] * s;
                re[b] = re[a] - r;
                im[b] = im[a] - m;
                re[a] += r;
                im[a] += m;
            }
        }
    }
}

/* Magnitude of bin `k`, from 1 to 255, of the 512 real points whose even and odd ones were transformed as
 * one. */
static float magnitude(const float *re, const float *im, unsigned k) {
    unsigned other = HALF - k;
    float even_re = re[k] + re[other], even_im = im[k] - im[other];
    float odd_re = im[k] + im[other], odd_im = re[other] - re[k];
    float r = even_re + odd_re * circle_cos[k] + odd_im * circle_sin[k];
    float m = even_im + odd_im * circle_cos[k] - odd_re * circle_sin[k];
    return 0.5F * sqrtf(r * r + m * m);
}

void features_mel(const int16_t *samples, float *mel) {
    float re[HALF], im[HALF], bins[BINS];
    for (unsigned i = 0; i < HALF; i++) {
        unsigned at = 2 * i;
        re[i] = at < FRAME_SAMPLES ? (float)samples[at] * window_of_hann[at] : 0.0F;
        im[i] = at < FRAME_SAMPLES ? (float)samples[at + 1] * window_of_hann[at + 1] : 0.0F;
    }
    transform(re, im);
    for (unsigned k = 1; k < BINS; k++) {
        bins[k] = magnitude(re, im, k);
    }
    const float *weights = band_weights;
    for (unsigned band = 0; band < MELS; band++) {
        mel[band] = 0.0F;
        for (unsigned i = 0; i < band_bins[band]; i++) {
            mel[band] += bins[band_first[band] + i] * *weights++;
        }
    }
}

void features_mfcc(const float *mel, float peak, float *mfcc) {
    float logs[MELS];
    for (unsigned band = 0; band < MELS; band++) {
        logs[band] = logf(mel[band] / peak + 1e-6F);
    }
    for (unsigned k = 0; k < COEFFICIENTS; k++) {
        mfcc[k] = 0.0F;
        for (unsigned band = 0; band < MELS; band++) {
            mfcc[k] += logs[band] * cosines[k * MELS + band];
        }
    }
}
