// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The measured programs: the same work on both kernels, a row each. The emulator's clock counts instructions, those of
 * all CPUs, so the time stamp counter says how many were executed; what it says is divided by whoever reads the rows.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

/* What one row measures. */
struct work {
    const char *name;
    long pages;
    int threads; /* the one that works, and others that run in user mode beside it */
    int operations;
    /* Does it once, and returns the ticks that count. */
    uint64_t (*once)(long pages);
};

static _Atomic bool is_over;
static _Atomic int are_running;

static void *beside(void *cpu) {
    pin((int)(intptr_t)cpu);
    atomic_fetch_add(&are_running, 1);
    while (!atomic_load(&is_over))
        _mm_pause();
    return NULL;
}

static uint64_t once_munmap(long pages) {
    uint8_t *at = map_pages(pages);
    uint64_t begun = __rdtsc();
    munmap(at, pages * PAGE_BYTES);
    return __rdtsc() - begun;
}

/* Nothing else in the same two megabytes: munmap frees their table too. Here there is, and the table stays. */
static uint64_t once_munmap_beside(long pages) {
    void *neighbour = mmap(NULL, PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t taken = once_munmap(pages);
    munmap(neighbour, PAGE_BYTES);
    return taken;
}

static uint64_t once_madvise(long pages) {
    static uint8_t *at;
    if (!at)
        at = map_pages(512);
    for (long page = 0; page < pages; page++)
        at[page * PAGE_BYTES] = 1;
    uint64_t begun = __rdtsc();
    madvise(at, pages * PAGE_BYTES, MADV_DONTNEED);
    return __rdtsc() - begun;
}

static uint64_t once_mprotect(long pages) {
    static uint8_t *at;
    if (!at)
        at = map_pages(512);
    mprotect(at, pages * PAGE_BYTES, PROT_READ | PROT_WRITE);
    for (long page = 0; page < pages; page++)
        at[page * PAGE_BYTES] = 1;
    uint64_t begun = __rdtsc();
    mprotect(at, pages * PAGE_BYTES, PROT_READ);
    return __rdtsc() - begun;
}

/* The parent writes to what the child shares, while a second thread of it runs. */
static uint64_t once_copy(long pages) {
    static uint8_t *at;
    int over[2];
    if (!at)
        at = map_pages(64);
    if (pipe(over))
        fail("no pipe", 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(over[1]);
        _exit(read(over[0], &byte, 1) != 0);
    }
    uint64_t begun = __rdtsc();
    for (long page = 0; page < pages; page++)
        at[page * PAGE_BYTES]++;
    uint64_t taken = __rdtsc() - begun;
    close(over[0]), close(over[1]);
    waitpid(child, NULL, 0);
    return taken;
}

static uint64_t once_fork(long pages) {
    (void)pages;
    uint64_t begun = __rdtsc();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return __rdtsc() - begun;
}

static uint64_t once_exec(long pages) {
    (void)pages;
    uint64_t begun = __rdtsc();
    pid_t child = fork();
    if (child == 0) {
        execl("/guest", "guest", "nothing", NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return __rdtsc() - begun;
}

static uint64_t once_pageout(long pages) {
    uint8_t *at = map_pages(pages);
    uint64_t begun = __rdtsc();
    madvise(at, pages * PAGE_BYTES, MADV_PAGEOUT);
    uint64_t taken = __rdtsc() - begun;
    munmap(at, pages * PAGE_BYTES);
    return taken;
}

/* A page of will-it-scale's tlb_flush tests: written, given back, read. At the end of a mapping comes a new one. */
static uint64_t once_flush(uint8_t **mapping, long *next, int flags, int file) {
    enum { PAGES = 512 };
    if (!*mapping || *next == PAGES) {
        if (*mapping)
            munmap(*mapping, PAGES * PAGE_BYTES);
        *mapping = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
        if (*mapping == MAP_FAILED)
            fail("no mapping", 0);
        *next = 0;
    }
    volatile uint8_t *page = *mapping + (*next)++ * PAGE_BYTES;
    uint64_t begun = __rdtsc();
    *page = 1;
    madvise((void *)page, PAGE_BYTES, MADV_DONTNEED);
    (void)*page;
    return __rdtsc() - begun;
}

static int flushed_file(void) {
    static int file = -1;
    if (file < 0)
        file = open("/flushed", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 512 * PAGE_BYTES))
        fail("no file", 0);
    return file;
}

static uint64_t once_flush1(long pages) {
    static uint8_t *mapping;
    static long next;
    (void)pages;
    return once_flush(&mapping, &next, MAP_PRIVATE, flushed_file());
}

static uint64_t once_flush2(long pages) {
    static uint8_t *mapping;
    static long next;
    (void)pages;
    return once_flush(&mapping, &next, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static uint64_t once_flush3(long pages) {
    static uint8_t *mapping;
    static long next;
    (void)pages;
    return once_flush(&mapping, &next, MAP_SHARED, flushed_file());
}

/* A partner that sends back what it is sent, by two pipes. */
struct partner {
    int to[2], from[2];
    int cpu;
};

static void *send_back(void *argument) {
    struct partner *partner = argument;
    char byte;
    pin(partner->cpu);
    while (read(partner->to[0], &byte, 1) == 1 && write(partner->from[1], &byte, 1) == 1)
        ;
    return NULL;
}

static struct partner partner;

static uint64_t once_ping(long pages) {
    (void)pages;
    char byte = 0;
    uint64_t begun = __rdtsc();
    if (write(partner.to[1], &byte, 1) != 1 || read(partner.from[0], &byte, 1) != 1)
        fail("no partner", 0);
    return __rdtsc() - begun;
}

static const struct work works[] = {
    {"ping-pong of processes", 0, 1, 400, once_ping},
    {"ping-pong of threads through idle", 0, 1, 400, once_ping},
    {"munmap", 1, 1, 200, once_munmap},
    {"munmap beside a mapping", 1, 1, 200, once_munmap_beside},
    {"munmap", 1, 2, 200, once_munmap},
    {"munmap", 1, 4, 200, once_munmap},
    {"munmap", 33, 1, 100, once_munmap},
    {"munmap", 33, 2, 100, once_munmap},
    {"munmap", 33, 4, 100, once_munmap},
    {"munmap", 34, 1, 100, once_munmap},
    {"munmap", 34, 2, 100, once_munmap},
    {"munmap", 512, 1, 30, once_munmap},
    {"munmap", 512, 4, 30, once_munmap},
    {"madvise", 1, 1, 200, once_madvise},
    {"madvise", 1, 2, 200, once_madvise},
    {"madvise", 1, 4, 200, once_madvise},
    {"madvise", 33, 1, 100, once_madvise},
    {"madvise", 33, 4, 100, once_madvise},
    {"madvise", 34, 1, 100, once_madvise},
    {"madvise", 34, 4, 100, once_madvise},
    {"madvise", 512, 1, 30, once_madvise},
    {"madvise", 512, 4, 30, once_madvise},
    {"mprotect", 1, 1, 200, once_mprotect},
    {"mprotect", 1, 2, 200, once_mprotect},
    {"mprotect", 1, 4, 200, once_mprotect},
    {"mprotect", 512, 4, 30, once_mprotect},
    {"copy on write", 8, 2, 50, once_copy},
    {"tlb_flush1", 1, 1, 400, once_flush1},
    {"tlb_flush1", 1, 4, 400, once_flush1},
    {"tlb_flush2", 1, 1, 400, once_flush2},
    {"tlb_flush2", 1, 4, 400, once_flush2},
    {"tlb_flush3", 1, 1, 400, once_flush3},
    {"tlb_flush3", 1, 4, 400, once_flush3},
    {"fork + exit", 0, 1, 50, once_fork},
    {"fork + exec + exit", 0, 1, 30, once_exec},
    {"page out", 64, 1, 20, once_pageout},
    {"page out", 64, 4, 20, once_pageout},
};

/* What the rows with a partner need before. */
static void find_partner(bool is_process) {
    pthread_t thread;
    partner.cpu = is_process ? 0 : 1;
    if (pipe(partner.to) || pipe(partner.from))
        fail("no pipe", 0);
    if (!is_process) {
        pthread_create(&thread, NULL, send_back, &partner);
    } else if (fork() == 0) {
        close(partner.to[1]);
        send_back(&partner);
        _exit(0);
    }
}

static void leave_partner(bool is_process) {
    close(partner.to[1]);
    if (is_process)
        wait(NULL);
    close(partner.to[0]), close(partner.from[0]), close(partner.from[1]);
}

static void measure_one(const struct work *work) {
    pthread_t threads[8];
    bool has_partner = work->once == once_ping, is_process = has_partner && strstr(work->name, "processes");
    atomic_store(&is_over, false), atomic_store(&are_running, 1);
    pin(0);
    if (has_partner)
        find_partner(is_process);
    for (int other = 1; other < work->threads; other++)
        pthread_create(&threads[other], NULL, beside, (void *)(intptr_t)other);
    while (atomic_load(&are_running) < work->threads)
        usleep(100);
    enum { WARM = 10 };
    for (int warm = 0; warm < WARM; warm++)
        work->once(work->pages);
    struct interrupts before = interrupts_now();
    static uint64_t each[400];
    for (int operation = 0; operation < work->operations; operation++)
        each[operation] = work->once(work->pages);
    struct interrupts after = interrupts_now();
    atomic_store(&is_over, true);
    for (int other = 1; other < work->threads; other++)
        pthread_join(threads[other], NULL);
    if (has_partner)
        leave_partner(is_process);
    printf("{\"kind\":\"row\",\"work\":\"%s\",\"pages\":%ld,\"threads\":%d,\"interrupts\":%llu,\"reschedules\":%llu,"
           "\"warm\":%d,\"ticks\":[",
           work->name, work->pages, work->threads, (unsigned long long)(after.calls - before.calls),
           (unsigned long long)(after.reschedules - before.reschedules), WARM);
    for (int operation = 0; operation < work->operations; operation++)
        printf("%s%llu", operation ? "," : "", (unsigned long long)each[operation]);
    printf("]}\n");
    fflush(stdout);
}

/* `name/pages/threads`, with a hyphen for each space: one word of the kernel's command line. */
static bool is_called(const struct work *work, const char *wanted) {
    char name[80];
    snprintf(name, sizeof(name), "%s/%ld/%d", work->name, work->pages, work->threads);
    for (char *at = name; *at; at++)
        if (*at == ' ')
            *at = '-';
    return strstr(name, wanted) != NULL;
}

int measure(const char *wanted) {
    int cpus = online_cpus();
    for (unsigned index = 0; index < sizeof(works) / sizeof(works[0]); index++) {
        const struct work *work = &works[index];
        int needed = strstr(work->name, "idle") ? 2 : work->threads;
        if (needed <= cpus && is_called(work, wanted))
            measure_one(work);
    }
    return 0;
}
