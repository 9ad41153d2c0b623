/* What the fake driver shall say: a text file of `key = value` lines, read again whenever it has been replaced. */
#ifndef STATE_H
#define STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvml_types.h"

enum { MAX_GPUS = 64, MAX_INSTANCES = 16 /* their ids are below it */, TEXT_SIZE = 256, DRIVER = -1, WHOLE_GPU = -1 };

typedef struct {
    bool lost, gone, by_function;
    double hang_seconds;
    int error;
} Faults;

typedef bool (*Taker)(const char *rest_of_key, const char *value, void *into);

bool state_open(const char *path); /* false if there is no such file */
const char *state_path(void);
void state_refresh(void); /* looks at the file at most every 2 ms */
void state_refresh_now(void);
int state_gpus(void); /* GPUs of the machine, those that are gone included */
Faults state_faults(int gpu);
double state_cost_us(void);

/* `gpu` may be DRIVER, `instance` WHOLE_GPU; a key that is absent is NOT_SUPPORTED. */
bool state_text(int gpu, int instance, const char *key, char *out, size_t size);
Return state_number(int gpu, int instance, const char *key, uint64_t *out);
bool state_has(int gpu, int instance, const char *key);

/* Give each key that begins with `prefix` to `take` until it says false. Calls back under the lock of the state. */
void state_each(int gpu, int instance, const char *prefix, Taker take, void *into);
int state_instances(int gpu, int instances[MAX_INSTANCES]); /* ids of the MIG instances, ascending */

#endif
