/* The params file: a header, a table of its tensors, and, at a multiple of 4096, the tensors' data;
 * firmware's has no table, and its data are at a multiple of 64. All numbers are little-endian.
 * edgepack/render/params_file.py writes it; docs/reference/bundle.md describes it.
 *
 *   offset  bytes
 *        0      8  magic "EPPARAMS"
 *        8      4  format version
 *       12      4  header bytes: header, table, names and shapes
 *       16      8  file bytes = data offset + data bytes
 *       24      8  data offset
 *       32      8  data bytes
 *       40      4  number of tensors
 *       44      4  bytes of a table entry
 *       48     32  params id: SHA-256 of the data
 *       80     32  SHA-256 of the header bytes, these 32 taken as zero
 *      112      4  where in the header a signature of 64 bytes lies; 0: nowhere
 *      116      4  zero
 *      120      8  version: not 0 only with a signature, which is over it too
 *      128         table; an entry: name offset, name bytes, dtype, rank, shape offset, zero (4 bytes each;
 *                   offsets from the start of the file), data offset, bytes (8 each; from the start of the
 *                   data), SHA-256
 *
 * SPDX-License-Identifier: Apache-2.0 */
enum {
    EP_PARAMS_VERSION = 1,
    EP_PARAMS_HEADER = 128,
    EP_PARAMS_ENTRY = 72,
    EP_PARAMS_ID = 48,
    EP_PARAMS_DIGEST = 80,
    EP_PARAMS_SIGNATURE = 112,
    EP_PARAMS_RELEASE = 120,
    EP_MOST_PARAMS_IDS = 4096 /* that a caller may list */
};

typedef struct ep_params_header {
    uint64_t header_bytes;
    uint64_t file_bytes;
    uint64_t data_offset;
    uint64_t data_bytes;
    uint64_t count;
} ep_params_header;

static uint32_t ep_read_u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t ep_read_u64(const unsigned char *p) {
    return (uint64_t)ep_read_u32(p) | (uint64_t)ep_read_u32(p + 4) << 32;
}

/* Reads the fixed part of the header and checks it against itself and the number of bytes that are there. */
static ep_status ep_params_read(const unsigned char *image, size_t nbytes, ep_params_header *header) {
    static const unsigned char magic[8] = {'E', 'P', 'P', 'A', 'R', 'A', 'M', 'S'};
    if (nbytes >= sizeof magic && !ep_equal(image, magic, sizeof magic)) {
        return EP_E_PARAMS_MAGIC;
    }
    if (nbytes < EP_PARAMS_HEADER) {
        return EP_E_PARAMS_TRUNCATED;
    }
    if (ep_read_u32(image + 8) != EP_PARAMS_VERSION) {
        return EP_E_PARAMS_VERSION;
    }
    header->header_bytes = ep_read_u32(image + 12);
    header->file_bytes = ep_read_u64(image + 16);
    header->data_offset = ep_read_u64(image + 24);
    header->data_bytes = ep_read_u64(image + 32);
    header->count = ep_read_u32(image + 40);
    if (header->header_bytes < EP_PARAMS_HEADER || header->header_bytes > header->data_offset ||
        header->data_offset % EP_ALIGNMENT != 0 || header->data_bytes > UINT64_MAX - header->data_offset ||
        header->file_bytes != header->data_offset + header->data_bytes ||
        ep_read_u32(image + 44) != EP_PARAMS_ENTRY ||
        header->count > (header->header_bytes - EP_PARAMS_HEADER) / EP_PARAMS_ENTRY) {
        return EP_E_PARAMS_CORRUPT;
    }
    if (nbytes < header->file_bytes) {
        return EP_E_PARAMS_TRUNCATED;
    }
    return nbytes == header->file_bytes ? EP_OK : EP_E_PARAMS_CORRUPT;
}

#if defined(EP_PARAMS_PIECES)
/* A piece of the library's own params in a memory of its own; EP_PARAMS_ID_BYTES before its data lies the
 * params' id, but for the first, whose header has it. */
typedef struct ep_params_piece {
    const unsigned char *data;
    size_t nbytes;
} ep_params_piece;

enum { EP_PARAMS_ID_BYTES = 64 };

/* Of model.c: EP_PARAMS_PIECES of them, in the order of the data. */
static const ep_params_piece *ep_params_pieces(void);

/* Whether the params are the library's own, and all pieces of one pack: memories may be programmed one by
 * one. */
static int ep_params_whole(const ep_descriptor *descriptor, const unsigned char *image) {
    int whole = image == descriptor->embedded_params;
    for (size_t i = 1; whole && i < EP_PARAMS_PIECES; i++) {
        whole = ep_equal(ep_params_pieces()[i].data - EP_PARAMS_ID_BYTES, image + EP_PARAMS_ID, 32);
    }
    return whole;
}
#endif

#if defined(EP_PARAMS_KEY)
/* Whether the key that the library trusts signed the params, for its layout and with this version. */
static int ep_params_signed(const unsigned char *image, const ep_params_header *header) {
    static const unsigned char key[32] = EP_PARAMS_KEY;
    static const unsigned char layout[32] = EP_PARAMS_LAYOUT;
    /* What is signed: what it is for, which layout, which data; and the version, if there is one. */
    unsigned char message[88] = "edgepack params";
    uint32_t at = ep_read_u32(image + EP_PARAMS_SIGNATURE);
    size_t nbytes = ep_read_u64(image + EP_PARAMS_RELEASE) == 0 ? 80 : 88;
    ep_copy(message + 16, layout, sizeof layout);
    ep_copy(message + 48, image + EP_PARAMS_ID, 32);
    ep_copy(message + 80, image + EP_PARAMS_RELEASE, 8);
    return at >= EP_PARAMS_HEADER && header->header_bytes >= 64 && at <= header->header_bytes - 64 &&
           ep_ed25519_verify(image + at, key, message, nbytes);
}
#endif

static int ep_params_listed(const unsigned char *image, const ep_open_options *options) {
    int found = 0;
    for (size_t i = 0; i < options->params_id_count; i++) {
        found |= ep_equal(options->params_ids + 32 * i, image + EP_PARAMS_ID, 32);
    }
    return found;
}

/* Whether the params may be used: the caller lists them, or they are the library's own, or of the same layout
 * and signed; and new enough. The library's own have version 0 unless they are signed with another one. */
static ep_status ep_params_trusted(const ep_descriptor *descriptor, const unsigned char *image,
                                   const ep_params_header *header, const ep_open_options *options) {
    int own = ep_equal(image + EP_PARAMS_ID, descriptor->params_id, sizeof descriptor->params_id);
    if (header->data_bytes != descriptor->params_bytes) {
        return EP_E_PARAMS_MODEL;
    }
    if (ep_params_listed(image, options) || (own && options->params_version == 0)) {
        return EP_OK;
    }
#if defined(EP_PARAMS_KEY)
    if (ep_params_signed(image, header)) {
        return ep_read_u64(image + EP_PARAMS_RELEASE) >= options->params_version ? EP_OK : EP_E_PARAMS_OLD;
    }
    return own ? EP_E_PARAMS_OLD : EP_E_PARAMS_SIGNATURE;
#else
    return own ? EP_E_PARAMS_OLD : EP_E_PARAMS_MODEL;
#endif
}

/* Whether the data have the id that the header says. */
static ep_status ep_params_hash(const unsigned char *image, const ep_params_header *header) {
    unsigned char digest[32];
    ep_sha256 hash;
    ep_sha256_init(&hash);
#if defined(EP_PARAMS_PIECES)
    (void)header;
    for (size_t i = 0; i < EP_PARAMS_PIECES; i++) {
        ep_sha256_update(&hash, ep_params_pieces()[i].data, ep_params_pieces()[i].nbytes);
    }
#else
    ep_sha256_update(&hash, image + (size_t)header->data_offset, (size_t)header->data_bytes);
#endif
    ep_sha256_final(&hash, digest);
    return ep_equal(digest, image + EP_PARAMS_ID, sizeof digest) ? EP_OK : EP_E_PARAMS_HASH;
}

/* Whether opening hashes all data: wherever params may be others than the library's own, and where kernels
 * believe numbers of the params. What lies in the library is as good as the library. */
static int ep_params_hashed(const ep_descriptor *descriptor, const unsigned char *image) {
#if defined(EP_PARAMS_KEY) || defined(EP_PARAMS_PLACES)
    return image != descriptor->embedded_params;
#else
    return !ep_equal(image + EP_PARAMS_ID, descriptor->params_id, sizeof descriptor->params_id);
#endif
}

/* The checks of loading: constant time, unless the library trusts a key, the caller lists the params, or
 * kernels believe numbers of theirs. */
static ep_status ep_params_attach(const ep_descriptor *descriptor, const unsigned char *image, size_t nbytes,
                                  const ep_open_options *options, ep_model *model) {
    ep_params_header header;
    ep_status status = ep_params_read(image, nbytes, &header);
    if (status == EP_OK) {
        status = ep_params_trusted(descriptor, image, &header, options);
    }
#if defined(EP_PARAMS_PIECES)
    if (status == EP_OK && !ep_params_whole(descriptor, image)) {
        status = EP_E_PARAMS_MODEL;
    }
#endif
    if (status == EP_OK && ep_params_hashed(descriptor, image)) {
        status = ep_params_hash(image, &header);
    }
    if (status != EP_OK) {
        return status;
    }
    if ((uintptr_t)image % EP_ALIGNMENT != 0) {
        return EP_E_ALIGNMENT;
    }
    model->params = image + (size_t)header.data_offset;
    model->image = image;
    model->image_bytes = nbytes;
    return EP_OK;
}

/* Whether [offset, offset + nbytes) lies within [low, high). */
static int ep_within(uint64_t offset, uint64_t nbytes, uint64_t low, uint64_t high) {
    return offset >= low && offset <= high && nbytes <= high - offset;
}

static int ep_params_entry_ok(const unsigned char *image, const ep_params_header *header, uint64_t index) {
    const unsigned char *entry = image + EP_PARAMS_HEADER + (size_t)index * EP_PARAMS_ENTRY;
    uint64_t pool = EP_PARAMS_HEADER + header->count * EP_PARAMS_ENTRY;
    uint64_t shape_bytes = (uint64_t)ep_read_u32(entry + 12) * 8;
    return ep_within(ep_read_u32(entry), ep_read_u32(entry + 4), pool, header->header_bytes) &&
           ep_dtype_bytes(ep_read_u32(entry + 8)) != 0 &&
           ep_within(ep_read_u32(entry + 16), shape_bytes, pool, header->header_bytes) &&
           ep_within(ep_read_u64(entry + 24), ep_read_u64(entry + 32), 0, header->data_bytes) &&
           ep_read_u64(entry + 24) % EP_ALIGNMENT == 0;
}

/* Everything that a changed byte could be in: the header and table, the zeros before the data, the data. */
static ep_status ep_params_check(const unsigned char *image, size_t nbytes) {
    static const unsigned char zero[32];
    unsigned char digest[32];
    ep_params_header header;
    ep_sha256 hash;
    ep_status status = ep_params_read(image, nbytes, &header);
    if (status != EP_OK) {
        return status;
    }
    ep_sha256_init(&hash);
    ep_sha256_update(&hash, image, EP_PARAMS_DIGEST);
    ep_sha256_update(&hash, zero, sizeof zero);
    ep_sha256_update(&hash, image + EP_PARAMS_DIGEST + 32,
                     (size_t)header.header_bytes - EP_PARAMS_DIGEST - 32);
    ep_sha256_final(&hash, digest);
    if (!ep_equal(image + EP_PARAMS_DIGEST, digest, sizeof digest)) {
        return EP_E_PARAMS_HASH;
    }
    for (uint64_t i = 0; i < header.count; i++) {
        if (!ep_params_entry_ok(image, &header, i)) {
            return EP_E_PARAMS_CORRUPT;
        }
    }
    for (uint64_t i = header.header_bytes; i < header.data_offset; i++) {
        if (image[i] != 0) {
            return EP_E_PARAMS_HASH;
        }
    }
    return ep_params_hash(image, &header);
}
