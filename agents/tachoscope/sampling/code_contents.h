/* The names and line tables of the code objects of a stack, copied, and remembered by address.
 *
 * Memory of a code object that was freed may hold another one later. So the contents are read again with every stack, and compared
 * with what is remembered: a frame is believed if its code object had the same contents before and after its stack was read.
 */
#ifndef TACHOSCOPE_CODE_CONTENTS_H
#define TACHOSCOPE_CODE_CONTENTS_H

#include "stack_reading.h"

enum {
    SLOTS = 1024,                      /* code objects that are remembered */
    WAYS = 4,                          /* places that an address can have */
    ARENA_BYTES = 4 * 1024 * 1024,
    NO_TEXT = MOST_NAME_BYTES + 1,
    NO_INSTRUCTION = -3,
    MATCHES_AFTER_CHANGE = 8,          /* samples with the same contents, after which an address that had others is believed */
};

/* What identifies a code object: its data follow, the name, the file's name and the line table. */
struct contents {
    uint64_t name, filename, line_table;     /* addresses */
    uint64_t instructions;                   /* their number */
    uint32_t first_line;
    uint32_t name_kind, filename_kind;       /* bytes a character */
    uint32_t name_bytes, filename_bytes, table_bytes;
};

/* A code object of the stack that is being read. */
struct code {
    uintptr_t address;
    int readable;
    struct contents head;
    unsigned char *data;                     /* in the buffer below */
};

struct slot {
    uintptr_t address;
    uint64_t id;                             /* of these contents; 0: the slot is empty */
    int told;                                /* whether the reader of samples has the contents */
    int matches_wanted;
    struct contents head;
    uint32_t data;                           /* where in the arena */
};

struct codes {
    unsigned count;
    struct code of_stack[MOST_FRAMES];       /* each once */
    unsigned char buffer[MOST_CODE_BYTES];
    struct slot slots[SLOTS];
    uint64_t last_id, oldest_id;             /* ids below `oldest_id` are not used any more */
    uint32_t arena_used;
    unsigned char arena[ARENA_BYTES];
};

static size_t data_bytes(const struct contents *head)
{
    return (size_t)head->name_bytes + head->filename_bytes + head->table_bytes;
}

static struct code *code_at(struct codes *codes, uintptr_t address)
{
    for (unsigned i = 0; i < codes->count; i++)
        if (codes->of_stack[i].address == address)
            return &codes->of_stack[i];
    return NULL;
}

/* Read the same number of parts of each readable code object at once; where that fails, one object after the other. */
static void read_of_each(struct codes *codes, struct part *parts, size_t each)
{
    size_t count = 0;
    for (unsigned i = 0; i < codes->count; i++)
        if (codes->of_stack[i].readable)
            memmove(&parts[each * count++], &parts[each * i], each * sizeof *parts);
    if (read_all(parts, each * count))
        return;
    count = 0;
    for (unsigned i = 0; i < codes->count; i++)
        if (codes->of_stack[i].readable)
            codes->of_stack[i].readable = read_all(&parts[each * count++], each);
}

static void read_heads(const struct layout *at, const struct watched *watched, struct codes *codes)
{
    unsigned char heads[MOST_FRAMES][MOST_OF_CODE];
    struct part parts[MOST_FRAMES];
    for (unsigned i = 0; i < codes->count; i++)
        parts[i] = (struct part){codes->of_stack[i].address, heads[i], at->code_instructions};
    read_of_each(codes, parts, 1);
    for (unsigned i = 0; i < codes->count; i++) {
        struct code *code = &codes->of_stack[i];
        if (!code->readable)
            continue;
        code->readable = word_at(heads[i] + OBJECT_TYPE) == watched->code_type;
        code->head = (struct contents){
            .name = word_at(heads[i] + at->code_name), .filename = word_at(heads[i] + at->code_filename),
            .line_table = word_at(heads[i] + at->code_line_table), .instructions = word_at(heads[i] + VAR_SIZE),
            .first_line = half_at(heads[i] + at->code_first_line),
        };
    }
}

/* Set where the data of a string begin and how many bytes a character has; return how many bytes all have, NO_TEXT if it is none. */
static uint32_t text_bytes(const struct layout *at, const struct watched *watched, const unsigned char *head, uint32_t *kind,
                           uint32_t *begin)
{
    uint64_t length = word_at(head + UNICODE_LENGTH);
    uint32_t state = half_at(head + UNICODE_STATE), compact = state >> 5 & 1, ascii = state >> 6 & 1;
    *kind = state >> 2 & 7;
    *begin = ascii ? at->ascii_data : at->unicode_data;
    if (word_at(head + OBJECT_TYPE) != watched->text_type || !compact || (*kind != 1 && *kind != 2 && *kind != 4))
        return NO_TEXT;
    return length <= MOST_NAME_BYTES / *kind ? (uint32_t)length * *kind : NO_TEXT;
}

static void read_data(const struct layout *at, const struct watched *watched, struct codes *codes)
{
    enum { HEAD = UNICODE_STATE + 4, NAME = 0, FILENAME = 1, TABLE = 2, OBJECTS = 3 };
    unsigned char heads[MOST_FRAMES][OBJECTS][HEAD];
    struct part parts[OBJECTS * MOST_FRAMES];
    for (unsigned i = 0; i < codes->count; i++) {
        const struct contents *head = &codes->of_stack[i].head;
        parts[OBJECTS * i + NAME] = (struct part){head->name, heads[i][NAME], HEAD};
        parts[OBJECTS * i + FILENAME] = (struct part){head->filename, heads[i][FILENAME], HEAD};
        parts[OBJECTS * i + TABLE] = (struct part){head->line_table, heads[i][TABLE], VAR_SIZE + 8};
    }
    read_of_each(codes, parts, OBJECTS);
    size_t used = 0;
    for (unsigned i = 0; i < codes->count; i++) {
        struct code *code = &codes->of_stack[i];
        uint32_t name_at, filename_at;
        if (!code->readable)
            continue;
        struct contents *head = &code->head;
        uint64_t table = word_at(heads[i][TABLE] + VAR_SIZE);
        head->name_bytes = text_bytes(at, watched, heads[i][NAME], &head->name_kind, &name_at);
        head->filename_bytes = text_bytes(at, watched, heads[i][FILENAME], &head->filename_kind, &filename_at);
        code->readable = word_at(heads[i][TABLE] + OBJECT_TYPE) == watched->bytes_type && table <= MOST_TABLE_BYTES &&
                         head->name_bytes != NO_TEXT && head->filename_bytes != NO_TEXT;
        head->table_bytes = code->readable ? (uint32_t)table : 0;
        if (!code->readable || data_bytes(head) > MOST_CODE_BYTES - used) {
            code->readable = 0;
            continue;
        }
        code->data = codes->buffer + used;
        used += data_bytes(head);
        parts[OBJECTS * i + NAME] = (struct part){head->name + name_at, code->data, head->name_bytes};
        parts[OBJECTS * i + FILENAME] =
            (struct part){head->filename + filename_at, code->data + head->name_bytes, head->filename_bytes};
        parts[OBJECTS * i + TABLE] = (struct part){head->line_table + at->bytes_data,
                                                   code->data + head->name_bytes + head->filename_bytes, head->table_bytes};
    }
    read_of_each(codes, parts, OBJECTS);
}

/* Read the contents of the code objects of a stack, as they are now. */
static void read_codes(const struct layout *at, const struct watched *watched, const struct stack *stack, struct codes *codes)
{
    codes->count = 0;
    for (unsigned i = 0; i < stack->count; i++)
        if (code_at(codes, stack->frames[i].code) == NULL)
            codes->of_stack[codes->count++] = (struct code){.address = stack->frames[i].code, .readable = 1};
    read_heads(at, watched, codes);
    read_data(at, watched, codes);
}

/* Return the byte of the instruction within its code object, -2 before the first, NO_INSTRUCTION if it is none of it. */
static int64_t instruction_of(const struct layout *at, const struct frame *frame, const struct contents *head)
{
    int64_t byte = (int64_t)(frame->instruction - (frame->code + at->code_instructions));
    return byte >= -2 && byte < (int64_t)(2 * head->instructions) ? byte : NO_INSTRUCTION;
}

static void forget_codes(struct codes *codes)
{
    memset(codes->slots, 0, sizeof codes->slots);
    codes->arena_used = 0;
    codes->oldest_id = codes->last_id + 1;
}

static struct slot *slot_of(struct codes *codes, uintptr_t address, struct slot **oldest)
{
    struct slot *ways = &codes->slots[((address >> 4) * 0x9E3779B97F4A7C15u >> 56) % (SLOTS / WAYS) * WAYS];
    *oldest = ways;
    for (unsigned i = 0; i < WAYS; i++) {
        if (ways[i].id != 0 && ways[i].address == address)
            return &ways[i];
        if (ways[i].id < (*oldest)->id)
            *oldest = &ways[i];
    }
    return NULL;
}

/* Compare a code object with what is remembered of its address, and remember it; return its slot if it was the same, else NULL. */
static struct slot *same_as_before(struct codes *codes, const struct code *code)
{
    struct slot *place, *known = slot_of(codes, code->address, &place);
    const size_t size = data_bytes(&code->head);
    if (known && memcmp(&known->head, &code->head, sizeof known->head) == 0 &&
        memcmp(codes->arena + known->data, code->data, size) == 0)
        return known;
    if (size > ARENA_BYTES - codes->arena_used) {
        forget_codes(codes);
        known = NULL;
        (void)slot_of(codes, code->address, &place);
    }
    *(known ? known : place) = (struct slot){
        .address = code->address, .id = ++codes->last_id, .matches_wanted = known ? MATCHES_AFTER_CHANGE : 0,
        .head = code->head, .data = codes->arena_used,
    };
    memcpy(codes->arena + codes->arena_used, code->data, size);
    codes->arena_used += (uint32_t)size;
    return NULL;
}

#endif
