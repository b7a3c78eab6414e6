// Runs the archive that a kernel links, on a machine made of arrays.

#include <sys/resource.h>

#include "machine.h"
#include "use.h"

int main(void) {
    // A call that never returns ends the program, and what it has forked.
    const struct rlimit seconds = {.rlim_cur = 10, .rlim_max = 10};
    CHECK(setrlimit(RLIMIT_CPU, &seconds) == 0);
    CHECK(tlbkit_header_fits());
    use_everything();
    flush_everything();
    misuse_everything();
    misplace_everything();
    tell_everything();
    spare_everything();
    puts("ok");
    return 0;
}
