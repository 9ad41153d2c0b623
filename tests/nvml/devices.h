/* Handles of GPUs and of MIG instances. */
#ifndef DEVICES_H
#define DEVICES_H

#include "calls.h"

Handle device_of(int gpu, int instance);
bool is_instance(Handle device);

/* The number of the device's key; NOT_SUPPORTED where it is absent. */
Return device_number(Handle device, const char *key, uint64_t *out);
Return device_uint(Handle device, const char *key, unsigned *out);
Return device_text(Handle device, const char *key, char *out, unsigned size);

#endif
