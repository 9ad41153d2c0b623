/* The loop of a replay, as Replay.ends_in_python in replay.py finds it: when each node of a dependency graph ends. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { SOURCE, FIRST, LAG, OWN, UNEXPLAINED, ENDS, ARRAYS };

typedef enum { DONE, NO_MEMORY, TOO_LARGE, NOT_A_GRAPH } Outcome;

typedef struct {
    const int64_t *source, *first, *lag, *own, *unexplained;
    int64_t *ends;
    int64_t nodes, edges;
} Graph;

/* When the last of a node's edges lets it begin. `moments` holds begin and end of each node before it. */
static Outcome begin_of(const Graph *graph, const int64_t *moments, int64_t node, int64_t *begin) {
    const int64_t from = graph->first[node], to = graph->first[node + 1];
    if (from < 0 || to < from || to > graph->edges) return NOT_A_GRAPH;
    *begin = 0;
    for (int64_t edge = from; edge < to; edge++) {
        int64_t ready;
        if (graph->source[edge] < 0 || graph->source[edge] >= 2 * node) return NOT_A_GRAPH;
        if (__builtin_add_overflow(moments[graph->source[edge]], graph->lag[edge], &ready)) return TOO_LARGE;
        if (ready > *begin) *begin = ready;
    }
    return DONE;
}

static Outcome replayed(const Graph *graph) {
    int64_t *moments = malloc((size_t)graph->nodes * 2 * sizeof *moments + 1);
    Outcome outcome = moments ? DONE : NO_MEMORY;
    for (int64_t node = 0; outcome == DONE && node < graph->nodes; node++) {
        int64_t *begin = &moments[2 * node], *end = begin + 1;
        if ((outcome = begin_of(graph, moments, node, begin)) != DONE) break;
        if (__builtin_add_overflow(*begin, graph->unexplained[node], begin) || __builtin_add_overflow(*begin, graph->own[node], end)) {
            outcome = TOO_LARGE;
        } else {
            graph->ends[node] = *end;
        }
    }
    free(moments);
    return outcome;
}

static PyObject *said(Outcome outcome) {
    switch (outcome) {
        case DONE: Py_RETURN_NONE;
        case NO_MEMORY: return PyErr_NoMemory();
        case TOO_LARGE: PyErr_SetString(PyExc_OverflowError, "a moment of the replay does not fit into 64 bits"); return NULL;
        default: PyErr_SetString(PyExc_ValueError, "a node waits for one that stands after it"); return NULL;
    }
}

static bool is_consistent(const Py_buffer *views) {
    for (int i = 0; i < ARRAYS; i++) {
        if (views[i].itemsize != sizeof(int64_t)) return false;
    }
    const Py_ssize_t bytes = views[OWN].len;
    return views[UNEXPLAINED].len == bytes && views[ENDS].len == bytes && views[FIRST].len == bytes + (Py_ssize_t)sizeof(int64_t) &&
           views[SOURCE].len == views[LAG].len;
}

static PyObject *replay(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Py_buffer views[ARRAYS] = {0};
    PyObject *found = NULL;
    int taken = 0;
    if (count != ARRAYS) {
        PyErr_SetString(PyExc_TypeError, "replay(source, first, lag, own, unexplained, ends)");
        return NULL;
    }
    while (taken < ARRAYS && PyObject_GetBuffer(arguments[taken], &views[taken], PyBUF_ND | (taken == ENDS ? PyBUF_WRITABLE : 0)) == 0) {
        taken++;
    }
    if (taken == ARRAYS && !is_consistent(views)) {
        PyErr_SetString(PyExc_ValueError, "arrays of 64-bit integers are needed, of matching lengths");
    } else if (taken == ARRAYS) {
        const Graph graph = {.source = views[SOURCE].buf, .first = views[FIRST].buf, .lag = views[LAG].buf, .own = views[OWN].buf,
                             .unexplained = views[UNEXPLAINED].buf, .ends = views[ENDS].buf,
                             .nodes = views[OWN].len / (Py_ssize_t)sizeof(int64_t), .edges = views[LAG].len / (Py_ssize_t)sizeof(int64_t)};
        Outcome outcome;
        Py_BEGIN_ALLOW_THREADS
        outcome = replayed(&graph);
        Py_END_ALLOW_THREADS
        found = said(outcome);
    }
    while (taken > 0) PyBuffer_Release(&views[--taken]);
    return found;
}

static PyMethodDef methods[] = {
    {"replay", (PyCFunction)(void (*)(void))replay, METH_FASTCALL,
     "Write into `ends` when each node ends, in ns. `source`: 2 n for the begin of node n, 2 n + 1 for its end; `first`: of each node."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_replay", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__replay(void) { return PyModule_Create(&module); }
