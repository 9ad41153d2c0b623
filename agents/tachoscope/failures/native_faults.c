/* Has the stacks of this process dumped when a fault ends it, and leaves the handlers of the job as they are.

   `faulthandler` writes to one file, which is the job's to choose (`python -X faulthandler`, `@record` of torchelastic). So it is not
   enabled here: this handler comes before what was there, or is what a later `faulthandler.enable` calls at last. It raises a signal
   for which `faulthandler.register` dumps into another file, then lets the earlier handler have the fault. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct fault {
    const int number;
    const char *const words;
    struct sigaction previous;
} faults[] = {
    {SIGSEGV, "Segmentation fault"}, {SIGABRT, "Aborted"}, {SIGBUS, "Bus error"}, {SIGFPE, "Floating-point exception"},
    {SIGILL, "Illegal instruction"},
};
enum { FAULTS = sizeof faults / sizeof faults[0], STACK_BYTES = 128 << 10 };

static char own_stack[STACK_BYTES];     /* for an overflow of the main thread's stack */
static int file;
static pid_t owner;                     /* a forked worker is not the process that the file is about */
static int dump_signal;
static struct sigaction dump_action;
static volatile sig_atomic_t is_dumping;

static void write_words(const char *words)
{
    ssize_t ignored = write(file, words, strlen(words));
    (void)ignored;
}

/* Dump all stacks, unless the job has taken the signal for itself. */
static void dump(const struct fault *fault)
{
    struct sigaction now;
    sigset_t wanted, before;
    if (sigaction(dump_signal, NULL, &now) != 0 || now.sa_handler != dump_action.sa_handler)
        return;
    is_dumping = 1;
    write_words("Fatal Python error: ");
    write_words(fault->words);
    write_words("\n\n");
    sigemptyset(&wanted);
    sigaddset(&wanted, dump_signal);
    pthread_sigmask(SIG_UNBLOCK, &wanted, &before);
    raise(dump_signal);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    is_dumping = 0;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    struct fault *fault = faults;
    (void)context;
    while (fault < faults + FAULTS - 1 && fault->number != number)
        fault++;
    if (getpid() == owner && !is_dumping)
        dump(fault);
    sigaction(number, &fault->previous, NULL);
    /* What the kernel sent comes again when its instruction is executed again, with all that the earlier handler may want to know. */
    if (info == NULL || info->si_code <= 0)
        raise(number);                  /* blocked while this runs: it comes on return */
    errno = error;
}

static void have_stack(void)
{
    stack_t now, own = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    if (sigaltstack(NULL, &now) == 0 && ((now.ss_flags & SS_DISABLE) || now.ss_size < sizeof own_stack))
        sigaltstack(&own, NULL);
}

static PyObject *free_signal(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    for (int number = SIGRTMAX - 1; number > SIGRTMIN; number--) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
            return PyLong_FromLong(number);
    }
    return PyLong_FromLong(0);
}

static PyObject *install(PyObject *module, PyObject *arguments)
{
    (void)module;
    if (owner != 0) {
        PyErr_SetString(PyExc_RuntimeError, "installed already");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "ii", &file, &dump_signal))
        return NULL;
    if (sigaction(dump_signal, NULL, &dump_action) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    owner = getpid();
    have_stack();
    for (struct fault *fault = faults; fault < faults + FAULTS; fault++) {
        struct sigaction own;
        memset(&own, 0, sizeof own);
        own.sa_sigaction = on_fault;
        own.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&own.sa_mask);
        sigaction(fault->number, &own, &fault->previous);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"free_signal", free_signal, METH_NOARGS, "Return a signal that nothing handles; 0: there is none."},
    {"install", install, METH_VARARGS,
     "install(file, signal): at a fault write its name to the descriptor and raise the signal; once in a process."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "native_faults", "What a fault leaves.", -1, functions};

PyMODINIT_FUNC PyInit_native_faults(void)
{
    return PyModule_Create(&definition);
}
