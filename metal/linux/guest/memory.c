// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory that the kernel merges, moves, swaps out and makes huge while two threads use it, and what it must hold. */
#define _GNU_SOURCE
#include "guest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { WORDS = PAGE_BYTES / 8, PAGES = 1024 };

static _Atomic bool is_over;

/* The page's number in its first word, and the same in all pages behind it, so that pages can be merged. */
static void fill(uint64_t *at, uint64_t turn) {
    for (long page = 0; page < PAGES; page++)
        for (long word = 0; word < WORDS; word += 64)
            at[page * WORDS + word] = word == 0 && page % 8 == 0 ? turn + (uint64_t)page : turn;
}

static void examine(const volatile uint64_t *at, uint64_t turn) {
    for (long page = 0; page < PAGES; page++)
        for (long word = 0; word < WORDS; word += 64)
            if (at[page * WORDS + word] != (word == 0 && page % 8 == 0 ? turn + (uint64_t)page : turn))
                fail("memory does not hold what was written, page", page);
}

static void *use(void *argument) {
    uint64_t *at = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long bytes = PAGES * PAGE_BYTES;
    if (at == MAP_FAILED)
        fail("no memory to load", 0);
    madvise(at, bytes, MADV_MERGEABLE);
    for (uint64_t turn = (uint64_t)(intptr_t)argument; !atomic_load(&is_over); turn += 1000) {
        madvise(at, bytes, turn / 1000 % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        fill(at, turn);
        madvise(at, bytes, MADV_PAGEOUT);
        examine(at, turn);
        uint64_t *elsewhere = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) != elsewhere)
            fail("memory cannot be moved", 0);
        examine(at = elsewhere, turn);
        if (turn / 1000 % 4 == 3) {
            madvise(at, bytes, MADV_DONTNEED);
            for (long page = 0; page < PAGES; page++)
                if (*(volatile uint64_t *)&at[page * WORDS])
                    fail("memory that was given back holds something, page", page);
        }
    }
    return NULL;
}

int load_memory(int seconds) {
    pthread_t threads[2];
    time_t end = time(NULL) + seconds;
    for (intptr_t self = 0; self < 2; self++)
        pthread_create(&threads[self], NULL, use, (void *)(self + 1));
    while (time(NULL) < end)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    atomic_store(&is_over, true);
    for (int self = 0; self < 2; self++)
        pthread_join(threads[self], NULL);
    printf("{\"kind\":\"memory\",\"passed\":true}\n");
    return 0;
}
