/* Where CPython keeps the frames of a thread and the names and lines of a code object, by version.
 *
 * 3.13 publishes its offsets at the start of _PyRuntime. 3.11 and 3.12 do not: theirs are those of the headers of 3.11.7 and 3.12.1,
 * which no later release of the same version changed. Neither is believed: `sample_self` reads the calling thread, and the caller
 * compares what it returns with sys._getframe before anything else is read.
 */
#ifndef TACHOSCOPE_INTERPRETER_LAYOUT_H
#define TACHOSCOPE_INTERPRETER_LAYOUT_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { NO_CFRAME = 0 };
/* Largest offsets that are believed: of fields of a thread state, a frame and a code object. */
enum { MOST_OF_THREAD = 1024, MOST_OF_FRAME = 128, MOST_OF_CODE = 256 };

enum { OWNED_BY_GENERATOR = 1, OWNED_BY_C_STACK = 3 };

struct layout {
    /* PyThreadState: the frame is in it, or in the struct that `thread_cframe` points to. */
    uint32_t thread_cframe, thread_frame, thread_id, thread_native_id, thread_previous, thread_next;
    /* _PyInterpreterFrame */
    uint32_t frame_code, frame_previous, frame_instruction, frame_owner;
    /* PyCodeObject */
    uint32_t code_filename, code_name, code_line_table, code_first_line, code_instructions;
    /* Data of a compact string: of ASCII only, of others; and of bytes. */
    uint32_t ascii_data, unicode_data, bytes_data;
};

/* The same in all of these versions. */
enum { OBJECT_TYPE = 8, VAR_SIZE = 16, UNICODE_LENGTH = 16, UNICODE_STATE = 32 };

static const struct layout LAYOUT_3_11 = {
    .thread_cframe = 56, .thread_frame = 8, .thread_id = 152, .thread_native_id = 160, .thread_previous = 0, .thread_next = 8,
    .frame_code = 32, .frame_previous = 48, .frame_instruction = 56, .frame_owner = 69,
    .code_filename = 112, .code_name = 120, .code_line_table = 136, .code_first_line = 72, .code_instructions = 184,
    .ascii_data = 48, .unicode_data = 72, .bytes_data = 32,
};

static const struct layout LAYOUT_3_12 = {
    .thread_cframe = 56, .thread_frame = 0, .thread_id = 136, .thread_native_id = 144, .thread_previous = 0, .thread_next = 8,
    .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 70,
    .code_filename = 112, .code_name = 120, .code_line_table = 136, .code_first_line = 68, .code_instructions = 192,
    .ascii_data = 40, .unicode_data = 56, .bytes_data = 32,
};

/* Numbers of the fields of _Py_DebugOffsets of 3.13, all of eight bytes. */
enum {
    AT_COOKIE = 0, AT_VERSION = 1, AT_FREE_THREADED = 2,
    AT_THREAD_PREVIOUS = 20, AT_THREAD_NEXT = 21, AT_THREAD_FRAME = 23, AT_THREAD_ID = 24, AT_THREAD_NATIVE_ID = 25,
    AT_FRAME_PREVIOUS = 29, AT_FRAME_CODE = 30, AT_FRAME_INSTRUCTION = 31, AT_FRAME_OWNER = 33,
    AT_CODE_FILENAME = 35, AT_CODE_NAME = 36, AT_CODE_LINE_TABLE = 38, AT_CODE_FIRST_LINE = 39, AT_CODE_INSTRUCTIONS = 43,
    AT_BYTES_DATA = 66, AT_UNICODE_STATE = 68, AT_UNICODE_LENGTH = 69, AT_ASCII_SIZE = 70,
};

extern const uint64_t _PyRuntime[] __attribute__((weak));

/* What a compact string that is not ASCII has beside the fields of one that is. */
enum { UNICODE_BEYOND_ASCII = 16 };

static const char *layout_3_13(struct layout *found)
{
    const uint64_t *at = _PyRuntime;
    if (at == NULL || memcmp(&at[AT_COOKIE], "xdebugpy", 8) != 0 || at[AT_VERSION] >> 16 != 0x030D)
        return "this interpreter publishes no offsets";
    if (at[AT_FREE_THREADED])
        return "an interpreter without a lock";
    if (at[AT_UNICODE_STATE] != UNICODE_STATE || at[AT_UNICODE_LENGTH] != UNICODE_LENGTH)
        return "offsets of strings that are not known";
    *found = (struct layout){
        .thread_cframe = NO_CFRAME, .thread_frame = at[AT_THREAD_FRAME], .thread_id = at[AT_THREAD_ID],
        .thread_native_id = at[AT_THREAD_NATIVE_ID], .thread_previous = at[AT_THREAD_PREVIOUS], .thread_next = at[AT_THREAD_NEXT],
        .frame_code = at[AT_FRAME_CODE], .frame_previous = at[AT_FRAME_PREVIOUS],
        .frame_instruction = at[AT_FRAME_INSTRUCTION], .frame_owner = at[AT_FRAME_OWNER],
        .code_filename = at[AT_CODE_FILENAME], .code_name = at[AT_CODE_NAME], .code_line_table = at[AT_CODE_LINE_TABLE],
        .code_first_line = at[AT_CODE_FIRST_LINE], .code_instructions = at[AT_CODE_INSTRUCTIONS],
        .ascii_data = at[AT_ASCII_SIZE], .unicode_data = at[AT_ASCII_SIZE] + UNICODE_BEYOND_ASCII, .bytes_data = at[AT_BYTES_DATA],
    };
    return NULL;
}

static int within_limits(const struct layout *of)
{
    const uint32_t thread[] = {of->thread_cframe, of->thread_frame, of->thread_id, of->thread_native_id, of->thread_previous,
                               of->thread_next};
    const uint32_t frame[] = {of->frame_code, of->frame_previous, of->frame_instruction, of->frame_owner};
    const uint32_t code[] = {of->code_filename, of->code_name, of->code_line_table, of->code_first_line, of->code_instructions,
                             of->ascii_data, of->unicode_data, of->bytes_data};
    for (size_t i = 0; i < sizeof thread / sizeof *thread; i++)
        if (thread[i] > MOST_OF_THREAD - 8)
            return 0;
    for (size_t i = 0; i < sizeof frame / sizeof *frame; i++)
        if (frame[i] > MOST_OF_FRAME - 8 || (frame[i] != of->frame_owner && frame[i] + 8 > of->frame_owner + 1))
            return 0;  /* what is read of a frame ends with its owner */
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        if (code[i] > MOST_OF_CODE - 8)
            return 0;
    for (size_t i = 0; i < 4; i++)
        if (code[i] + 8 > of->code_instructions)
            return 0;  /* and of a code object before its instructions */
    return 1;
}

/* Set the layout of this interpreter; return NULL, or why there is none. */
static const char *find_layout(struct layout *found)
{
    const char *reason = NULL;
    switch (Py_Version >> 16) {
    case 0x030B: *found = LAYOUT_3_11; break;
    case 0x030C: *found = LAYOUT_3_12; break;
    case 0x030D: reason = layout_3_13(found); break;
    default: return "the frames of this version of Python are not known";
    }
    return reason != NULL ? reason : within_limits(found) ? NULL : "offsets that are not plausible";
}

#endif
