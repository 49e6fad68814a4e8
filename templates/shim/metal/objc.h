/* As much of the Objective-C runtime as a program needs that sends messages to Metal: objects that are
 * counted, pools, strings. Whoever breaks a rule is told so by shim_fail. SPDX-License-Identifier: Apache-2.0
 */
#ifndef EDGEPACK_OBJC_H
#define EDGEPACK_OBJC_H

#include <stddef.h>

/* The start of every object. */
typedef struct objc_object {
    const char *kind;
    long references;
    void (*end)(struct objc_object *old); /* gives back what it has; may be null */
} objc_object;

/* A message that objects understand. Its function gets the receiver, this, and the arguments. */
typedef struct objc_message {
    void (*call)(void);
    const char *name;
} objc_message;

typedef struct objc_string {
    objc_object head;
    char *text;
} objc_string;

#define OBJC_API __attribute__((visibility("default")))

/* A new object, which is the caller's; and one that is the innermost pool's. */
void *objc_make(const char *kind, size_t nbytes, void (*end)(objc_object *old));
void *objc_autorelease(void *object);
void objc_release(objc_object *object);
/* Ends the process unless the object is of this kind. */
void *objc_check(const void *object, const char *kind);

/* The driver's: messages besides those of objc.c, up to one without a name; and whether a call of this name
 * is to fail. */
extern const objc_message objc_messages[];
int objc_fails(const char *name);
/* Is told of each object and pool that is new (1) or gone (-1). */
void objc_count(int change);

#endif
