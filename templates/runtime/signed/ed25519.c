/* Ed25519, RFC 8032: whether a signature is that of a key. Nothing here is secret, so nothing takes care to
 * run in constant time; it needs no memory but the stack, about 3 KB of it, and no table larger than
 * SHA-512's.
 *
 * The curve is -x^2 + y^2 = 1 + d x^2 y^2 over the integers modulo p = 2^255 - 19; its base point has the
 * order L = 2^252 + 27742317777372353535851937790883648493. Of several keys, scalars and points that are
 * written in different ways, only the least is taken, and R is compared as it is written: what is accepted
 * here is accepted by every other verifier.
 *
 * SPDX-License-Identifier: Apache-2.0 */

/* ---- SHA-512, FIPS 180-4 ---- */

static const uint64_t ep_sha512_k[80] = {
    UINT64_C(0x428a2f98d728ae22), UINT64_C(0x7137449123ef65cd), UINT64_C(0xb5c0fbcfec4d3b2f),
    UINT64_C(0xe9b5dba58189dbbc), UINT64_C(0x3956c25bf348b538), UINT64_C(0x59f111f1b605d019),
    UINT64_C(0x923f82a4af194f9b), UINT64_C(0xab1c5ed5da6d8118), UINT64_C(0xd807aa98a3030242),
    UINT64_C(0x12835b0145706fbe), UINT64_C(0x243185be4ee4b28c), UINT64_C(0x550c7dc3d5ffb4e2),
    UINT64_C(0x72be5d74f27b896f), UINT64_C(0x80deb1fe3b1696b1), UINT64_C(0x9bdc06a725c71235),
    UINT64_C(0xc19bf174cf692694), UINT64_C(0xe49b69c19ef14ad2), UINT64_C(0xefbe4786384f25e3),
    UINT64_C(0x0fc19dc68b8cd5b5), UINT64_C(0x240ca1cc77ac9c65), UINT64_C(0x2de92c6f592b0275),
    UINT64_C(0x4a7484aa6ea6e483), UINT64_C(0x5cb0a9dcbd41fbd4), UINT64_C(0x76f988da831153b5),
    UINT64_C(0x983e5152ee66dfab), UINT64_C(0xa831c66d2db43210), UINT64_C(0xb00327c898fb213f),
    UINT64_C(0xbf597fc7beef0ee4), UINT64_C(0xc6e00bf33da88fc2), UINT64_C(0xd5a79147930aa725),
    UINT64_C(0x06ca6351e003826f), UINT64_C(0x142929670a0e6e70), UINT64_C(0x27b70a8546d22ffc),
    UINT64_C(0x2e1b21385c26c926), UINT64_C(0x4d2c6dfc5ac42aed), UINT64_C(0x53380d139d95b3df),
    UINT64_C(0x650a73548baf63de), UINT64_C(0x766a0abb3c77b2a8), UINT64_C(0x81c2c92e47edaee6),
    UINT64_C(0x92722c851482353b), UINT64_C(0xa2bfe8a14cf10364), UINT64_C(0xa81a664bbc423001),
    UINT64_C(0xc24b8b70d0f89791), UINT64_C(0xc76c51a30654be30), UINT64_C(0xd192e819d6ef5218),
    UINT64_C(0xd69906245565a910), UINT64_C(0xf40e35855771202a), UINT64_C(0x106aa07032bbd1b8),
    UINT64_C(0x19a4c116b8d2d0c8), UINT64_C(0x1e376c085141ab53), UINT64_C(0x2748774cdf8eeb99),
    UINT64_C(0x34b0bcb5e19b48a8), UINT64_C(0x391c0cb3c5c95a63), UINT64_C(0x4ed8aa4ae3418acb),
    UINT64_C(0x5b9cca4f7763e373), UINT64_C(0x682e6ff3d6b2b8a3), UINT64_C(0x748f82ee5defb2fc),
    UINT64_C(0x78a5636f43172f60), UINT64_C(0x84c87814a1f0ab72), UINT64_C(0x8cc702081a6439ec),
    UINT64_C(0x90befffa23631e28), UINT64_C(0xa4506cebde82bde9), UINT64_C(0xbef9a3f7b2c67915),
    UINT64_C(0xc67178f2e372532b), UINT64_C(0xca273eceea26619c), UINT64_C(0xd186b8c721c0c207),
    UINT64_C(0xeada7dd6cde0eb1e), UINT64_C(0xf57d4f7fee6ed178), UINT64_C(0x06f067aa72176fba),
    UINT64_C(0x0a637dc5a2c898a6), UINT64_C(0x113f9804bef90dae), UINT64_C(0x1b710b35131c471b),
    UINT64_C(0x28db77f523047d84), UINT64_C(0x32caab7b40c72493), UINT64_C(0x3c9ebe0a15c9bebc),
    UINT64_C(0x431d67c49c100d4c), UINT64_C(0x4cc5d4becb3e42b6), UINT64_C(0x597f299cfc657e2a),
    UINT64_C(0x5fcb6fab3ad6faec), UINT64_C(0x6c44198c4a475817),
};

typedef struct ep_sha512 {
    uint64_t state[8];
    uint64_t nbytes;
    unsigned char block[128];
} ep_sha512;

static inline uint64_t ep_rotate64(uint64_t x, unsigned n) {
    return x >> n | x << (64u - n);
}

static void ep_sha512_block(uint64_t state[8], const unsigned char *p) {
    uint64_t w[16];
    uint64_t v[8];
    for (int i = 0; i < 16; i++) {
        w[i] = 0;
        for (int k = 0; k < 8; k++) {
            w[i] = w[i] << 8 | *p++;
        }
    }
    ep_copy(v, state, sizeof v);
    for (int i = 0; i < 80; i++) {
        uint64_t *now = &w[i % 16];
        if (i >= 16) {
            uint64_t a = w[(i + 1) % 16];
            uint64_t b = w[(i + 14) % 16];
            *now += (ep_rotate64(a, 1) ^ ep_rotate64(a, 8) ^ a >> 7) + w[(i + 9) % 16] +
                    (ep_rotate64(b, 19) ^ ep_rotate64(b, 61) ^ b >> 6);
        }
        uint64_t s1 = ep_rotate64(v[4], 14) ^ ep_rotate64(v[4], 18) ^ ep_rotate64(v[4], 41);
        uint64_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + ep_sha512_k[i] + *now;
        uint64_t s0 = ep_rotate64(v[0], 28) ^ ep_rotate64(v[0], 34) ^ ep_rotate64(v[0], 39);
        uint64_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        for (int k = 7; k > 0; k--) {
            v[k] = v[k - 1];
        }
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += v[i];
    }
}

static void ep_sha512_init(ep_sha512 *hash) {
    static const uint64_t start[8] = {
        UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
        UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
        UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
    };
    ep_copy(hash->state, start, sizeof start);
    hash->nbytes = 0;
}

static void ep_sha512_update(ep_sha512 *hash, const unsigned char *data, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) {
        hash->block[hash->nbytes++ % 128] = data[i];
        if (hash->nbytes % 128 == 0) {
            ep_sha512_block(hash->state, hash->block);
        }
    }
}

static void ep_sha512_final(ep_sha512 *hash, unsigned char digest[64]) {
    static const unsigned char padding[128] = {0x80};
    unsigned char length[16] = {0};
    uint64_t bits = hash->nbytes * 8;
    for (unsigned i = 0; i < 8; i++) {
        length[8 + i] = (unsigned char)(bits >> (56 - 8 * i));
    }
    ep_sha512_update(hash, padding, 1 + (size_t)((239 - hash->nbytes % 128) % 128));
    ep_sha512_update(hash, length, sizeof length);
    for (unsigned i = 0; i < 64; i++) {
        digest[i] = (unsigned char)(hash->state[i / 8] >> (56 - 8 * (i % 8)));
    }
}

/* ---- Numbers modulo p: eight words, the lowest first, of any value below 2^256 ---- */

typedef struct ep_field {
    uint32_t w[8];
} ep_field;

static const ep_field ep_field_zero = {{0, 0, 0, 0, 0, 0, 0, 0}};
static const ep_field ep_field_one = {{1, 0, 0, 0, 0, 0, 0, 0}};
static const ep_field ep_field_d = {
    {0x135978a3u, 0x75eb4dcau, 0x4141d8abu, 0x00700a4du, 0x7779e898u, 0x8cc74079u, 0x2b6ffe73u, 0x52036ceeu}};
static const ep_field ep_field_2d = {
    {0x26b2f159u, 0xebd69b94u, 0x8283b156u, 0x00e0149au, 0xeef3d130u, 0x198e80f2u, 0x56dffce7u, 0x2406d9dcu}};
static const ep_field ep_field_root = {{0x4a0ea0b0u, 0xc4ee1b27u, 0xad2fe478u, 0x2f431806u, 0x3dfbd7a7u,
                                        0x2b4d0099u, 0x4fc1df0bu, 0x2b832480u}}; /* of -1 */

static uint32_t ep_field_word(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Adds carry * 2^256, which is carry * 38. */
static void ep_field_carry(ep_field *r, uint64_t carry) {
    while (carry != 0) {
        carry *= 38;
        for (int i = 0; i < 8; i++) {
            carry += r->w[i];
            r->w[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
}

static void ep_field_add(ep_field *r, const ep_field *a, const ep_field *b) {
    uint64_t carry = 0;
    for (int i = 0; i < 8; i++) {
        carry += (uint64_t)a->w[i] + b->w[i];
        r->w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    ep_field_carry(r, carry);
}

static void ep_field_subtract(ep_field *r, const ep_field *a, const ep_field *b) {
    uint64_t borrow = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t difference = ((uint64_t)1 << 32) + a->w[i] - b->w[i] - borrow;
        r->w[i] = (uint32_t)difference;
        borrow = 1 - (difference >> 32);
    }
    while (borrow != 0) { /* 2^256 too much, which is 38 */
        borrow = 38;
        for (int i = 0; i < 8; i++) {
            uint64_t difference = ((uint64_t)1 << 32) + r->w[i] - borrow;
            r->w[i] = (uint32_t)difference;
            borrow = 1 - (difference >> 32);
        }
    }
}

static void ep_field_multiply(ep_field *r, const ep_field *a, const ep_field *b) {
    uint32_t product[16] = {0};
    uint64_t carry = 0;
    for (int i = 0; i < 8; i++) {
        carry = 0;
        for (int k = 0; k < 8; k++) {
            carry += (uint64_t)a->w[i] * b->w[k] + product[i + k];
            product[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        product[i + 8] = (uint32_t)carry;
    }
    carry = 0;
    for (int i = 0; i < 8; i++) {
        carry += (uint64_t)product[i + 8] * 38 + product[i];
        r->w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    ep_field_carry(r, carry);
}

/* a to the power of a number whose 32 bytes are `low`, thirty times 255, and `high`. */
static void ep_field_power(ep_field *r, const ep_field *a, unsigned low, unsigned high) {
    ep_field result = ep_field_one;
    for (int bit = 255; bit >= 0; bit--) {
        unsigned byte = bit < 8 ? low : bit < 248 ? 255u : high;
        ep_field_multiply(&result, &result, &result);
        if ((byte >> (bit % 8) & 1u) != 0) {
            ep_field_multiply(&result, &result, a);
        }
    }
    *r = result;
}

/* The least value, as 32 bytes. */
static void ep_field_bytes(const ep_field *a, unsigned char bytes[32]) {
    ep_field r = *a;
    for (int round = 0; round < 2; round++) {
        /* Twice: what 2^255 and more is, is 19 and more; then what p and more is. */
        ep_field more = r;
        uint64_t carry = round == 0 ? 0 : 19;
        for (int i = 0; i < 8; i++) {
            carry += more.w[i];
            more.w[i] = (uint32_t)carry;
            carry >>= 32;
        }
        if (more.w[7] >> 31 != 0) {
            carry = round == 0 ? 19 : 0;
            more.w[7] &= 0x7fffffffu;
            for (int i = 0; i < 8; i++) {
                carry += more.w[i];
                r.w[i] = (uint32_t)carry;
                carry >>= 32;
            }
        }
    }
    for (unsigned i = 0; i < 32; i++) {
        bytes[i] = (unsigned char)(r.w[i / 4] >> (8 * (i % 4)));
    }
}

static int ep_field_equal(const ep_field *a, const ep_field *b) {
    unsigned char x[32];
    unsigned char y[32];
    ep_field_bytes(a, x);
    ep_field_bytes(b, y);
    return ep_equal(x, y, sizeof x);
}

/* ---- Points: x = X/Z, y = Y/Z, x y = T/Z ---- */

typedef struct ep_point {
    ep_field x;
    ep_field y;
    ep_field z;
    ep_field t;
} ep_point;

static const ep_point ep_point_base = {
    {{0x8f25d51au, 0xc9562d60u, 0x9525a7b2u, 0x692cc760u, 0xfdd6dc5cu, 0xc0a4e231u, 0xcd6e53feu,
      0x216936d3u}},
    {{0x66666658u, 0x66666666u, 0x66666666u, 0x66666666u, 0x66666666u, 0x66666666u, 0x66666666u,
      0x66666666u}},
    {{1, 0, 0, 0, 0, 0, 0, 0}},
    {{0xa5b7dda3u, 0x6dde8ab3u, 0x775152f5u, 0x20f09f80u, 0x64abe37du, 0x66ea4e8eu, 0xd78b7665u,
      0x67875f0fu}},
};

/* Hisil, Wong, Carter and Dawson (2008), 3.1: for all points, equal ones too. */
static void ep_point_add(ep_point *r, const ep_point *p, const ep_point *q) {
    ep_field a, b, c, d, e;
    ep_field_subtract(&a, &p->y, &p->x);
    ep_field_subtract(&e, &q->y, &q->x);
    ep_field_multiply(&a, &a, &e);
    ep_field_add(&b, &p->y, &p->x);
    ep_field_add(&e, &q->y, &q->x);
    ep_field_multiply(&b, &b, &e);
    ep_field_multiply(&c, &p->t, &q->t);
    ep_field_multiply(&c, &c, &ep_field_2d);
    ep_field_multiply(&d, &p->z, &q->z);
    ep_field_add(&d, &d, &d);
    ep_field_subtract(&e, &b, &a); /* E */
    ep_field_add(&b, &b, &a);      /* H */
    ep_field_subtract(&a, &d, &c); /* F */
    ep_field_add(&c, &d, &c);      /* G */
    ep_field_multiply(&r->x, &e, &a);
    ep_field_multiply(&r->y, &c, &b);
    ep_field_multiply(&r->t, &e, &b);
    ep_field_multiply(&r->z, &a, &c);
}

/* The negative of a point from its 32 bytes; 0 where they are none, or not written as its least number. */
static int ep_point_read_negative(ep_point *r, const unsigned char bytes[32]) {
    unsigned char written[32];
    ep_field u, v, power, check;
    unsigned sign = bytes[31] >> 7;
    for (unsigned i = 0; i < 8; i++) {
        r->y.w[i] = ep_field_word(bytes + 4 * i);
    }
    r->y.w[7] &= 0x7fffffffu;
    ep_field_bytes(&r->y, written);
    written[31] = (unsigned char)(written[31] | sign << 7);
    if (!ep_equal(written, bytes, sizeof written)) {
        return 0;
    }
    /* x^2 = u/v = (y^2 - 1) / (d y^2 + 1); x = u v^3 (u v^7)^((p - 5) / 8), or that times the root of -1. */
    ep_field_multiply(&u, &r->y, &r->y);
    ep_field_multiply(&v, &u, &ep_field_d);
    ep_field_subtract(&u, &u, &ep_field_one);
    ep_field_add(&v, &v, &ep_field_one);
    ep_field_multiply(&power, &v, &v);
    ep_field_multiply(&power, &power, &v);
    ep_field_multiply(&r->x, &power, &u);
    ep_field_multiply(&power, &power, &r->x);
    ep_field_multiply(&power, &power, &v);
    ep_field_power(&power, &power, 0xfd, 0x0f);
    ep_field_multiply(&r->x, &r->x, &power);
    ep_field_multiply(&check, &r->x, &r->x);
    ep_field_multiply(&check, &check, &v);
    if (!ep_field_equal(&check, &u)) {
        ep_field_add(&check, &check, &u);
        if (!ep_field_equal(&check, &ep_field_zero)) {
            return 0;
        }
        ep_field_multiply(&r->x, &r->x, &ep_field_root);
    }
    ep_field_bytes(&r->x, written);
    if (sign != 0 && ep_field_equal(&r->x, &ep_field_zero)) {
        return 0;
    }
    if ((written[0] & 1u) == sign) {
        ep_field_subtract(&r->x, &ep_field_zero, &r->x);
    }
    r->z = ep_field_one;
    ep_field_multiply(&r->t, &r->x, &r->y);
    return 1;
}

/* ---- Scalars modulo L ---- */

static const uint32_t ep_scalar_order[9] = {0x5cf5d3edu, 0x5812631au, 0xa2f79cd6u,
                                            0x14def9deu, 0x00000000u, 0x00000000u,
                                            0x00000000u, 0x10000000u, 0};

/* Subtracts L if the number is not less; returns whether it was not. */
static int ep_scalar_subtract(uint32_t n[9]) {
    uint32_t result[9];
    uint64_t borrow = 0;
    for (int i = 0; i < 9; i++) {
        uint64_t difference = ((uint64_t)1 << 32) + n[i] - ep_scalar_order[i] - borrow;
        result[i] = (uint32_t)difference;
        borrow = 1 - (difference >> 32);
    }
    if (borrow == 0) {
        ep_copy(n, result, sizeof result);
    }
    return borrow == 0;
}

/* A number of so many bytes, the lowest first, modulo L. */
static void ep_scalar_read(uint32_t n[9], const unsigned char *bytes, unsigned count) {
    for (int i = 0; i < 9; i++) {
        n[i] = 0;
    }
    for (unsigned bit = 8 * count; bit-- > 0;) {
        uint32_t carry = (uint32_t)bytes[bit / 8] >> (bit % 8) & 1u;
        for (int i = 0; i < 9; i++) {
            uint32_t top = n[i] >> 31;
            n[i] = n[i] << 1 | carry;
            carry = top;
        }
        (void)ep_scalar_subtract(n);
    }
}

/* 1 if the signature is that of the key's owner over the message, else 0. */
static int ep_ed25519_verify(const unsigned char signature[64], const unsigned char key[32],
                             const unsigned char *message, size_t nbytes) {
    unsigned char digest[64];
    uint32_t s[9] = {0};
    uint32_t h[9];
    ep_sha512 hash;
    ep_point sum = {ep_field_zero, ep_field_one, ep_field_one, ep_field_zero};
    ep_point table[3]; /* B, -A, B - A */
    for (unsigned i = 0; i < 8; i++) {
        s[i] = ep_field_word(signature + 32 + 4 * i);
    }
    table[0] = ep_point_base;
    if (ep_scalar_subtract(s) || !ep_point_read_negative(&table[1], key)) {
        return 0;
    }
    ep_point_add(&table[2], &table[0], &table[1]);
    ep_sha512_init(&hash);
    ep_sha512_update(&hash, signature, 32);
    ep_sha512_update(&hash, key, 32);
    ep_sha512_update(&hash, message, nbytes);
    ep_sha512_final(&hash, digest);
    ep_scalar_read(h, digest, sizeof digest);
    for (int bit = 252; bit >= 0; bit--) {
        unsigned which = (s[bit / 32] >> (bit % 32) & 1u) | (h[bit / 32] >> (bit % 32) & 1u) << 1;
        ep_point_add(&sum, &sum, &sum);
        if (which != 0) {
            ep_point_add(&sum, &sum, &table[which - 1]);
        }
    }
    /* s B - h A, as R is written. */
    ep_field inverse;
    ep_field_power(&inverse, &sum.z, 0xeb, 0x7f);
    ep_field_multiply(&sum.x, &sum.x, &inverse);
    ep_field_multiply(&sum.y, &sum.y, &inverse);
    ep_field_bytes(&sum.x, digest);
    unsigned odd = digest[0] & 1u;
    ep_field_bytes(&sum.y, digest);
    digest[31] = (unsigned char)(digest[31] | odd << 7);
    return ep_equal(digest, signature, 32);
}
