// A network in TFLite Micro, with the operators that MLPerf Tiny's have and no others. Compiled by mcu_sizes.py with
// the path of the file and the bytes of the arena. SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "tensorflow/lite/micro/debug_log.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"

__asm__(".pushsection .rodata.edgepack,\"a\",%progbits\n.balign 64\n.global tflm_file\ntflm_file:\n.incbin \"" MODEL
        "\"\n.popsection\n");
extern "C" const unsigned char tflm_file[];

namespace {

alignas(64) __attribute__((section(".bss.edgepack.session"))) uint8_t arena[ARENA];
tflite::MicroInterpreter* network;

}  // namespace

// newlib's would bring signals and a heap.
extern "C" void abort() {
    for (;;) {
    }
}
extern "C" void DebugLog(const char*, va_list) {}
extern "C" int DebugVsnprintf(char*, size_t, const char*, va_list) { return 0; }

extern "C" int tflm_open(void) {
    static tflite::MicroMutableOpResolver<OPERATORS> operators;
    RESOLVE(operators);
    static tflite::MicroInterpreter interpreter(tflite::GetModel(tflm_file), operators, arena, sizeof arena);
    network = &interpreter;
    return network->AllocateTensors();
}

extern "C" int8_t* tflm_input(void) { return network->input(0)->data.int8; }
extern "C" int8_t* tflm_output(void) { return network->output(0)->data.int8; }
extern "C" int tflm_run(void) { return network->Invoke(); }
extern "C" uint32_t tflm_arena_bytes(void) { return network->arena_used_bytes(); }
