// What an archive without checks still tells: a flush that would have to wait with interrupts off reaches the hook.

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"

static void hook(const struct tlbkit_misuse *misuse) {
    _exit(strstr(misuse->message, "with interrupts off") ? 42 : 43);
}

static int flush_with_interrupts_off(void) {
    int status;
    irqs_on[0] = false;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        tlbkit_set_panic_hook(hook);
        set_page(&space_a, 1, NO_FRAME);
        OK(tlbkit_flush_range(&machine, 0, &space_a, USER_VA + 4096, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_REMOVE_PTE));
        _exit(touch(0, 1) == NO_FRAME ? 0 : 44);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    irqs_on[0] = true;
    return WEXITSTATUS(status);
}

int main(void) {
    machine_begin(NULL);
    switch_to(0, &space_a);
    CHECK(touch(0, 1) == 2001);
    CHECK(flush_with_interrupts_off() == 0); /* nobody would be waited for */
    switch_to(1, &space_a);
    CHECK(flush_with_interrupts_off() == 42);
    puts("ok");
    return 0;
}
