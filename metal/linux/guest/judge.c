// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Programs that others wrote judge this kernel: its own selftests, and stress-ng. Which ones, and for how long each may
 * run, stands in /judges/list, a line each: a name, seconds, a command of the shell. The part of the name before the
 * stroke is the folder in which the command runs.
 *
 * A test says by its exit status that all was well (0), that it found nothing to test here (4), or that something was
 * wrong; what it wrote is shown in the last case alone. At the end the kernel's log is read: a warning is a finding.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 512, SHOWN = 12, OUT_OF_TIME = 124, READ_ALL = 3, LOG_BYTES = 1 << 18 };

static const char *const written = "/tmp/written";

struct judge {
    char name[64];
    int seconds;
    char command[LINE];
};

static _Noreturn void become(const struct judge *judge) {
    char folder[80];
    snprintf(folder, sizeof(folder), "/judges/%.*s", (int)strcspn(judge->name, "/"), judge->name);
    int to = open(written, O_WRONLY | O_CREAT | O_TRUNC, 0600), from = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    if (chdir(folder) || to < 0 || from < 0)
        _exit(127);
    dup2(from, 0), dup2(to, 1), dup2(to, 2);
    setenv("PATH", "/bin", 1);
    execl("/bin/sh", "sh", "-c", judge->command, NULL);
    _exit(127);
}

/* The exit status; that of a signal is 128 and its number, as in a shell. */
static int run_one(const struct judge *judge) {
    time_t end = time(NULL) + judge->seconds;
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        become(judge);
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (time(NULL) >= end) {
            kill(-child, SIGKILL), kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return OUT_OF_TIME;
        }
        usleep(20000);
    }
    kill(-child, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The lines that say what failed, or the last ones if none does. */
static int show(const char *name) {
    static char last[SHOWN][LINE];
    char line[LINE];
    int count = 0, findings = 0;
    FILE *file = fopen(written, "r");
    while (file && fgets(line, sizeof(line), file)) {
        bool is_finding = !strncmp(line, "not ok", 6) || strstr(line, "[FAIL]") || strstr(line, "fail:");
        findings += is_finding;
        if (is_finding && findings <= 3 * SHOWN)
            printf("# %s: %s", name, line);
        strcpy(last[count++ % SHOWN], line);
    }
    for (int at = count > SHOWN ? count - SHOWN : 0; findings == 0 && at < count; at++)
        printf("# %s: %s", name, last[at % SHOWN]);
    if (file)
        fclose(file);
    return findings;
}

static bool is_well(int status) { return status == 0 || status == 4; }

static void tell(const char *name, int status, int findings, long seconds) {
    printf("\n{\"kind\":\"judged\",\"test\":\"%s\",\"status\":%d,\"findings\":%d,\"seconds\":%ld}\n", name, status, findings,
           seconds);
    fflush(stdout);
}

/* A warning of the kernel is a finding, whatever the programs said. */
static bool is_log_clean(void) {
    static char log[LOG_BYTES];
    int length = klogctl(READ_ALL, log, sizeof(log) - 1), findings = 0;
    for (char *line = strtok(length > 0 ? log : "", "\n"); line; line = strtok(NULL, "\n")) {
        if (!strstr(line, "WARNING:") && !strstr(line, "BUG:") && !strstr(line, "tlbkit: CPU"))
            continue;
        findings++;
        printf("# %s\n", line);
    }
    tell("kernel's log", findings != 0, findings, 0);
    return findings == 0;
}

static bool is_next(FILE *list, struct judge *judge) {
    char line[LINE];
    while (fgets(line, sizeof(line), list))
        if (line[0] != '#' && sscanf(line, "%63s %d %511[^\n]", judge->name, &judge->seconds, judge->command) == 3)
            return true;
    return false;
}

int judge(const char *wanted) {
    struct judge next;
    bool is_fine = true;
    FILE *list = fopen("/judges/list", "r");
    if (!list)
        fail("no list of tests", errno);
    while (is_next(list, &next)) {
        if (strncmp(next.name, wanted, strlen(wanted)))
            continue;
        time_t begun = time(NULL);
        int status = run_one(&next), findings = is_well(status) ? 0 : show(next.name);
        tell(next.name, status, findings, time(NULL) - begun);
        is_fine &= is_well(status);
    }
    fclose(list);
    is_fine &= is_log_clean();
    return !is_fine;
}
