/* Opens a library that edgepack.torch.export_library wrote, by TVM's runtime, and prints what `main` returns of
 * float32 inputs: a line for each tensor.
 *
 *     run_with_tvm net.so 1x3x16x16 input.bin [SHAPE FILE]...
 *
 * It is linked with libtvm_runtime and libtvm_ffi, and needs the headers of apache-tvm-ffi only. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

enum { MOST_INPUTS = 8, MOST_AXES = 8, POOLED = 2 };

/* What an object holds: {TVMFFIObject, ...} is its layout. */
static const void *behind_header(TVMFFIObjectHandle object) {
    return (const char *)object + sizeof(TVMFFIObject);
}

static void check(int code, const char *what) {
    if (code == 0) {
        return;
    }
    TVMFFIObjectHandle raised = NULL;
    TVMFFIErrorMoveFromRaised(&raised);
    const TVMFFIErrorCell *cell = raised == NULL ? NULL : behind_header(raised);
    const TVMFFIByteArray *text = cell == NULL ? NULL : &cell->message;
    fprintf(stderr, "%s: %.*s\n", what, text == NULL ? 0 : (int)text->size, text == NULL ? "" : text->data);
    exit(1);
}

static TVMFFIAny none(void) {
    TVMFFIAny value;
    memset(&value, 0, sizeof value);
    return value;
}

static TVMFFIAny integer(int64_t number) {
    TVMFFIAny value = none();
    value.type_index = kTVMFFIInt;
    value.v_int64 = number;
    return value;
}

static TVMFFIAny text(const char *string) {
    TVMFFIAny value = none();
    value.type_index = kTVMFFIRawStr;
    value.v_c_str = string;
    return value;
}

static TVMFFIAny call(TVMFFIAny function, TVMFFIAny *arguments, int count, const char *what) {
    TVMFFIAny result = none();
    if (function.type_index != kTVMFFIFunction) {
        fprintf(stderr, "%s: there is no such function\n", what);
        exit(1);
    }
    check(TVMFFIFunctionCall(function.v_obj, arguments, count, &result), what);
    return result;
}

static TVMFFIAny global(const char *name) {
    TVMFFIByteArray bytes = {name, strlen(name)};
    TVMFFIAny function = none();
    TVMFFIObjectHandle found = NULL;
    check(TVMFFIFunctionGetGlobal(&bytes, &found), name);
    function.type_index = found == NULL ? kTVMFFINone : kTVMFFIFunction;
    function.v_obj = found;
    return function;
}

static TVMFFIAny function_of(TVMFFIAny module, const char *name) {
    TVMFFIAny arguments[3] = {module, text(name), none()};
    arguments[2].type_index = kTVMFFIBool;
    return call(global("ffi.ModuleGetFunction"), arguments, 3, name);
}

static TVMFFIAny tensor(const char *shape, const char *path, int64_t *axes) {
    static DLManagedTensor managed[MOST_INPUTS];
    static int count = 0;
    DLManagedTensor *one = &managed[count++];
    size_t elements = 1;
    int rank = 0;
    for (char *end = (char *)shape; *end != '\0' && rank < MOST_AXES; end += *end == 'x') {
        axes[rank] = strtoll(end, &end, 10);
        elements *= (size_t)axes[rank++];
    }
    size_t bytes = elements * sizeof(float), padded = (bytes + 63) / 64 * 64;
    void *data = aligned_alloc(64, padded);
    FILE *file = fopen(path, "rb");
    if (data == NULL || file == NULL || fread(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "%s does not hold %zu bytes\n", path, bytes);
        exit(1);
    }
    fclose(file);
    one->dl_tensor.data = data;
    one->dl_tensor.device.device_type = kDLCPU;
    one->dl_tensor.ndim = rank;
    one->dl_tensor.dtype.code = kDLFloat;
    one->dl_tensor.dtype.bits = 32;
    one->dl_tensor.dtype.lanes = 1;
    one->dl_tensor.shape = axes;
    TVMFFIAny value = none();
    TVMFFIObjectHandle made = NULL;
    check(TVMFFITensorFromDLPack(one, 0, 1, &made), path);
    value.type_index = kTVMFFITensor;
    value.v_obj = made;
    return value;
}

static void print(TVMFFIAny value) {
    const DLTensor *one = behind_header(value.v_obj);
    size_t elements = 1;
    for (int axis = 0; axis < one->ndim; ++axis) {
        elements *= (size_t)one->shape[axis];
    }
    const char *data = (const char *)one->data + one->byte_offset;
    for (size_t i = 0; i < elements; ++i) {
        const char *end = i + 1 == elements ? "\n" : " ";
        if (one->dtype.code == kDLFloat && one->dtype.bits == 32) {
            printf("%.9g%s", (double)((const float *)data)[i], end);
        } else if (one->dtype.code == kDLInt && one->dtype.bits == 64) {
            printf("%lld%s", (long long)((const int64_t *)data)[i], end);
        } else {
            fprintf(stderr, "an output is neither float32 nor int64\n");
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    static int64_t axes[MOST_INPUTS][MOST_AXES];
    int count = (argc - 2) / 2;
    if (argc < 2 || argc % 2 != 0 || count > MOST_INPUTS) {
        fprintf(stderr, "usage: %s LIBRARY [SHAPE FILE]...\n", argv[0]);
        return 2;
    }
    TVMFFIAny path = text(argv[1]);
    TVMFFIAny library = call(global("ffi.ModuleLoadFromFile"), &path, 1, "loading the library");
    TVMFFIAny machine = call(function_of(library, "vm_load_executable"), NULL, 0, "vm_load_executable");
    TVMFFIAny device[3] = {integer(kDLCPU), integer(0), integer(POOLED)};
    call(function_of(machine, "vm_initialization"), device, 3, "vm_initialization");
    TVMFFIAny inputs[MOST_INPUTS];
    for (int i = 0; i < count; ++i) {
        inputs[i] = tensor(argv[2 + 2 * i], argv[3 + 2 * i], axes[i]);
    }
    TVMFFIAny results = call(function_of(machine, "main"), inputs, count, "main");
    int64_t size = call(global("ffi.ArraySize"), &results, 1, "ffi.ArraySize").v_int64;
    for (int64_t i = 0; i < size; ++i) {
        TVMFFIAny item[2] = {results, integer(i)};
        print(call(global("ffi.ArrayGetItem"), item, 2, "ffi.ArrayGetItem"));
    }
    return 0;
}
