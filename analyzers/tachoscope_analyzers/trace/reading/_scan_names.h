/* The names of fields and arguments that are looked for, found by a hash. */

#ifndef TACHOSCOPE_SCAN_NAMES_H
#define TACHOSCOPE_SCAN_NAMES_H

#include "_scan_json.h"

typedef struct {
    const char *name;
    uint8_t length, type, slot;
} Known;

#define KNOWN(name, type, slot) {name, sizeof(name) - 1, type, slot}

/* What keeps the bytes of a short name out of a word; the same on machines of either order of bytes. */
static const union {
    uint8_t bytes[8];
    uint64_t word;
} masks[8] = {{{0}},
              {{255}},
              {{255, 255}},
              {{255, 255, 255}},
              {{255, 255, 255, 255}},
              {{255, 255, 255, 255, 255}},
              {{255, 255, 255, 255, 255, 255}},
              {{255, 255, 255, 255, 255, 255, 255}}};

/* Names by a hash of their length and first bytes; filled once. */
typedef struct {
    uint64_t word; /* the first bytes */
    const char *rest; /* of a longer one */
    uint32_t length;
    int number; /* + 1, 0: free */
} Slot;

typedef struct {
    Slot slots[256];
} Names;

/* The first eight bytes of a name, zeros after its end. */
static inline uint64_t first_word(Place at, size_t length) {
    uint64_t bytes = 0;
    memcpy(&bytes, at, length < 8 ? length : 8);
    return bytes;
}

static inline uint8_t slot_of(uint64_t word, uint32_t length) { return (uint8_t)((word ^ length) * 0x9e3779b97f4a7c15u >> 56); }

static void names_fill(Names *names, const Known *known, int count) {
    memset(names, 0, sizeof *names);
    for (int i = 0; i < count; i++, known++) {
        uint64_t word = first_word((Place)known->name, known->length);
        uint8_t place = slot_of(word, known->length);
        while (names->slots[place].number) place++;
        names->slots[place] = (Slot){.word = word, .rest = known->length > 8 ? known->name + 8 : NULL, .length = known->length, .number = i + 1};
    }
}

/* The number of a name, -1 for one that is not known. */
static inline int name_number(const Names *names, Span text, Place end) {
    uint64_t word;
    if (end - text.at >= 8) {
        memcpy(&word, text.at, 8);
        if (text.length < 8) word &= masks[text.length].word;
    } else {
        word = first_word(text.at, text.length);
    }
    for (uint8_t place = slot_of(word, text.length);; place++) {
        const Slot *slot = &names->slots[place];
        if (slot->number == 0) return -1;
        if (slot->word == word && slot->length == text.length &&
            (text.length <= 8 || memcmp(slot->rest, text.at + 8, text.length - 8) == 0)) {
            return slot->number - 1;
        }
    }
}

#endif
