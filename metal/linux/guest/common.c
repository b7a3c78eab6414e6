// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What the programs of the guest share: see guest.h. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fail(const char *what, long value) {
    printf("{\"kind\":\"failure\",\"what\":\"%s\",\"value\":%ld,\"errno\":%d}\n", what, value, errno);
    fflush(stdout);
    _exit(1);
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) && errno != EINVAL)
        fail("no such CPU", cpu);
}

int online_cpus(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

uint8_t *map_pages(long pages) {
    uint8_t *at = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        fail("no memory for so many pages", pages);
    for (long page = 0; page < pages; page++)
        at[page * PAGE_BYTES] = 1;
    return at;
}

/* The sum of a row of /proc/interrupts. */
static uint64_t sum_of(char *numbers) {
    uint64_t sum = 0;
    for (char *next; *numbers; numbers = next) {
        sum += strtoull(numbers, &next, 10);
        if (next == numbers)
            break;
    }
    return sum;
}

struct interrupts interrupts_now(void) {
    struct interrupts found = {0, 0};
    char line[4096];
    FILE *file = fopen("/proc/interrupts", "r");
    if (!file)
        fail("no /proc/interrupts", 0);
    while (fgets(line, sizeof(line), file)) {
        char *name = line + strspn(line, " ");
        /* Function calls: the shootdowns of stock Linux are among them. The platform's vector: those of tlbkit. */
        if (!strncmp(name, "CAL:", 4) || !strncmp(name, "PLT:", 4))
            found.calls += sum_of(name + 4);
        else if (!strncmp(name, "RES:", 4))
            found.reschedules += sum_of(name + 4);
    }
    fclose(file);
    return found;
}
