/* Runs a model on inputs of any bytes, each tensor, the params and the session's memory between pages that
 * nobody may read: argv[1] the params file, argv[2] how many runs.
 *
 * MODEL is the descriptor, HEADER its header in quotes. */
#define _GNU_SOURCE
#include HEADER

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 256 };

static uint32_t state = 1;

static uint32_t drawn(void) {
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* What lies between pages. */
static struct {
    const char *what;
    const unsigned char *data;
    size_t nbytes;
} known[4096];
static size_t count;

static void say(int number, siginfo_t *about, void *context) {
    const unsigned char *at = about->si_addr;
    (void)number;
    (void)context;
    for (size_t i = 0; i < count; i++) {
        if (at + 8192 > known[i].data && at < known[i].data + known[i].nbytes + 8192) {
            fprintf(stderr, "%s of %zu bytes: touched at %td\n", known[i].what, known[i].nbytes,
                    at - known[i].data);
        }
    }
    _exit(3);
}

/* So many bytes that begin where a page ends that cannot be read, or end where one begins. */
static unsigned char *guarded(const char *what, size_t nbytes, size_t alignment, int at_start) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (nbytes / page + 1) * page;
    unsigned char *pages =
        mmap(NULL, inside + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages, page, PROT_NONE) != 0 ||
        mprotect(pages + page + inside, page, PROT_NONE) != 0) {
        perror("mmap");
        exit(2);
    }
    pages += page + (at_start ? 0 : (inside - nbytes) / alignment * alignment);
    if (count < sizeof known / sizeof *known) {
        known[count].what = what;
        known[count].data = pages;
        known[count++].nbytes = nbytes;
    }
    return pages;
}

/* Numbers at their ends, no numbers, nearly 0, any bytes. */
static void fill(unsigned char *data, const ep_tensor *tensor, uint32_t kind) {
    static const float floats[] = {0.0f,          -0.0f,          3.4e38f, -3.4e38f, 1e-45f,
                                   2147483648.0f, -2147483648.0f, 9.3e18f, 65504.0f, 1.0f};
    size_t item = tensor->nbytes >= 4 && tensor->dtype == EP_FLOAT32 ? 4 : 1;
    unsigned char byte = (unsigned char)(kind % 4 == 1 ? 0xff : kind % 4 == 2 ? 0x80 : 0);
    for (size_t at = 0; at < tensor->nbytes; at += item) {
        if (item == 4 && kind % 4 != 3) {
            float inf = floats[2] * 10.0f, values[] = {inf, -inf, inf - inf, floats[drawn() % 10]};
            memcpy(data + at, &values[drawn() % 4 < kind % 4 ? drawn() % 4 : 3], 4);
        } else if (kind % 4 == 3) {
            data[at] = (unsigned char)drawn();
        } else {
            data[at] = byte;
        }
    }
}

static unsigned char *params(const char *path, size_t *nbytes) {
    FILE *file = fopen(path, "rb");
    unsigned char *image;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    *nbytes = (size_t)ftell(file);
    rewind(file);
    image = guarded("params", *nbytes, 64, 0);
    if (fread(image, 1, *nbytes, file) != *nbytes || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
    return image;
}

static void check(ep_status status, const char *what) {
    if (status != EP_OK) {
        fprintf(stderr, "%s: %s\n", what, ep_status_string(status));
        exit(2);
    }
}

int main(int argc, char **argv) {
    ep_model model;
    ep_const_buffer inputs[MOST];
    ep_buffer outputs[MOST];
    const ep_descriptor *it = &MODEL;
    size_t image_bytes;
    if (argc != 3 || it->input_count > MOST || it->output_count > MOST) {
        return 2;
    }
    struct sigaction action = {0};
    action.sa_sigaction = say;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    unsigned char *image = params(argv[1], &image_bytes);
    check(ep_model_open_memory(it, image, image_bytes, &model), "open");
    for (int run = 0; run < atoi(argv[2]); run++) {
        ep_options options = EP_OPTIONS_INIT;
        ep_session *session;
        options.threads = 1u + (uint32_t)run % 2u;
        check(ep_session_bytes(&model, &options, &options.memory_bytes), "bytes");
        options.memory = guarded("the session's memory", options.memory_bytes, 1, run % 2);
        check(ep_session_create(&model, &options, &session), "create");
        for (uint32_t i = 0; i < it->input_count; i++) {
            const ep_tensor *tensor = &it->inputs[i];
            unsigned char *data =
                guarded(tensor->name, tensor->nbytes, ep_dtype_bytes(tensor->dtype), run % 2);
            fill(data, tensor, (uint32_t)run + i * drawn());
            inputs[i].data = data;
            inputs[i].nbytes = tensor->nbytes;
        }
        for (uint32_t i = 0; i < it->output_count; i++) {
            outputs[i].data = guarded(it->outputs[i].name, it->outputs[i].nbytes,
                                      ep_dtype_bytes(it->outputs[i].dtype), run % 2);
            outputs[i].nbytes = it->outputs[i].nbytes;
        }
        ep_status status = ep_session_run(session, inputs, it->input_count, outputs, it->output_count);
        if (status != EP_E_KERNEL && status != EP_E_TRIPS) { /* which the inputs may be to blame for */
            check(status, "run");
        }
        ep_session_destroy(session);
    }
    ep_model_close(&model);
    puts("ran");
    return 0;
}
