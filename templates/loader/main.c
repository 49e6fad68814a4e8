/* The loader's commands: info, run and check-params; verify and bench have files of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <stdlib.h>
#include <string.h>

#include "loader/config.h"

static const char *const usage =
    "usage: info\n"
    "       verify DIR [OPTIONS] [--json]\n"
    "       bench [DIR] [OPTIONS] [--warmup W] [--runs R] [--profile]\n"
    "                             [--beside VARIANT... [--turns T] [--seconds S]]\n"
    "       run --input NAME=FILE... --output NAME=FILE... [OPTIONS]\n"
    "       check-params [--params FILE]\n"
    "OPTIONS: [--threads N] [--schedule static|dynamic] [--params FILE] [--variant NAME]\n"
    "Prints one JSON object; verify on a terminal, without --json, a line. DIR holds input_<i>.bin, "
    "output_<i>.bin and tolerances.txt.\n"
    "Exit status: 0 done, 1 outputs differ or params are damaged, 2 it could not be done.\n";

static void print_tensors(json *out, const char *key, const ep_tensor *list, uint32_t count) {
    json_open(out, key, '[');
    for (uint32_t i = 0; i < count; i++) {
        json_open(out, NULL, '{');
        json_text(out, "name", list[i].name);
        json_text(out, "dtype", ep_dtype_name(list[i].dtype));
        json_open(out, "shape", '[');
        for (uint32_t axis = 0; axis < list[i].rank; axis++) {
            json_i64(out, NULL, list[i].shape[axis]);
        }
        json_close(out, ']');
        json_u64(out, "nbytes", list[i].nbytes);
        json_close(out, '}');
    }
    json_close(out, ']');
}

/* The kinds of CPU that the library has kernels for, in the order in which they are tried. */
static void print_variants(json *out, const ep_descriptor *model) {
    char missing[512];
    json_open(out, "variants", '[');
    for (uint32_t i = 0; i < model->variant_count; i++) {
        ep_model_missing_features(model->variants[i], missing, sizeof missing);
        json_open(out, NULL, '{');
        json_text(out, "name", model->variants[i]->variant);
        json_text(out, "cpu_features", model->variants[i]->cpu_feature_names);
        json_text(out, "missing_cpu_features", missing);
        json_close(out, '}');
    }
    json_close(out, ']');
}

static int command_info(const command *what) {
    const ep_descriptor *model = what->model;
    char missing[512];
    json out = {stdout, 0};
    ep_model_missing_features(model, missing, sizeof missing);
    json_open(&out, NULL, '{');
    json_text(&out, "status", "ok");
    json_text(&out, "name", model->name);
    json_text(&out, "edgepack_version", model->edgepack_version);
    json_u64(&out, "abi_version", model->abi_version);
    print_tensors(&out, "inputs", model->inputs, model->input_count);
    print_tensors(&out, "outputs", model->outputs, model->output_count);
    json_u64(&out, "arena_bytes", model->arena_bytes);
    json_u64(&out, "scratch_bytes", model->scratch_bytes);
    json_u64(&out, "params_bytes", model->params_bytes);
    json_hex(&out, "params_id", model->params_id, sizeof model->params_id);
    json_bool(&out, "params_embedded", model->embedded_params != NULL);
    json_u64(&out, "steps", model->step_count);
    json_u64(&out, "default_threads", model->default_threads);
    json_bool(&out, "heterogeneous", (model->flags & EP_FLAG_HETEROGENEOUS) != 0);
    json_text(&out, "cpu_features", model->cpu_feature_names);
    json_text(&out, "missing_cpu_features", missing);
    print_variants(&out, model);
    json_close(&out, '}');
    fputc('\n', stdout);
    return LOADER_OK;
}

static int command_check_params(const command *what) {
    ep_model model;
    json out = {stdout, 0};
    ep_status status = ep_model_open(what->model, what->params, &model);
    if (status != EP_OK) {
        return report_status(status);
    }
    status = ep_model_check_params(&model);
    ep_model_close(&model);
    if (status != EP_OK) {
        report_status(status);
        return LOADER_FAILED;
    }
    json_open(&out, NULL, '{');
    json_text(&out, "status", "ok");
    json_hex(&out, "params_id", what->model->params_id, sizeof what->model->params_id);
    json_close(&out, '}');
    fputc('\n', stdout);
    return LOADER_OK;
}

/* FILE of the option `--input NAME=FILE` or `--output NAME=FILE` for this tensor, or null. */
static const char *file_of(const command *what, const char *option, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i + 1 < what->argc; i++) {
        const char *value = what->argv[i + 1];
        if (strcmp(what->argv[i], option) == 0 && strncmp(value, name, length) == 0 && value[length] == '=') {
            return value + length + 1;
        }
    }
    return NULL;
}

static int load_inputs(const command *what, const tensors *data) {
    for (uint32_t i = 0; i < what->model->input_count; i++) {
        const char *name = what->model->inputs[i].name;
        const char *path = file_of(what, "--input", name);
        if (path == NULL) {
            return report_error("USAGE", "run needs --input NAME=FILE for the input", name);
        }
        if (tensor_load(&data->inputs[i], path) != LOADER_OK) {
            return LOADER_ERROR;
        }
    }
    return LOADER_OK;
}

static int save_outputs(const command *what, const tensors *data) {
    for (uint32_t i = 0; i < what->model->output_count; i++) {
        const char *path = file_of(what, "--output", what->model->outputs[i].name);
        if (path == NULL) {
            continue;
        }
        FILE *file = system_write(path);
        size_t nbytes = data->outputs[i].nbytes;
        size_t written = file != NULL ? fwrite(data->outputs[i].data, 1, nbytes, file) : 0;
        if (file == NULL || fclose(file) != 0 || written != nbytes) {
            return report_error("FILE", "The file cannot be written", path);
        }
    }
    return LOADER_OK;
}

static int run_files(const command *what, const tensors *data) {
    ep_model model;
    ep_session *session = NULL;
    ep_options options = EP_OPTIONS_INIT;
    if (load_inputs(what, data) != LOADER_OK) {
        return LOADER_ERROR;
    }
    options.threads = what->threads;
    options.schedule = what->schedule;
    ep_status status = ep_model_open(what->model, what->params, &model);
    if (status != EP_OK) {
        return report_status(status);
    }
    status = ep_session_create(&model, &options, &session);
    if (status == EP_OK) {
        status = ep_session_run(session, data->run_inputs, what->model->input_count, data->outputs,
                                what->model->output_count);
    }
    ep_session_destroy(session);
    ep_model_close(&model);
    return status == EP_OK ? save_outputs(what, data) : report_status(status);
}

static int known_tensor(const ep_tensor *list, uint32_t count, const char *value) {
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(list[i].name);
        if (strncmp(value, list[i].name, length) == 0 && value[length] == '=') {
            return 1;
        }
    }
    return 0;
}

static int command_run(const command *what) {
    static const tensors empty;
    tensors data = empty;
    json out = {stdout, 0};
    int result =
        tensors_make(&data, what->model, 0) != 0 ? report_status(EP_E_NO_MEMORY) : run_files(what, &data);
    tensors_free(&data);
    if (result == LOADER_OK) {
        json_open(&out, NULL, '{');
        json_text(&out, "status", "ok");
        json_close(&out, '}');
        fputc('\n', stdout);
    }
    return result;
}

/* The variant of this name; null if there is none. */
static const ep_descriptor *variant_of(const command *what, const char *name) {
    const ep_descriptor *model = what->model->exported;
    for (uint32_t i = 0; i < model->variant_count; i++) {
        if (strcmp(model->variants[i]->variant, name) == 0) {
            return model->variants[i];
        }
    }
    return NULL;
}

/* Makes all that follows use this variant; nonzero if there is none of that name. */
static int take_variant(command *what, const char *name) {
    const ep_descriptor *variant = variant_of(what, name);
    what->model = variant != NULL ? variant : what->model;
    return variant == NULL;
}

/* Has this variant measured too; nonzero if there is none of that name, or no room. */
static int take_beside(command *what, const char *name) {
    const ep_descriptor *variant = variant_of(what, name);
    if (variant == NULL || what->beside_count == LOADER_BESIDE) {
        return 1;
    }
    what->beside[what->beside_count++] = variant;
    return 0;
}

/* A whole number of at most `most`; nonzero if it is none. */
static int read_count(const char *text, uint64_t most, uint64_t *value) {
    *value = 0;
    for (const char *p = text; *p != 0; p++) {
        if (*p < '0' || *p > '9' || *value > most) {
            return 1;
        }
        *value = *value * 10 + (uint64_t)(*p - '0');
    }
    return text[0] == 0 || *value > most;
}

/* Takes the option at argv[0] with its value at argv[1] (or null); returns how many were used, 0 if it is
 * wrong. */
static int take_option(command *what, char **argv, int argc) {
    const char *value = argc > 1 ? argv[1] : NULL;
    uint64_t number = 0;
    if (strcmp(argv[0], "--profile") == 0) {
        what->profile = 1;
        return 1;
    }
    if (strcmp(argv[0], "--json") == 0) {
        return 1; /* see wants_words */
    }
    if (argv[0][0] != '-') {
        what->folder = argv[0];
        return 1;
    }
    if (value == NULL) {
        return 0;
    }
    if (strcmp(argv[0], "--params") == 0) {
        what->params = value;
    } else if (strcmp(argv[0], "--threads") == 0 && read_count(value, EP_MAX_THREADS, &number) == 0 &&
               number > 0) {
        what->threads = (uint32_t)number;
    } else if (strcmp(argv[0], "--warmup") == 0 && read_count(value, 1000000, &number) == 0) {
        what->warmup = number;
    } else if (strcmp(argv[0], "--runs") == 0 && read_count(value, 1000000, &number) == 0 && number > 0) {
        what->runs = number;
    } else if (strcmp(argv[0], "--turns") == 0 && read_count(value, 10000, &number) == 0 && number > 0) {
        what->turns = number;
    } else if (strcmp(argv[0], "--seconds") == 0 && read_count(value, 1000000, &number) == 0) {
        what->seconds = number;
    } else if (strcmp(argv[0], "--schedule") == 0 && strcmp(value, "static") == 0) {
        what->schedule = EP_SCHEDULE_STATIC;
    } else if (strcmp(argv[0], "--schedule") == 0 && strcmp(value, "dynamic") == 0) {
        what->schedule = EP_SCHEDULE_DYNAMIC;
    } else if (strcmp(argv[0], "--variant") == 0) {
        return take_variant(what, value) == 0 ? 2 : 0;
    } else if (strcmp(argv[0], "--beside") == 0) {
        return take_beside(what, value) == 0 ? 2 : 0;
    } else if (strcmp(argv[0], "--input") == 0) {
        return known_tensor(what->model->inputs, what->model->input_count, value) ? 2 : 0;
    } else if (strcmp(argv[0], "--output") == 0) {
        return known_tensor(what->model->outputs, what->model->output_count, value) ? 2 : 0;
    } else {
        return 0;
    }
    return 2;
}

/* Whether a person is to be told in words: by verify on a terminal, without --json. */
static int wants_words(const command *what, const char *name) {
    for (int i = 0; i < what->argc; i++) {
        if (strcmp(what->argv[i], "--json") == 0) {
            return 0;
        }
    }
    return strcmp(name, "verify") == 0 && system_terminal();
}

static int dispatch(command *what, const char *name) {
    static const struct {
        const char *name;
        int (*run)(const command *);
    } commands[] = {{"info", command_info},
                    {"verify", command_verify},
                    {"bench", command_bench},
                    {"run", command_run},
                    {"check-params", command_check_params}};
    what->words = wants_words(what, name);
    if (what->words) {
        report_in_words();
    }
    for (int i = 0; i < what->argc;) {
        int used = take_option(what, what->argv + i, what->argc - i);
        if (used == 0) {
            return report_error("USAGE", "The option or its value is wrong; see --help", what->argv[i]);
        }
        i += used;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(what);
        }
    }
    return report_error("USAGE", "There is no such command; see --help", name);
}

int main(int argc, char **argv) {
    uint64_t now = system_now_ns();
    uint64_t used = system_cpu_ns(); /* of loading the program itself: it did not wait for much */
    static const command empty;
    char path[LOADER_PATH];
    command what = empty;
    argv = system_arguments(argc, argv);
    if (argv == NULL) {
        return report_status(EP_E_NO_MEMORY);
    }
    if (argc < 2) {
        return report_error("USAGE", "A command is needed: info, verify, bench, run or check-params", "");
    }
    if (strcmp(argv[1], "--help") == 0) {
        return fputs(usage, stdout) < 0 ? LOADER_ERROR : LOADER_OK;
    }
    if (!LOADER_PARAMS_EMBEDDED) {
        system_program_folder(argv[0], path, sizeof path);
        if (strlen(path) + sizeof LOADER_PARAMS > sizeof path) {
            return report_error("FILE", "The path is too long", path);
        }
        strcat(path, LOADER_PARAMS);
        what.params = path;
    }
    what.model = &LOADER_MODEL;
    what.start_ns = now - used;
    what.warmup = 3;
    what.runs = 20;
    what.turns = 10;
    what.argc = argc - 2;
    what.argv = argv + 2;
    int result = dispatch(&what, argv[1]);
    if (fflush(stdout) != 0) {
        return LOADER_ERROR;
    }
    return result;
}
