/* Where the objects and arrays of a list end, found by counting quotes and brackets, as json_brackets.py does. */

#ifndef TACHOSCOPE_SCAN_BRACKETS_H
#define TACHOSCOPE_SCAN_BRACKETS_H

#include "_scan_json.h"

typedef struct {
    int64_t depth;
    bool inside, backslash; /* whether the next byte is inside a string; whether an odd number of backslashes stands before it */
    int64_t end, closed; /* -1: none */
} Brackets;

/* Count through a piece of text; false where a bracket closes that was never opened. */
static bool brackets_counted(Brackets *state, Place start, Place end) {
    Place p = start;
    state->end = state->closed = -1;
    for (; p < end; p++) {
        if (state->inside && !state->backslash) {
            while ((p = special(p, end)) < end && *p != '"' && *p != '\\') p++;
            if (p == end) break;
        }
        bool escaped = state->backslash;
        state->backslash = false;
        switch (*p) {
            case '\\':
                state->backslash = !escaped;
                break;
            case '"':
                state->inside ^= !escaped;
                break;
            case '{': case '[':
                state->depth += !state->inside;
                break;
            case '}': case ']':
                if (state->inside) break;
                if (state->depth == 0) {
                    state->closed = p - start;
                    return *p == ']';
                }
                if (--state->depth == 0) state->end = p + 1 - start;
                break;
        }
    }
    return true;
}

#endif
