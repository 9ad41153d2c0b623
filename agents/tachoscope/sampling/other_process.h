/* Reads the Python threads of another process, which need not run: one that is stopped, or that holds the interpreter's lock for ever.
 *
 * Where the threads are, that process said itself, in a locator. It is foreign input: its offsets are checked, and nothing but memory
 * of that process is read with it.
 */
#ifndef TACHOSCOPE_OTHER_PROCESS_H
#define TACHOSCOPE_OTHER_PROCESS_H

#include "code_contents.h"

enum { MOST_THREADS = 256, READINGS = 5 };

#define LOCATOR_MAGIC "tacho-1"

/* Where a process keeps its threads, and how its interpreter lays out what is read of them. */
struct locator {
    char magic[8];
    struct layout layout;
    uint64_t thread;                   /* the PyThreadState of the thread that wrote this */
    uint64_t code_type, text_type, bytes_type;
};

static int is_locator(const struct locator *found, size_t size)
{
    return size == sizeof *found && memcmp(found->magic, LOCATOR_MAGIC, sizeof found->magic) == 0 && within_limits(&found->layout);
}

/* Set the thread states of a process, that of the locator first; return how many. */
static unsigned find_threads(const struct locator *of, uint64_t *threads)
{
    const uint32_t ways[] = {of->layout.thread_next, of->layout.thread_previous};
    unsigned count = 0;
    threads[count++] = of->thread;
    for (unsigned way = 0; way < 2; way++) {
        uint64_t at = of->thread;
        while (count < MOST_THREADS && read_all(&(struct part){at + ways[way], &at, 8}, 1) && at != 0)
            threads[count++] = at;
    }
    return count;
}

/* Read the stack of a thread and the contents of its code objects; return 0 if it is in no Python code, or no stack can be read. */
static int read_other_thread(const struct locator *of, uint64_t thread, struct watched *watched, struct stack *stack, struct codes *codes)
{
    *watched = (struct watched){
        .thread = thread, .phase = {thread, 8}, .flag = {thread, 8},
        .code_type = of->code_type, .text_type = of->text_type, .bytes_type = of->bytes_type,
    };
    const struct part ids[] = {{thread + of->layout.thread_id, &watched->thread_id, 8},
                               {thread + of->layout.thread_native_id, &watched->native_id, 8}};
    stack->count = codes->count = 0;
    if (!read_all(ids, 2))
        return 0;
    for (unsigned reading = 0; reading < READINGS; reading++)
        if (read_stack(&of->layout, watched, stack)) {
            read_codes(&of->layout, watched, stack, codes);
            return 1;
        }
    stack->count = 0;
    return 0;
}

#endif
