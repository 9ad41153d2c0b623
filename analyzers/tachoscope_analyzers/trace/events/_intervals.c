/* Arithmetic on sets of time intervals, as intervals.py does it, in one pass each over what is sorted already. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

enum { MOST_ARRAYS = 6 };

typedef struct {
    Py_buffer views[MOST_ARRAYS];
    int count;
} Arrays;

static void arrays_end(Arrays *arrays) {
    while (arrays->count > 0) PyBuffer_Release(&arrays->views[--arrays->count]);
}

/* Take arrays of 64-bit integers, of which those from `first_written` on are written to. */
static bool arrays_taken(Arrays *arrays, PyObject *const *arguments, Py_ssize_t count, int expected, int first_written) {
    arrays->count = 0;
    if (count != expected) {
        PyErr_Format(PyExc_TypeError, "%d arrays are needed", expected);
        return false;
    }
    for (int i = 0; i < expected; i++) {
        if (PyObject_GetBuffer(arguments[i], &arrays->views[i], PyBUF_ND | (i >= first_written ? PyBUF_WRITABLE : 0)) < 0) break;
        arrays->count++;
        if (arrays->views[i].itemsize != sizeof(int64_t)) {
            PyErr_SetString(PyExc_ValueError, "arrays of 64-bit integers are needed");
            break;
        }
    }
    if (!PyErr_Occurred()) return true;
    arrays_end(arrays);
    return false;
}

static Py_ssize_t length(const Arrays *arrays, int number) { return arrays->views[number].len / (Py_ssize_t)sizeof(int64_t); }

static bool have_length(const Arrays *arrays, int number, int last, Py_ssize_t least) {
    for (; number <= last; number++) {
        if (length(arrays, number) < least) {
            PyErr_SetString(PyExc_ValueError, "an array is too short");
            return false;
        }
    }
    return true;
}

/* How many intervals the union has; -1 where the starts of the non-empty ones do not rise. */
static Py_ssize_t united(const int64_t *starts, const int64_t *ends, Py_ssize_t count, int64_t *into_starts, int64_t *into_ends) {
    Py_ssize_t found = 0;
    int64_t latest = INT64_MIN;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (ends[i] <= starts[i]) continue;
        if (starts[i] < latest) return -1;
        latest = starts[i];
        if (found && starts[i] <= into_ends[found - 1]) {
            if (ends[i] > into_ends[found - 1]) into_ends[found - 1] = ends[i];
        } else {
            into_starts[found] = starts[i];
            into_ends[found++] = ends[i];
        }
    }
    return found;
}

static PyObject *unite(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Arrays arrays;
    if (!arrays_taken(&arrays, arguments, count, 4, 2)) return NULL;
    Py_ssize_t found = -1;
    const Py_ssize_t intervals = length(&arrays, 0);
    if (have_length(&arrays, 1, 3, intervals)) {
        Py_BEGIN_ALLOW_THREADS
        found = united(arrays.views[0].buf, arrays.views[1].buf, intervals, arrays.views[2].buf, arrays.views[3].buf);
        Py_END_ALLOW_THREADS
    }
    arrays_end(&arrays);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(found);
}

typedef struct {
    const int64_t *starts, *ends;
    Py_ssize_t count;
} Set;

static Py_ssize_t intersected(Set one, Set other, int64_t *into_starts, int64_t *into_ends) {
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0, j = 0; i < one.count && j < other.count;) {
        const int64_t start = one.starts[i] > other.starts[j] ? one.starts[i] : other.starts[j];
        const int64_t end = one.ends[i] < other.ends[j] ? one.ends[i] : other.ends[j];
        if (start < end) {
            into_starts[found] = start;
            into_ends[found++] = end;
        }
        if (one.ends[i] < other.ends[j]) i++;
        else j++;
    }
    return found;
}

static PyObject *intersect(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Arrays arrays;
    if (!arrays_taken(&arrays, arguments, count, 6, 4)) return NULL;
    Py_ssize_t found = 0;
    const Set one = {arrays.views[0].buf, arrays.views[1].buf, length(&arrays, 0)};
    const Set other = {arrays.views[2].buf, arrays.views[3].buf, length(&arrays, 2)};
    if (have_length(&arrays, 1, 1, one.count) && have_length(&arrays, 3, 3, other.count) &&
        have_length(&arrays, 4, 5, one.count + other.count)) {
        Py_BEGIN_ALLOW_THREADS
        found = intersected(one, other, arrays.views[4].buf, arrays.views[5].buf);
        Py_END_ALLOW_THREADS
    }
    arrays_end(&arrays);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(found);
}

/* How many intervals begin at a time or before it, looked for from the place of the time before: most times rise. */
static Py_ssize_t begun(Set set, int64_t time, Py_ssize_t near) {
    Py_ssize_t low = 0, high = set.count;
    if (near && set.starts[near - 1] > time) {
        high = near - 1;
    } else {
        low = near;
        for (Py_ssize_t step = 1; low + step <= set.count; step *= 2) {
            if (set.starts[low + step - 1] > time) {
                high = low + step - 1;
                break;
            }
            low += step;
        }
    }
    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (set.starts[middle] <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The length of the set before each time. `before` is that before each of its intervals. */
static void lengths_found(Set set, const int64_t *before, const int64_t *times, Py_ssize_t count, int64_t *found) {
    Py_ssize_t near = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        near = begun(set, times[i], near);
        found[i] = 0;
        if (near) {
            const int64_t end = set.ends[near - 1] < times[i] ? set.ends[near - 1] : times[i];
            found[i] = before[near - 1] + end - set.starts[near - 1];
        }
    }
}

static PyObject *lengths(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    Arrays arrays;
    if (!arrays_taken(&arrays, arguments, count, 5, 4)) return NULL;
    const Set set = {arrays.views[0].buf, arrays.views[1].buf, length(&arrays, 0)};
    const Py_ssize_t times = length(&arrays, 3);
    if (have_length(&arrays, 1, 2, set.count) && have_length(&arrays, 4, 4, times)) {
        Py_BEGIN_ALLOW_THREADS
        lengths_found(set, arrays.views[2].buf, arrays.views[3].buf, times, arrays.views[4].buf);
        Py_END_ALLOW_THREADS
    }
    arrays_end(&arrays);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"unite", (PyCFunction)(void (*)(void))unite, METH_FASTCALL,
     "Write the union of (starts, ends) into two arrays, and return its size; -1 where the starts do not rise."},
    {"intersect", (PyCFunction)(void (*)(void))intersect, METH_FASTCALL,
     "Write the intersection of two sets into two arrays as long as both together, and return its size."},
    {"lengths", (PyCFunction)(void (*)(void))lengths, METH_FASTCALL,
     "Write the length of a set (starts, ends, length before each) before each time."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_intervals", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__intervals(void) { return PyModule_Create(&module); }
