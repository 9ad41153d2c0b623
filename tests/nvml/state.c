#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define CHECK_NS 2000000 /* how often the file is looked at, at most; fake_nvml.py waits this long after it wrote */

typedef struct { const char *key, *value; size_t order; } Entry;
typedef struct { Entry *entries; size_t count; Faults faults; } Table;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char path[4096];
static struct stat seen;
static int64_t checked_ns;
static char *text;
static Table driver_table, gpu_tables[MAX_GPUS];
static int gpus;
static double cost_us;

static int by_key(const void *left, const void *right) {
    const Entry *a = left, *b = right;
    int order = strcmp(a->key, b->key);
    return order ? order : (a->order < b->order ? -1 : 1);
}

static void add(Table *table, const char *key, const char *value) {
    if (table->count % 64 == 0) table->entries = realloc(table->entries, (table->count + 64) * sizeof(Entry));
    table->entries[table->count] = (Entry){key, value, table->count};
    table->count++;
}

/* Sort, keep the last of each key, and drop those whose value is `none`. */
static void finish(Table *table) {
    size_t kept = 0;
    if (table->count) qsort(table->entries, table->count, sizeof(Entry), by_key);
    for (size_t i = 0; i < table->count; i++) {
        bool overridden = i + 1 < table->count && !strcmp(table->entries[i].key, table->entries[i + 1].key);
        if (!overridden && strcmp(table->entries[i].value, "none")) table->entries[kept++] = table->entries[i];
    }
    table->count = kept;
}

static size_t first_not_below(const Table *table, const char *key) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(table->entries[middle].key, key) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static const char *find(const Table *table, const char *key) {
    size_t at = first_not_below(table, key);
    return at < table->count && !strcmp(table->entries[at].key, key) ? table->entries[at].value : NULL;
}

static double number_or_zero(const Table *table, const char *key) {
    const char *value = find(table, key);
    return value ? strtod(value, NULL) : 0;
}

static char *trimmed(char *from) {
    char *end = from + strlen(from);
    while (*from == ' ' || *from == '\t') from++;
    while (end > from && strchr(" \t\r\n", end[-1])) *--end = 0;
    return from;
}

static bool of_gpu(const char *key) { return !strncmp(key, "gpu.", 4) && strchr(key + 4, '.'); }

/* Put a line into the table of its GPU. */
static void place(const char *key, const char *value) {
    const char *rest = strchr(key + 4, '.') + 1;
    int first = key[4] == '*' ? 0 : atoi(key + 4), last = key[4] == '*' ? gpus - 1 : first;
    for (int gpu = first; gpu <= last && gpu < MAX_GPUS; gpu++) add(&gpu_tables[gpu], rest, value);
}

static void parse(char *from) {
    typedef struct { char *key, *value; } Line;
    Line *lines = NULL;
    size_t count = 0;
    for (char *rest = from, *line; (line = strsep(&rest, "\n"));) {
        char *equals = strchr(line, '=');
        if (line[0] == '#' || !equals) continue;
        *equals = 0;
        if (count % 256 == 0) lines = realloc(lines, (count + 256) * sizeof(Line));
        lines[count++] = (Line){trimmed(line), trimmed(equals + 1)};
    }
    for (size_t i = 0; i < count; i++)
        if (!of_gpu(lines[i].key)) add(&driver_table, lines[i].key, lines[i].value);
    finish(&driver_table);
    gpus = (int)number_or_zero(&driver_table, "driver.gpus");
    if (gpus > MAX_GPUS) gpus = MAX_GPUS;
    for (size_t i = 0; i < count; i++) /* what holds for all comes first, so that what one GPU says of itself overrides it */
        if (of_gpu(lines[i].key) && lines[i].key[4] == '*') place(lines[i].key, lines[i].value);
    for (size_t i = 0; i < count; i++)
        if (of_gpu(lines[i].key) && lines[i].key[4] != '*') place(lines[i].key, lines[i].value);
    free(lines);
}

static bool has_prefix(const Table *table, const char *prefix) {
    size_t at = first_not_below(table, prefix);
    return at < table->count && !strncmp(table->entries[at].key, prefix, strlen(prefix));
}

static Faults faults_of(const Table *table) {
    return (Faults){
        .lost = number_or_zero(table, "lost") != 0,
        .gone = number_or_zero(table, "gone") != 0,
        .hang_seconds = number_or_zero(table, "hang_seconds"),
        .error = (int)number_or_zero(table, "error"),
        .by_function = has_prefix(table, "error."),
    };
}

static void forget(Table *table) {
    free(table->entries);
    *table = (Table){0};
}

static void load(void) {
    FILE *file = fopen(path, "r");
    if (!file) return;
    struct stat now;
    fstat(fileno(file), &now);
    free(text);
    text = calloc(1, (size_t)now.st_size + 1);
    text[fread(text, 1, (size_t)now.st_size, file)] = 0;
    fclose(file);
    seen = now;
    forget(&driver_table);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) forget(&gpu_tables[gpu]);
    parse(text);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        finish(&gpu_tables[gpu]);
        gpu_tables[gpu].faults = faults_of(&gpu_tables[gpu]);
    }
    driver_table.faults = (Faults){
        .hang_seconds = number_or_zero(&driver_table, "driver.hang_seconds"),
        .by_function = has_prefix(&driver_table, "driver.error."),
    };
    cost_us = number_or_zero(&driver_table, "call.cost_us");
}

static void refresh_locked(bool now) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t ns = time.tv_sec * 1000000000LL + time.tv_nsec;
    if (!now && ns - checked_ns < CHECK_NS) return;
    checked_ns = ns;
    struct stat file;
    if (stat(path, &file)) return;
    if (file.st_ino != seen.st_ino || file.st_mtim.tv_sec != seen.st_mtim.tv_sec || file.st_mtim.tv_nsec != seen.st_mtim.tv_nsec)
        load();
}

bool state_open(const char *new_path) {
    pthread_mutex_lock(&lock);
    if (strcmp(path, new_path)) {
        snprintf(path, sizeof path, "%s", new_path);
        seen = (struct stat){0};
    }
    refresh_locked(true);
    bool read = seen.st_ino != 0;
    pthread_mutex_unlock(&lock);
    return read;
}

const char *state_path(void) { return path; }

void state_refresh(void) {
    pthread_mutex_lock(&lock);
    refresh_locked(false);
    pthread_mutex_unlock(&lock);
}

void state_refresh_now(void) {
    pthread_mutex_lock(&lock);
    refresh_locked(true);
    pthread_mutex_unlock(&lock);
}

int state_gpus(void) {
    pthread_mutex_lock(&lock);
    int count = gpus;
    pthread_mutex_unlock(&lock);
    return count;
}

double state_cost_us(void) {
    pthread_mutex_lock(&lock);
    double us = cost_us;
    pthread_mutex_unlock(&lock);
    return us;
}

static Table *table_of(int gpu) { return gpu == DRIVER ? &driver_table : &gpu_tables[gpu]; }

Faults state_faults(int gpu) {
    pthread_mutex_lock(&lock);
    Faults faults = table_of(gpu)->faults;
    pthread_mutex_unlock(&lock);
    return faults;
}

static const char *full_key(int instance, const char *key, char *buffer, size_t size) {
    if (instance == WHOLE_GPU) return key;
    snprintf(buffer, size, "mig.%d.%s", instance, key);
    return buffer;
}

bool state_text(int gpu, int instance, const char *key, char *out, size_t size) {
    char buffer[TEXT_SIZE];
    key = full_key(instance, key, buffer, sizeof buffer);
    pthread_mutex_lock(&lock);
    const char *value = find(table_of(gpu), key);
    if (value && out) snprintf(out, size, "%s", value);
    pthread_mutex_unlock(&lock);
    return value != NULL;
}

bool state_has(int gpu, int instance, const char *key) { return state_text(gpu, instance, key, NULL, 0); }

Return state_number(int gpu, int instance, const char *key, uint64_t *out) {
    char value[TEXT_SIZE];
    if (!state_text(gpu, instance, key, value, sizeof value)) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 0);
    return OK;
}

void state_each(int gpu, int instance, const char *prefix, Taker take, void *into) {
    char buffer[TEXT_SIZE];
    prefix = full_key(instance, prefix, buffer, sizeof buffer);
    size_t length = strlen(prefix);
    pthread_mutex_lock(&lock);
    const Table *table = table_of(gpu);
    for (size_t i = first_not_below(table, prefix); i < table->count && !strncmp(table->entries[i].key, prefix, length); i++)
        if (!take(table->entries[i].key + length, table->entries[i].value, into)) break;
    pthread_mutex_unlock(&lock);
}

typedef struct { int *ids, count; } Ids;

static bool take_instance(const char *rest, const char *value, void *into) {
    Ids *found = into;
    char *end;
    long id = strtol(rest, &end, 10);
    (void)value;
    if (strcmp(end, ".uuid") || id < 0 || id >= MAX_INSTANCES) return true;
    int at = found->count++;
    for (; at > 0 && found->ids[at - 1] > id; at--) found->ids[at] = found->ids[at - 1];
    found->ids[at] = (int)id;
    return true;
}

int state_instances(int gpu, int instances[MAX_INSTANCES]) {
    Ids found = {instances, 0};
    state_each(gpu, WHOLE_GPU, "mig.", take_instance, &found);
    return found.count;
}
