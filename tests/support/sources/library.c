#include <math.h>
#include <stddef.h>
#include <string.h>

#include "scale.h"

__attribute__((visibility("default"))) float edgepack_model_test(float *out, const float *in, size_t count);
__attribute__((weak, visibility("default"))) float __truncsfhf2_like(float value);
const char *where(void);
void nobody_calls_this(void);

float __truncsfhf2_like(float value)
{
    return value;
}

const char *where(void)
{
    return __FILE__ " " SCALE_FILE;
}

void nobody_calls_this(void)
{
}

float edgepack_model_test(float *out, const float *in, size_t count)
{
    memcpy(out, in, count * sizeof *out);
    return expf(__truncsfhf2_like(out[0])) * SCALE + (float)where()[0];
}
