// The functions that a kernel defines if its archive was built with `linked`: each is called where it must be.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tlbkit.h"

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, calls); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)
#define OK(call) CHECK((call) == TLBKIT_STATUS_OK)

enum { CPUS = 3 };

static struct tlbkit_machine machine;
static struct tlbkit_space space;
static uint32_t here, features_of_all = TLBKIT_FEATURE_PCID | TLBKIT_FEATURE_INVPCID;
static bool irqs_on[CPUS], is_called[CPUS], is_delivery_held;
// A letter for each call, and the CPUs that are in it.
static char calls[256];

static void note(char what, uint32_t cpu) {
    const size_t length = strlen(calls);
    CHECK(length + 3 < sizeof calls);
    calls[length] = what, calls[length + 1] = (char)('0' + cpu), calls[length + 2] = ' ', calls[length + 3] = 0;
}

// What was called since the last time.
static bool was_called(const char *what) {
    const bool is_it = strcmp(calls, what) == 0;
    if (is_it)
        calls[0] = 0;
    return is_it;
}

static void deliver(void) {
    const uint32_t before = here;
    for (here = 0; here < CPUS; here++)
        if (is_called[here] && irqs_on[here]) {
            is_called[here] = irqs_on[here] = false;
            OK(tlbkit_answer(&machine, here));
            irqs_on[here] = true;
        }
    here = before;
}

static void call(uint32_t to) {
    is_called[to] = true;
    if (!is_delivery_held)
        deliver();
}

void tlbkit_k_send_ipi(uint32_t cpu, uint32_t to) {
    CHECK(cpu == here);
    note('i', to);
    call(to);
}

void tlbkit_k_send_ipi_to_others(uint32_t cpu) {
    CHECK(cpu == here);
    note('o', cpu);
    for (uint32_t to = 0; to < CPUS; to++)
        if (to != cpu)
            call(to);
}

void tlbkit_k_write_cr3(uint64_t value) { (void)value, note('c', here); }
void tlbkit_k_invlpg(uint64_t va) { (void)va, note('p', here); }
void tlbkit_k_invpcid(uint32_t kind, uint32_t pcid, uint64_t va) { (void)kind, (void)pcid, (void)va, note('v', here); }
void tlbkit_k_toggle_pge(void) { note('g', here); }
bool tlbkit_k_irqs_enabled(void) { return irqs_on[here]; }

void tlbkit_k_relax(void) {
    note('r', here);
    is_delivery_held = false;
    deliver();
}

uint64_t tlbkit_k_irqs_save(void) {
    const bool before = irqs_on[here];
    irqs_on[here] = false;
    return before;
}

void tlbkit_k_irqs_restore(uint64_t saved) { irqs_on[here] = saved; }

static uint32_t features(uint32_t cpu) { return (void)cpu, features_of_all; }
static void last_lazy_reference(uint32_t cpu, struct tlbkit_space *last) { (void)cpu, (void)last; }

static void begin(void) {
    static const struct tlbkit_hardware_ops ops = {.features = features, .last_lazy_reference = last_lazy_reference};
    static struct tlbkit_cpu_state states[CPUS];
    static uint64_t matrix[TLBKIT_MATRIX_WORDS(CPUS)], set[TLBKIT_SET_WORDS(CPUS)];
    const struct tlbkit_setup setup = {
        .ops = &ops, .cpus = states, .cpu_count = CPUS, .matrix = matrix,
        .matrix_words = sizeof matrix / sizeof *matrix, .kernel_root = 0x100000,
    };
    OK(tlbkit_machine_init(&machine, &setup));
    OK(tlbkit_space_init(&space, &machine, 0x200000, set, TLBKIT_SET_WORDS(CPUS)));
    for (here = 0; here < CPUS; here++) {
        irqs_on[here] = false;
        OK(tlbkit_bring_up(&machine, here));
        if (here < 2)
            OK(tlbkit_switch_to(&machine, here, &space));
        irqs_on[here] = true;
    }
    here = 0;
}

int main(void) {
    CHECK(tlbkit_header_fits());
    begin();
    CHECK(was_called("c0 v0 c0 c1 v1 c1 c2 v2 "));
    OK(tlbkit_flush_range(&machine, 0, &space, 0x400000, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_REMOVE_PTE));
    CHECK(was_called("i1 p1 p0 "));
    is_delivery_held = true;
    OK(tlbkit_flush_kernel_range(&machine, 0, 0xffff800000000000, 1, TLBKIT_STRIDE_PAGE4K, TLBKIT_REASON_KERNEL_REMOVE));
    CHECK(was_called("o0 p0 r0 p1 p2 "));
    CHECK(irqs_on[0] && irqs_on[1] && irqs_on[2]);
    irqs_on[0] = false;
    OK(tlbkit_flush_all_this_cpu(&machine, 0));
    CHECK(was_called("v0 ") && !irqs_on[0]);
    features_of_all = TLBKIT_FEATURE_PCID;
    begin();
    CHECK(was_called("c0 g0 c0 c1 g1 c1 c2 g2 "));
    puts("ok");
    return 0;
}
