// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The first program of the guest, and all the others: what it does stands in the kernel's command line, as words that
 * Linux does not know and hands to it.
 *
 *     check SECONDS   the value checks
 *     churn SECONDS   the same while CPUs go and come, pages are merged, moved and swapped, and huge pages are made
 *     judge NAME      tests of others whose name begins so; with stress and load, CPUs go and come
 *     rows            the measured programs
 *     shell           a shell on the serial port
 *
 * At the end it leaves the emulator: 33 is what QEMU returns if all went well, 35 if something did not.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static void put(const char *file, const char *text) {
    int to = open(file, O_WRONLY);
    if (to < 0 || write(to, text, strlen(text)) < 0)
        printf("# %s is not for %s\n", file, text);
    close(to);
}

static void mount_all(void) {
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
    mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
}

/* A disk in memory, and on it what the kernel wants to see of a swap area. */
static void swap_on(void) {
    static uint8_t header[PAGE_BYTES];
    uint32_t version_and_last[2] = {1, 128 * 256 - 1};
    int disk = open("/dev/ram0", O_RDWR);
    memcpy(header + 1024, version_and_last, sizeof(version_and_last));
    memcpy(header + PAGE_BYTES - 10, "SWAPSPACE2", 10);
    if (disk < 0 || write(disk, header, PAGE_BYTES) != PAGE_BYTES || close(disk) || swapon("/dev/ram0", 0))
        fail("no swap area", 0);
}

/* What shakes page tables while the values are checked. */
static void churn(void) {
    char cpu[64], state[2] = "0";
    put("/sys/kernel/mm/ksm/run", "1");
    put("/sys/kernel/mm/ksm/sleep_millisecs", "5");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always");
    for (unsigned turn = 0;; turn++) {
        int last = (int)sysconf(_SC_NPROCESSORS_CONF) - 1;
        put("/proc/sys/vm/compact_memory", "1");
        if (last > 0) {
            snprintf(cpu, sizeof(cpu), "/sys/devices/system/cpu/cpu%d/online", last);
            put(cpu, state);
            state[0] ^= 1;
        }
        put("/sys/kernel/debug/x86/tlb_single_page_flush_ceiling", turn % 3 ? "33" : "2");
        usleep(50000);
    }
}

/* Says so if the CPUs have tags and the kernel uses them: tests of tags that ran without would be worth nothing. */
static void tell_tags(void) {
    static char line[4096];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof(line), file))
        if (!strncmp(line, "flags", 5) && strstr(line, " pcid ")) {
            printf("{\"kind\":\"tags\",\"invpcid\":%s}\n", strstr(line, " invpcid ") ? "true" : "false");
            break;
        }
    if (file)
        fclose(file);
}

/* Runs `work` as a process of its own; false if it failed. */
static bool runs_well(const char *self, const char *verb, const char *argument) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl(self, "guest", verb, argument, NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status == 0;
}

/* A verb in a process of its own. */
static int run(char **words) {
    const char *argument = words[1] ? words[1] : "";
    if (!strcmp(words[0], "check"))
        return check(atoi(argument));
    if (!strcmp(words[0], "rows"))
        return measure(argument);
    if (!strcmp(words[0], "judge"))
        return judge(argument);
    if (!strcmp(words[0], "memory"))
        return load_memory(atoi(argument));
    return strcmp(words[0], "nothing") != 0;
}

static _Noreturn void leave(bool is_well) {
    printf("{\"kind\":\"end\",\"passed\":%s}\n", is_well ? "true" : "false");
    fflush(stdout);
    tcdrain(STDOUT_FILENO);
    if (!iopl(3)) {
        outl(is_well ? 16 : 17, 0xf4);
        /* That was QEMU; this ends Bochs. */
        for (const char *letter = "Shutdown"; *letter; letter++)
            outb((unsigned char)*letter, 0x8900);
    }
    reboot(RB_POWER_OFF);
    _exit(1);
}

/* The value checks beside all that shakes page tables. */
static bool check_shaken(const char *self, const char *seconds) {
    swap_on();
    pid_t shaker = fork();
    if (shaker == 0)
        churn();
    pid_t load = fork();
    if (load == 0) {
        execl(self, "guest", "memory", seconds, NULL);
        _exit(127);
    }
    int status;
    bool is_well = runs_well(self, "check", seconds);
    waitpid(load, &status, 0);
    kill(shaker, SIGKILL);
    return is_well && status == 0;
}

/* Foreign tests; all but those of Linux's own, which count CPUs, run while CPUs go and come. */
static bool judge_shaken(const char *self, const char *wanted) {
    bool is_shaken = !strncmp(wanted, "stress", 6) || !strncmp(wanted, "load", 4);
    swap_on();
    pid_t shaker = is_shaken ? fork() : -1;
    if (shaker == 0)
        churn();
    bool is_well = runs_well(self, "judge", wanted);
    if (shaker > 0)
        kill(shaker, SIGKILL);
    return is_well;
}

int main(int count, char **words) {
    if (getpid() != 1)
        return count > 1 ? run(words + 1) : 1;
    setbuf(stdout, NULL);
    mount_all();
    tell_tags();
    const char *verb = count > 1 ? words[1] : "shell", *argument = count > 2 ? words[2] : "";
    bool is_well = true;
    if (!strcmp(verb, "shell")) {
        is_well = runs_well("/bin/sh", "", NULL);
    } else if (!strcmp(verb, "churn")) {
        is_well = check_shaken(words[0], argument);
    } else if (!strcmp(verb, "judge")) {
        is_well = judge_shaken(words[0], argument);
    } else {
        if (!strcmp(verb, "rows"))
            swap_on();
        is_well = runs_well(words[0], verb, argument);
    }
    leave(is_well);
}
