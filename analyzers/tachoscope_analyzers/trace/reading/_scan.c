/* The text of a chunk of events to rows of numbers, without a Python object for each of them and without the GIL.

   `scan(chunk, categories)` returns None for a chunk that is not plain throughout; decode_events.py then reads all of it, and what is
   wrong with it is found and said there. `last_end` finds where the last whole event of a text ends. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_scan_brackets.h"
#include "_scan_events.h"

static void scan_end(Scan *scan) {
    for (int i = 0; i < TABLES; i++) free(scan->tables[i].rows);
    free((void *)scan->categories);
    free(scan->groups);
    texts_end(&scan->texts);
}

/* Take the groups of categories from a dict; the names stay where they are as long as it does. */
static bool categories_taken(Scan *scan, PyObject *groups) {
    PyObject *name, *group;
    Py_ssize_t place = 0, size = PyDict_Size(groups);
    if (size < 0) return false;
    Category *taken = calloc((size_t)size + 1, sizeof *taken);
    if (!taken) {
        PyErr_NoMemory();
        return false;
    }
    scan->categories = taken;
    while (PyDict_Next(groups, &place, &name, &group)) {
        Category *one = &taken[scan->category_count];
        Py_ssize_t length;
        if ((one->name = PyUnicode_AsUTF8AndSize(name, &length)) == NULL) return false;
        one->length = (size_t)length;
        one->group = (int)PyLong_AsLong(group);
        if (PyErr_Occurred()) return false;
        scan->category_count++;
    }
    return true;
}

static PyObject *track_part(Span value) {
    int64_t number = 0;
    if (!value.at || *value.at == 'n') Py_RETURN_NONE;
    if (*value.at == '"') return PyUnicode_DecodeUTF8((const char *)value.at + 1, value.length - 2, NULL);
    whole_number(value.at, &number);
    return PyLong_FromLongLong(number);
}

/* A text as Python has it: bytes with their quotes where there are escapes in it, a piece of JSON with invalid UTF-8 replaced. */
static PyObject *object_of(const Text *text) {
    const Span span = text->first;
    switch (text->column) {
        case TRACK: {
            PyObject *process = track_part(text->first), *thread = process ? track_part(text->second) : NULL;
            PyObject *both = thread ? PyTuple_Pack(2, process, thread) : NULL;
            Py_XDECREF(process);
            Py_XDECREF(thread);
            return both;
        }
        case GRID: case BLOCK: case SHAPES: case TYPES: case CONCRETE: case GROUP_RANKS:
            return PyUnicode_DecodeUTF8((const char *)span.at, span.length, "replace");
        default:
            if (span.escaped) return PyBytes_FromStringAndSize((const char *)span.at - 1, (Py_ssize_t)span.length + 2);
            return PyUnicode_DecodeUTF8(span.at ? (const char *)span.at : "", span.length, NULL);
    }
}

static PyObject *texts_by_column(const Texts *all) {
    PyObject *columns = PyTuple_New(COLUMNS);
    for (int i = 0; columns && i < COLUMNS; i++) {
        PyObject *list = PyList_New(all->codes[i]);
        if (!list || PyTuple_SetItem(columns, i, list) < 0) Py_CLEAR(columns);
    }
    for (uint32_t i = 0; columns && i < all->count; i++) {
        const Text *text = &all->texts[i];
        PyObject *object = object_of(text);
        if (!object || PyList_SetItem(PyTuple_GetItem(columns, text->column), text->code, object) < 0) Py_CLEAR(columns);
    }
    return columns;
}

/* The events that Python reads, as a JSON list. */
static PyObject *others_joined(const Table *others) {
    const Span *spans = (const Span *)others->rows;
    Py_ssize_t size = 2;
    for (size_t i = 0; i < others->count; i++) size += (Py_ssize_t)spans[i].length + (i > 0);
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size);
    if (!joined) return NULL;
    char *p = PyBytes_AsString(joined);
    *p++ = '[';
    for (size_t i = 0; i < others->count; i++) {
        if (i) *p++ = ',';
        memcpy(p, spans[i].at, spans[i].length);
        p += spans[i].length;
    }
    *p = ']';
    return joined;
}

static PyObject *result(const Scan *scan) {
    PyObject *found = PyTuple_New(TABLES + 2);
    PyObject *parts[TABLES + 2] = {PyLong_FromLongLong(scan->events), texts_by_column(&scan->texts), others_joined(&scan->tables[OTHERS])};
    for (int i = 0; i < OTHERS; i++) {
        const Table *table = &scan->tables[i];
        parts[3 + i] = PyBytes_FromStringAndSize(table->rows, (Py_ssize_t)(table->count * row_bytes[i]));
    }
    for (int i = 0; i < TABLES + 2; i++) {
        if (found && parts[i]) {
            PyTuple_SetItem(found, i, parts[i]);
        } else {
            Py_XDECREF(parts[i]);
            Py_CLEAR(found);
        }
    }
    if (!found && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) { /* Python says where */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return found;
}

static PyObject *scan_chunk(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Scan scan = {0};
    char *text;
    Py_ssize_t length;
    if (count != 2 || !PyDict_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "scan(chunk: bytes, groups_of_categories: dict)");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &text, &length) < 0) return NULL;
    if (length > INT32_MAX) Py_RETURN_NONE;
    PyObject *found = NULL;
    bool is_plain = false;
    if (categories_taken(&scan, arguments[1])) {
        Py_BEGIN_ALLOW_THREADS
        scan.end = (Place)text + length;
        scan.no_memory = !texts_begin(&scan.texts);
        is_plain = !scan.no_memory && scanned(&scan, (Place)text);
        Py_END_ALLOW_THREADS
        if (scan.no_memory) {
            PyErr_NoMemory();
        } else {
            found = is_plain ? result(&scan) : Py_NewRef(Py_None);
        }
    }
    scan_end(&scan);
    return found;
}

static PyObject *last_end(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    char *text;
    Py_ssize_t length;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "last_end(text: bytes, depth: int, inside: bool, backslash: bool)");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &text, &length) < 0) return NULL;
    Brackets state = {.depth = PyLong_AsLongLong(arguments[1]), .inside = PyObject_IsTrue(arguments[2]) > 0,
                      .backslash = PyObject_IsTrue(arguments[3]) > 0};
    if (PyErr_Occurred()) return NULL;
    bool is_plain;
    Py_BEGIN_ALLOW_THREADS
    is_plain = brackets_counted(&state, (Place)text, (Place)text + length);
    Py_END_ALLOW_THREADS
    if (!is_plain) Py_RETURN_NONE;
    return Py_BuildValue("LLLOO", (long long)state.end, (long long)state.closed, (long long)state.depth,
                         state.inside ? Py_True : Py_False, state.backslash ? Py_True : Py_False);
}

static PyMethodDef methods[] = {
    {"last_end", (PyCFunction)(void (*)(void))last_end, METH_FASTCALL,
     "Return where the last value of a list ends and where the list closes, -1 for neither, and the state for what follows."},
    {"scan", (PyCFunction)(void (*)(void))scan_chunk, METH_FASTCALL, "Return the rows of a chunk of events, None if it is not plain."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_scan", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__scan(void) {
    names_fill(&argument_names, arguments_known, sizeof arguments_known / sizeof *arguments_known);
    names_fill(&field_names, fields_known, sizeof fields_known / sizeof *fields_known);
    return PyModule_Create(&module);
}
