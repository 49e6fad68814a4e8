/* Hears a recorded clip, which stands for a microphone, on qemu's board. */
#include "firmware.h"
#include "keywords.h"

__asm__(".pushsection .rodata.clip,\"a\",%progbits\n.balign 4\n.global clip_start\nclip_start:\n.incbin "
        "\"clip.raw\"\n"
        ".global clip_end\nclip_end:\n.popsection\n");
extern const int16_t clip_start[];
extern const int16_t clip_end[];

enum { PIECE = 137 }; /* samples that come at once: of a DMA buffer */

static unsigned char memory[KWS_SESSION_BYTES] __attribute__((section(".bss.edgepack.session"), aligned(64)));
static keywords self;

static void print_number(uint32_t value) {
    char text[12];
    char *at = text + sizeof text - 1;
    *at = 0;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    firmware_print(at);
}

static void print(const heard *result) {
    print_number(result->ms);
    firmware_print(" ms ");
    firmware_print(keywords_names[result->word]);
    firmware_print(" ");
    print_number((uint32_t)result->percent);
    firmware_print(result->is_keyword ? " % <-\n" : " %\n");
}

int main(void) {
    heard result;
    int status = (int)keywords_open(&self, memory, sizeof memory);
    for (const int16_t *at = clip_start; at < clip_end && status == 0; at += PIECE) {
        keywords_write(&self, at, clip_end - at < PIECE ? (size_t)(clip_end - at) : PIECE);
        while ((status = keywords_poll(&self, &result)) == 1) {
            print(&result);
        }
    }
    return status == 0 ? 0 : 1;
}
