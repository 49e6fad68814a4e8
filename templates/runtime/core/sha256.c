/* SHA-256, FIPS 180-4.
 * SPDX-License-Identifier: Apache-2.0 */
static const uint32_t ep_sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

typedef struct ep_sha256 {
    uint32_t state[8];
    uint64_t nbytes;
    unsigned char block[64];
} ep_sha256;

static inline uint32_t ep_rotate(uint32_t x, unsigned n) {
    return x >> n | x << (32u - n);
}

static void ep_sha256_block(uint32_t state[8], const unsigned char *p) {
    uint32_t w[64];
    uint32_t v[8];
    for (int i = 0; i < 16; i++, p += 4) {
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = ep_rotate(w[i - 15], 7) ^ ep_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = ep_rotate(w[i - 2], 17) ^ ep_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    ep_copy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = ep_rotate(v[4], 6) ^ ep_rotate(v[4], 11) ^ ep_rotate(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + ep_sha256_k[i] + w[i];
        uint32_t s0 = ep_rotate(v[0], 2) ^ ep_rotate(v[0], 13) ^ ep_rotate(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        v[7] = v[6];
        v[6] = v[5];
        v[5] = v[4];
        v[4] = v[3] + t1;
        v[3] = v[2];
        v[2] = v[1];
        v[1] = v[0];
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += v[i];
    }
}

static void ep_sha256_init(ep_sha256 *hash) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    ep_copy(hash->state, start, sizeof start);
    hash->nbytes = 0;
}

static void ep_sha256_update(ep_sha256 *hash, const unsigned char *data, size_t nbytes) {
    size_t filled = (size_t)(hash->nbytes % 64);
    hash->nbytes += nbytes;
    while (nbytes > 0) {
        if (filled == 0 && nbytes >= 64) {
            ep_sha256_block(hash->state, data);
            data += 64;
            nbytes -= 64;
            continue;
        }
        hash->block[filled++] = *data++;
        nbytes--;
        if (filled == 64) {
            ep_sha256_block(hash->state, hash->block);
            filled = 0;
        }
    }
}

static void ep_sha256_final(ep_sha256 *hash, unsigned char digest[32]) {
    static const unsigned char padding[64] = {0x80};
    unsigned char length[8];
    uint64_t bits = hash->nbytes * 8;
    for (unsigned i = 0; i < 8; i++) {
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    }
    ep_sha256_update(hash, padding, 1 + (size_t)((119 - hash->nbytes % 64) % 64));
    ep_sha256_update(hash, length, sizeof length);
    for (unsigned i = 0; i < 32; i++) {
        digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}
