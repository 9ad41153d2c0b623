#include "calls.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 5 /* a hanging call looks this often whether its fault has been taken back */

/* Read by fake_nvml.py from the file that FAKE_NVML_CALLS names, which all processes share. */
enum { FUNCTIONS = 256, NAME_SIZE = 56 };
typedef struct { char name[NAME_SIZE]; _Atomic uint64_t state, calls; } Count;
enum { FREE, BEING_NAMED, NAMED };
typedef struct { _Atomic uint64_t most_at_once; Count counts[FUNCTIONS]; } Counts;

static Counts own_counts;
static Counts *counts = &own_counts;
static atomic_int running, initialized;

void sleep_ms(double ms) {
    struct timespec time = {(time_t)(ms / 1e3), (long)((ms - 1e3 * (time_t)(ms / 1e3)) * 1e6)};
    nanosleep(&time, NULL);
}

static int64_t now_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int64_t realtime_us(void) { return now_ns(CLOCK_REALTIME) / 1000; }

static void open_counts(void) {
    const char *path = getenv("FAKE_NVML_CALLS");
    int file = path && counts == &own_counts ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    if (!ftruncate(file, sizeof(Counts))) {
        void *shared = mmap(NULL, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared != MAP_FAILED) counts = shared;
    }
    close(file);
}

/* The slot of a function is where its name hashes to, or the next that is free. */
static Count *slot(const char *function) {
    unsigned hash = 5381;
    for (const char *c = function; *c; c++) hash = hash * 33 + (unsigned char)*c;
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        Count *count = &counts->counts[(hash + i) % FUNCTIONS];
        uint64_t state = FREE;
        if (atomic_compare_exchange_strong(&count->state, &state, BEING_NAMED)) {
            snprintf(count->name, NAME_SIZE, "%s", function);
            atomic_store(&count->state, NAMED);
        }
        while (atomic_load(&count->state) != NAMED) continue;
        if (!strcmp(count->name, function)) return count;
    }
    abort();
}

void count_only(const char *function) { atomic_fetch_add(&slot(function)->calls, 1); }

EXPORT uint64_t fake_nvml_calls(const char *function) { return atomic_load(&slot(function)->calls); }

EXPORT uint64_t fake_nvml_most_at_once(void) { return atomic_load(&counts->most_at_once); }

/* Waiting for events goes on beside all other calls, and is not counted among those that run at once. */
static bool waits(const char *function) { return !strncmp(function, "nvmlEventSetWait", 16); }

static _Thread_local bool counted_as_running;

static void begin_running(const char *function) {
    counted_as_running = !waits(function);
    if (counted_as_running) {
        uint64_t at_once = (uint64_t)atomic_fetch_add(&running, 1) + 1, most = atomic_load(&counts->most_at_once);
        while (at_once > most && !atomic_compare_exchange_weak(&counts->most_at_once, &most, at_once)) continue;
    }
    count_only(function);
}

static void burn(double us) {
    int64_t end = now_ns(CLOCK_THREAD_CPUTIME_ID) + (int64_t)(us * 1000);
    while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end) continue;
}

/* Sleep as long as the fault says, or until it is taken back. */
static void hang(int gpu) {
    int64_t began = now_ns(CLOCK_MONOTONIC);
    while ((double)(now_ns(CLOCK_MONOTONIC) - began) < state_faults(gpu).hang_seconds * 1e9) {
        sleep_ms(POLL_MS);
        state_refresh();
    }
}

/* `error.<function> = code` makes this one function fail. */
static Return error_of(int gpu, const char *prefix, const char *function) {
    char key[TEXT_SIZE];
    uint64_t code = OK;
    if (!state_faults(gpu).by_function) return OK;
    snprintf(key, sizeof key, "%s%s", prefix, function);
    state_number(gpu, WHOLE_GPU, key, &code);
    return (Return)code;
}

Return call_begin(const char *function) {
    begin_running(function);
    if (!initialized) return UNINITIALIZED;
    state_refresh();
    if (state_faults(DRIVER).hang_seconds > 0) hang(DRIVER);
    if (state_cost_us() > 0) burn(state_cost_us());
    return error_of(DRIVER, "driver.error.", function);
}

Return meet_faults(const char *function, int gpu) {
    if (state_faults(gpu).hang_seconds > 0) hang(gpu);
    Faults faults = state_faults(gpu);
    if (faults.lost || faults.gone || gpu >= state_gpus()) return GPU_IS_LOST;
    return faults.error ? (Return)faults.error : error_of(gpu, "error.", function);
}

Return call_begin_on(const char *function, Handle device) {
    Return begun = call_begin(function);
    if (begun != OK) return begun;
    return device ? meet_faults(function, device->gpu) : INVALID_ARGUMENT;
}

Return call_end(Return result) {
    if (counted_as_running) atomic_fetch_sub(&running, 1);
    counted_as_running = false;
    return result;
}

EXPORT Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *path = getenv("FAKE_NVML_STATE");
    open_counts();
    begin_running(__func__);
    if (!path || !state_open(path)) {
        fprintf(stderr, "fake_nvml: FAKE_NVML_STATE names no file: %s; take the environment from Driver.environment()\n", path);
        END(UNKNOWN);
    }
    if (state_faults(DRIVER).hang_seconds > 0) hang(DRIVER);
    uint64_t error = OK;
    if (state_number(DRIVER, WHOLE_GPU, "driver.init_error", &error) == OK && error) END((Return)error);
    initialized++;
    END(OK);
}

EXPORT Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT Return nvmlShutdown(void) {
    begin_running(__func__);
    if (!initialized) END(UNINITIALIZED);
    initialized--;
    END(OK);
}

/* As the library words them; what is not here is told as its number. */
EXPORT const char *nvmlErrorString(Return result) {
    static const struct { Return result; const char *text; } texts[] = {
        {OK, "Success"},
        {UNINITIALIZED, "Uninitialized"},
        {INVALID_ARGUMENT, "Invalid Argument"},
        {NOT_SUPPORTED, "Not Supported"},
        {4, "Insufficient Permissions"},
        {NOT_FOUND, "Not Found"},
        {INSUFFICIENT_SIZE, "Insufficient Size"},
        {9, "Driver Not Loaded"},
        {TIMEOUT, "Timeout"},
        {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"},
        {GPU_IS_LOST, "GPU is lost"},
        {16, "GPU requires reset"},
        {18, "RM has detected an NVML/RM version mismatch."},
        {VERSION_MISMATCH, "Argument version mismatch"},
        {UNKNOWN, "Unknown Error"},
    };
    count_only(__func__);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].result == result) return texts[i].text;
    return "Unknown Error Code";
}
