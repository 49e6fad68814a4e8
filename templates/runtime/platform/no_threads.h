/* Where the runtime cannot start threads. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_NO_THREADS_H
#define EDGEPACK_NO_THREADS_H

static void ep_platform_yield(void) {}

#endif
