/* Numbers for pieces of a text, column by column, in the order in which they come. */

#ifndef TACHOSCOPE_SCAN_TEXTS_H
#define TACHOSCOPE_SCAN_TEXTS_H

#include <stdlib.h>

#include "_scan_json.h"

#define MOST_PROBES 256 /* only a text made for it needs more: it is left to Python */

typedef struct {
    Span first, second; /* a track has two parts */
    uint64_t hash;
    int32_t code;
    uint8_t column;
} Text;

typedef struct {
    Text *texts;
    uint32_t count, room;
    uint32_t *slots; /* number of the text + 1, 0: free; twice as many as there is room */
    int32_t codes[16]; /* given so far, by column */
    uint32_t latest[16]; /* number of the column's latest text + 1: the next one often is the same */
} Texts;

static inline uint64_t hashed(uint64_t hash, Place p, size_t length) {
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t bytes, four[4];
    for (; length >= 32; p += 32, length -= 32) { /* four products that do not wait for each other */
        memcpy(four, p, 32);
        hash = ((hash ^ four[0]) * factor) ^ ((four[1] ^ hash >> 32) * (factor + 2)) ^ (four[2] * (factor + 4) ^ four[3] * (factor + 6)) >> 7;
    }
    for (; length >= 8; p += 8, length -= 8) {
        memcpy(&bytes, p, 8);
        hash = (hash ^ bytes) * factor;
        hash ^= hash >> 29;
    }
    if (length >= 4) {
        uint32_t two[2] = {0};
        memcpy(&two[0], p, 4);
        memcpy(&two[1], p + length - 4, 4);
        bytes = (uint64_t)two[0] << 32 | two[1];
    } else {
        bytes = length ? (uint64_t)p[0] << 16 | (uint64_t)p[length / 2] << 8 | p[length - 1] : 0;
    }
    hash = (hash ^ bytes ^ (uint64_t)length << 56) * factor;
    return hash ^ hash >> 32;
}

static inline bool is_same(Span one, Span other) {
    return one.length == other.length && (one.length == 0 || memcmp(one.at, other.at, one.length) == 0);
}

static bool texts_begin(Texts *all) {
    memset(all, 0, sizeof *all);
    all->room = 2048;
    all->texts = malloc(all->room * sizeof *all->texts);
    all->slots = calloc(all->room * 2, sizeof *all->slots);
    return all->texts && all->slots;
}

static void texts_end(Texts *all) {
    free(all->texts);
    free(all->slots);
}

static bool texts_grow(Texts *all) {
    Text *texts = realloc(all->texts, 2 * all->room * sizeof *texts);
    if (texts) all->texts = texts;
    uint32_t *slots = texts ? calloc(all->room * 4, sizeof *slots) : NULL;
    if (!slots) return false;
    free(all->slots);
    all->slots = slots;
    all->room *= 2;
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t slot = (uint32_t)all->texts[i].hash & (all->room * 2 - 1);
        while (slots[slot]) slot = (slot + 1) & (all->room * 2 - 1);
        slots[slot] = i + 1;
    }
    return true;
}

/* The code of a piece of text in a column, NULL for one that is not plain enough. `*is_new` says whether it was given just now.
   Sets `*no_memory` where there is none. */
static Text *text_of(Texts *all, uint8_t column, Span first, Span second, bool *is_new, bool *no_memory) {
    *is_new = false;
    if (all->latest[column]) {
        Text *latest = &all->texts[all->latest[column] - 1];
        if (is_same(latest->first, first) && is_same(latest->second, second)) return latest;
    }
    uint64_t hash = hashed(hashed(column, first.at, first.length), second.at, second.length);
    uint32_t mask = all->room * 2 - 1, slot = (uint32_t)hash & mask;
    for (int probes = 0; all->slots[slot]; slot = (slot + 1) & mask) {
        Text *known = &all->texts[all->slots[slot] - 1];
        if (known->hash == hash && known->column == column && is_same(known->first, first) && is_same(known->second, second)) {
            all->latest[column] = all->slots[slot];
            return known;
        }
        if (++probes > MOST_PROBES) return NULL;
    }
    if (all->count == all->room) {
        if (!texts_grow(all)) {
            *no_memory = true;
            return NULL;
        }
        mask = all->room * 2 - 1;
        for (slot = (uint32_t)hash & mask; all->slots[slot]; slot = (slot + 1) & mask) continue;
    }
    Text *text = &all->texts[all->count++];
    *text = (Text){.first = first, .second = second, .hash = hash, .code = all->codes[column]++, .column = column};
    all->slots[slot] = all->latest[column] = all->count;
    *is_new = true;
    return text;
}

#endif
