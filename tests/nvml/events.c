/* Events: `event.<n> = <xid>@<gpu>`, `<xid>@<gpu>/<instance>` or `<type>:<data>@<gpu>`, each given once to each set. */
#include "devices.h"

#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

enum { SETS = 64 };

/* `after`: the last event that there was when the set was made, or that it has given: the driver tells nothing of before. */
struct Set {
    bool open, watching;
    int watch; /* of the state's folder, so that a wait costs nothing; kept, since a thread may wait in a set that is freed */
    long after;
    uint64_t types[MAX_GPUS];
};

typedef struct { const struct Set *set; long number; Event event; } Next;

static struct Set sets[SETS];

static bool parsed(const char *text, Event *out, unsigned *gpu) {
    unsigned long long type = EVENT_XID, data;
    int read = 0;
    unsigned instance = NO_INSTANCE;
    if (sscanf(text, "%llu@%u%n", &data, gpu, &read) != 2) {
        read = 0;
        if (sscanf(text, "%lli:%llu@%u%n", (long long *)&type, &data, gpu, &read) != 3) return false;
    }
    if (*gpu >= MAX_GPUS) return false;
    if (text[read] == '/') instance = (unsigned)atoi(text + read + 1);
    *out = (Event){device_of((int)*gpu, WHOLE_GPU), type, data, instance, instance == NO_INSTANCE ? NO_INSTANCE : 0};
    return true;
}

static bool take_last(const char *number, const char *value, void *into) {
    long *last = into;
    (void)value;
    if (atol(number) > *last) *last = atol(number);
    return true;
}

static bool take_next(const char *number, const char *value, void *into) {
    Next *next = into;
    Event event;
    unsigned gpu;
    long n = atol(number);
    if (n <= next->set->after || (next->number >= 0 && n > next->number)) return true;
    if (!parsed(value, &event, &gpu) || !(next->set->types[gpu] & event.type)) return true;
    next->number = n;
    next->event = event;
    return true;
}

static int watch_of_state(void) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", state_path());
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    inotify_add_watch(watch, dirname(folder), IN_MOVED_TO | IN_CLOSE_WRITE);
    return watch;
}

EXPORT Return nvmlEventSetCreate(struct Set **out) {
    BEGIN;
    struct Set *set = sets;
    while (set < sets + SETS && set->open) set++;
    if (set == sets + SETS) END(MEMORY);
    if (!set->watching) set->watch = watch_of_state();
    *set = (struct Set){.open = true, .watching = true, .watch = set->watch, .after = -1};
    state_each(DRIVER, WHOLE_GPU, "event.", take_last, &set->after);
    *out = set;
    END(OK);
}

EXPORT Return nvmlDeviceGetSupportedEventTypes(Handle device, uint64_t *out) {
    BEGIN_ON(device);
    END(device_number(device, "event_types", out));
}

EXPORT Return nvmlDeviceRegisterEvents(Handle device, uint64_t types, struct Set *set) {
    BEGIN_ON(device);
    uint64_t supported;
    if (!set || !set->open) END(INVALID_ARGUMENT);
    if (device_number(device, "event_types", &supported) != OK || types & ~supported) END(NOT_SUPPORTED);
    set->types[device->gpu] |= types;
    END(OK);
}

static int64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void wait_for_a_write(struct Set *set, int64_t ms) {
    char events[4096];
    struct pollfd watched = {set->watch, POLLIN, 0};
    poll(&watched, 1, (int)ms);
    while (read(set->watch, events, sizeof events) > 0) continue;
}

/* Blocks until there is an event or the time is over. */
EXPORT Return nvmlEventSetWait_v2(struct Set *set, Event *out, unsigned timeout_ms) {
    BEGIN;
    int64_t end = now_ms() + timeout_ms + 1; /* both times are rounded down */
    for (;;) {
        if (!set || !set->open) END(INVALID_ARGUMENT);
        state_refresh_now();
        Next next = {set, -1, {0}};
        state_each(DRIVER, WHOLE_GPU, "event.", take_next, &next);
        if (next.number >= 0) {
            set->after = next.number;
            *out = next.event;
            END(OK);
        }
        int64_t left = end - now_ms();
        if (left <= 0) END(TIMEOUT);
        wait_for_a_write(set, left);
    }
}

EXPORT Return nvmlEventSetFree(struct Set *set) {
    BEGIN;
    if (!set || !set->open) END(INVALID_ARGUMENT);
    set->open = false;
    END(OK);
}
