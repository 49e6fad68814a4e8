/* What decides where a run goes on, behind the steps before: 0 with the next step, 1 with another one; -1: a
 * loop would make too many trips, -2: the data choose what the model was not packed for. Included by model.c
 * where a model has Ifs or loops. SPDX-License-Identifier: Apache-2.0 */
#ifndef EP_BRANCH_H
#define EP_BRANCH_H

#if defined(__GNUC__)
#define EP_MAYBE_UNUSED __attribute__((unused))
#else
#define EP_MAYBE_UNUSED
#endif

/* The first of an If's steps, unless its condition is true. */
EP_MAYBE_UNUSED static int32_t ep_unless(const void *condition) {
    return *(const unsigned char *)condition == 0;
}

/* Where the other graph of an If does not fit the sizes that the model was packed for. */
EP_MAYBE_UNUSED static int32_t ep_require(const void *condition) {
    return *(const unsigned char *)condition != 0 ? 0 : -2;
}

EP_MAYBE_UNUSED static int32_t ep_forbid(const void *condition) {
    return *(const unsigned char *)condition == 0 ? 0 : -2;
}

/* Whether a loop has a trip behind `done` of them: fewer than `most`, than *trips, and while the condition is
 * true, as far as these are given. A run fails that would go on behind `most` trips, if there is no room for
 * more (`bounded`). */
EP_MAYBE_UNUSED static int32_t ep_goes_on(int64_t done, const void *trips, const void *condition,
                                          int64_t most, int bounded) {
    if ((trips != NULL && done >= *(const int64_t *)trips) ||
        (condition != NULL && *(const unsigned char *)condition == 0)) {
        return 0;
    }
    return done < most ? 1 : -bounded;
}

/* A loop's first trip: 1 if there is none. */
EP_MAYBE_UNUSED static int32_t ep_loop_begin(void *counter, const void *trips, const void *condition,
                                             int64_t most, int bounded) {
    *(int64_t *)counter = 0;
    int32_t more = ep_goes_on(0, trips, condition, most, bounded);
    return more < 0 ? more : !more;
}

/* Behind a trip: 1 if there is another one. */
EP_MAYBE_UNUSED static int32_t ep_loop_again(void *counter, const void *trips, const void *condition,
                                             int64_t most, int bounded) {
    int64_t done = *(int64_t *)counter + 1;
    *(int64_t *)counter = done;
    return ep_goes_on(done, trips, condition, most, bounded);
}

#endif
