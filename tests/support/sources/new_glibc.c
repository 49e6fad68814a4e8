#include <stdlib.h>
__attribute__((visibility("default"))) unsigned edgepack_model_test(void);
unsigned edgepack_model_test(void)
{
    return arc4random();
}
