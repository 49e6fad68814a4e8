/* What is linked to a bundle's program, built for this machine, beside the bundle's own files: the frameworks
 * of Apple's are the shim. SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The bundle's files are compiled with -Ddlopen=shim_dlopen. */
void *shim_dlopen(const char *name, int flags);
void *shim_dlopen(const char *name, int flags) {
    int apples = strncmp(name, "/System/Library/Frameworks/", 27) == 0 ||
                 strcmp(name, "/usr/lib/libobjc.A.dylib") == 0;
    return dlopen(apples ? getenv("EDGEPACK_SHIM_LIBRARY") : name, flags);
}
