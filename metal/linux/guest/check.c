// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The value checks: memory is taken away on one CPU while threads on the others use it, and what they read says whether
 * each had flushed. The idea is that of will-it-scale's tlb_flush tests: a page that was taken away reads as zero.
 *
 * A page is filled with a number. Readers confirm that they have seen it, so their TLBs hold the page; then it is taken
 * away, and the readers are told. From then on none of them may see the old number.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 40, MAX_READERS = 64 };

static volatile uint64_t *pages;
static _Atomic uint64_t turn, seen[MAX_READERS];
static _Atomic bool is_over;

static volatile uint64_t *word_of(int page) { return pages + (long)page * (PAGE_BYTES / 8); }

/* In odd turns each page holds the turn; in even ones it has been taken away, and reads as zero. */
static void read_turn(int self, uint64_t now) {
    uint64_t wanted = now & 1 ? now : 0;
    for (int page = 0; page < PAGES; page++) {
        uint64_t found = *word_of(page);
        if (found != wanted)
            fail("a reader saw what was taken away, in turn", (long)now);
    }
    atomic_store(&seen[self], now);
}

static void *reader(void *argument) {
    int self = (int)(intptr_t)argument, cpus = online_cpus();
    pin((self + 1) % cpus);
    uint64_t last = 0;
    while (!atomic_load(&is_over)) {
        uint64_t now = atomic_load(&turn);
        if (now != last)
            read_turn(self, last = now);
        else if (self + 1 >= cpus)
            usleep(1);
    }
    return NULL;
}

static void next_turn(int readers) {
    uint64_t now = atomic_fetch_add(&turn, 1) + 1;
    for (int self = 0; self < readers; self++)
        while (atomic_load(&seen[self]) != now)
            usleep(0);
}

/* One round: fill, let all see it, take it away in one of several ways, let all see that. */
static void round_of(uint64_t number, int readers) {
    for (int page = 0; page < PAGES; page++)
        *word_of(page) = atomic_load(&turn) + 1;
    next_turn(readers);
    /* 1 page at a time, all of them as one range, or through a second mapping on top. */
    void *all = (void *)pages;
    if (number % 3 == 0) {
        for (int page = 0; page < PAGES; page++)
            madvise((void *)word_of(page), PAGE_BYTES, MADV_DONTNEED);
    } else if (number % 3 == 1) {
        madvise(all, PAGES * PAGE_BYTES, MADV_DONTNEED);
    } else {
        int fresh = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap(all, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, fresh, -1, 0) == all)
            return next_turn(readers);
        fail("no new mapping", (long)number);
    }
    next_turn(readers);
}

static sigjmp_buf on_fault;
static void catch_fault(int signal) {
    (void)signal;
    siglongjmp(on_fault, 1);
}

/* A page that lost its write permission cannot be written, on any CPU. */
static void check_protection(int cpus) {
    uint8_t *page = map_pages(1);
    struct sigaction action = {.sa_handler = catch_fault, .sa_flags = SA_NODEFER}, before;
    sigaction(SIGSEGV, &action, &before);
    for (int cpu = 0; cpu < cpus; cpu++) {
        pin(cpu);
        mprotect(page, PAGE_BYTES, PROT_READ | PROT_WRITE);
        page[0] = 2;
        pin((cpu + 1) % cpus);
        page[0] = 3;
        mprotect(page, PAGE_BYTES, PROT_READ);
        pin(cpu);
        if (!sigsetjmp(on_fault, 1)) {
            *(volatile uint8_t *)page = 4;
            fail("a page was written that is read-only, on CPU", cpu);
        }
    }
    sigaction(SIGSEGV, &before, NULL);
    munmap(page, PAGE_BYTES);
}

/* After a fork what the parent writes is not seen by the child, though a second thread of it runs elsewhere. */
static void check_fork(uint64_t number) {
    uint8_t *page = map_pages(1);
    page[0] = (uint8_t)number;
    pid_t child = fork();
    if (child < 0)
        fail("no fork", (long)number);
    if (child == 0) {
        for (int turn = 0; turn < 3; turn++) {
            if (*(volatile uint8_t *)page != (uint8_t)number)
                _exit(1);
            sched_yield();
        }
        _exit(0);
    }
    page[0] = (uint8_t)(number + 1);
    int status;
    if (waitpid(child, &status, 0) != child || status)
        fail("a child saw what its parent wrote after the fork", (long)number);
    munmap(page, PAGE_BYTES);
}

/* A thread that sleeps while its CPU idles; what was taken away meanwhile it must not find when it wakes. */
struct sleeper {
    int wake[2], done[2];
    volatile uint64_t *page;
    int cpu;
};

static void *sleep_and_read(void *argument) {
    struct sleeper *sleeper = argument;
    uint64_t wanted;
    pin(sleeper->cpu);
    while (read(sleeper->wake[0], &wanted, sizeof(wanted)) == sizeof(wanted)) {
        if (*sleeper->page != wanted)
            fail("a thread woke and found what was taken away while it slept, of turn", (long)*sleeper->page);
        if (write(sleeper->done[1], &wanted, sizeof(wanted)) != sizeof(wanted))
            fail("no pipe", 1);
    }
    return NULL;
}

static void see(struct sleeper *sleeper, uint64_t wanted) {
    if (write(sleeper->wake[1], &wanted, sizeof(wanted)) != sizeof(wanted) ||
        read(sleeper->done[0], &wanted, sizeof(wanted)) != sizeof(wanted))
        fail("no pipe", 2);
    usleep(2000); /* its CPU goes idle */
}

static void check_sleeper(int cpus) {
    struct sleeper sleeper = {.page = (volatile uint64_t *)map_pages(1), .cpu = 1 % cpus};
    pthread_t thread;
    if (pipe(sleeper.wake) || pipe(sleeper.done) || pthread_create(&thread, NULL, sleep_and_read, &sleeper))
        fail("no thread that sleeps", 0);
    for (uint64_t number = 1; number < 20; number++) {
        *sleeper.page = number;
        see(&sleeper, number);
        madvise((void *)sleeper.page, PAGE_BYTES, MADV_DONTNEED);
        see(&sleeper, 0);
    }
    close(sleeper.wake[1]);
    pthread_join(thread, NULL);
    close(sleeper.wake[0]), close(sleeper.done[0]), close(sleeper.done[1]);
    munmap((void *)sleeper.page, PAGE_BYTES);
}

int check(int seconds) {
    int cpus = online_cpus(), readers = cpus < 2 ? 1 : cpus - 1;
    pthread_t threads[MAX_READERS];
    pages = (volatile uint64_t *)map_pages(PAGES);
    memset((void *)pages, 0, PAGES * PAGE_BYTES);
    pin(0);
    check_sleeper(cpus);
    for (int self = 0; self < readers; self++)
        if (pthread_create(&threads[self], NULL, reader, (void *)(intptr_t)self))
            fail("no thread", self);
    time_t end = time(NULL) + seconds;
    uint64_t rounds = 0;
    for (; time(NULL) < end || rounds < 12; rounds++) {
        round_of(rounds, readers);
        if (rounds % 16 == 0) {
            check_protection(cpus);
            check_fork(rounds);
            pin(0);
        }
    }
    atomic_store(&is_over, true);
    for (int self = 0; self < readers; self++)
        pthread_join(threads[self], NULL);
    printf("{\"kind\":\"check\",\"cpus\":%d,\"rounds\":%llu,\"passed\":true}\n", cpus, (unsigned long long)rounds);
    fflush(stdout);
    return 0;
}
