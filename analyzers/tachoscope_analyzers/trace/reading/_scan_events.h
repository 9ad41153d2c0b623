/* The events of a chunk to rows of numbers and of codes of texts. scan.py names the fields of these rows in the same order. */

#ifndef TACHOSCOPE_SCAN_EVENTS_H
#define TACHOSCOPE_SCAN_EVENTS_H

#include <math.h>

#include "_scan_names.h"
#include "_scan_texts.h"

enum column {
    NAME, CATEGORY, TRACK, GRID, BLOCK, SHAPES, TYPES, CONCRETE, COLLECTIVE, GROUP, GROUP_DESCRIPTION, GROUP_RANKS, DTYPE, STACK,
    COLUMNS
};

typedef struct {
    int64_t digits;
    double duration;
    int32_t category, name, track, decimals;
    int64_t correlation, external;
} EventRow;

typedef struct {
    int64_t row, stream, device, bytes;
    double occupancy, blocks_per_sm;
    int32_t grid, block;
    int64_t graph_node, wait_stream, wait_correlation;
} DeviceRow;

typedef struct {
    int64_t row;
    int32_t shapes, types, concrete;
    int64_t sequence, forward_thread;
} OperatorRow;

typedef struct {
    int64_t row, id, parent;
} PythonRow;

typedef struct {
    int64_t row;
    int32_t collective;
    int64_t in_elements, out_elements, group_size;
    int32_t group, group_description, group_ranks, dtype;
    int64_t sequence;
} CollectiveRow;

typedef struct {
    int64_t row;
    int32_t stack;
} StackRow;

enum table { EVENTS, DEVICE, OPERATORS, PYTHON, COLLECTIVES, STACKS, OTHERS, TABLES };

static const size_t row_bytes[TABLES] = {sizeof(EventRow),  sizeof(DeviceRow),     sizeof(OperatorRow),
                                         sizeof(PythonRow), sizeof(CollectiveRow), sizeof(StackRow), sizeof(Span)};

typedef struct {
    char *rows;
    size_t count, room;
} Table;

/* What a category's events are, as columns.py says; a category that is not among these has no table of its own. */
enum group { NO_TABLE, ON_DEVICE, SHAPED, OF_PYTHON };

typedef struct {
    const char *name; /* in lower case */
    size_t length;
    int group;
} Category;

typedef struct {
    Place end;
    const Category *categories;
    size_t category_count;
    Texts texts;
    Keys fields, arguments;
    Table tables[TABLES];
    uint8_t *groups; /* by code of category, of this chunk */
    size_t groups_room;
    int64_t events; /* of all phases */
    bool no_memory;
} Scan;

enum value { WHOLE, WHOLE_OR_TEXT, WHOLE_OR_NULL, FRACTION, ANY, TEXT };

enum whole {
    EXTERNAL, EXTERNAL_OLD, CORRELATION, STREAM, DEVICE_ID, BYTES, GRAPH_NODE, IN_ELEMENTS, OUT_ELEMENTS, GROUP_SIZE,
    COLLECTIVE_SEQUENCE, SEQUENCE, FORWARD_THREAD, PYTHON_ID, PYTHON_PARENT, WAIT_STREAM, WAIT_CORRELATION,
    WHOLES
};

enum fraction { OCCUPANCY, BLOCKS_PER_SM, FRACTIONS };

/* The arguments of `Args` in decode_events.py. */
static const Known arguments_known[] = {
    KNOWN("External id", WHOLE, EXTERNAL),
    KNOWN("external id", WHOLE, EXTERNAL_OLD),
    KNOWN("correlation", WHOLE, CORRELATION),
    KNOWN("stream", WHOLE_OR_TEXT, STREAM),
    KNOWN("device", WHOLE, DEVICE_ID),
    KNOWN("bytes", WHOLE_OR_TEXT, BYTES),
    KNOWN("grid", ANY, GRID),
    KNOWN("block", ANY, BLOCK),
    KNOWN("est. achieved occupancy %", FRACTION, OCCUPANCY),
    KNOWN("blocks per SM", FRACTION, BLOCKS_PER_SM),
    KNOWN("graph node id", WHOLE, GRAPH_NODE),
    KNOWN("Collective name", TEXT, COLLECTIVE),
    KNOWN("In msg nelems", WHOLE, IN_ELEMENTS),
    KNOWN("Out msg nelems", WHOLE, OUT_ELEMENTS),
    KNOWN("Group size", WHOLE, GROUP_SIZE),
    KNOWN("Process Group Name", TEXT, GROUP),
    KNOWN("Process Group Description", TEXT, GROUP_DESCRIPTION),
    KNOWN("Process Group Ranks", ANY, GROUP_RANKS),
    KNOWN("dtype", TEXT, DTYPE),
    KNOWN("Seq", WHOLE, COLLECTIVE_SEQUENCE),
    KNOWN("Input Dims", ANY, SHAPES),
    KNOWN("Input type", ANY, TYPES),
    KNOWN("Concrete Inputs", ANY, CONCRETE),
    KNOWN("Sequence number", WHOLE, SEQUENCE),
    KNOWN("Fwd thread id", WHOLE, FORWARD_THREAD),
    KNOWN("Call stack", TEXT, STACK),
    KNOWN("Python id", WHOLE, PYTHON_ID),
    KNOWN("Python parent id", WHOLE_OR_NULL, PYTHON_PARENT),
    KNOWN("wait_on_stream", WHOLE, WAIT_STREAM),
    KNOWN("wait_on_cuda_event_record_corr_id", WHOLE, WAIT_CORRELATION),
};

typedef struct {
    int64_t wholes[WHOLES];
    double fractions[FRACTIONS];
    Span spans[COLUMNS]; /* of texts and of values of any type */
} Arguments;

static const Arguments no_arguments = {
    .wholes = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}, .fractions = {-1.0, -1.0}};

enum field { PHASE, TIME, DURATION, NAME_FIELD, CATEGORY_FIELD, PROCESS, THREAD, ARGUMENTS, FIELDS };

static const Known fields_known[] = {
    KNOWN("ph", 0, PHASE),           KNOWN("ts", 0, TIME),     KNOWN("dur", 0, DURATION), KNOWN("name", 0, NAME_FIELD),
    KNOWN("cat", 0, CATEGORY_FIELD), KNOWN("pid", 0, PROCESS), KNOWN("tid", 0, THREAD),   KNOWN("args", 0, ARGUMENTS),
};

static Names argument_names, field_names;

static void *row_added(Scan *scan, enum table which) {
    Table *table = &scan->tables[which];
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 1024;
        char *rows = realloc(table->rows, room * row_bytes[which]);
        if (!rows) {
            scan->no_memory = true;
            return NULL;
        }
        table->rows = rows;
        table->room = room;
    }
    return table->rows + row_bytes[which] * table->count++;
}

static bool is_ascii(Span text) {
    uint8_t all = 0;
    for (uint32_t i = 0; i < text.length; i++) all |= text.at[i];
    return all < 0x80;
}

/* Write the code of a text, an absent one as the empty text; false where it is left to Python. */
static bool coded(Scan *scan, enum column column, Span text, int32_t *code) {
    bool is_new;
    Text *found = text_of(&scan->texts, (uint8_t)column, text, (Span){0}, &is_new, &scan->no_memory);
    if (!found) return false;
    *code = found->code;
    return true;
}

static Place text_or_null(Place p, Place end, Span *text) { return *p == '"' ? string(p, end, text) : word(p, "null"); }

static Place argument(Place p, Place end, const Known *known, Arguments *arguments) {
    Span text;
    switch (known->type) {
        case WHOLE:
            return whole_number(p, &arguments->wholes[known->slot]);
        case WHOLE_OR_TEXT:
            if (*p != '"') return whole_number(p, &arguments->wholes[known->slot]);
            p = string(p, end, &text);
            return p && is_ascii(text) ? p : NULL;
        case WHOLE_OR_NULL:
            return *p == 'n' ? word(p, "null") : whole_number(p, &arguments->wholes[known->slot]);
        case FRACTION:
            return fraction(p, &arguments->fractions[known->slot]);
        case TEXT:
            return text_or_null(p, end, &arguments->spans[known->slot]);
        default: {
            Place after = skipped(p, end, 0);
            if (after) arguments->spans[known->slot] = (Span){.at = p, .length = (uint32_t)(after - p)};
            return after;
        }
    }
}

/* From the bracket of an event's arguments. */
static Place arguments_of(Scan *scan, Place p, Arguments *arguments) {
    const Place end = scan->end;
    uint32_t seen = 0;
    *arguments = no_arguments;
    if (*p != '{') return NULL;
    if (*(p = space(p + 1)) == '}') return p + 1;
    scan->arguments.latest = 0;
    for (int number;;) {
        if ((p = numbered_key(&scan->arguments, &argument_names, p, end, &number)) == NULL) return NULL;
        if (number < 0) {
            p = skipped(p, end, 0);
        } else {
            if (seen >> number & 1) return NULL;
            seen |= (uint32_t)1 << number;
            p = argument(p, end, &arguments_known[number], arguments);
        }
        if (p == NULL) return NULL;
        p = space(p);
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = space(p + 1);
    }
}

/* What a category's events are; -1 for a category that only Python can bring to lower case. */
static int group_of(const Scan *scan, Span text) {
    if (text.escaped || !is_ascii(text)) return -1;
    for (size_t i = 0; i < scan->category_count; i++) {
        const Category *known = &scan->categories[i];
        size_t same = 0;
        if (known->length != text.length) continue;
        while (same < text.length) {
            uint8_t byte = text.at[same];
            if ((byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte) != (uint8_t)known->name[same]) break;
            same++;
        }
        if (same == text.length) return known->group;
    }
    return NO_TABLE;
}

static bool category_coded(Scan *scan, Span text, int32_t *code, int *group) {
    bool is_new;
    Text *found = text_of(&scan->texts, CATEGORY, text, (Span){0}, &is_new, &scan->no_memory);
    if (!found) return false;
    *code = found->code;
    if (is_new) {
        int known = group_of(scan, text);
        if (known < 0) return false;
        if ((size_t)*code >= scan->groups_room) {
            size_t room = scan->groups_room ? 2 * scan->groups_room : 256;
            uint8_t *groups = realloc(scan->groups, room);
            if (!groups) {
                scan->no_memory = true;
                return false;
            }
            scan->groups = groups;
            scan->groups_room = room;
        }
        scan->groups[*code] = (uint8_t)known;
    }
    *group = scan->groups[*code];
    return true;
}

/* Whether the name of a process or thread is a number, a text or null. */
static bool is_track(Span value) {
    int64_t number;
    if (!value.at || *value.at == 'n') return true;
    if (*value.at == '"') return !value.escaped;
    return whole_number(value.at, &number) == value.at + value.length;
}

static bool track_coded(Scan *scan, Span process, Span thread, int32_t *code) {
    bool is_new;
    Text *found = text_of(&scan->texts, TRACK, process, thread, &is_new, &scan->no_memory);
    if (!found) return false;
    *code = found->code;
    return !is_new || (is_track(process) && is_track(thread));
}

static bool device_row(Scan *scan, const Arguments *arguments, int64_t row) {
    DeviceRow *added = row_added(scan, DEVICE);
    if (!added) return false;
    const int64_t *wholes = arguments->wholes;
    *added = (DeviceRow){
        .row = row,
        .stream = wholes[STREAM],
        .device = wholes[DEVICE_ID],
        .bytes = wholes[BYTES],
        .graph_node = wholes[GRAPH_NODE],
        .wait_stream = wholes[WAIT_STREAM],
        .wait_correlation = wholes[WAIT_CORRELATION],
        .occupancy = arguments->fractions[OCCUPANCY],
        .blocks_per_sm = arguments->fractions[BLOCKS_PER_SM],
    };
    return coded(scan, GRID, arguments->spans[GRID], &added->grid) && coded(scan, BLOCK, arguments->spans[BLOCK], &added->block);
}

static bool operator_row(Scan *scan, const Arguments *arguments, int64_t row) {
    OperatorRow *added = row_added(scan, OPERATORS);
    if (!added) return false;
    *added = (OperatorRow){
        .row = row,
        .sequence = arguments->wholes[SEQUENCE],
        .forward_thread = arguments->wholes[FORWARD_THREAD],
    };
    return coded(scan, SHAPES, arguments->spans[SHAPES], &added->shapes) &&
           coded(scan, TYPES, arguments->spans[TYPES], &added->types) &&
           coded(scan, CONCRETE, arguments->spans[CONCRETE], &added->concrete);
}

static bool python_row(Scan *scan, const Arguments *arguments, int64_t row) {
    PythonRow *added = row_added(scan, PYTHON);
    if (!added) return false;
    *added = (PythonRow){.row = row, .id = arguments->wholes[PYTHON_ID], .parent = arguments->wholes[PYTHON_PARENT]};
    return true;
}

static bool collective_row(Scan *scan, const Arguments *arguments, int64_t row) {
    CollectiveRow *added = row_added(scan, COLLECTIVES);
    if (!added) return false;
    const int64_t *wholes = arguments->wholes;
    const Span *spans = arguments->spans;
    *added = (CollectiveRow){
        .row = row,
        .in_elements = wholes[IN_ELEMENTS],
        .out_elements = wholes[OUT_ELEMENTS],
        .group_size = wholes[GROUP_SIZE],
        .sequence = wholes[COLLECTIVE_SEQUENCE],
    };
    return coded(scan, COLLECTIVE, spans[COLLECTIVE], &added->collective) && coded(scan, GROUP, spans[GROUP], &added->group) &&
           coded(scan, GROUP_DESCRIPTION, spans[GROUP_DESCRIPTION], &added->group_description) &&
           coded(scan, GROUP_RANKS, spans[GROUP_RANKS], &added->group_ranks) && coded(scan, DTYPE, spans[DTYPE], &added->dtype);
}

static bool stack_row(Scan *scan, const Arguments *arguments, int64_t row) {
    StackRow *added = row_added(scan, STACKS);
    if (!added) return false;
    *added = (StackRow){.row = row};
    return coded(scan, STACK, arguments->spans[STACK], &added->stack);
}

static bool rows_of_arguments(Scan *scan, const Arguments *arguments, int group, int64_t row) {
    const Span *spans = arguments->spans;
    if (group == ON_DEVICE && !device_row(scan, arguments, row)) return false;
    if (group == SHAPED && !operator_row(scan, arguments, row)) return false;
    if (group == OF_PYTHON && !python_row(scan, arguments, row)) return false;
    if (spans[STACK].length && !stack_row(scan, arguments, row)) return false;
    if (spans[COLLECTIVE].at) return collective_row(scan, arguments, row);
    return is_ascii(spans[GROUP]) && is_ascii(spans[GROUP_DESCRIPTION]) && is_ascii(spans[DTYPE]); /* unused, but checked by Python */
}

/* Microseconds as digits, where nanoseconds of them are a time. */
static bool time_of(Place p, EventRow *row) {
    static const int64_t largest = INT64_MAX / 8 * 3;
    static const int64_t scales[] = {1000, 100, 10, 1};
    Decimal number;
    Place after = decimal(p, &number);
    if (!after || *after == 'e' || *after == 'E' || number.decimals > 12) return false;
    if (number.value > (uint64_t)(largest / scales[number.decimals < 3 ? number.decimals : 3])) return false;
    row->digits = number.negative ? -(int64_t)number.value : (int64_t)number.value;
    row->decimals = number.decimals;
    return true;
}

/* The text between the quotes of a value, an empty one where there is none; false for other values. */
static inline bool text_between(Span value, Span *text) {
    *text = (Span){0};
    if (!value.at) return true;
    *text = (Span){.at = value.at + 1, .length = value.length - 2, .escaped = value.escaped};
    return *value.at == '"';
}

/* A complete event, from the values of its fields. */
static bool complete(Scan *scan, const Span *values, const Arguments *arguments) {
    Span name, category;
    int group;
    double duration = NAN;
    if (!values[TIME].at) return false;
    if (values[DURATION].at && !fraction(values[DURATION].at, &duration)) return false;
    if (!text_between(values[NAME_FIELD], &name) || !text_between(values[CATEGORY_FIELD], &category)) return false;
    int64_t row = (int64_t)scan->tables[EVENTS].count;
    EventRow *added = row_added(scan, EVENTS);
    if (!added) return false;
    const int64_t *wholes = arguments->wholes;
    *added = (EventRow){
        .duration = duration,
        .correlation = wholes[CORRELATION],
        .external = wholes[EXTERNAL] < 0 ? wholes[EXTERNAL_OLD] : wholes[EXTERNAL],
    };
    return time_of(values[TIME].at, added) && coded(scan, NAME, name, &added->name) &&
           category_coded(scan, category, &added->category, &group) &&
           track_coded(scan, values[PROCESS], values[THREAD], &added->track) && rows_of_arguments(scan, arguments, group, row);
}

/* The phase of an event, 0 for one that is not a single character. */
static inline uint8_t phase_of(Span value) { return value.at && value.length == 3 && *value.at == '"' ? value.at[1] : 0; }

/* From the first key of an event to the byte after its bracket. Arguments are read at once where the phase tells that they are
   wanted, and are only skipped where it comes later or is another. */
static Place fields_of(Scan *scan, Place p, Span *values, Arguments *arguments, bool *are_read) {
    scan->fields.latest = 0;
    for (int number;; p = space(p + 1)) {
        if ((p = numbered_key(&scan->fields, &field_names, p, scan->end, &number)) == NULL) return NULL;
        Span value = {.escaped = false};
        Place after;
        if (*p == '"') {
            after = string(p, scan->end, &value);
        } else if (number == ARGUMENTS && phase_of(values[PHASE]) == 'X') {
            *are_read = true;
            after = arguments_of(scan, p, arguments);
        } else {
            after = skipped(p, scan->end, 0);
        }
        if (after == NULL) return NULL;
        if (number >= 0) {
            if (values[number].at) return NULL;
            values[number] = (Span){.at = p, .length = (uint32_t)(after - p), .escaped = value.escaped};
        }
        p = space(after);
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
    }
}

/* From the bracket of an event; NULL where all of the chunk is left to Python. */
static Place event(Scan *scan, Place start) {
    Span values[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        values[i].at = NULL;
        values[i].length = 0;
        values[i].escaped = false;
    }
    Arguments arguments;
    bool are_read = false;
    if (*start != '{') return NULL;
    Place p = fields_of(scan, space(start + 1), values, &arguments, &are_read);
    if (p == NULL) return NULL;
    scan->events++;
    switch (phase_of(values[PHASE])) {
        case 'X':
            if (!values[ARGUMENTS].at) {
                arguments = no_arguments;
            } else if (!are_read && !arguments_of(scan, values[ARGUMENTS].at, &arguments)) {
                return NULL;
            }
            return complete(scan, values, &arguments) ? p : NULL;
        case 'M': case 'i': { /* few: Python reads them */
            Span *added = row_added(scan, OTHERS);
            if (added) *added = (Span){.at = start, .length = (uint32_t)(p - start)};
            return added ? p : NULL;
        }
        case 's': case 'f': case 't': case 'C': case 'b': case 'e': case 'n': case 'N': case 'O': case 'D': case 'P': case 'R':
        case 'c': case 'v': case 'V': case 'S': case 'T': case 'p': case 'F': case 'I': /* `_SKIPPED_PHASES` of decode_events.py */
            return p;
        default:
            return NULL;
    }
}

static inline bool is_between(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n' || byte == ','; }

/* Over events with commas between and around them; false where the chunk is left to Python. */
static bool scanned(Scan *scan, Place p) {
    Place end = scan->end;
    while (p < end && is_between(*p)) p++;
    while (end > p && is_between(end[-1])) end--;
    while ((p = event(scan, p)) != NULL) {
        if (p == end) return true;
        p = space(p);
        if (*p != ',') return false;
        p = space(p + 1);
    }
    return false;
}

#endif
