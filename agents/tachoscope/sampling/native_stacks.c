/* Stacks of one thread, taken without the interpreter's lock: the module of Python. See native_sampler.h. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "native_sampler.h"
#include "other_process.h"

#include <structmember.h>

static struct sampler *sampler;         /* the one of this process, and of `owner`, which may have forked it; kept after `stop` */
static pid_t owner;
static enum { OFF, ON, STOPPING } state;
static int is_draining;                 /* as the state, only read and written with the interpreter's lock */

static void release(struct sampler *of)
{
    munmap(of, sizeof *of);
}

/* Return a sampler of the calling thread, or NULL with an exception. */
static struct sampler *new_sampler(PyObject *code_type)
{
    struct layout layout;
    const char *reason = find_layout(&layout);
    if (reason != NULL) {
        PyErr_SetString(PyExc_RuntimeError, reason);
        return NULL;
    }
    struct sampler *of = mmap(NULL, sizeof *of, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (of == MAP_FAILED)
        return (struct sampler *)PyErr_SetFromErrno(PyExc_OSError);
    of->layout = layout;
    const uintptr_t thread = (uintptr_t)PyThreadState_Get();
    of->watched = (struct watched){
        .thread = thread, .phase = {thread, 8}, .flag = {thread, 8},  /* what can be read: `start` sets others */
        .thread_id = (uint64_t)pthread_self(), .native_id = (uint64_t)syscall(SYS_gettid),
        .code_type = (uintptr_t)code_type, .text_type = (uintptr_t)&PyUnicode_Type, .bytes_type = (uintptr_t)&PyBytes_Type,
    };
    of->codes.oldest_id = 1;
    return of;
}

static PyObject *text(const unsigned char *data, uint32_t size, uint32_t kind)
{
    const uint16_t probe = 1;
    int order = *(const unsigned char *)&probe ? -1 : 1;
    if (kind == 1)
        return PyUnicode_DecodeLatin1((const char *)data, size, NULL);
    return kind == 2 ? PyUnicode_DecodeUTF16((const char *)data, size, "surrogatepass", &order)
                     : PyUnicode_DecodeUTF32((const char *)data, size, "surrogatepass", &order);
}

/* Return (id, name, filename, first line, line table); takes what it is given. */
static PyObject *code_tuple(uint64_t id, const struct contents *head, const unsigned char *data)
{
    const unsigned char *filename = data + head->name_bytes, *table = filename + head->filename_bytes;
    return Py_BuildValue("KNNiy#", (unsigned long long)id, text(data, head->name_bytes, head->name_kind),
                         text(filename, head->filename_bytes, head->filename_kind), (int)head->first_line, (const char *)table,
                         (Py_ssize_t)head->table_bytes);
}

static PyObject *places_tuple(const struct place *places, unsigned count)
{
    PyObject *all = PyTuple_New(count);
    for (unsigned i = 0; all != NULL && i < count; i++) {
        PyObject *one = Py_BuildValue("KL", (unsigned long long)places[i].id, (long long)places[i].instruction);
        if (one == NULL || PyTuple_SetItem(all, i, one) != 0)
            Py_CLEAR(all);
    }
    return all;
}

/* Append an object that is then released; return 0 or -1 with an exception. */
static int append(PyObject *list, PyObject *item)
{
    int failed = item == NULL || PyList_Append(list, item) != 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

static int drain_code(struct sampler *of, uint64_t *at, const struct record *record, PyObject *codes)
{
    struct code_record code;
    unsigned char *data = PyMem_Malloc(record->bytes);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    copy_out(of, at, &code, sizeof code);
    copy_out(of, at, data, record->bytes - sizeof code);
    int failed = append(codes, code_tuple(code.id, &code.head, data));
    PyMem_Free(data);
    return failed;
}

static int drain_sample(struct sampler *of, uint64_t *at, PyObject *samples)
{
    struct sample_record sample;
    struct place places[MOST_FRAMES];
    copy_out(of, at, &sample, sizeof sample);
    copy_out(of, at, places, sample.count * sizeof *places);
    return append(samples, Py_BuildValue("iON", (int)sample.phase, sample.flag ? Py_True : Py_False,
                                         places_tuple(places, sample.count)));
}

static int is_running(void)
{
    return state == ON && owner == getpid();
}

PyDoc_STRVAR(drain_doc, "Return what was taken since the last call: new codes as (id, name, filename, first line, line table),\n"
                        "samples as (phase, flag, ((code's id, byte of the instruction), ...)), the innermost place first; the\n"
                        "lowest id that later samples may have; and whether the thread still lives. A call within another one gets nothing.");

/* Append what is in the ring to both lists; return 0 or -1 with an exception. */
static int drain_ring(struct sampler *of, PyObject *codes, PyObject *samples)
{
    uint64_t at = atomic_load_explicit(&of->read, memory_order_relaxed);
    const uint64_t end = atomic_load_explicit(&of->written, memory_order_acquire);
    int failed = 0;
    while (at < end && !failed) {
        struct record record;
        copy_out(of, &at, &record, sizeof record);
        failed = record.kind == CODE ? drain_code(of, &at, &record, codes) : drain_sample(of, &at, samples);
    }
    atomic_store_explicit(&of->read, end, memory_order_release);
    return failed;
}

static PyObject *drain(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    PyObject *codes = PyList_New(0), *samples = PyList_New(0);
    uint64_t oldest = 0;
    int failed = codes == NULL || samples == NULL, lives = 0;
    if (!failed && is_running() && !is_draining) {
        struct sampler *of = sampler;
        struct timespec now;
        is_draining = 1;                /* making objects may run any Python, and that may call `drain`, `stop` and `start` */
        failed = drain_ring(of, codes, samples);
        oldest = atomic_load_explicit(&of->oldest_id, memory_order_relaxed);
        lives = clock_gettime(of->clock, &now) == 0;
        is_draining = 0;
    }
    if (failed) {
        Py_XDECREF(codes);
        Py_XDECREF(samples);
        return NULL;
    }
    return Py_BuildValue("NNKO", codes, samples, (unsigned long long)oldest, lives ? Py_True : Py_False);
}

PyDoc_STRVAR(counts_doc, "Return how many samples were taken, and dropped: torn (no stack could be read), late (the thread waited by then)\n"
                         "and overflowed (`drain` was not called in time).");

static PyObject *counts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    if (!is_running())
        return PyDict_New();
    struct counts *of = &sampler->counts;
    return Py_BuildValue("{sKsKsKsK}", "taken", (unsigned long long)of->taken, "torn", (unsigned long long)of->torn, "late",
                         (unsigned long long)of->late, "overflowed", (unsigned long long)of->overflowed);
}

/* Return the frames that were read last, None for one whose names or table are too large; NULL with an exception if they form no stack. */
static PyObject *frames_list(struct sampler *of)
{
    PyObject *found = PyList_New(0);
    for (unsigned i = 0; found != NULL && i < of->stack.count; i++) {
        const struct code *code = code_at(&of->codes, of->stack.frames[i].code);
        int64_t byte = code->readable ? instruction_of(&of->layout, &of->stack.frames[i], &code->head) : 0;
        if (byte == NO_INSTRUCTION) {
            PyErr_SetString(PyExc_RuntimeError, "the frames that were read do not form a stack: this interpreter has a different layout");
            Py_CLEAR(found);
        } else if (append(found, code->readable ? Py_BuildValue("NL", code_tuple(0, &code->head, code->data), (long long)byte)
                                                : Py_BuildValue("")) != 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

PyDoc_STRVAR(sample_self_doc, "sample_self(code_type): return the calling thread's stack as (name, filename, first line, line table, byte of\n"
                              "the instruction), the innermost first, read as those of others are; None for a frame whose names or table are too large.\n\n"
                              "Raises:\n    RuntimeError: this interpreter's layout is not known, or its memory cannot be read.");

static PyObject *sample_self(PyObject *Py_UNUSED(module), PyObject *code_type)
{
    struct sampler *of = new_sampler(code_type);
    if (of == NULL)
        return NULL;
    PyObject *found = NULL;
    if (!read_stack(&of->layout, &of->watched, &of->stack)) {
        PyErr_SetString(PyExc_RuntimeError, "process_vm_readv is not permitted, or this interpreter has a different layout");
    } else {
        read_codes(&of->layout, &of->watched, &of->stack, &of->codes);
        found = frames_list(of);
    }
    release(of);
    return found;
}

PyDoc_STRVAR(locator_doc, "locator(code_type): return where `stacks_of` finds the threads of this process, from any other process of this machine.\n\n"
                          "Raises:\n    RuntimeError: this interpreter's layout is not known.");

static PyObject *locator(PyObject *Py_UNUSED(module), PyObject *code_type)
{
    struct locator of;
    memset(&of, 0, sizeof of);
    const char *reason = find_layout(&of.layout);
    if (reason != NULL) {
        PyErr_SetString(PyExc_RuntimeError, reason);
        return NULL;
    }
    memcpy(of.magic, LOCATOR_MAGIC, sizeof of.magic);
    of.thread = (uint64_t)(uintptr_t)PyThreadState_Get();
    of.code_type = (uint64_t)(uintptr_t)code_type;
    of.text_type = (uint64_t)(uintptr_t)&PyUnicode_Type;
    of.bytes_type = (uint64_t)(uintptr_t)&PyBytes_Type;
    return PyBytes_FromStringAndSize((const char *)&of, sizeof of);
}

PyDoc_STRVAR(stacks_of_doc, "stacks_of(pid, locator): return the Python threads of another process as (native id, frames), that which wrote the locator first.\n\n"
                            "Frames are those of `sample_self`, none where the thread is in no Python code or no stack could be read. A forked child has\n"
                            "the locator of its parent. The interpreter's lock is released while memory is read.\n\n"
                            "Raises:\n    ValueError: not a locator. OSError: the process cannot be read.");

/* Read one thread and append it; return 0 or -1 with an exception. */
static int append_thread(struct sampler *of, const struct locator *where, pid_t pid, uint64_t thread, PyObject *found)
{
    Py_BEGIN_ALLOW_THREADS
    read_from = pid;
    read_other_thread(where, thread, &of->watched, &of->stack, &of->codes);
    read_from = 0;
    Py_END_ALLOW_THREADS
    PyObject *frames = frames_list(of);
    if (frames == NULL && PyErr_ExceptionMatches(PyExc_RuntimeError)) {  /* the thread runs, and its stack changed meanwhile */
        PyErr_Clear();
        frames = PyList_New(0);
    }
    return frames == NULL ? -1 : append(found, Py_BuildValue("KN", (unsigned long long)of->watched.native_id, frames));
}

static PyObject *stacks_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int pid;
    const char *data;
    Py_ssize_t size;
    struct locator where;
    uint64_t threads[MOST_THREADS], first;
    unsigned count = 0;
    int readable;
    if (!PyArg_ParseTuple(arguments, "iy#", &pid, &data, &size))
        return NULL;
    memcpy(&where, data, (size_t)size < sizeof where ? (size_t)size : sizeof where);
    if (!is_locator(&where, (size_t)size)) {
        PyErr_SetString(PyExc_ValueError, "not a locator of this version");
        return NULL;
    }
    struct sampler *of = mmap(NULL, sizeof *of, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (of == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    of->layout = where.layout;
    Py_BEGIN_ALLOW_THREADS
    read_from = pid;
    errno = 0;
    readable = read_all(&(struct part){where.thread, &first, sizeof first}, 1);
    if (readable)
        count = find_threads(&where, threads);
    read_from = 0;
    Py_END_ALLOW_THREADS
    PyObject *found = readable ? PyList_New(0) : PyErr_SetFromErrno(PyExc_OSError);
    for (unsigned i = 0; found != NULL && i < count; i++)
        if (append_thread(of, &where, pid, threads[i], found) != 0)
            Py_CLEAR(found);
    release(of);
    return found;
}

PyDoc_STRVAR(member_doc, "member(descriptor): return (name, kind, offset) of a member descriptor, as PyMemberDef has them.\n\n"
                         "Raises:\n    RuntimeError: it cannot be read.");

static PyObject *member(PyObject *Py_UNUSED(module), PyObject *descriptor)
{
    enum { DEFINITION = 40 };           /* in a PyMemberDescrObject, the same in 3.11 to 3.14 */
    uint64_t definition;
    PyMemberDef found;
    char name[65] = {0};
    if (read_all(&(struct part){(uintptr_t)descriptor + DEFINITION, &definition, 8}, 1) &&
        read_all(&(struct part){definition, &found, sizeof found}, 1)) {
        const uintptr_t begin = (uintptr_t)found.name, rest = PAGE - begin % PAGE;  /* a short name at the end of what is mapped */
        if (read_all(&(struct part){begin, name, rest < 64 ? rest : 64}, 1))
            return Py_BuildValue("yin", name, found.type, found.offset);
    }
    PyErr_SetString(PyExc_RuntimeError, "this descriptor cannot be read");
    return NULL;
}

/* Take the objects that stand for the phases; return 0 or -1 with an exception. */
static int set_phases(struct sampler *of, PyObject *phases)
{
    Py_ssize_t count = PyTuple_Size(phases);
    if (count < 0 || count > (Py_ssize_t)(sizeof of->phases / sizeof *of->phases)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "too many phases");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        of->phases[i] = (uint64_t)(uintptr_t)PyTuple_GetItem(phases, i);
    of->phase_count = (uint32_t)count;
    return 0;
}

PyDoc_STRVAR(start_doc, "start(code_type, seconds, phase, phases, flag): begin to sample the calling thread each so many seconds of its CPU time.\n\n"
                        "phase and flag are (address, bytes) of members of living objects: one of eight bytes points to an object, others are\n"
                        "integers. That of the phase points to one of `phases`, which\n"
                        "must live until `stop`, that of the flag to True or False. What was running in this process must be stopped.\n\n"
                        "Raises:\n    RuntimeError: the layout is not known, or it runs already.\n"
                        "    OSError: the system refuses the timer or the thread.");

/* Set what is known before the native thread starts; return 0 or an error's number. */
static int prepare(struct sampler *of, double seconds)
{
    of->flag_set = (uint64_t)(uintptr_t)Py_True;
    of->every_ns = seconds > 1e-4 && seconds < 1e6 ? (uint64_t)(seconds * A_SECOND) : A_SECOND / 10;
    of->random = nanoseconds(CLOCK_MONOTONIC) | 1;
    of->signal = free_signal();
    snprintf(of->state_path, sizeof of->state_path, "/proc/self/task/%d/stat", (int)of->watched.native_id);
    if (of->signal == 0)
        return EBUSY;
    if (sem_init(&of->ready, 0, 0) != 0)
        return errno;
    return pthread_getcpuclockid(pthread_self(), &of->clock);
}

static PyObject *start(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *code_type, *phases;
    double seconds;
    unsigned long long phase, flag;
    Py_ssize_t phase_bytes, flag_bytes;
    if (!PyArg_ParseTuple(arguments, "Od(Kn)O(Kn)", &code_type, &seconds, &phase, &phase_bytes, &phases, &flag, &flag_bytes))
        return NULL;
    if (phase_bytes < 1 || phase_bytes > 8 || flag_bytes < 1 || flag_bytes > 8) {
        PyErr_SetString(PyExc_ValueError, "a member has 1 to 8 bytes");
        return NULL;
    }
    if (owner == getpid() && state != OFF) {
        PyErr_SetString(PyExc_RuntimeError, "a thread of this process is sampled already");
        return NULL;
    }
    struct sampler *of = new_sampler(code_type);
    if (of == NULL)
        return NULL;
    of->watched.phase = (struct member){phase, (size_t)phase_bytes};
    of->watched.flag = (struct member){flag, (size_t)flag_bytes};
    if (set_phases(of, phases) != 0) {
        release(of);
        return NULL;
    }
    int error = prepare(of, seconds);
    if (error == 0)
        error = start_thread(of);
    if (error != 0) {
        release(of);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if (sampler != NULL && !is_draining)  /* stopped, or of the process that forked this one */
        release(sampler);
    sampler = of;
    owner = getpid();
    state = ON;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_doc, "End the sampling that runs in this process, if one does; what was not drained is lost.");

static PyObject *stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    if (is_running()) {
        struct sampler *of = sampler;
        state = STOPPING;               /* before the lock is given away; the memory stays, for one who drains */
        Py_BEGIN_ALLOW_THREADS
        stop_thread(of);
        Py_END_ALLOW_THREADS
        state = OFF;
    }
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"sample_self", sample_self, METH_O, sample_self_doc},
    {"locator", locator, METH_O, locator_doc},
    {"stacks_of", stacks_of, METH_VARARGS, stacks_of_doc},
    {"member", member, METH_O, member_doc},
    {"start", start, METH_VARARGS, start_doc},
    {"drain", drain, METH_NOARGS, drain_doc},
    {"counts", counts, METH_NOARGS, counts_doc},
    {"stop", stop, METH_NOARGS, stop_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "native_stacks", "Stacks of a thread, taken without the interpreter's lock.", -1, METHODS, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_native_stacks(void)
{
    return PyModule_Create(&MODULE);
}
