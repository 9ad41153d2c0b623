/* The events of a training loop and its timeline, compiled: StepMachine of tachoscope.training.step_machine for the usual loop.

A method does what the Python one does while nothing is unusual; else it calls the Python one, which works on the same state, and has
changed nothing before. So each rule stands in Python, in full, and is repeated here only for the usual case; a test compares both. */

#include "_timeline.h"

#include <stdlib.h>
#include <unistd.h>

#define FIRST_DETAILED_STEPS 100
#define DETAIL_EVERY_NS 100000000LL
#define RING 256 /* steps: a quarter of a second of the fastest loops, and the sampler comes ten times a second */

/* --- the state of the rules, whose methods are Python's ---------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    char is_explicit, fresh_batch, stepped;
    PyObject *feeding, *lead_optimizer, *updates;
} StepRule;

typedef struct {
    PyObject_HEAD
    char settled;
    PyObject *began, *after, *batch_since, *fed, *last_model, *loader, *timeline, *trained, *training_loaders;
} EvaluationRule;

typedef struct {
    PyObject_HEAD
    char active, over;
    PyObject *calls, *counted;
} GradientSteps;

typedef struct {
    PyObject_HEAD
    long long due_at, step_began, backward, backward_began;
    PyObject *read_delay;
    PyObject *known; /* the function whose file is `descriptor`; -1: it is called */
    int descriptor;
} StepDetail;

#define MEMBER(type, field, name, kind) {name, kind, offsetof(type, field), 0, NULL}
#define END_OF_MEMBERS {NULL, 0, 0, 0, NULL}

static PyMemberDef rule_members[] = {
    MEMBER(StepRule, is_explicit, "explicit", T_BOOL),
    MEMBER(StepRule, fresh_batch, "fresh_batch", T_BOOL),
    MEMBER(StepRule, stepped, "_stepped", T_BOOL),
    MEMBER(StepRule, feeding, "_feeding", T_OBJECT),
    MEMBER(StepRule, lead_optimizer, "_lead_optimizer", T_OBJECT),
    MEMBER(StepRule, updates, "_updates", T_OBJECT),
    END_OF_MEMBERS,
};

static PyMemberDef evaluation_members[] = {
    MEMBER(EvaluationRule, settled, "settled", T_BOOL),
    MEMBER(EvaluationRule, began, "_began", T_OBJECT),
    MEMBER(EvaluationRule, after, "_after", T_OBJECT),
    MEMBER(EvaluationRule, batch_since, "_batch_since", T_OBJECT),
    MEMBER(EvaluationRule, fed, "_fed", T_OBJECT),
    MEMBER(EvaluationRule, last_model, "_last_model", T_OBJECT),
    MEMBER(EvaluationRule, loader, "_loader", T_OBJECT),
    MEMBER(EvaluationRule, timeline, "_timeline", T_OBJECT),
    MEMBER(EvaluationRule, trained, "_trained", T_OBJECT),
    MEMBER(EvaluationRule, training_loaders, "_training_loaders", T_OBJECT),
    END_OF_MEMBERS,
};

static PyMemberDef gradient_members[] = {
    MEMBER(GradientSteps, active, "active", T_BOOL),
    MEMBER(GradientSteps, over, "over", T_BOOL),
    MEMBER(GradientSteps, calls, "_calls", T_OBJECT),
    MEMBER(GradientSteps, counted, "counted", T_OBJECT),
    END_OF_MEMBERS,
};

static PyMemberDef detail_members[] = {
    MEMBER(StepDetail, due_at, "due_at", T_LONGLONG),
    MEMBER(StepDetail, step_began, "_step_began", T_LONGLONG),
    MEMBER(StepDetail, backward, "_backward", T_LONGLONG),
    MEMBER(StepDetail, backward_began, "_backward_began", T_LONGLONG),
    MEMBER(StepDetail, read_delay, "_read_delay", T_OBJECT),
    END_OF_MEMBERS,
};

/* Release what the members of a type refer to, and the object. */
static void release_members(PyObject *self, const PyMemberDef *members) {
    PyTypeObject *type = Py_TYPE(self);
    for (; members->name; members++)
        if (members->type == T_OBJECT) Py_CLEAR(*(PyObject **)((char *)self + members->offset));
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static void rule_dealloc(PyObject *self) { release_members(self, rule_members); }
static void evaluation_dealloc(PyObject *self) { release_members(self, evaluation_members); }
static void gradient_dealloc(PyObject *self) { release_members(self, gradient_members); }
static void detail_dealloc(PyObject *self) {
    Py_CLEAR(((StepDetail *)self)->known);
    release_members(self, detail_members);
}

/* --- the machine --------------------------------------------------------------------------------------------------------- */

typedef struct {
    long long number, samples, tokens, backward_calls, elements;
    long long step_delay, backward_delay; /* -1: not known */
    Ended time;
} Finished;

typedef struct {
    PyObject_HEAD
    unsigned long thread; /* that is watched; 0: none, and nothing is done by `_gates.h` */
    char trains, without_gradients, has_models, quick, models_known, inside_model;
    long long steps, samples, elements, backward_calls, model_calls;
    long long first_steps, slow_step_ns, most_calls; /* which steps are unusual: see `is_usual` */
    Timeline *timeline;
    StepRule *rule;
    EvaluationRule *evaluation;
    GradientSteps *gradient_steps;
    StepDetail *detail;
    PyObject *loader, *pending, *open_optimizers, *device, *calls, *on_step, *on_first_training, *finished_step;
    unsigned long long put, taken; /* how many steps ever; the interpreter's lock is held for both */
    Finished ring[RING];
} Machine;

static PyTypeObject *timeline_type, *rule_type, *evaluation_type, *gradient_type, *detail_type, *machine_type, *gate_type;

enum { BATCH_BEGIN, BATCH_END, MODEL_BEGIN, MODEL_END, BACKWARD_BEGIN, BACKWARD_END, OPTIMIZER_BEGIN, OPTIMIZER_END, END_STEP, NO_BATCH, EVENTS };
static const char *const event_names[EVENTS] = {"batch_begin", "batch_end", "model_begin", "model_end", "backward_begin", "backward_end",
                                                "optimizer_begin", "optimizer_end", "end_step", "no_batch"};
static PyObject *in_python[EVENTS]; /* the same methods of the Python class */

static bool is_none(PyObject *value) { return !value || value == Py_None; }

/* Whether a weak reference is one to `thing`; to anything at all, if that is NULL. */
static bool refers_to(PyObject *reference, PyObject *thing) {
    if (is_none(reference)) return false;
    PyObject *referred = PyWeakref_GetObject(reference);
    return thing ? referred == thing : referred && referred != Py_None;
}

static bool any(PyObject *list) { return list && PyList_Size(list) > 0; }

static bool is_fed(Machine *m) { return refers_to(m->rule->feeding, NULL) || any(m->pending); }

static void train_on(Machine *m, long long samples, long long elements) {
    if (m->rule->feeding != m->loader) {
        PyObject *former = m->rule->feeding;
        m->rule->feeding = Py_XNewRef(m->loader);
        Py_XDECREF(former);
    }
    m->rule->fresh_batch = 1;
    m->samples += samples;
    m->elements += elements;
}

static void train_on_pending(Machine *m) {
    Py_ssize_t count = PyList_Size(m->pending);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *batch = PyList_GetItem(m->pending, i);
        train_on(m, PyLong_AsLongLong(PyTuple_GetItem(batch, 0)), PyLong_AsLongLong(PyTuple_GetItem(batch, 1)));
    }
    PyList_SetSlice(m->pending, 0, count, NULL);
}

/* Each of these returns whether the case is usual; if so, it is done. */

static bool quick_batch_begin(Machine *m, PyObject *loader) {
    if (m->timeline->evaluating || !is_none(m->device) || (m->has_models && !m->evaluation->settled) || any(m->open_optimizers) ||
        !refers_to(m->loader, loader))
        return false;
    enter(m->timeline, DATA_WAIT);
    return true;
}

static bool quick_batch_end(Machine *m, long long samples, long long elements) {
    if (m->timeline->evaluating || (m->has_models && !m->evaluation->settled)) return false;
    leave_to(m->timeline, m->has_models ? PREPARATION : FORWARD);
    if (m->has_models) {
        PyObject *batch = Py_BuildValue("(LL)", samples, elements);
        if (!batch || PyList_Append(m->pending, batch)) PyErr_Clear(); /* no memory: a batch is not counted */
        Py_XDECREF(batch);
    } else
        train_on(m, samples, elements);
    return true;
}

static bool quick_model_begin(Machine *m, PyObject *module, bool *entered) {
    int phase = m->timeline->phase;
    *entered = phase == OTHER || phase == PREPARATION || phase == FORWARD || phase == LOSS;
    if (!*entered) return true;
    if (!is_none(m->calls) || m->timeline->evaluating || !is_none(m->device) || !is_none(m->evaluation->began) ||
        !refers_to(m->evaluation->last_model, module))
        return false;
    m->without_gradients = 0;
    enter(m->timeline, FORWARD);
    if (any(m->pending))
        train_on_pending(m);
    else if (!is_fed(m))
        move_to_phase(m->timeline, OTHER, PREPARATION);
    return true;
}

static bool quick_model_end(Machine *m) {
    if (m->without_gradients) return false;
    leave_to(m->timeline, LOSS);
    return true;
}

/* The file that RunDelay.read reads; -1 for another function. */
static int descriptor_of(PyObject *function) {
    PyObject *owner = PyObject_GetAttrString(function, "__self__");
    PyObject *descriptor = owner ? PyObject_GetAttrString(owner, "descriptor") : NULL;
    int found = descriptor ? (int)PyLong_AsLong(descriptor) : -1;
    Py_XDECREF(owner);
    Py_XDECREF(descriptor);
    PyErr_Clear();
    return found;
}

/* The nanoseconds without a core, the second number of schedstat. A reading that failed counts as none. */
static long long read_delay(StepDetail *d) {
    if (d->known != d->read_delay) {
        PyObject *former = d->known;
        d->known = Py_NewRef(d->read_delay);
        Py_XDECREF(former);
        d->descriptor = descriptor_of(d->read_delay);
    }
    if (d->descriptor >= 0) {
        char text[65], *second;
        ssize_t length = pread(d->descriptor, text, sizeof text - 1, 0);
        text[length > 0 ? length : 0] = 0;
        second = strchr(text, ' ');
        return second ? strtoll(second, NULL, 10) : 0;
    }
    PyObject *value = PyObject_CallNoArgs(d->read_delay);
    long long delay = value ? PyLong_AsLongLong(value) : 0;
    Py_XDECREF(value);
    PyErr_Clear();
    return delay;
}

static bool quick_backward_begin(Machine *m) {
    if (m->timeline->evaluating || any(m->open_optimizers) || !m->trains || !is_none(m->calls) || !is_none(m->device)) return false;
    if (any(m->pending)) train_on_pending(m);
    if (m->timeline->reads_cpu && !is_none(m->detail->read_delay)) m->detail->backward_began = read_delay(m->detail);
    m->backward_calls++;
    enter(m->timeline, BACKWARD);
    return true;
}

static bool quick_backward_end(Machine *m) {
    if (!m->gradient_steps->over && !m->rule->is_explicit) return false;
    leave_to(m->timeline, m->has_models ? LOSS : FORWARD);
    if (m->timeline->reads_cpu && !is_none(m->detail->read_delay))
        m->detail->backward += read_delay(m->detail) - m->detail->backward_began;
    return true;
}

static bool quick_optimizer_begin(Machine *m) {
    if (!is_none(m->device)) return false;
    PyObject *depth = PyLong_FromSsize_t(m->timeline->depth);
    bool opened = depth && !PyList_Append(m->open_optimizers, depth);
    Py_XDECREF(depth);
    if (!opened) {
        PyErr_Clear();
        return false;
    }
    enter(m->timeline, OPTIMIZER);
    return true;
}

#include "_finished.h"

/* -1: an exception. */
static int quick_optimizer_end(Machine *m, PyObject *optimizer) {
    Py_ssize_t open = any(m->open_optimizers) ? PyList_Size(m->open_optimizers) : 0;
    bool decided_elsewhere = m->rule->is_explicit || open > 1;
    if (!m->gradient_steps->over || !(decided_elsewhere || m->rule->fresh_batch)) return 0;
    bool just_ended = false;
    if (open) {
        just_ended = unwind(m->timeline, PyLong_AsSsize_t(PyList_GetItem(m->open_optimizers, open - 1)));
        PyList_SetSlice(m->open_optimizers, open - 1, open, NULL);
    }
    m->rule->stepped = 1;
    if (decided_elsewhere) {
        if (m->has_models && !m->rule->is_explicit) go_on_in(m->timeline, OTHER);
        return 1;
    }
    if (is_none(m->rule->lead_optimizer) || PyObject_IsTrue(m->rule->lead_optimizer) == 0) {
        Py_XDECREF(m->rule->lead_optimizer);
        m->rule->lead_optimizer = PyLong_FromVoidPtr(optimizer); /* as `id` */
    }
    return end_step(m, 0, 0, just_ended && m->trains) ? 1 : -1;
}

/* --- as Python sees it --------------------------------------------------------------------------------------------------- */

static PyObject *usual_or(bool done, Machine *m, int event, PyObject *args, PyObject *kwargs) {
    if (done) Py_RETURN_NONE;
    PyObject *all = PyTuple_New(1 + (args ? PyTuple_Size(args) : 0));
    if (!all) return NULL;
    PyTuple_SetItem(all, 0, Py_NewRef((PyObject *)m));
    for (Py_ssize_t i = 0; args && i < PyTuple_Size(args); i++) PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(args, i)));
    PyObject *result = PyObject_Call(in_python[event], all, kwargs);
    Py_DECREF(all);
    return result;
}

static PyObject *with_one(Machine *m, int event, PyObject *arg) { return PyObject_CallFunctionObjArgs(in_python[event], (PyObject *)m, arg, NULL); }

static PyObject *machine_batch_begin(Machine *m, PyObject *loader) {
    if (quick_batch_begin(m, loader)) Py_RETURN_NONE;
    return with_one(m, BATCH_BEGIN, loader);
}

static PyObject *machine_batch_end(Machine *m, PyObject *args) {
    long long samples, elements;
    if (!PyArg_ParseTuple(args, "LL", &samples, &elements)) return NULL;
    return usual_or(quick_batch_end(m, samples, elements), m, BATCH_END, args, NULL);
}

static PyObject *machine_model_begin(Machine *m, PyObject *module) {
    bool entered;
    if (quick_model_begin(m, module, &entered)) return PyBool_FromLong(entered);
    return with_one(m, MODEL_BEGIN, module);
}

static PyObject *machine_model_end(Machine *m, PyObject *none) { return usual_or(quick_model_end(m), m, MODEL_END, NULL, NULL); }

static PyObject *machine_backward_begin(Machine *m, PyObject *none) {
    return usual_or(quick_backward_begin(m), m, BACKWARD_BEGIN, NULL, NULL);
}

static PyObject *machine_backward_end(Machine *m, PyObject *none) { return usual_or(quick_backward_end(m), m, BACKWARD_END, NULL, NULL); }

static PyObject *machine_optimizer_begin(Machine *m, PyObject *args, PyObject *kwargs) {
    return usual_or(quick_optimizer_begin(m), m, OPTIMIZER_BEGIN, args, kwargs); /* a closure matters only to a device */
}

static PyObject *machine_optimizer_end(Machine *m, PyObject *optimizer) {
    int done = quick_optimizer_end(m, optimizer);
    if (done < 0) return NULL;
    if (done) Py_RETURN_NONE;
    return with_one(m, OPTIMIZER_END, optimizer);
}

static PyObject *machine_end_step(Machine *m, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"samples", "tokens", "at_last", NULL};
    long long samples = 0, tokens = 0;
    int at_last = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|LL$p", names, &samples, &tokens, &at_last)) return NULL;
    if (!end_step(m, samples, tokens, at_last)) return NULL;
    Py_RETURN_NONE;
}

/* Setting one of the parts that are used without a look at their type. */
#define PART(name, field, kind, wanted)                                                              \
    static PyObject *get_##name(Machine *m, void *unused) {                                          \
        return Py_NewRef(m->field ? (PyObject *)m->field : Py_None);                                 \
    }                                                                                                \
    static int set_##name(Machine *m, PyObject *value, void *unused) {                               \
        if (!value || !PyObject_TypeCheck(value, wanted)) {                                          \
            PyErr_SetString(PyExc_TypeError, #name " must be the compiled one");                     \
            return -1;                                                                               \
        }                                                                                            \
        PyObject *former = (PyObject *)m->field;                                                     \
        m->field = (kind *)Py_NewRef(value);                                                         \
        Py_XDECREF(former);                                                                          \
        return 0;                                                                                    \
    }

PART(timeline, timeline, Timeline, timeline_type)
PART(rule, rule, StepRule, rule_type)
PART(evaluation, evaluation, EvaluationRule, evaluation_type)
PART(gradient_steps, gradient_steps, GradientSteps, gradient_type)
PART(detail, detail, StepDetail, detail_type)
PART(pending, pending, PyObject, &PyList_Type)
PART(open_optimizers, open_optimizers, PyObject, &PyList_Type)

#define PROPERTY(name, shown) {shown, (getter)get_##name, (setter)set_##name, NULL, NULL}

static PyGetSetDef machine_properties[] = {
    PROPERTY(timeline, "timeline"),
    PROPERTY(rule, "rule"),
    PROPERTY(evaluation, "evaluation"),
    PROPERTY(gradient_steps, "gradient_steps"),
    PROPERTY(detail, "detail"),
    PROPERTY(pending, "_pending"),
    PROPERTY(open_optimizers, "_open_optimizers"),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef machine_members[] = {
    MEMBER(Machine, thread, "thread_ident", T_ULONG),
    MEMBER(Machine, trains, "trains", T_BOOL),
    MEMBER(Machine, without_gradients, "without_gradients", T_BOOL),
    MEMBER(Machine, has_models, "has_models", T_BOOL),
    MEMBER(Machine, quick, "quick", T_BOOL),
    MEMBER(Machine, models_known, "models_known", T_BOOL),
    MEMBER(Machine, inside_model, "inside_model", T_BOOL),
    MEMBER(Machine, steps, "steps", T_LONGLONG),
    MEMBER(Machine, samples, "_samples", T_LONGLONG),
    MEMBER(Machine, elements, "_elements", T_LONGLONG),
    MEMBER(Machine, backward_calls, "_backward_calls", T_LONGLONG),
    MEMBER(Machine, model_calls, "model_calls", T_LONGLONG),
    MEMBER(Machine, first_steps, "first_steps", T_LONGLONG),
    MEMBER(Machine, slow_step_ns, "slow_step_ns", T_LONGLONG),
    MEMBER(Machine, most_calls, "most_calls", T_LONGLONG),
    MEMBER(Machine, loader, "_loader", T_OBJECT),
    MEMBER(Machine, device, "device", T_OBJECT),
    MEMBER(Machine, calls, "calls", T_OBJECT),
    MEMBER(Machine, on_step, "on_step", T_OBJECT),
    MEMBER(Machine, on_first_training, "on_first_training", T_OBJECT),
    MEMBER(Machine, finished_step, "finished_step", T_OBJECT),
    END_OF_MEMBERS,
};

static PyMethodDef machine_methods[] = {
    {"batch_begin", CALLED(machine_batch_begin), METH_O, NULL},
    {"batch_end", CALLED(machine_batch_end), METH_VARARGS, NULL},
    {"model_begin", CALLED(machine_model_begin), METH_O, NULL},
    {"model_end", CALLED(machine_model_end), METH_NOARGS, NULL},
    {"backward_begin", CALLED(machine_backward_begin), METH_NOARGS, NULL},
    {"backward_end", CALLED(machine_backward_end), METH_NOARGS, NULL},
    {"optimizer_begin", CALLED(machine_optimizer_begin), METH_VARARGS | METH_KEYWORDS, NULL},
    {"optimizer_end", CALLED(machine_optimizer_end), METH_O, NULL},
    {"end_step", CALLED(machine_end_step), METH_VARARGS | METH_KEYWORDS, NULL},
    {"take_steps", CALLED(machine_take_steps), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static void machine_dealloc(Machine *m) {
    Py_CLEAR(m->timeline);
    Py_CLEAR(m->rule);
    Py_CLEAR(m->evaluation);
    Py_CLEAR(m->gradient_steps);
    Py_CLEAR(m->detail);
    Py_CLEAR(m->pending);
    Py_CLEAR(m->open_optimizers);
    release_members((PyObject *)m, machine_members);
}

#include "_gates.h"

static PyTypeObject *type_of(PyObject *module, const char *name, int size, const PyMemberDef *members, destructor dealloc, PyMethodDef *methods,
                             PyGetSetDef *properties) {
    PyType_Slot slots[] = {{Py_tp_members, (void *)members}, {Py_tp_dealloc, (void *)dealloc}, {methods ? Py_tp_methods : 0, methods},
                           {properties ? Py_tp_getset : 0, properties}, {0, NULL}};
    PyType_Spec spec = {name, size, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromSpec(&spec);
    if (type && PyModule_AddObjectRef(module, strrchr(name, '.') + 1, type)) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* follow(StepMachine): the Python class whose methods do what is not usual. */
static PyObject *follow(PyObject *module, PyObject *logic) {
    for (int event = 0; event < EVENTS; event++) {
        PyObject *method = PyObject_GetAttrString(logic, event_names[event]), *former = in_python[event];
        if (!method) return NULL;
        in_python[event] = method;
        Py_XDECREF(former);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"follow", follow, METH_O, NULL},
    {"watch", watch, METH_O, NULL},
    {"open_gates", open_gates, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "_steps", .m_size = -1, .m_methods = functions};

#define NAMED(name) "tachoscope.training._steps." name

/* The types know no garbage collector: a process has one machine, and a forked child its own. */
PyMODINIT_FUNC PyInit__steps(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    PyObject *types = PyImport_ImportModule("types");
    method_type = types ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    if (!method_type || !(compiling_flag = PyUnicode_InternFromString("_is_compiling_flag")) ||
        !(numel = PyUnicode_InternFromString("numel")))
        return NULL;
    timeline_type = (PyTypeObject *)PyType_FromSpec(&timeline_spec);
    gate_type = (PyTypeObject *)PyType_FromSpec(&gate_spec);
    if (!timeline_type || PyModule_AddObjectRef(module, "Timeline", (PyObject *)timeline_type) || !gate_type ||
        PyModule_AddObjectRef(module, "Gate", (PyObject *)gate_type) ||
        !(rule_type = type_of(module, NAMED("StepRule"), sizeof(StepRule), rule_members, rule_dealloc, NULL, NULL)) ||
        !(evaluation_type = type_of(module, NAMED("EvaluationRule"), sizeof(EvaluationRule), evaluation_members, evaluation_dealloc, NULL, NULL)) ||
        !(gradient_type = type_of(module, NAMED("GradientSteps"), sizeof(GradientSteps), gradient_members, gradient_dealloc, NULL, NULL)) ||
        !(detail_type = type_of(module, NAMED("StepDetail"), sizeof(StepDetail), detail_members, detail_dealloc, NULL, NULL)) ||
        !(machine_type = type_of(module, NAMED("StepMachine"), sizeof(Machine), machine_members, (destructor)machine_dealloc,
                                 machine_methods, machine_properties)))
        return NULL;
    return module;
}
