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

/* A key as it stands in the text, from its quote to its value, and which two followed it of late. */
typedef struct {
    Place at;
    uint8_t length, next[2]; /* 0: none yet */
    int8_t number;           /* -1: not known */
} Key;

enum { LONGEST_KEY = 32, FIRST_UNKNOWN_KEY = 32, KEYS = 64 };

/* The keys of one kind of object. Those of a writer come in the same order in nearly all objects, so most are found by one
   comparison with the likely next. The first stands for the begin of an object; known keys follow by number, others by a hash. */
typedef struct {
    Key keys[KEYS];
    uint8_t latest;
} Keys;

static inline bool is_same_key(Place one, Place other, uint32_t length) {
#if defined(__SSE2__)
    uint32_t differs = 0;
    for (int from = 0; from < LONGEST_KEY; from += 16) {
        __m128i same = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(one + from)), _mm_loadu_si128((const __m128i *)(other + from)));
        differs |= (uint32_t)(_mm_movemask_epi8(same) ^ 0xffff) << from;
    }
    return (differs << (LONGEST_KEY - length)) == 0;
#else
    return memcmp(one, other, length) == 0;
#endif
}

/* Note where a key stands, and that it followed the latest one. */
static inline void key_noted(Keys *keys, Place p, size_t length, uint32_t name_length, int number) {
    uint8_t *next = keys->keys[keys->latest].next;
    const uint32_t unknown = FIRST_UNKNOWN_KEY + (p[1] * 7u + name_length) % (KEYS - FIRST_UNKNOWN_KEY);
    const uint8_t place = (uint8_t)(number >= 0 ? (uint32_t)number + 1 : unknown);
    if (next[0] != place) {
        next[1] = next[0];
        next[0] = place;
    }
    keys->keys[place].at = p;
    keys->keys[place].length = (uint8_t)length;
    keys->keys[place].number = (int8_t)number;
    keys->latest = place;
}

/* From the quote of a key to its value, with the key's number, -1 for one that is not known; NULL where `key` returns it. */
static inline Place numbered_key(Keys *keys, const Names *names, Place p, Place end, int *number) {
    const bool is_near_end = end - p < LONGEST_KEY;
    for (int i = 0; i < 2 && !is_near_end; i++) {
        const uint8_t likely = keys->keys[keys->latest].next[i];
        const Key *next = &keys->keys[likely];
        if (likely && is_same_key(p, next->at, next->length)) {
            keys->latest = likely;
            *number = next->number;
            return space(p + next->length);
        }
    }
    Span name;
    Place value = key(p, end, &name);
    if (value == NULL) return NULL;
    *number = name_number(names, name, end);
    if (is_near_end || value - p > LONGEST_KEY) {
        keys->latest = 0;
    } else {
        key_noted(keys, p, (size_t)(value - p), name.length, *number);
    }
    return value;
}

#endif
