/* The Objective-C runtime of objc.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "objc.h"
#include "shim.h"

enum { MOST_POOLED = 4096 };

static __thread objc_object *pooled[MOST_POOLED]; /* null: where a pool begins */
static __thread int depth;

/* objc_msgSend: calls the message's function with what it got; a message to nil returns 0. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl objc_msgSend\n"
        ".type objc_msgSend,@function\n"
        "objc_msgSend:\n"
        "testq %rdi, %rdi\nje 1f\njmpq *(%rsi)\n"
        "1: xorl %eax, %eax\nret\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl objc_msgSend\n"
        ".type objc_msgSend,%function\n"
        "objc_msgSend:\n"
        "cbz x0, 1f\nldr x16, [x1]\nbr x16\n"
        "1: ret\n");
#else
#error "there is no objc_msgSend for this CPU"
#endif

void *objc_make(const char *kind, size_t nbytes, void (*end)(objc_object *old)) {
    objc_object *made = calloc(1, nbytes);
    if (made == NULL) {
        shim_fail("there is no memory for a %s", kind);
    }
    made->kind = kind;
    made->references = 1;
    made->end = end;
    objc_count(1);
    return made;
}

void *objc_check(const void *object, const char *kind) {
    const objc_object *found = object;
    if (found == NULL || found->references <= 0 || strcmp(found->kind, kind) != 0) {
        shim_fail("a message for a %s was sent to a %s", kind,
                  found == NULL            ? "null pointer"
                  : found->references <= 0 ? "released object"
                                           : found->kind);
    }
    return (void *)(uintptr_t)object;
}

void *objc_autorelease(void *object) {
    if (depth == 0) {
        shim_fail("a %s is autoreleased without a pool", ((objc_object *)object)->kind);
    }
    if (depth == MOST_POOLED) {
        shim_fail("there are too many objects in pools");
    }
    pooled[depth++] = object;
    return object;
}

static objc_object *retain(objc_object *object) {
    __atomic_add_fetch(&object->references, 1, __ATOMIC_RELAXED);
    return object;
}

void objc_release(objc_object *object) {
    if (object->references <= 0) {
        shim_fail("a %s is released too often", object->kind);
    }
    if (__atomic_sub_fetch(&object->references, 1, __ATOMIC_ACQ_REL) == 0) {
        if (object->end != NULL) {
            object->end(object);
        }
        objc_count(-1);
        free(object);
    }
}

OBJC_API void *objc_autoreleasePoolPush(void);
OBJC_API void *objc_autoreleasePoolPush(void) {
    if (depth == MOST_POOLED) {
        shim_fail("pools are pushed and never popped");
    }
    pooled[depth++] = NULL;
    objc_count(1);
    return &pooled[depth - 1];
}

OBJC_API void objc_autoreleasePoolPop(void *pool);
OBJC_API void objc_autoreleasePoolPop(void *pool) {
    objc_object **start = pool;
    if (start < pooled || start >= pooled + depth || *start != NULL) {
        shim_fail("a pool is popped that was not pushed");
    }
    while (&pooled[depth - 1] > start) {
        objc_object *object = pooled[--depth];
        if (object != NULL) {
            objc_release(object);
        }
    }
    depth--;
    objc_count(-1);
}

/* ---- Strings ---- */

static void end_string(objc_object *old) {
    free(((objc_string *)(void *)old)->text);
}

/* Of a class: NSString, NSMutableString. */
static void *string(const objc_object *class, const objc_message *message, const char *text) {
    if (strcmp(class->kind, "NSString") != 0 && strcmp(class->kind, "NSMutableString") != 0) {
        shim_fail("%s is sent to the class %s", message->name, class->kind);
    }
    if (objc_fails(message->name)) {
        return NULL;
    }
    objc_string *made = objc_make(class->kind, sizeof *made, end_string);
    made->text = strdup(text);
    return objc_autorelease(made);
}

static void append(objc_object *to, const objc_message *message, const objc_string *piece) {
    objc_string *string = objc_check(to, "NSMutableString");
    size_t before = strlen(string->text);
    size_t more = strlen(piece->text) + 1;
    (void)message;
    string->text = realloc(string->text, before + more);
    if (string->text == NULL) {
        shim_fail("there is no memory for a string");
    }
    memcpy(string->text + before, piece->text, more);
}

static const char *utf8(const objc_string *string, const objc_message *message) {
    return objc_fails(message->name) ? NULL : string->text;
}

/* ---- Classes and selectors ---- */

/* Of a class: what it makes has its name as kind. */
static void *alloc(const objc_object *class, const objc_message *message) {
    return objc_fails(message->name) ? NULL : objc_make(class->kind, sizeof(objc_object), NULL);
}

static void *init(objc_object *object, const objc_message *message) {
    if (objc_fails(message->name)) {
        objc_release(object);
        return NULL;
    }
    return object;
}

static const objc_message known[] = {
    {(void (*)(void))alloc, "alloc"},
    {(void (*)(void))init, "init"},
    {(void (*)(void))retain, "retain"},
    {(void (*)(void))objc_release, "release"},
    {(void (*)(void))string, "stringWithUTF8String:"},
    {(void (*)(void))append, "appendString:"},
    {(void (*)(void))utf8, "UTF8String"},
};

OBJC_API const objc_message *sel_registerName(const char *name);
OBJC_API const objc_message *sel_registerName(const char *name) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) {
            return &known[i];
        }
    }
    for (const objc_message *next = objc_messages; next->name != NULL; next++) {
        if (strcmp(next->name, name) == 0) {
            return next;
        }
    }
    shim_fail("there is no message %s", name);
}

OBJC_API objc_object *objc_getClass(const char *name);
OBJC_API objc_object *objc_getClass(const char *name) {
    static objc_object classes[] = {
        {"NSString", 1, NULL}, {"NSMutableString", 1, NULL}, {"MTLCompileOptions", 1, NULL}};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strcmp(classes[i].kind, name) == 0) {
            return objc_fails("objc_getClass") ? NULL : &classes[i];
        }
    }
    shim_fail("there is no class %s", name);
}
