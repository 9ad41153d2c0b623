/* Every call of the interface begins and ends here: it is counted, costs what it shall cost, and meets its fault. */
#ifndef CALLS_H
#define CALLS_H

#include "nvml_types.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

struct Device { int gpu, instance; };

Return call_begin(const char *function);                /* a call that needs no device */
Return call_begin_on(const char *function, Handle device);
Return call_end(Return result);
Return meet_faults(const char *function, int gpu);      /* hangs, or returns the error that the GPU shall give */
void count_only(const char *function);
void sleep_ms(double ms);
int64_t realtime_us(void);

/* At the beginning of a function of the interface. */
#define BEGIN                                           \
    do {                                                \
        Return begun = call_begin(__func__);            \
        if (begun != OK) return call_end(begun);        \
    } while (0)
#define BEGIN_ON(device)                                \
    do {                                                \
        Return begun = call_begin_on(__func__, device); \
        if (begun != OK) return call_end(begun);        \
    } while (0)
#define END(result) return call_end(result)

#endif
