/* Fuzz target: sessions as a state machine. The bytes are calls with good and bad arguments, of several
 * sessions, in any order, some of them while memory, threads or locks cannot be had. A model of each session
 * says what a call must answer, and what a run must compute, to the bit. Linked with --wrap for what can fail
 * (WRAPPED below), and with params embedded. Not in it: fork, and what the header forbids (destroying a
 * session that runs). */
#define _GNU_SOURCE
#include "fuzz.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mini.h>

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

enum { SESSIONS = 3, THREADS = 5, STEPS = 7, NEVER = 1 << 30 };

/* WRAPPED: after so many more calls these fail. Only the thread that makes sessions looks at them. */
static int allocations = NEVER;
static int threads = NEVER;
static int locks = NEVER;

void *__real_malloc(size_t nbytes);
void *__wrap_malloc(size_t nbytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument);
int __real_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __real_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);

static int fails(int *left) {
    return *left != NEVER && (*left)-- <= 0;
}

void *__wrap_malloc(size_t nbytes) {
    return fails(&allocations) ? NULL : __real_malloc(nbytes);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument) {
    return fails(&threads) ? 11 : __real_pthread_create(thread, attributes, entry, argument);
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    return fails(&locks) ? 12 : __real_pthread_mutex_init(mutex, attributes);
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes) {
    return fails(&locks) ? 12 : __real_pthread_cond_init(condition, attributes);
}

/* What is left of the bytes; 0 after them. */
typedef struct script {
    const uint8_t *bytes;
    size_t nbytes;
} script;

static unsigned next(script *from) {
    if (from->nbytes == 0) {
        return 0;
    }
    from->nbytes--;
    return *from->bytes++;
}

static const size_t input_bytes[MINI_INPUTS] = {MINI_INPUT_DATA_ELEMENTS * sizeof(float),
                                                MINI_INPUT_SMALL_NUMBERS_ELEMENTS};
static const size_t output_bytes[MINI_OUTPUTS] = {
    MINI_OUTPUT_DATA_ELEMENTS * sizeof(float), MINI_OUTPUT_HALVES_ELEMENTS * sizeof(uint16_t),
    MINI_OUTPUT_INT_ELEMENTS, MINI_OUTPUT_X_ELEMENTS * sizeof(int64_t)};

/* Buffers of exactly the tensors' sizes, so that a sanitizer sees a byte too far. */
typedef struct buffers {
    ep_const_buffer inputs[MINI_INPUTS + 1];
    ep_buffer outputs[MINI_OUTPUTS + 1];
} buffers;

/* A session, and what is known of it. */
typedef struct slot {
    ep_session *session;
    void *memory; /* given by us */
    uint32_t threads;
    uint32_t caller_threads;
    uint32_t left; /* calls of ep_session_work until the run that was begun is over */
    int negative;  /* that run fails */
    uint64_t *ns;  /* of the steps, where they are timed */
    buffers data;
} slot;

static ep_model model;
static slot slots[SESSIONS];
static unsigned char *expected[MINI_OUTPUTS];
static size_t held; /* bytes that our allocator has given and not got back */

static void *our_allocate(void *user, size_t nbytes) {
    unsigned char *memory = *(int *)user != 0 ? NULL : __real_malloc(nbytes + 3);
    if (memory == NULL) {
        return NULL;
    }
    memset(memory, 0xee, nbytes + 3);
    held += nbytes;
    return memory + 3;
}

static void our_release(void *user, void *memory, size_t nbytes) {
    (void)user;
    held -= nbytes;
    free((unsigned char *)memory - 3);
}

static void buffers_make(buffers *to) {
    for (size_t i = 0; i < MINI_INPUTS; i++) {
        unsigned char *bytes = __real_malloc(input_bytes[i]);
        for (size_t j = 0; j < input_bytes[i]; j++) {
            bytes[j] = i == 0 ? (unsigned char)(j % 4 == 3 ? 0x3f : j * 7 % 251) : (unsigned char)(j % 4);
        }
        to->inputs[i].data = bytes;
        to->inputs[i].nbytes = input_bytes[i];
    }
    for (size_t i = 0; i < MINI_OUTPUTS; i++) {
        to->outputs[i].data = __real_malloc(output_bytes[i]);
        to->outputs[i].nbytes = output_bytes[i];
    }
}

static void buffers_poison(const buffers *of) {
    for (size_t i = 0; i < MINI_OUTPUTS; i++) {
        memset(of->outputs[i].data, 0xee, output_bytes[i]);
    }
}

static void buffers_check(const buffers *of) {
    for (size_t i = 0; i < MINI_OUTPUTS; i++) {
        EXPECT(memcmp(of->outputs[i].data, expected[i], output_bytes[i]) == 0);
    }
}

/* Once: the model, all buffers, and what one thread computes. */
static void setup(void) {
    ep_session *session = NULL;
    ep_options options = EP_OPTIONS_INIT;
    if (model.descriptor != NULL) {
        return;
    }
    options.threads = 1;
    EXPECT(mini_open(NULL, &model) == EP_OK);
    for (size_t i = 0; i < SESSIONS; i++) {
        buffers_make(&slots[i].data);
    }
    EXPECT(ep_session_create(&model, &options, &session) == EP_OK);
    const buffers *data = &slots[0].data;
    EXPECT(ep_session_run(session, data->inputs, MINI_INPUTS, data->outputs, MINI_OUTPUTS) == EP_OK);
    for (size_t i = 0; i < MINI_OUTPUTS; i++) {
        expected[i] = __real_malloc(output_bytes[i]);
        memcpy(expected[i], data->outputs[i].data, output_bytes[i]);
    }
    ep_session_destroy(session);
}

/* Makes the second input such that the model fails, or not. */
static void set_negative(const slot *of, int negative) {
    *(signed char *)(uintptr_t)of->data.inputs[1].data = negative ? -1 : 0;
}

/* A copy of the slot's buffers with one thing wrong, mostly none, and what a call with them must answer. */
static ep_status damage(script *from, const slot *of, buffers *to, size_t *inputs, size_t *outputs) {
    unsigned how = next(from);
    size_t in = how / 16 % MINI_INPUTS;
    size_t out = how / 16 % MINI_OUTPUTS;
    *to = of->data;
    *inputs = MINI_INPUTS;
    *outputs = MINI_OUTPUTS;
    switch (how % 16) {
    case 0:
        *inputs = how / 16;
        return *inputs == MINI_INPUTS ? EP_OK : EP_E_COUNT;
    case 1:
        *outputs = SIZE_MAX - how / 16;
        return EP_E_COUNT;
    case 2:
        to->inputs[in].data = NULL;
        return EP_E_NULL;
    case 3:
        to->outputs[out].data = NULL;
        return EP_E_NULL;
    case 4:
        to->inputs[in].nbytes = how / 16 % 2 ? SIZE_MAX : to->inputs[in].nbytes - 1;
        return EP_E_SIZE;
    case 5:
        to->outputs[out].nbytes += 1;
        return EP_E_SIZE;
    case 6:
        to->inputs[0].data = (const unsigned char *)to->inputs[0].data + 1 + how / 16 % 3;
        return EP_E_ALIGNMENT;
    case 7:
        to->outputs[0].data = (unsigned char *)to->outputs[0].data + 2;
        return EP_E_ALIGNMENT;
    case 8:
        to->outputs[2].data = (unsigned char *)(uintptr_t)to->inputs[1].data + how / 16 % 8;
        return EP_E_OVERLAP;
    case 9:
        to->outputs[2].data = (unsigned char *)to->outputs[3].data + how / 16;
        return EP_E_OVERLAP;
    default:
        return EP_OK;
    }
}

static void create(script *from, slot *to) {
    static const uint32_t counts[] = {1, 2, 3, 4, THREADS, 2, 0, EP_MAX_THREADS + 1, UINT32_MAX};
    ep_options options = EP_OPTIONS_INIT;
    ep_status status = EP_OK;
    ep_session *session = NULL;
    int refuse = 0;
    ep_allocator allocator = {&refuse, our_allocate, our_release};
    unsigned failure = next(from);
    unsigned place = next(from);
    if (to->session != NULL) {
        return;
    }
    options.threads = counts[next(from) % (sizeof counts / sizeof counts[0])];
    options.schedule = next(from) % 16;
    options.schedule = options.schedule < 3 ? options.schedule : options.schedule == 15 ? 3u : 0u;
    options.caller_threads = place / 32 % 2;
    options.reserved = failure == 255;
    options.struct_size -= failure == 254;
    size_t nbytes = 0;
    if (options.reserved != 0 || options.schedule > EP_SCHEDULE_DYNAMIC ||
        options.struct_size != sizeof options) {
        status = EP_E_OPTION;
    } else if (options.threads > EP_MAX_THREADS) {
        status = EP_E_THREADS;
    }
    EXPECT(ep_session_bytes(&model, &options, &nbytes) == status && (nbytes != 0) == (status == EP_OK));
    to->threads = options.threads != 0 ? options.threads : model.descriptor->default_threads;
    to->caller_threads = options.caller_threads;
    int pool = to->threads > 1 && !to->caller_threads;
    if (status == EP_OK) {
        if (place % 4 == 1) {
            to->memory = __real_malloc(nbytes + place / 4 % 8);
            memset(to->memory, 0xee, nbytes + place / 4 % 8);
            options.memory = (unsigned char *)to->memory + place / 4 % 8;
            options.memory_bytes = nbytes - (failure == 253);
            allocator.allocate = failure == 252 ? NULL : our_allocate; /* not used */
            options.allocator = failure % 2 == 0 ? &allocator : NULL;
            status = failure == 253 ? EP_E_MEMORY_SIZE : EP_OK;
        } else if (place % 4 == 2) {
            refuse = failure % 32 == 0;
            options.allocator = &allocator;
            allocator.allocate = failure == 252 ? NULL : our_allocate;
            allocator.release = failure == 251 ? NULL : our_release;
            status = failure == 252 || failure == 251 ? EP_E_NULL : refuse ? EP_E_NO_MEMORY : EP_OK;
        } else if (failure % 32 == 1) {
            allocations = 0;
            status = EP_E_NO_MEMORY;
        }
    }
    if (status == EP_OK && pool && failure % 32 == 2) {
        threads = (int)(failure / 32 % (to->threads - 1));
        status = EP_E_THREAD_START;
    } else if (status == EP_OK && pool && failure % 32 == 3) {
        locks = (int)(failure / 32 % 2);
        status = EP_E_THREAD_START;
    }
    size_t before = held;
    ep_status found = ep_session_create(&model, &options, &session);
    allocations = threads = locks = NEVER;
    EXPECT(found == status && (session != NULL) == (status == EP_OK));
    EXPECT(status == EP_OK || held == before);
    if (session == NULL) {
        free(to->memory);
        to->memory = NULL;
    }
    to->session = session;
    to->left = 0;
}

static void finish(slot *of) {
    while (of->left > 0) {
        EXPECT(ep_session_work(of->session, of->left - 1) == (of->negative ? EP_E_KERNEL : EP_OK));
        of->left--;
    }
}

static void destroy(slot *of) {
    if (of->session != NULL) {
        finish(of);
        ep_session_destroy(of->session);
    }
    free(of->memory);
    free(of->ns);
    of->session = NULL;
    of->memory = NULL;
    of->ns = NULL;
}

static void run(script *from, const slot *of) {
    buffers given;
    size_t inputs, outputs;
    int negative = next(from) % 8 == 0;
    ep_status status = damage(from, of, &given, &inputs, &outputs);
    if (of->session == NULL) {
        return;
    }
    if (of->caller_threads && of->threads > 1) {
        status = EP_E_STATE;
    } else if (status == EP_OK && of->left > 0) {
        status = EP_E_BUSY;
    }
    if (of->left == 0) {
        set_negative(of, negative);
        buffers_poison(&of->data);
    }
    if (status == EP_OK && negative) {
        status = EP_E_KERNEL;
    }
    EXPECT(ep_session_run(of->session, given.inputs, inputs, given.outputs, outputs) == status);
    if (status == EP_OK) {
        buffers_check(&of->data);
    }
}

static void begin(script *from, slot *of) {
    buffers given;
    size_t inputs, outputs;
    int negative = next(from) % 8 == 0;
    ep_status status = damage(from, of, &given, &inputs, &outputs);
    if (of->session == NULL) {
        return;
    }
    if (!of->caller_threads) {
        status = EP_E_STATE;
    } else if (status == EP_OK && of->left > 0) {
        status = EP_E_BUSY;
    }
    if (of->left == 0) {
        set_negative(of, negative);
        buffers_poison(&of->data);
    }
    EXPECT(ep_session_begin(of->session, given.inputs, inputs, given.outputs, outputs) == status);
    if (status == EP_OK) {
        of->negative = negative;
        of->left = of->threads;
    }
}

static void work(script *from, slot *of) {
    unsigned index = next(from);
    if (of->session == NULL) {
        return;
    }
    index = index >= 250 ? UINT32_MAX - (255 - index) : index % (of->threads + 1);
    ep_status status = EP_OK;
    if (index >= of->threads) {
        status = EP_E_THREADS;
    } else if (of->left == 0) {
        status = EP_E_STATE;
    } else {
        of->left--;
        status = of->negative ? EP_E_KERNEL : EP_OK;
    }
    EXPECT(ep_session_work(of->session, index) == status);
    if (status == EP_OK) {
        buffers_check(&of->data);
    }
}

static void profile(script *from, slot *of) {
    unsigned how = next(from) % 8;
    if (of->session == NULL || of->left > 0) {
        return;
    }
    if (how == 0) {
        EXPECT(ep_session_profile(of->session, NULL, STEPS) == EP_E_NULL);
    } else if (how == 1) {
        uint64_t one;
        EXPECT(ep_session_profile(of->session, &one, 1) == EP_E_COUNT);
    } else if (how < 5) {
        EXPECT(ep_session_profile(of->session, NULL, 0) == EP_OK);
        free(of->ns);
        of->ns = NULL;
    } else if (of->ns == NULL) {
        of->ns = __real_malloc(STEPS * sizeof *of->ns);
        EXPECT(ep_session_profile(of->session, of->ns, STEPS) == EP_OK);
    }
}

typedef struct call {
    const slot *of;
    buffers data;
    uint32_t index;
    ep_status status;
} call;

static void *thread_run(void *argument) {
    call *mine = argument;
    mine->status =
        ep_session_run(mine->of->session, mine->data.inputs, MINI_INPUTS, mine->data.outputs, MINI_OUTPUTS);
    return NULL;
}

static void *thread_work(void *argument) {
    call *mine = argument;
    mine->status = ep_session_work(mine->of->session, mine->index);
    return NULL;
}

/* Two threads that run one session: whoever comes second is told so. */
static void collide(slot *of) {
    call both[2] = {{of, of->data, 0, EP_E_NULL}, {of, slots[0].data, 0, EP_E_NULL}};
    pthread_t other;
    if (of->session == NULL || of->left > 0 || of->caller_threads || of == &slots[0] || slots[0].left > 0) {
        return;
    }
    set_negative(of, 0);
    set_negative(&slots[0], 0);
    EXPECT(__real_pthread_create(&other, NULL, thread_run, &both[1]) == 0);
    thread_run(&both[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        EXPECT(both[i].status == EP_OK || (both[i].status == EP_E_BUSY && both[1 - i].status == EP_OK));
        if (both[i].status == EP_OK) {
            buffers_check(&both[i].data);
        }
    }
}

/* What is left of a run that was begun, by as many threads at once. */
static void together(slot *of) {
    pthread_t others[THREADS];
    call calls[THREADS];
    if (of->session == NULL || of->left == 0 || of->left > THREADS) {
        return;
    }
    for (uint32_t i = 0; i < of->left; i++) {
        call mine = {of, of->data, i, EP_E_NULL};
        calls[i] = mine;
        EXPECT(__real_pthread_create(&others[i], NULL, thread_work, &calls[i]) == 0);
    }
    for (uint32_t i = 0; i < of->left; i++) {
        pthread_join(others[i], NULL);
        EXPECT(calls[i].status == (of->negative ? EP_E_KERNEL : EP_OK));
    }
    of->left = 0;
    if (!of->negative) {
        buffers_check(&of->data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes) {
    script from = {bytes, nbytes < 256 ? nbytes : 256};
    setup();
    while (from.nbytes > 0) {
        unsigned what = next(&from);
        slot *of = &slots[what / 16 % SESSIONS];
        switch (what % 16) {
        case 0:
        case 1:
        case 2:
            create(&from, of);
            break;
        case 3:
            destroy(of);
            break;
        case 4:
        case 5:
            begin(&from, of);
            break;
        case 6:
        case 7:
            work(&from, of);
            break;
        case 8:
            together(of);
            break;
        case 9:
            collide(of);
            break;
        case 10:
            profile(&from, of);
            break;
        default:
            run(&from, of);
        }
    }
    for (size_t i = 0; i < SESSIONS; i++) {
        destroy(&slots[i]);
    }
    EXPECT(held == 0);
    return 0;
}
