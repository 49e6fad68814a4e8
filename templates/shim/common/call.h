/* How a kernel, a function of C++, is called with an array of pointers to its arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_SHIM_CALL_H
#define EDGEPACK_SHIM_CALL_H

#include "shim.h"

/* What argument `number` of `count` is. A language whose kernels get positions as arguments has more of
 * these. */
template <class T> struct shim_argument {
    static constexpr uint32_t listed = 1; /* whether the launch has it in its list */
    __attribute__((no_sanitize("thread"))) static T get(void **list, int number, int) {
        return *(T *)list[number];
    }
};

template <class T, T... numbers> struct shim_numbers {};

template <class... A, int... i>
__attribute__((no_sanitize("thread"))) static void shim_pass(void (*kernel)(A...), void **list,
                                                             shim_numbers<int, i...>) {
    kernel(shim_argument<A>::get(list, i, (int)sizeof...(A))...);
}

template <auto kernel> struct shim_of;

template <class... A, void (*kernel)(A...)> struct shim_of<kernel> {
    static constexpr uint32_t arguments = (0 + ... + shim_argument<A>::listed);
    __attribute__((no_sanitize("thread"))) static void call(void **list) {
        shim_pass(kernel, list, __make_integer_seq<shim_numbers, int, sizeof...(A)>());
    }
};

#define SHIM_KERNEL(name, x, y, z) {#name, shim_of<name>::call, shim_of<name>::arguments, {x, y, z}},

#endif
