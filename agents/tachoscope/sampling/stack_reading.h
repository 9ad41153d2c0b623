/* Reads the stack of a Python thread while it runs, without the interpreter's lock.
 *
 * All of the interpreter's memory is read through process_vm_readv, on the own process or on another one: the kernel copies it, or says
 * that it cannot.
 * No pointer of the interpreter is ever dereferenced here, nothing of it is written, and nothing is allocated.
 */
#ifndef TACHOSCOPE_STACK_READING_H
#define TACHOSCOPE_STACK_READING_H

#include "interpreter_layout.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    MOST_FRAMES = 48,
    MOST_PARTS = 3 * MOST_FRAMES,      /* of one read, below the IOV_MAX of 1024 */
    WINDOW = 8192,                     /* of a data stack, read at once: all frames in it are of one moment */
    PAGE = 4096,                       /* the smallest there is: larger ones only make more parts */
    MOST_C_FRAMES = 64,                /* entries of the interpreter's C function, which are no frames of Python */
    MOST_CODE_BYTES = 256 * 1024,      /* names and line tables of a whole stack */
    MOST_NAME_BYTES = 4096,
    MOST_TABLE_BYTES = 64 * 1024,
};

struct part {
    uintptr_t from;
    void *to;
    size_t size;
};

static _Thread_local pid_t read_from;  /* the process whose memory the calling thread reads; 0: its own */

/* Read parts in order; return how many bytes were read before the first that could not be. */
static size_t read_parts(const struct part *parts, size_t count)
{
    struct iovec local[MOST_PARTS], remote[MOST_PARTS];
    if (count == 0 || count > MOST_PARTS)
        return 0;
    for (size_t i = 0; i < count; i++) {
        local[i] = (struct iovec){parts[i].to, parts[i].size};
        remote[i] = (struct iovec){(void *)parts[i].from, parts[i].size};
    }
    long got = syscall(SYS_process_vm_readv, (long)(read_from != 0 ? read_from : getpid()), local, (unsigned long)count, remote, (unsigned long)count, 0ul);
    return got < 0 ? 0 : (size_t)got;
}

static int read_all(const struct part *parts, size_t count)
{
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++)
        wanted += parts[i].size;
    return count > 0 && read_parts(parts, count) == wanted;
}

static uint64_t word_at(const unsigned char *bytes) { uint64_t word; memcpy(&word, bytes, sizeof word); return word; }
static uint32_t half_at(const unsigned char *bytes) { uint32_t half; memcpy(&half, bytes, sizeof half); return half; }

/* A member of an object: of eight bytes it is a pointer to another object, a slot of Python's; else an integer. */
struct member {
    uintptr_t address;
    size_t size;
};

/* Where a watched thread keeps what is read of it. */
struct watched {
    uintptr_t thread;                  /* its PyThreadState */
    uint64_t thread_id, native_id;
    struct member phase, flag;
    uintptr_t code_type, text_type, bytes_type;
};

struct frame {
    uintptr_t code, instruction;
};

struct stack {
    uint64_t phase, flag;              /* as the members hold them */
    unsigned count;                    /* the innermost MOST_FRAMES at most */
    struct frame frames[MOST_FRAMES];
};

/* A piece of a data stack, as it was at one moment: the memory from `first` to before `end`, at the end of `bytes`. */
struct window {
    uintptr_t first, end;
    unsigned char bytes[WINDOW];
};

/* Read the memory that ends with the head of a frame, page by page downwards: what is not mapped only makes it shorter. */
static int read_window(struct window *window, uintptr_t frame, size_t head)
{
    struct part parts[WINDOW / PAGE + 2];
    size_t count = 0, left = WINDOW;
    uintptr_t end = frame + head;
    if (frame % 8 != 0 || frame < WINDOW || end < frame)
        return 0;
    window->end = end;
    while (left > 0) {
        size_t size = end - (end - 1) / PAGE * PAGE;
        size = size < left ? size : left;
        end -= size;
        left -= size;
        parts[count++] = (struct part){end, window->bytes + left, size};
    }
    window->first = window->end - read_parts(parts, count);
    return window->first <= frame;
}

/* Return the head of a frame, read now unless the window has it. */
static const unsigned char *frame_head(struct window *window, uintptr_t frame, size_t head)
{
    if ((frame < window->first || frame >= window->end || window->end - frame < head) && !read_window(window, frame, head))
        return NULL;
    return window->bytes + WINDOW - (window->end - frame);
}

static int read_members(const struct watched *watched, uint64_t *phase, uint64_t *flag)
{
    const struct part parts[] = {{watched->phase.address, phase, watched->phase.size}, {watched->flag.address, flag, watched->flag.size}};
    *phase = *flag = 0;
    return read_all(parts, 2);
}

/* Read the thread's innermost frame, phase and flag; return 0 if it is not the watched thread any more. */
static int read_thread(const struct layout *at, const struct watched *watched, uintptr_t *frame, struct stack *stack)
{
    unsigned char thread[MOST_OF_THREAD];
    size_t size = at->thread_native_id + 8 > at->thread_id + 8 ? at->thread_native_id + 8 : at->thread_id + 8;
    const struct part whole = {watched->thread, thread, size};
    if (!read_all(&whole, 1) || !read_members(watched, &stack->phase, &stack->flag) || word_at(thread + at->thread_id) != watched->thread_id ||
        word_at(thread + at->thread_native_id) != watched->native_id)
        return 0;
    if (at->thread_cframe == NO_CFRAME) {
        *frame = word_at(thread + at->thread_frame);
        return 1;
    }
    return read_all(&(struct part){word_at(thread + at->thread_cframe) + at->thread_frame, frame, 8}, 1);
}

/* Read the innermost frames of the thread; return 0 if they do not form a stack. */
static int read_stack(const struct layout *at, const struct watched *watched, struct stack *stack)
{
    struct window window = {0, 0, {0}};
    const size_t head = at->frame_owner + 1;
    uintptr_t frame;
    stack->count = 0;
    if (!read_thread(at, watched, &frame, stack))
        return 0;
    for (unsigned seen = 0; frame != 0 && stack->count < MOST_FRAMES; seen++) {
        const unsigned char *bytes = frame_head(&window, frame, head);
        if (bytes == NULL || seen > MOST_FRAMES + MOST_C_FRAMES)
            return 0;
        if (bytes[at->frame_owner] > OWNED_BY_C_STACK)
            return 0;
        if (bytes[at->frame_owner] != OWNED_BY_C_STACK)
            stack->frames[stack->count++] =
                (struct frame){word_at(bytes + at->frame_code), word_at(bytes + at->frame_instruction)};
        frame = word_at(bytes + at->frame_previous);
    }
    return stack->count > 0;
}

#endif
