/* The timeline of one thread: what tachoscope.timing.phases.Timeline does, which says why, on plain integers. */

#include <Python.h>
#include <structmember.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { DATA_WAIT, HOST_TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE, CHECKPOINT, EVALUATION, GC, OTHER, PREPARATION, LOSS, COMPILE, PHASES };
/* The order of tachoscope_core.records.records.PHASES: another one would fail the test that compares both machines. */

enum { MOST_NESTED = 64 }; /* loops nest five at most; a job's memory is never asked for more, which could fail */

typedef struct {
    PyObject_HEAD
    long long last;
    long long cut;
    int phase;
    char reads_cpu;
    char evaluating;
    char no_grad;
    char eval_trains;
    Py_ssize_t depth;
    int nested[MOST_NESTED]; /* what the open phases interrupted, the outermost first; deeper ones stay in the last phase */
    long long wall[PHASES];
    long long last_cpu;
    long long cpu[PHASES];
    PyObject *snapshot;
    PyObject *clock; /* NULL: the system's; tests bring their own */
    PyObject *cpu_clock;
} Timeline;

static long long system_clock(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* A clock of a test that raises is reported and stands still. */
static long long called_clock(PyObject *clock) {
    PyObject *value = PyObject_CallNoArgs(clock);
    long long now = value ? PyLong_AsLongLong(value) : 0;
    if (PyErr_Occurred()) PyErr_WriteUnraisable(clock);
    Py_XDECREF(value);
    return now;
}

static inline long long wall_now(Timeline *t) { return t->clock ? called_clock(t->clock) : system_clock(CLOCK_MONOTONIC); }

static inline long long cpu_now(Timeline *t) {
    return t->cpu_clock ? called_clock(t->cpu_clock) : system_clock(CLOCK_THREAD_CPUTIME_ID);
}

static void account(Timeline *t) {
    long long now = wall_now(t);
    t->wall[t->phase] += now - t->last;
    t->last = now;
    if (t->reads_cpu) {
        long long cpu = cpu_now(t);
        t->cpu[t->phase] += cpu - t->last_cpu;
        t->last_cpu = cpu;
    }
}

static void enter(Timeline *t, int phase) {
    account(t);
    if (t->depth < MOST_NESTED) t->nested[t->depth] = t->phase;
    t->depth++;
    t->phase = phase;
}

static void leave(Timeline *t) {
    if (t->depth) {
        account(t);
        if (--t->depth < MOST_NESTED) t->phase = t->nested[t->depth];
    }
}

static void leave_to(Timeline *t, int base) {
    leave(t);
    if (!t->depth) t->phase = base;
}

static void go_on_in(Timeline *t, int base) {
    if (!t->depth && t->phase != base) {
        account(t);
        t->phase = base;
    }
}

static bool unwind(Timeline *t, Py_ssize_t depth) {
    if (t->depth <= depth) return false;
    account(t);
    if (depth < MOST_NESTED) t->phase = t->nested[depth];
    t->depth = depth;
    return true;
}

static void move_to_phase(Timeline *t, int source, int target) {
    t->wall[target] += t->wall[source];
    t->cpu[target] += t->cpu[source];
    t->wall[source] = t->cpu[source] = 0;
}

/* What ended: nanoseconds by phase. */
typedef struct {
    long long end, total;
    bool has_cpu;
    long long wall[PHASES], cpu[PHASES];
} Ended;

static void end_of_step(Timeline *t, bool read_cpu, bool at_last, Ended *done) {
    if (!at_last) account(t);
    done->end = t->last;
    done->total = t->last - t->cut;
    done->has_cpu = t->reads_cpu;
    memcpy(done->wall, t->wall, sizeof t->wall);
    if (t->reads_cpu) memcpy(done->cpu, t->cpu, sizeof t->cpu);
    t->cut = t->last;
    Py_CLEAR(t->snapshot);
    t->evaluating = 0;
    if (!t->depth) t->phase = OTHER;
    memset(t->wall, 0, sizeof t->wall);
    if (t->reads_cpu)
        memset(t->cpu, 0, sizeof t->cpu);
    else if (read_cpu)
        t->last_cpu = cpu_now(t);
    t->reads_cpu = read_cpu;
}

/* --- as Python sees it ------------------------------------------------------------------------------------------------ */

static PyObject *numbers(const long long *values) {
    PyObject *list = PyList_New(PHASES);
    for (Py_ssize_t i = 0; list && i < PHASES; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (!value || PyList_SetItem(list, i, value)) Py_CLEAR(list);
    }
    return list;
}

static bool read_numbers(PyObject *list, long long *values) {
    for (Py_ssize_t i = 0; i < PHASES; i++) {
        PyObject *value = PySequence_GetItem(list, i);
        values[i] = value ? PyLong_AsLongLong(value) : 0;
        Py_XDECREF(value);
    }
    return !PyErr_Occurred();
}

static PyObject *sums(Timeline *t) {
    account(t);
    PyObject *wall = numbers(t->wall), *cpu = numbers(t->cpu);
    PyObject *both = wall && cpu ? PyTuple_Pack(2, wall, cpu) : NULL;
    Py_XDECREF(wall);
    Py_XDECREF(cpu);
    return both;
}

static bool was_evaluation(Timeline *t, PyObject *since, PyObject *until) {
    for (Py_ssize_t i = 0; i < 2; i++) {
        long long before[PHASES], after[PHASES], *now = i ? t->cpu : t->wall;
        PyObject *first = PySequence_GetItem(since, i), *second = PySequence_GetItem(until, i);
        bool read = first && second && read_numbers(first, before) && read_numbers(second, after);
        Py_XDECREF(first);
        Py_XDECREF(second);
        if (!read) return false;
        for (int phase = 0; phase < PHASES; phase++)
            if (phase != CHECKPOINT && phase != GC && phase != COMPILE && phase != EVALUATION) {
                now[EVALUATION] += after[phase] - before[phase];
                now[phase] -= after[phase] - before[phase];
            }
    }
    return true;
}

static bool is_phase(long phase) {
    if (phase >= 0 && phase < PHASES) return true;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "no phase: %ld", phase);
    return false;
}

static PyObject *timeline_enter(Timeline *t, PyObject *arg) {
    long phase = PyLong_AsLong(arg);
    if (!is_phase(phase)) return NULL;
    enter(t, (int)phase);
    Py_RETURN_NONE;
}

static PyObject *timeline_leave(Timeline *t, PyObject *none) {
    leave(t);
    Py_RETURN_NONE;
}

static PyObject *timeline_leave_to(Timeline *t, PyObject *arg) {
    long base = PyLong_AsLong(arg);
    if (!is_phase(base)) return NULL;
    leave_to(t, (int)base);
    Py_RETURN_NONE;
}

static PyObject *timeline_go_on_in(Timeline *t, PyObject *arg) {
    long base = PyLong_AsLong(arg);
    if (!is_phase(base)) return NULL;
    go_on_in(t, (int)base);
    Py_RETURN_NONE;
}

static PyObject *timeline_unwind(Timeline *t, PyObject *arg) {
    Py_ssize_t depth = PyLong_AsSsize_t(arg);
    if (depth < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a depth is not negative");
        return NULL;
    }
    return PyBool_FromLong(unwind(t, depth));
}

static PyObject *timeline_restart(Timeline *t, PyObject *none) {
    memset(t->wall, 0, sizeof t->wall);
    memset(t->cpu, 0, sizeof t->cpu);
    Py_CLEAR(t->snapshot);
    t->evaluating = 0;
    t->cut = t->last = wall_now(t);
    t->last_cpu = cpu_now(t);
    Py_RETURN_NONE;
}

static PyObject *timeline_sums(Timeline *t, PyObject *none) { return sums(t); }

static PyObject *timeline_was_evaluation(Timeline *t, PyObject *args) {
    PyObject *since, *until;
    if (!PyArg_ParseTuple(args, "OO", &since, &until) || !was_evaluation(t, since, until)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *timeline_move_to_phase(Timeline *t, PyObject *args) {
    int source, target;
    if (!PyArg_ParseTuple(args, "ii", &source, &target) || !is_phase(source) || !is_phase(target)) return NULL;
    move_to_phase(t, source, target);
    Py_RETURN_NONE;
}

static PyObject *timeline_spent_elsewhere(Timeline *t, PyObject *args) {
    int phase;
    long long nanoseconds;
    if (!PyArg_ParseTuple(args, "iL", &phase, &nanoseconds) || !is_phase(phase)) return NULL;
    t->wall[t->phase] -= nanoseconds;
    t->wall[phase] += nanoseconds;
    Py_RETURN_NONE;
}

static PyObject *timeline_begin_evaluation(Timeline *t, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"no_grad", NULL};
    int no_grad = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p", names, &no_grad)) return NULL;
    if (!t->snapshot) {
        if (!(t->snapshot = sums(t))) return NULL;
        t->evaluating = 1;
        t->no_grad = 0;
    }
    t->no_grad = t->no_grad || no_grad;
    Py_RETURN_NONE;
}

static PyObject *timeline_end_evaluation(Timeline *t, PyObject *none) {
    if (!t->snapshot) Py_RETURN_NONE;
    PyObject *since = t->snapshot, *until = sums(t);
    t->snapshot = NULL;
    bool moved = until && was_evaluation(t, since, until);
    Py_DECREF(since);
    Py_XDECREF(until);
    t->evaluating = 0;
    if (!t->depth) t->phase = OTHER;
    if (!moved) return NULL;
    Py_RETURN_NONE;
}

static PyObject *timeline_cancel_evaluation(Timeline *t, PyObject *none) {
    t->eval_trains = t->eval_trains || (t->evaluating && !t->no_grad);
    Py_CLEAR(t->snapshot);
    t->evaluating = 0;
    Py_RETURN_NONE;
}

static PyObject *timeline_end_step(Timeline *t, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"read_cpu", "at_last", NULL};
    int read_cpu = 1, at_last = 0;
    Ended done;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$pp", names, &read_cpu, &at_last)) return NULL;
    end_of_step(t, read_cpu, at_last, &done);
    PyObject *wall = numbers(done.wall), *cpu = done.has_cpu ? numbers(done.cpu) : Py_NewRef(Py_None);
    return wall && cpu ? Py_BuildValue("(LLNN)", done.end, done.total, wall, cpu) : NULL;
}

static PyObject *timeline_evaluating_without_grad(Timeline *t, void *unused) { return PyBool_FromLong(t->evaluating && t->no_grad); }

static PyObject *timeline_nested(Timeline *t, void *unused) {
    Py_ssize_t count = t->depth < MOST_NESTED ? t->depth : MOST_NESTED;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *phase = PyLong_FromLong(t->nested[i]);
        if (!phase || PyList_SetItem(list, i, phase)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *timeline_phase_now(Timeline *t, void *unused) {
    bool likely = t->evaluating && (t->no_grad || !t->eval_trains);
    return PyLong_FromLong(likely && t->phase != CHECKPOINT && t->phase != GC && t->phase != COMPILE ? EVALUATION : t->phase);
}

static int timeline_init(Timeline *t, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"clock", "cpu_clock", NULL};
    PyObject *clock = NULL, *cpu_clock = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO", names, &clock, &cpu_clock)) return -1;
    Py_CLEAR(t->clock);
    Py_CLEAR(t->cpu_clock);
    t->clock = Py_XNewRef(clock);
    t->cpu_clock = Py_XNewRef(cpu_clock);
    t->phase = OTHER;
    t->depth = 0;
    t->reads_cpu = 1;
    t->no_grad = t->eval_trains = 0;
    Py_DECREF(timeline_restart(t, NULL));
    return 0;
}

static void timeline_dealloc(Timeline *t) {
    PyTypeObject *type = Py_TYPE((PyObject *)t);
    Py_CLEAR(t->snapshot);
    Py_CLEAR(t->clock);
    Py_CLEAR(t->cpu_clock);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(t);
    Py_DECREF(type);
}

#define CALLED(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef timeline_methods[] = {
    {"restart", CALLED(timeline_restart), METH_NOARGS, NULL},
    {"enter", CALLED(timeline_enter), METH_O, NULL},
    {"leave", CALLED(timeline_leave), METH_NOARGS, NULL},
    {"leave_to", CALLED(timeline_leave_to), METH_O, NULL},
    {"go_on_in", CALLED(timeline_go_on_in), METH_O, NULL},
    {"unwind", CALLED(timeline_unwind), METH_O, NULL},
    {"sums", CALLED(timeline_sums), METH_NOARGS, NULL},
    {"was_evaluation", CALLED(timeline_was_evaluation), METH_VARARGS, NULL},
    {"move_to_phase", CALLED(timeline_move_to_phase), METH_VARARGS, NULL},
    {"spent_elsewhere", CALLED(timeline_spent_elsewhere), METH_VARARGS, NULL},
    {"begin_evaluation", CALLED(timeline_begin_evaluation), METH_VARARGS | METH_KEYWORDS, NULL},
    {"end_evaluation", CALLED(timeline_end_evaluation), METH_NOARGS, NULL},
    {"cancel_evaluation", CALLED(timeline_cancel_evaluation), METH_NOARGS, NULL},
    {"end_step", CALLED(timeline_end_step), METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef timeline_members[] = {
    {"last", T_LONGLONG, offsetof(Timeline, last), 0, NULL},
    {"phase", T_INT, offsetof(Timeline, phase), READONLY, NULL},
    {"reads_cpu", T_BOOL, offsetof(Timeline, reads_cpu), 0, NULL},
    {"evaluating", T_BOOL, offsetof(Timeline, evaluating), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef timeline_properties[] = {
    {"evaluating_without_grad", (getter)timeline_evaluating_without_grad, NULL, NULL, NULL},
    {"nested", (getter)timeline_nested, NULL, NULL, NULL},
    {"phase_now", (getter)timeline_phase_now, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot timeline_slots[] = {
    {Py_tp_doc, "Accounts the time of the thread that calls it: tachoscope.timing.phases.Timeline, compiled."},
    {Py_tp_init, timeline_init},
    {Py_tp_dealloc, timeline_dealloc},
    {Py_tp_methods, timeline_methods},
    {Py_tp_members, timeline_members},
    {Py_tp_getset, timeline_properties},
    {0, NULL},
};

static PyType_Spec timeline_spec = {"tachoscope.training._steps.Timeline", sizeof(Timeline), 0, Py_TPFLAGS_DEFAULT, timeline_slots};
