/* The loader: the program of a bundle that runs its model, proves its results and measures it. It prints one
 * JSON object (verify on a terminal: a line) and exits with 0 (done), 1 (what was asked about failed: outputs
 * differ, params are damaged) or 2 (it could not be done). SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_LOADER_H
#define EDGEPACK_LOADER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <edgepack/runtime.h>

#include "loader/compare.h"

enum { LOADER_OK = 0, LOADER_FAILED = 1, LOADER_ERROR = 2, LOADER_PATH = 4096, LOADER_BESIDE = 16 };

/* ---- system.c: what differs between systems ---- */

uint64_t system_now_ns(void);                   /* monotonic */
uint64_t system_cpu_ns(void);                   /* CPU time of this process so far; 0 if unknown */
uint64_t system_peak_rss(void);                 /* bytes; 0 if unknown */
FILE *system_read(const char *path);            /* in UTF-8; null for what is no regular file */
FILE *system_write(const char *path);           /* in UTF-8 */
char **system_arguments(int argc, char **argv); /* in UTF-8; null if memory ran out */
int system_terminal(void);                      /* whether a person reads stdout */

/* Folder of this program, with a separator at its end; "" if it cannot be found. Returns `path`. */
char *system_program_folder(const char *argv0, char *path, size_t capacity);

/* ---- json.c: one JSON object on stdout ---- */

typedef struct json {
    FILE *out;
    int comma; /* one must stand before the next member */
} json;

void json_open(json *to, const char *key, char bracket);
void json_close(json *to, char bracket);
void json_text(json *to, const char *key, const char *value);
void json_u64(json *to, const char *key, uint64_t value);
void json_i64(json *to, const char *key, int64_t value);
void json_bool(json *to, const char *key, int value);
void json_real(json *to, const char *key, double value); /* null unless finite */
void json_hex(json *to, const char *key, const unsigned char *bytes, size_t count);

/* Prints {"status": "error", "code": ..., "message": ...}, message and subject joined. Returns LOADER_ERROR.
 */
int report_error(const char *code, const char *message, const char *subject);
void report_in_words(void);         /* makes it print a line for a person from now on */
void print_words(const char *text); /* what may be others' text, with nothing that acts on a terminal */
int report_status(ep_status status);

/* Which variant of the library was taken, if it has several, and what it runs on. */
void report_variant(json *to, const ep_model *model);

/* ---- files.c: buffers and the files that fill them ---- */

typedef struct tensors {
    const ep_descriptor *model;
    ep_buffer *inputs;
    ep_buffer *outputs;
    ep_const_buffer *run_inputs; /* the inputs as a run takes them */
    void **blocks;               /* what was allocated */
    size_t skew;
} tensors;

enum { TENSORS_GUARD = 64 }; /* bytes before and after each buffer that nothing may change */

/* Allocates all inputs and outputs, filled with zeros. `skewed` aligns each to its element and no more, else
 * to 64 bytes. Returns nonzero if memory ran out. */
int tensors_make(tensors *to, const ep_descriptor *model, int skewed);
void tensors_free(tensors *of);
int tensors_guards_intact(const tensors *of);

/* All of a file, null if it cannot be read or has over 16 MiB; a zero byte that is not counted follows. */
char *file_read(const char *path, size_t *nbytes);

/* Reads exactly the tensor's bytes from a file. Returns LOADER_OK, or reports what is wrong. */
int tensor_load(const ep_buffer *tensor, const char *path);

/* <folder>/<kind>_<index>.bin of each buffer. */
int tensors_load(const ep_buffer *to, size_t count, const char *folder, const char *kind);

/* Small values that are valid for any model: fractions for floating point, 0 and 1 for the others. */
void tensors_fill(const tensors *to);

/* ---- tolerances.c ---- */

/* Reads `count` lines "atol rtol". Returns 0, or the number of the first line that is wrong. */
size_t tolerances_parse(const char *text, size_t nbytes, tolerance *to, size_t count);

/* ---- the commands ---- */

typedef struct command {
    const ep_descriptor *model;
    const char *params; /* null: embedded */
    const char *folder; /* recorded data, or null */
    uint32_t threads;
    uint32_t schedule;
    uint64_t warmup;
    uint64_t runs;
    uint64_t turns;
    uint64_t seconds; /* after which no turn begins; 0: no end */
    int profile;
    int words; /* what verify found is told in words */
    uint32_t beside_count;
    const ep_descriptor *beside[LOADER_BESIDE]; /* variants that are measured in turns with `model` */
    uint64_t start_ns;                          /* of the process */
    int argc;                                   /* all arguments after the command's name */
    char **argv;
} command;

int command_verify(const command *what);
int command_bench(const command *what);
int command_turns(const command *what); /* of bench, with variants beside */

uint64_t loader_median(uint64_t *values, size_t count); /* sorts them; of at least one */

#endif
