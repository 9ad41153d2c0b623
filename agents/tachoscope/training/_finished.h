/* Steps that ended. Usual ones are kept in a ring, from which the sampler's thread takes them; others are told to who follows at once. */

static PyObject *number_or_none(long long value) { return value < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(value); }

static PyObject *finished_step(Machine *m, const Finished *f) {
    PyObject *wall = numbers(f->time.wall), *cpu = f->time.has_cpu ? numbers(f->time.cpu) : Py_NewRef(Py_None);
    return PyObject_CallFunction(m->finished_step, "LLLNNNNLLLL", f->number, f->time.end, f->time.total, wall, cpu,
                                 number_or_none(f->step_delay), number_or_none(f->backward_delay), f->samples, f->tokens,
                                 f->backward_calls, f->elements);
}

/* StepDetail.step_ended */
static void end_detail(StepDetail *d, Finished *f, bool was_read, bool next_is) {
    if (next_is && f->number >= FIRST_DETAILED_STEPS - 1) d->due_at = f->time.end + DETAIL_EVERY_NS;
    if (is_none(d->read_delay)) return;
    long long now = read_delay(d);
    if (was_read) {
        f->step_delay = now - d->step_began;
        f->backward_delay = d->backward;
    }
    d->step_began = now;
    d->backward = 0;
}

/* Whether the followers can get the step later: it is not one of the first, not long, and called only known models. */
static bool is_usual(Machine *m, const Finished *f) {
    bool models = m->models_known && (m->has_models ? m->model_calls > 0 && m->model_calls <= m->most_calls : !m->model_calls);
    return m->quick && models && f->number > m->first_steps && f->time.total < m->slow_step_ns;
}

/* End the step, as StepMachine.end_step; false: with an exception. */
static bool end_step(Machine *m, long long samples, long long tokens, bool at_last) {
    if (!m->trains) {
        PyObject *done = PyObject_CallFunction(in_python[END_STEP], "OLL", m, samples, tokens);
        Py_XDECREF(done); /* `at_last` is said of steps of trainings only */
        return done != NULL;
    }
    Timeline *t = m->timeline;
    m->steps++;
    m->rule->fresh_batch = m->rule->stepped = 0;
    if (m->rule->updates && PyDict_Size(m->rule->updates) > 0) PyDict_Clear(m->rule->updates);
    if (!m->evaluation->settled) {
        Py_CLEAR(m->evaluation->began);
        Py_CLEAR(m->evaluation->after);
    }
    bool was_read = t->reads_cpu, next_is = t->last >= m->detail->due_at, room = m->put - m->taken < RING;
    Finished other, *f = room ? &m->ring[m->put % RING] : &other;
    end_of_step(t, next_is, at_last, &f->time);
    f->number = m->steps;
    f->step_delay = f->backward_delay = -1;
    if (was_read || next_is) end_detail(m->detail, f, was_read, next_is);
    f->samples = samples ? samples : m->samples;
    f->tokens = tokens;
    f->backward_calls = m->backward_calls;
    f->elements = m->elements;
    m->samples = m->elements = m->backward_calls = 0;
    if (room && is_usual(m, f)) {
        m->put++;
        m->model_calls = 0;
        return true;
    }
    PyObject *step = finished_step(m, f), *followers = Py_XNewRef(m->on_step);
    bool told = step != NULL;
    for (Py_ssize_t i = 0; told && followers && i < PyTuple_Size(followers); i++) {
        PyObject *done = PyObject_CallFunctionObjArgs(PyTuple_GetItem(followers, i), step, NULL);
        told = done != NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(step);
    Py_XDECREF(followers);
    return told;
}

/* Return the steps in the ring, oldest first; from any thread. */
static PyObject *machine_take_steps(Machine *m, PyObject *none) {
    PyObject *steps = PyList_New(0);
    while (steps && m->taken < m->put) {
        Finished taken = m->ring[m->taken++ % RING]; /* before Python code runs, and others with it */
        PyObject *step = finished_step(m, &taken);
        if (!step || PyList_Append(steps, step)) Py_CLEAR(steps);
        Py_XDECREF(step);
    }
    if (m->taken == m->put) m->taken = m->put = 0; /* the next steps use the same few cache lines */
    return steps;
}
