/* JSON text, read byte by byte in place.

   The text ends with a zero byte, which no value holds, so that only reads of several bytes must look for the end. Each function
   takes the first byte of something and returns the byte after it, or NULL where it is not plain: the caller then leaves the text to
   the reader in Python. What is accepted here is a part of what msgspec accepts, never more. */

#ifndef TACHOSCOPE_SCAN_JSON_H
#define TACHOSCOPE_SCAN_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define DEEPEST 64
#define MOST_DIGITS 18 /* of a whole number: they fit into 64 bits */

typedef const uint8_t *Place;

typedef struct {
    Place at; /* NULL: absent */
    uint32_t length;
    bool escaped;
} Span;

static inline bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

static inline Place space(Place p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}

/* The first quote, backslash or control character from `p`. */
static inline Place special(Place p, Place end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    for (; end - p >= 16; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        __m128i found = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                                     _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
        int mask = _mm_movemask_epi8(found);
        if (mask) return p + __builtin_ctz((unsigned)mask);
    }
#else
    const uint64_t ones = 0x0101010101010101u, highs = ones << 7;
    for (uint64_t bytes; end - p >= 8; p += 8) {
        memcpy(&bytes, p, 8);
        uint64_t quote = bytes ^ (ones * '"'), backslash = bytes ^ (ones * '\\');
        if ((((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((bytes - ones * 0x20) & ~bytes)) & highs) break;
    }
#endif
    while (*p >= 0x20 && *p != '"' && *p != '\\') p++;
    return p;
}

static inline int hex(uint8_t byte) {
    if (is_digit(byte)) return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* From the character after a backslash. Halves of surrogate pairs are left to Python. */
static inline Place escape(Place p) {
    switch (*p) {
        case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
            return p + 1;
        case 'u': {
            unsigned code = 0;
            for (int i = 1; i <= 4; i++) {
                int digit = hex(p[i]);
                if (digit < 0) return NULL;
                code = code << 4 | (unsigned)digit;
            }
            return code >= 0xd800 && code < 0xe000 ? NULL : p + 5;
        }
        default:
            return NULL;
    }
}

/* From the quote of a string. The span is what stands between the quotes. */
static inline Place string(Place p, Place end, Span *span) {
    Place start = ++p;
    span->escaped = false;
    while (*(p = special(p, end)) == '\\') {
        span->escaped = true;
        if ((p = escape(p + 1)) == NULL) return NULL;
    }
    if (*p != '"') return NULL;
    span->at = start;
    span->length = (uint32_t)(p - start);
    return p + 1;
}

static inline Place digits(Place p) {
    Place start = p;
    while (is_digit(*p)) p++;
    return p == start ? NULL : p;
}

static Place skipped_number(Place p) {
    if (*p == '-') p++;
    if (*p == '0') {
        if (is_digit(*++p)) return NULL;
    } else if ((p = digits(p)) == NULL) {
        return NULL;
    }
    if (*p == '.' && (p = digits(p + 1)) == NULL) return NULL;
    if (*p == 'e' || *p == 'E') {
        p++;
        p = digits(*p == '+' || *p == '-' ? p + 1 : p);
    }
    return p;
}

static inline Place word(Place p, const char *expected) {
    while (*expected) {
        if (*p++ != (uint8_t)*expected++) return NULL;
    }
    return p;
}

static Place skipped(Place p, Place end, int depth);

static Place skipped_list(Place p, Place end, int depth) {
    if (*(p = space(p + 1)) == ']') return p + 1;
    for (;;) {
        if ((p = skipped(p, end, depth)) == NULL) return NULL;
        p = space(p);
        if (*p == ']') return p + 1;
        if (*p != ',') return NULL;
        p = space(p + 1);
    }
}

/* From the quote of an object's key to its value; NULL for a key with an escape, which could be another way to write one we know. */
static inline Place key(Place p, Place end, Span *span) {
    if (*p != '"' || (p = string(p, end, span)) == NULL || span->escaped) return NULL;
    p = space(p);
    return *p == ':' ? space(p + 1) : NULL;
}

static Place skipped_object(Place p, Place end, int depth) {
    Span name;
    if (*(p = space(p + 1)) == '}') return p + 1;
    for (;;) {
        if ((p = key(p, end, &name)) == NULL || (p = skipped(p, end, depth)) == NULL) return NULL;
        p = space(p);
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = space(p + 1);
    }
}

/* Over a value of any type. */
static Place skipped(Place p, Place end, int depth) {
    Span text;
    switch (*p) {
        case '"': return string(p, end, &text);
        case '[': return depth < DEEPEST ? skipped_list(p, end, depth + 1) : NULL;
        case '{': return depth < DEEPEST ? skipped_object(p, end, depth + 1) : NULL;
        case 't': return word(p, "true");
        case 'f': return word(p, "false");
        case 'n': return word(p, "null");
        default: return skipped_number(p);
    }
}

/* Decimal digits with at most one point among them; `decimals` of the digits stand after it. */
typedef struct {
    uint64_t value;
    int digits, decimals;
    bool negative;
} Decimal;

static Place decimal(Place p, Decimal *found) {
    uint64_t value = 0;
    found->negative = *p == '-';
    Place start = p += found->negative;
    if (*p == '0' && is_digit(p[1])) return NULL;
    for (; is_digit(*p); p++) value = value * 10 + (*p - '0');
    found->digits = (int)(p - start < 99 ? p - start : 99);
    found->decimals = 0;
    if (!found->digits) return NULL;
    if (*p == '.') {
        Place point = p++;
        for (; is_digit(*p); p++) value = value * 10 + (*p - '0');
        if (p == point + 1 || p - point > 99) return NULL;
        found->decimals = (int)(p - point) - 1;
        found->digits += found->decimals;
    }
    found->value = value;
    return found->digits > MOST_DIGITS + 1 ? NULL : p; /* 19 nines still fit into the 64 bits */
}

static Place whole_number(Place p, int64_t *found) {
    Decimal number;
    if ((p = decimal(p, &number)) == NULL || number.decimals || number.digits > MOST_DIGITS || *p == 'e' || *p == 'E') return NULL;
    *found = number.negative ? -(int64_t)number.value : (int64_t)number.value;
    return p;
}

/* A number that the division of two exact ones gives, rounded once. */
static Place fraction(Place p, double *found) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                    1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};
    Decimal number;
    if ((p = decimal(p, &number)) == NULL || number.value >> 53 || *p == 'e' || *p == 'E') return NULL;
    double value = (double)number.value / powers[number.decimals];
    *found = number.negative && (number.value || number.decimals) ? -value : value; /* -0 is a whole number, and 0; -0.0 is not */
    return p;
}

#endif
