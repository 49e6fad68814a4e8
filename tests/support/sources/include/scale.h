#define SCALE_FILE __FILE__
#ifndef SCALE
#error "define SCALE"
#endif
