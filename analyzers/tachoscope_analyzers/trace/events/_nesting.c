/* Which call each call happened in, as `parents_in_python` in nesting.py finds it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TRACK, START, END, FOUND, ARRAYS };
enum { MOST_TRACKS = 1 << 20 };

typedef struct {
    int64_t start, end, row;
} Call;

/* Numbers that grow by one at a time: what is open is few beside all calls. */
typedef struct {
    int64_t *values;
    size_t count, room;
} Numbers;

static bool room_made(Numbers *numbers, size_t count) {
    if (count <= numbers->room) return true;
    size_t room = 2 * count + 64;
    int64_t *values = realloc(numbers->values, room * sizeof *values);
    if (!values) return false;
    numbers->values = values;
    numbers->room = room;
    return true;
}

/* Outer ones first: by start, longer ones first. */
static inline bool is_before(const Call *one, const Call *other) {
    return one->start < other->start || (one->start == other->start && one->end > other->end);
}

static size_t run_end(const Call *calls, size_t from, size_t count) {
    size_t place = from + 1;
    while (place < count && !is_before(&calls[place], &calls[place - 1])) place++;
    return place < count ? place : count;
}

/* Merge two neighbouring runs, the first of which lies in `spare`; equal calls stay in their order. */
static void merged(Call *into, const Call *first, size_t first_count, const Call *second, const Call *second_end) {
    const Call *first_end = first + first_count;
    while (first < first_end) {
        *into++ = second < second_end && is_before(second, first) ? *second++ : *first++;
    }
}

/* Sort by merging the runs that are there: traces are nearly sorted. */
static bool sorted(Call *calls, size_t count) {
    if (count == 0 || run_end(calls, 0, count) == count) return true;
    Call *spare = malloc(count * sizeof *spare);
    if (!spare) return false;
    for (bool is_sorted = false; !is_sorted;) {
        is_sorted = true;
        for (size_t from = 0; from < count;) {
            size_t middle = run_end(calls, from, count);
            if (middle == count) break;
            size_t end = run_end(calls, middle, count);
            memcpy(spare, calls + from, (middle - from) * sizeof *spare);
            merged(calls + from, spare, middle - from, calls + middle, calls + end);
            is_sorted = is_sorted && from == 0 && end == count;
            from = end;
        }
    }
    free(spare);
    return true;
}

/* The ends of open calls as a heap, the earliest on top. */
static bool opened(Numbers *open, int64_t end) {
    if (!room_made(open, open->count + 1)) return false;
    size_t place = open->count++;
    for (size_t above; place && open->values[above = (place - 1) / 2] > end; place = above) open->values[place] = open->values[above];
    open->values[place] = end;
    return true;
}

static void closed(Numbers *open) {
    const int64_t last = open->values[--open->count];
    size_t place = 0;
    for (size_t below; (below = 2 * place + 1) < open->count; place = below) {
        if (below + 1 < open->count && open->values[below + 1] < open->values[below]) below++;
        if (open->values[below] >= last) break;
        open->values[place] = open->values[below];
    }
    open->values[place] = last;
}

/* `latest` holds the place of the latest call at each depth. A depth is reached from the one below it, so that has one. */
static bool linked(const Call *calls, size_t count, Numbers *open, Numbers *latest, int64_t *found) {
    open->count = 0;
    for (size_t place = 0; place < count; place++) {
        const Call *call = &calls[place];
        while (open->count && open->values[0] <= call->start) closed(open);
        const size_t depth = open->count;
        found[call->row] = -1;
        if (depth) {
            const Call *outer = &calls[latest->values[depth - 1]];
            if (outer->end >= call->end) found[call->row] = outer->row;
        }
        if (!room_made(latest, depth + 1)) return false;
        latest->values[depth] = (int64_t)place;
        if (call->end > call->start && !opened(open, call->end)) return false;
    }
    return true;
}

typedef struct {
    const int32_t *track;
    const int64_t *start, *end;
    int64_t *found;
    size_t count;
} Columns;

/* Where the calls of each track begin, once they stand by track; NULL without memory. `tracks` is one more than the largest. */
static size_t *bounds_of(const Columns *columns, size_t tracks) {
    size_t *bounds = calloc(tracks + 2, sizeof *bounds);
    if (!bounds) return NULL;
    for (size_t row = 0; row < columns->count; row++) bounds[columns->track[row] + 2]++;
    for (size_t track = 2; track < tracks + 2; track++) bounds[track] += bounds[track - 1];
    return bounds;
}

static bool parents_found(const Columns *columns, size_t tracks) {
    size_t *bounds = bounds_of(columns, tracks);
    Call *calls = malloc(columns->count * sizeof *calls + 1);
    Numbers open = {0}, latest = {0};
    bool is_done = bounds && calls;
    for (size_t row = 0; is_done && row < columns->count; row++) {
        calls[bounds[columns->track[row] + 1]++] = (Call){columns->start[row], columns->end[row], (int64_t)row};
    }
    for (size_t track = 0; is_done && track < tracks; track++) {
        Call *own = calls + bounds[track];
        const size_t count = bounds[track + 1] - bounds[track];
        is_done = sorted(own, count) && linked(own, count, &open, &latest, columns->found);
    }
    free(bounds);
    free(calls);
    free(open.values);
    free(latest.values);
    return is_done;
}

/* One more than the largest track; 0 where there are too many, or some below zero. */
static size_t track_count(const Columns *columns) {
    int32_t largest = 0;
    for (size_t row = 0; row < columns->count; row++) {
        if (columns->track[row] < 0 || columns->track[row] >= MOST_TRACKS) return 0;
        if (columns->track[row] > largest) largest = columns->track[row];
    }
    return (size_t)largest + 1;
}

static bool is_consistent(const Py_buffer *views) {
    const Py_ssize_t count = views[TRACK].len / (Py_ssize_t)sizeof(int32_t);
    if (views[TRACK].itemsize != sizeof(int32_t)) return false;
    for (int i = START; i < ARRAYS; i++) {
        if (views[i].itemsize != sizeof(int64_t) || views[i].len != count * (Py_ssize_t)sizeof(int64_t)) return false;
    }
    return true;
}

static PyObject *parents(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Py_buffer views[ARRAYS] = {0};
    PyObject *answer = NULL;
    int taken = 0;
    if (count != ARRAYS) {
        PyErr_SetString(PyExc_TypeError, "parents(track, start, end, found)");
        return NULL;
    }
    while (taken < ARRAYS && PyObject_GetBuffer(arguments[taken], &views[taken], PyBUF_ND | (taken == FOUND ? PyBUF_WRITABLE : 0)) == 0) {
        taken++;
    }
    if (taken == ARRAYS && !is_consistent(views)) {
        PyErr_SetString(PyExc_ValueError, "tracks of 32 bits and moments of 64 bits are needed, of the same length");
    } else if (taken == ARRAYS) {
        const Columns columns = {.track = views[TRACK].buf, .start = views[START].buf, .end = views[END].buf, .found = views[FOUND].buf,
                                 .count = (size_t)views[TRACK].len / sizeof(int32_t)};
        size_t tracks;
        bool is_done;
        Py_BEGIN_ALLOW_THREADS
        tracks = track_count(&columns);
        is_done = tracks && parents_found(&columns, tracks);
        Py_END_ALLOW_THREADS
        answer = is_done || !tracks ? PyBool_FromLong(is_done) : PyErr_NoMemory();
    }
    while (taken > 0) PyBuffer_Release(&views[--taken]);
    return answer;
}

static PyMethodDef methods[] = {
    {"parents", (PyCFunction)(void (*)(void))parents, METH_FASTCALL,
     "Write into `found` the row of the call around each, -1 for none. Return False, with nothing written, for tracks beyond 2**20."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_nesting", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__nesting(void) { return PyModule_Create(&module); }
