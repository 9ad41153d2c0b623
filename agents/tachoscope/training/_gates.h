/* Gates: what stands where functions of torch were. In the usual case a gate tells the machine and calls the original; else it calls
the Python wrapper, which knows all cases. Nothing of the probe's Python is then fetched into the processor's caches. */

enum { NEXT_BATCH, CALL_MODEL, BACKWARD_CALL, BEFORE_OPTIMIZER, AFTER_OPTIMIZER };

typedef struct {
    PyObject_HEAD
    int kind;
    PyObject *wrapper, *original; /* CALL_MODEL has no original: it is given the function */
    PyObject *fault, *dict;
    PyObject *first_batch, *elements_of, *given; /* NEXT_BATCH: functions, and a reference to the iterator that gave `samples` */
    long long samples;
} Gate;

#define METHOD_DESCRIPTOR (1UL << 17) /* Py_TPFLAGS_METHOD_DESCRIPTOR, which not every limited API names: called without a bound method */

static Machine *watched;
static PyObject *grad_enabled; /* torch.is_grad_enabled */
static PyObject *compiler;     /* torch.compiler */
static PyObject *compiler_names; /* its dictionary, borrowed; NULL: it is no module */
static PyObject *compiling_flag, *numel; /* names */
static PyObject *method_type;

/* watch(machine): gates report events to this machine from now on. */
static PyObject *watch(PyObject *module, PyObject *machine) {
    if (!PyObject_TypeCheck(machine, machine_type)) {
        PyErr_SetString(PyExc_TypeError, "a compiled machine is wanted");
        return NULL;
    }
    Machine *former = watched;
    watched = (Machine *)Py_NewRef(machine);
    Py_XDECREF((PyObject *)former);
    Py_RETURN_NONE;
}

/* open_gates(torch.is_grad_enabled, torch.compiler): torch is there; once a process. */
static PyObject *open_gates(PyObject *module, PyObject *args) {
    PyObject *function, *package;
    if (!PyArg_ParseTuple(args, "OO", &function, &package)) return NULL;
    grad_enabled = Py_NewRef(function);
    compiler = Py_NewRef(package);
    compiler_names = PyModule_Check(package) ? PyModule_GetDict(package) : NULL;
    Py_RETURN_NONE;
}

/* torch.compiler.is_compiling(), but for what torch itself traces: that calls no gate. */
static bool is_compiling(void) {
    PyObject *named = compiler_names ? PyDict_GetItemWithError(compiler_names, compiling_flag) : NULL;
    if (named) return named != Py_False; /* a singleton: compared, not used */
    PyObject *flag = PyObject_GetAttr(compiler, compiling_flag);
    if (!flag) PyErr_Clear(); /* a version that says it elsewhere */
    Py_XDECREF(flag);
    return flag != Py_False;
}

/* The machine, if this is the watched thread and nothing but the machine is to be told; borrowed. */
static Machine *quick_machine(void) {
    if (!compiler || !watched || !watched->quick || !watched->thread) return NULL;
    return PyThread_get_thread_ident() == watched->thread && !is_compiling() ? watched : NULL;
}

static bool with_gradients(void) {
    PyObject *enabled = PyObject_CallNoArgs(grad_enabled);
    if (!enabled) PyErr_Clear();
    Py_XDECREF(enabled);
    return enabled == Py_True;
}

/* Hand an exception of the probe's own to `stop_after_fault`; false: it was the job's, and is set. */
static bool swallow(Gate *g) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    PyObject *done = PyObject_CallFunctionObjArgs(g->fault, value, NULL);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(done);
    return done != NULL;
}

/* What the original did: its result, or the exception that it raised, set aside while the machine is told. */
typedef struct {
    PyObject *result, *kind, *value, *trace;
} Outcome;

static Outcome outcome_of(PyObject *result) {
    Outcome o = {result, NULL, NULL, NULL};
    if (!result) PyErr_Fetch(&o.kind, &o.value, &o.trace);
    return o;
}

/* Give it to the job. `done` is what telling the machine returned, NULL: it raised. */
static PyObject *given_back(Gate *g, Outcome o, PyObject *done) {
    if (!done && !swallow(g)) {
        Py_XDECREF(o.result);
        Py_XDECREF(o.kind);
        Py_XDECREF(o.value);
        Py_XDECREF(o.trace);
        return NULL;
    }
    Py_XDECREF(done);
    if (!o.result) PyErr_Restore(o.kind, o.value, o.trace);
    return o.result;
}

static PyObject *in_python_if(bool done, Machine *m, int event) {
    return done ? Py_NewRef(Py_None) : PyObject_CallFunctionObjArgs(in_python[event], (PyObject *)m, NULL);
}

/* The numbers in the first tensor of a batch, as `elements_of`, whose usual cases are tensors in lists. */
static long long elements_in(Gate *g, PyObject *batch) {
    PyObject *first = batch, *count = NULL;
    for (int depth = 0; depth < 2; depth++) {
        if (PyTuple_Check(first) && PyTuple_Size(first))
            first = PyTuple_GetItem(first, 0);
        else if (PyList_Check(first) && PyList_Size(first))
            first = PyList_GetItem(first, 0);
    }
    if (!PyTuple_Check(first) && !PyList_Check(first) && !PyDict_Check(first)) {
        count = PyObject_CallMethodObjArgs(first, numel, NULL);
        if (!count) PyErr_Clear();
    }
    if (!count) count = PyObject_CallFunctionObjArgs(g->elements_of, batch, NULL);
    long long found = count ? PyLong_AsLongLong(count) : -1;
    Py_XDECREF(count);
    return found;
}

/* A DataLoader gave a batch. How many samples its batches have is asked at the first one of an iterator. */
static PyObject *batch_given(Gate *g, Machine *m, PyObject *iterator, PyObject *batch) {
    if (!refers_to(g->given, iterator)) {
        PyObject *samples = PyObject_CallFunctionObjArgs(g->first_batch, iterator, batch, NULL);
        if (!samples) return NULL;
        PyObject *former = g->given;
        g->samples = PyLong_AsLongLong(samples);
        g->given = PyWeakref_NewRef(iterator, NULL);
        Py_DECREF(samples);
        Py_XDECREF(former);
    }
    long long elements = PyErr_Occurred() ? -1 : elements_in(g, batch);
    if (PyErr_Occurred()) return NULL;
    if (quick_batch_end(m, g->samples, elements)) return Py_NewRef(Py_None);
    return PyObject_CallFunction(in_python[BATCH_END], "OLL", m, g->samples, elements);
}

static PyObject *next_batch(Gate *g, Machine *m, PyObject *args, PyObject *kwargs) {
    PyObject *iterator = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
    if (!iterator || kwargs || !with_gradients() || !quick_batch_begin(m, iterator)) return PyObject_Call(g->wrapper, args, kwargs);
    Outcome o = outcome_of(PyObject_Call(g->original, args, NULL));
    return given_back(g, o, o.result ? batch_given(g, m, iterator, o.result) : in_python_if(false, m, NO_BATCH));
}

static PyObject *call_with(PyObject *function, PyObject *first, PyObject *args, PyObject *kwargs) {
    Py_ssize_t given = PyTuple_Size(args);
    PyObject *all = given < 0 ? NULL : PyTuple_New(given + 1);
    if (!all) return NULL;
    PyTuple_SetItem(all, 0, Py_NewRef(first));
    for (Py_ssize_t i = 0; i < given; i++) PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(args, i)));
    PyObject *result = PyObject_Call(function, all, kwargs);
    Py_DECREF(all);
    return result;
}

/* gate(module, function, args, kwargs), as ModelCalls.call. */
static PyObject *call_model(Gate *g, Machine *m, PyObject *args, PyObject *kwargs) {
    bool entered;
    if (kwargs || PyTuple_Size(args) != 4) return PyObject_Call(g->wrapper, args, kwargs);
    PyObject *module = PyTuple_GetItem(args, 0), *function = PyTuple_GetItem(args, 1);
    PyObject *given = PyTuple_GetItem(args, 2), *named = PyTuple_GetItem(args, 3);
    if (m->inside_model) return call_with(function, module, given, named);
    if (!m->models_known || !m->has_models || !with_gradients() || !quick_model_begin(m, module, &entered))
        return PyObject_Call(g->wrapper, args, NULL);
    if (!entered) return call_with(function, module, given, named);
    m->model_calls++;
    m->inside_model = 1;
    Outcome o = outcome_of(call_with(function, module, given, named));
    m->inside_model = 0;
    return given_back(g, o, in_python_if(quick_model_end(m), m, MODEL_END));
}

static PyObject *call_backward(Gate *g, Machine *m, PyObject *args, PyObject *kwargs) {
    if (!quick_backward_begin(m)) return PyObject_Call(g->wrapper, args, kwargs);
    Outcome o = outcome_of(PyObject_Call(g->original, args, kwargs));
    return given_back(g, o, in_python_if(quick_backward_end(m), m, BACKWARD_END));
}

/* The hooks of optimizers: hook(optimizer, args, kwargs). One with a closure is for Python. */
static PyObject *before_optimizer(Gate *g, Machine *m, PyObject *args, PyObject *kwargs) {
    bool hook = PyTuple_Size(args) == 3;
    PyObject *given = hook ? PyTuple_GetItem(args, 1) : NULL, *named = hook ? PyTuple_GetItem(args, 2) : NULL;
    bool plain = hook && PyTuple_Check(given) && PyTuple_Size(given) == 1 && PyDict_Check(named) && PyDict_Size(named) == 0;
    if (!plain || !quick_optimizer_begin(m)) return PyObject_Call(g->wrapper, args, kwargs);
    return Py_NewRef(Py_None);
}

static PyObject *after_optimizer(Gate *g, Machine *m, PyObject *args, PyObject *kwargs) {
    int done = PyTuple_Size(args) == 3 ? quick_optimizer_end(m, PyTuple_GetItem(args, 0)) : 0;
    if (!done) return PyObject_Call(g->wrapper, args, kwargs);
    return given_back(g, outcome_of(Py_NewRef(Py_None)), done > 0 ? Py_NewRef(Py_None) : NULL);
}

static PyObject *gate_call(Gate *g, PyObject *args, PyObject *kwargs) {
    static PyObject *(*const calls[])(Gate *, Machine *, PyObject *, PyObject *) = {next_batch, call_model, call_backward, before_optimizer,
                                                                                  after_optimizer};
    Machine *m = quick_machine();
    if (!m) return PyObject_Call(g->wrapper, args, kwargs);
    Py_INCREF((PyObject *)m); /* the original may fork, and the child watch with another */
    PyObject *result = calls[g->kind](g, m, args, kwargs);
    Py_DECREF((PyObject *)m);
    return result;
}

/* Found in a class, a gate is called with the instance, as a function is. */
static PyObject *gate_get(PyObject *self, PyObject *instance, PyObject *owner) {
    return is_none(instance) ? Py_NewRef(self) : PyObject_CallFunctionObjArgs(method_type, self, instance, NULL);
}

static PyObject *gate_reduce(Gate *g, PyObject *none) { return PyObject_GetAttrString((PyObject *)g, "__qualname__"); } /* by name */

static int gate_init(Gate *g, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"kind", "wrapper", "fault", "original", "first_batch", "elements_of", NULL};
    PyObject *wrapper, *fault, *original = Py_None, *first_batch = Py_None, *elements_of = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iOO|OOO", names, &g->kind, &wrapper, &fault, &original, &first_batch, &elements_of))
        return -1;
    if (g->wrapper || g->kind < 0 || g->kind > AFTER_OPTIMIZER) {
        PyErr_SetString(PyExc_ValueError, "no such gate");
        return -1;
    }
    g->wrapper = Py_NewRef(wrapper);
    g->fault = Py_NewRef(fault);
    g->original = Py_NewRef(original);
    g->first_batch = Py_NewRef(first_batch);
    g->elements_of = Py_NewRef(elements_of);
    return 0;
}

static PyMemberDef gate_members[] = {
    MEMBER(Gate, wrapper, "wrapper", T_OBJECT),
    {"__dictoffset__", T_PYSSIZET, offsetof(Gate, dict), READONLY, NULL},
    END_OF_MEMBERS,
};

static PyMethodDef gate_methods[] = {
    {"__reduce__", CALLED(gate_reduce), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef gate_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot gate_slots[] = {
    {Py_tp_init, gate_init},         {Py_tp_call, gate_call},       {Py_tp_descr_get, gate_get},
    {Py_tp_members, gate_members},   {Py_tp_methods, gate_methods}, {Py_tp_getset, gate_properties},
    {0, NULL},
};

/* Gates stay for the life of the process, as what they stand in for. */
static PyType_Spec gate_spec = {"tachoscope.training._steps.Gate", sizeof(Gate), 0, Py_TPFLAGS_DEFAULT | METHOD_DESCRIPTOR, gate_slots};
