/* The native thread that takes stacks of one watched thread, by that thread's own CPU clock.
 *
 * A timer of the kernel counts the CPU time of the watched thread and sends a signal to the native thread only, which waits for it:
 * no handler is installed, and the watched thread is not interrupted. The native thread calls nothing but system calls, never
 * Python. It writes samples into a ring, from which another thread reads them.
 */
#ifndef TACHOSCOPE_NATIVE_SAMPLER_H
#define TACHOSCOPE_NATIVE_SAMPLER_H

#ifndef __linux__
#error "timers of a thread's CPU clock and process_vm_readv are of Linux"
#endif
#if UINTPTR_MAX != UINT64_MAX
#error "the layouts are those of 64 bits"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "members of fewer than eight bytes are read as the low ones"
#endif

#include "code_contents.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
    RING_BYTES = 1024 * 1024,          /* a power of two */
    TRIES = 4,
    LONGEST_READING = 200 * 1000,      /* ns; a stack that took longer is read again */
    STACK_BYTES = 512 * 1024,          /* of the native thread: what is below takes some 70 KiB of it */
    LONGEST_WAIT = 1,                  /* s; the signal that ends the thread is lost where too many are pending */
    A_SECOND = 1000 * 1000 * 1000,
};

enum record_kind { CODE = 1, SAMPLE = 2 };

struct record { uint32_t bytes, kind; };                    /* `bytes` of what follows */
struct code_record { uint64_t id; struct contents head; };  /* its data follow */
struct sample_record { uint32_t phase, flag, count, unused; };
struct place { uint64_t id; int64_t instruction; };

struct counts { _Atomic uint64_t taken, torn, late, overflowed; };

/* All that the native thread uses: one mapping, made before it starts. */
struct sampler {
    struct layout layout;
    struct watched watched;
    struct stack stack;
    struct codes codes;
    struct counts counts;
    struct place places[MOST_FRAMES];
    uint64_t phases[16];                /* addresses of the objects that stand for each phase */
    uint32_t phase_count;
    uint64_t flag_set;                  /* address of the object that stands for a set flag */
    uint64_t every_ns, random;
    clockid_t clock;
    char state_path[64];
    int signal, timer, timer_error;
    pid_t native_tid;
    pthread_t native;
    sem_t ready;
    _Atomic int stopping;
    _Atomic uint64_t written, read;     /* bytes of the ring since the start */
    _Atomic uint64_t oldest_id;
    unsigned char ring[RING_BYTES];
};

/* --- the ring ------------------------------------------------------------------------------------------------------------- */

static void copy_in(struct sampler *of, uint64_t *at, const void *from, size_t size)
{
    size_t begin = *at % RING_BYTES, first = size < RING_BYTES - begin ? size : RING_BYTES - begin;
    memcpy(of->ring + begin, from, first);
    memcpy(of->ring, (const char *)from + first, size - first);
    *at += size;
}

static void copy_out(struct sampler *of, uint64_t *at, void *to, size_t size)
{
    size_t begin = *at % RING_BYTES, first = size < RING_BYTES - begin ? size : RING_BYTES - begin;
    memcpy(to, of->ring + begin, first);
    memcpy((char *)to + first, of->ring, size - first);
    *at += size;
}

static int has_room(struct sampler *of, uint64_t at, size_t size)
{
    return size <= RING_BYTES - (at - atomic_load_explicit(&of->read, memory_order_acquire));
}

static int put_code(struct sampler *of, uint64_t *at, const struct slot *slot)
{
    size_t data = data_bytes(&slot->head);
    struct record record = {(uint32_t)(sizeof(struct code_record) + data), CODE};
    struct code_record code;
    memset(&code, 0, sizeof code);
    code.id = slot->id;
    code.head = slot->head;
    if (!has_room(of, *at, sizeof record + record.bytes))
        return 0;
    copy_in(of, at, &record, sizeof record);
    copy_in(of, at, &code, sizeof code);
    copy_in(of, at, of->codes.arena + slot->data, data);
    return 1;
}

static int put_sample(struct sampler *of, uint64_t *at, uint32_t phase, uint32_t flag, unsigned count)
{
    struct sample_record sample = {phase, flag, count, 0};
    struct record record = {(uint32_t)(sizeof sample + count * sizeof(struct place)), SAMPLE};
    if (!has_room(of, *at, sizeof record + record.bytes))
        return 0;
    copy_in(of, at, &record, sizeof record);
    copy_in(of, at, &sample, sizeof sample);
    copy_in(of, at, of->places, count * sizeof(struct place));
    return 1;
}

/* --- a sample ------------------------------------------------------------------------------------------------------------- */

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * A_SECOND + (uint64_t)now.tv_nsec;
}

static int phase_of(const struct sampler *of, uint64_t word, uint32_t *phase)
{
    for (*phase = 0; *phase < of->phase_count; ++*phase)
        if (word == (of->watched.phase.size == sizeof word ? of->phases[*phase] : *phase))
            return 1;
    return 0;
}

/* Return whether the phase and the flag are still those that were read before the stack. */
static int same_phase(const struct sampler *of)
{
    uint64_t phase, flag;
    return read_members(&of->watched, &phase, &flag) && phase == of->stack.phase && flag == of->stack.flag;
}

/* Set the slot of each code object of the stack, NULL where it is not believed; return whether all of them were known before. */
static int compare_codes(struct sampler *of, struct slot **slots)
{
    const uint64_t oldest = of->codes.oldest_id;
    int known = 1;
    for (unsigned i = 0; i < of->codes.count; i++) {
        const struct code *code = &of->codes.of_stack[i];
        slots[i] = code->readable ? same_as_before(&of->codes, code) : NULL;
        known &= slots[i] != NULL || !code->readable;
    }
    for (unsigned i = 0; i < of->codes.count; i++) {
        const int forgotten = oldest != of->codes.oldest_id;
        if (forgotten || (slots[i] != NULL && slots[i]->address != of->codes.of_stack[i].address))  /* replaced by another of them */
            slots[i] = NULL;
    }
    return known;
}

/* Set the places of the frames whose code is believed; return how many, or 0 if a frame's instruction is not of its code. */
static unsigned set_places(struct sampler *of, struct slot **slots)
{
    unsigned count = 0;
    for (unsigned i = 0; i < of->stack.count; i++) {
        const struct frame *frame = &of->stack.frames[i];
        const struct slot *slot = slots[code_at(&of->codes, frame->code) - of->codes.of_stack];
        if (slot == NULL || slot->matches_wanted > 0)
            continue;
        int64_t instruction = instruction_of(&of->layout, frame, &slot->head);
        if (instruction == NO_INSTRUCTION)
            return 0;
        of->places[count++] = (struct place){slot->id, instruction};
    }
    for (unsigned i = 0; count > 0 && i < of->codes.count; i++)  /* once a sample: without a place it is read again */
        if (slots[i] != NULL && slots[i]->matches_wanted > 0)
            slots[i]->matches_wanted--;
    return count;
}

/* Read the watched thread's stack, again while something in it was not known before; return how many places were set. */
static unsigned take_stack(struct sampler *of, uint32_t *phase)
{
    for (int attempt = 1; attempt <= TRIES; attempt++) {
        const uint64_t begin = nanoseconds(CLOCK_MONOTONIC);
        struct slot *slots[MOST_FRAMES];
        if (!read_stack(&of->layout, &of->watched, &of->stack) || !same_phase(of) || !phase_of(of, of->stack.phase, phase))
            continue;
        read_codes(&of->layout, &of->watched, &of->stack, &of->codes);
        if (nanoseconds(CLOCK_MONOTONIC) - begin > LONGEST_READING)
            continue;
        if (!compare_codes(of, slots) && attempt < TRIES)
            continue;
        unsigned count = set_places(of, slots);
        if (count > 0)
            return count;
    }
    return 0;
}

/* Return whether the watched thread waits in the kernel: what has no CPU time now may also wait for a core. */
static int waits(const struct sampler *of)
{
    char text[512];
    int file = open(of->state_path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t size = read(file, text, sizeof text);
    close(file);
    while (size > 2 && text[size - 1] != ')')
        size--;
    return size > 2 && size + 1 < (ssize_t)sizeof text && (text[size + 1] == 'S' || text[size + 1] == 'D');
}

static void put_stack(struct sampler *of, uint32_t phase, unsigned count)
{
    uint64_t at = atomic_load_explicit(&of->written, memory_order_relaxed);
    struct slot *oldest, *told[MOST_FRAMES];
    unsigned tell = 0;
    for (unsigned i = 0; i < of->codes.count; i++) {
        struct slot *slot = slot_of(&of->codes, of->codes.of_stack[i].address, &oldest);
        if (slot == NULL || slot->told)
            continue;
        if (!put_code(of, &at, slot)) {
            of->counts.overflowed++;
            return;
        }
        told[tell++] = slot;
    }
    const int flag = of->watched.flag.size == sizeof of->flag_set ? of->stack.flag == of->flag_set : of->stack.flag != 0;
    if (!put_sample(of, &at, phase, flag, count)) {
        of->counts.overflowed++;
        return;
    }
    while (tell > 0)
        told[--tell]->told = 1;
    atomic_store_explicit(&of->oldest_id, of->codes.oldest_id, memory_order_relaxed);
    atomic_store_explicit(&of->written, at, memory_order_release);
    of->counts.taken++;
}

static void take_sample(struct sampler *of)
{
    uint32_t phase;
    const uint64_t before = nanoseconds(of->clock);
    unsigned count = take_stack(of, &phase);
    if (nanoseconds(of->clock) == before && waits(of))  /* its time came, but by now it has begun to wait */
        of->counts.late++;
    else if (count == 0)
        of->counts.torn++;
    else
        put_stack(of, phase, count);
}

/* --- the native thread ---------------------------------------------------------------------------------------------------- */

/* Set the timer to a time of its own, from the shortest on: no sample keeps pace with the steps. */
static int arm(struct sampler *of, uint64_t shortest_ns)
{
    of->random ^= of->random << 13;
    of->random ^= of->random >> 7;
    of->random ^= of->random << 17;
    uint64_t wait = shortest_ns + 1 + of->random % of->every_ns;
    struct itimerspec when = {{0, 0}, {(time_t)(wait / A_SECOND), (long)(wait % A_SECOND)}};
    return (int)syscall(SYS_timer_settime, of->timer, 0, &when, NULL);
}

static int make_timer(struct sampler *of)
{
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = of->signal;
    event.sigev_notify_thread_id = of->native_tid;
    if (syscall(SYS_timer_create, of->clock, &event, &of->timer) != 0 || arm(of, 0) != 0)
        return errno;
    return 0;
}

static void *native_main(void *argument)
{
    struct sampler *of = argument;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, of->signal);
    prctl(PR_SET_NAME, "tachoscope-line", 0, 0, 0);
    of->native_tid = (pid_t)syscall(SYS_gettid);
    of->timer_error = make_timer(of);
    const int failed = of->timer_error != 0;
    sem_post(&of->ready);
    while (!failed) {
        siginfo_t info;
        int got = sigtimedwait(&wanted, &info, &(struct timespec){LONGEST_WAIT, 0});
        if (atomic_load(&of->stopping))
            break;
        if (got == of->signal && info.si_code != SI_TIMER)  /* the job's own: it belongs to the main thread */
            syscall(SYS_tgkill, getpid(), getpid(), got);
        else if (got == of->signal) {
            take_sample(of);
            if (arm(of, of->every_ns / 2) != 0)
                break;
        }
    }
    if (!failed)
        syscall(SYS_timer_delete, of->timer);
    return NULL;
}

/* Return a real-time signal that the job has no handler for, or 0: only the native thread gets it, in which it is blocked. */
static int free_signal(void)
{
    for (int signal = SIGRTMAX - 1; signal > SIGRTMIN; signal--) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL)
            return signal;
    }
    return 0;
}

/* Start the native thread with all signals blocked in it; return 0 or an error's number. */
static int start_thread(struct sampler *of)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&of->native, &attributes, native_main, of);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        return error;
    while (sem_wait(&of->ready) != 0 && errno == EINTR)
        ;
    if (of->timer_error != 0)
        pthread_join(of->native, NULL);
    return of->timer_error;
}

static void stop_thread(struct sampler *of)
{
    atomic_store(&of->stopping, 1);
    pthread_kill(of->native, of->signal);
    pthread_join(of->native, NULL);
}

#endif
