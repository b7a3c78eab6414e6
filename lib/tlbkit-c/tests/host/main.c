// Runs the archive that a kernel links, on a machine made of arrays.

#include "machine.h"
#include "use.h"

int main(void) {
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
