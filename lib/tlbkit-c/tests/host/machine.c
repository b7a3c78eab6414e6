// The machine of machine.h.

#include "machine.h"

#include <string.h>

#define ENTRIES 256
#define KEEP (1ull << 63)
#define GLOBAL_TAG 0xffffu
#define USER_HALF 0x800u

struct entry {
    uint32_t tag;
    uint64_t va, frame;
};

static struct cpu {
    uint64_t cr3;
    bool is_called;
    unsigned count;
    struct entry entries[ENTRIES];
} cores[CPUS];

const char *preset = "";
struct tlbkit_machine machine;
struct tlbkit_space space_a, space_b;
uint64_t set_a[1], set_b[1];
bool irqs_on[CPUS], is_delivery_held, has_hooked[CPUS];
uint32_t here;
uint32_t late_choice, features_of_all;
void (*while_waiting)(uint32_t cpu);
unsigned interrupts[CPUS], late_calls, invpcids, toggles;
struct tlbkit_space *last_left;

static struct tlbkit_cpu_state states[CPUS];
static struct tlbkit_stats stats[CPUS];
static uint64_t matrix[TLBKIT_MATRIX_WORDS(CPUS)];
// The kernel's pages, then those of the two spaces.
static uint64_t tables[3][PAGES];

static void drop(uint32_t cpu, bool (*is_meant)(const struct entry *, uint64_t, uint64_t), uint64_t tag, uint64_t va) {
    struct cpu *core = &cores[cpu];
    unsigned kept = 0;
    for (unsigned i = 0; i < core->count; i++)
        if (!is_meant(&core->entries[i], tag, va))
            core->entries[kept++] = core->entries[i];
    core->count = kept;
}

static bool of_tag(const struct entry *e, uint64_t tag, uint64_t va) { return (void)va, e->tag == tag; }
static bool of_page(const struct entry *e, uint64_t tag, uint64_t va) { return e->tag == tag && e->va == va; }
static bool of_page_or_global(const struct entry *e, uint64_t tag, uint64_t va) {
    return e->va == va && (e->tag == tag || e->tag == GLOBAL_TAG);
}
static bool not_global(const struct entry *e, uint64_t tag, uint64_t va) {
    return (void)tag, (void)va, e->tag != GLOBAL_TAG;
}
static bool any(const struct entry *e, uint64_t tag, uint64_t va) { return (void)e, (void)tag, (void)va, true; }

static uint32_t features(uint32_t cpu) { return (void)cpu, features_of_all; }

static void write_cr3(uint32_t cpu, uint64_t value) {
    if (!(features_of_all & TLBKIT_FEATURE_PCID))
        CHECK((value & (KEEP | 0xfff)) == 0);
    if (!(value & KEEP))
        drop(cpu, of_tag, value & 0xfff, 0);
    cores[cpu].cr3 = value & ~KEEP;
}

static void invlpg(uint32_t cpu, uint64_t va) { drop(cpu, of_page_or_global, cores[cpu].cr3 & 0xfff, va); }

static void invpcid(uint32_t cpu, uint32_t kind, uint32_t pcid, uint64_t va) {
    static bool (*const meant[])(const struct entry *, uint64_t, uint64_t) = {of_page, of_tag, any, not_global};
    CHECK(features_of_all & TLBKIT_FEATURE_INVPCID);
    CHECK(kind < 4 && pcid < 4096);
    invpcids++;
    drop(cpu, meant[kind], pcid, va);
}

static void toggle_pge(uint32_t cpu) {
    CHECK(!irqs_on[cpu]);
    toggles++;
    drop(cpu, any, 0, 0);
}

static void answer(uint32_t cpu) {
    if (!irqs_on[cpu])
        return;
    cores[cpu].is_called = false;
    interrupts[cpu]++;
    uint32_t before = here;
    here = cpu;
    irqs_on[cpu] = false;
    OK(tlbkit_answer(&machine, cpu));
    here = before;
    irqs_on[cpu] = true;
}

void deliver(void) {
    for (uint32_t cpu = 0; cpu < CPUS; cpu++)
        if (cores[cpu].is_called)
            answer(cpu);
}

static void send_ipi(uint32_t cpu, uint32_t to) {
    CHECK(to != cpu && to < CPUS);
    cores[to].is_called = true;
    if (!is_delivery_held)
        deliver();
}

static void send_ipi_to_others(uint32_t cpu) {
    for (uint32_t to = 0; to < CPUS; to++)
        if (to != cpu)
            send_ipi(cpu, to);
}

static void relax(uint32_t cpu) {
    if (while_waiting)
        while_waiting(cpu);
}

static bool irqs_enabled(uint32_t cpu) { return irqs_on[cpu]; }

static uint64_t irqs_save(uint32_t cpu) {
    uint64_t before = irqs_on[cpu];
    irqs_on[cpu] = false;
    return before;
}

static void irqs_restore(uint32_t cpu, uint64_t saved) { irqs_on[cpu] = saved; }

static uint64_t now_cycles(uint32_t cpu) {
    static uint64_t now;
    return (void)cpu, now += 10;
}

static uint32_t late(uint32_t cpu, uint32_t missing) {
    CHECK(missing != cpu);
    late_calls++;
    is_delivery_held = late_choice != TLBKIT_LATE_ASK_AGAIN;
    return late_choice;
}

static void last_lazy_reference(uint32_t cpu, struct tlbkit_space *space) {
    (void)cpu;
    last_left = space;
}

const struct tlbkit_hardware_ops hardware = {
    .features = features,
    .write_cr3 = write_cr3,
    .invlpg = invlpg,
    .invpcid = invpcid,
    .toggle_pge = toggle_pge,
    .send_ipi = send_ipi,
    .send_ipi_to_others = send_ipi_to_others,
    .relax = relax,
    .irqs_enabled = irqs_enabled,
    .irqs_save = irqs_save,
    .irqs_restore = irqs_restore,
    .now_cycles = now_cycles,
    .late = late,
    .last_lazy_reference = last_lazy_reference,
};

const struct tlbkit_hardware_ops *table = &hardware;

static unsigned index_of(const struct tlbkit_space *space) { return space == NULL ? 0 : space == &space_a ? 1 : 2; }

uint64_t root_of(const struct tlbkit_space *space) { return 0x100000 + index_of(space) * 0x2000ull; }

uint64_t own_root_of(uint32_t cpu, const struct tlbkit_space *space) { return root_of(space) + 0x10000 * (1 + cpu); }

void set_page(const struct tlbkit_space *space, unsigned page, uint64_t frame) {
    tables[index_of(space)][page] = frame;
}

static uint64_t access(uint32_t cpu, uint64_t va, uint32_t tag, const uint64_t *entry) {
    struct cpu *core = &cores[cpu];
    for (unsigned i = 0; i < core->count; i++)
        if (core->entries[i].va == va && core->entries[i].tag == tag)
            return core->entries[i].frame;
    CHECK(core->count < ENTRIES);
    if (*entry != NO_FRAME)
        core->entries[core->count++] = (struct entry){tag, va, *entry};
    return *entry;
}

uint64_t touch(uint32_t cpu, unsigned page) {
    unsigned own = (unsigned)(cores[cpu].cr3 >> 16 & 0xf), space = (unsigned)(cores[cpu].cr3 >> 12 & 0xf) / 2;
    CHECK((space == 1 || space == 2) && (own == 0 || own == 1 + cpu));
    static const uint64_t nothing = NO_FRAME;
    const uint64_t *entry = own && !has_hooked[cpu] ? &nothing : &tables[space][page];
    return access(cpu, USER_VA + page * 4096ull, cores[cpu].cr3 & 0xfff, entry);
}

uint64_t touch_kernel(uint32_t cpu, unsigned page) {
    return access(cpu, KERNEL_VA + page * 4096ull, GLOBAL_TAG, &tables[0][page]);
}

void switch_to(uint32_t cpu, const struct tlbkit_space *space) {
    uint64_t saved = irqs_save(cpu);
    uint32_t before = here;
    here = cpu;
    OK(tlbkit_switch_to(&machine, cpu, space));
    here = before;
    irqs_restore(cpu, saved);
}

void go_idle(uint32_t cpu) {
    uint64_t saved = irqs_save(cpu);
    OK(tlbkit_enter_lazy(&machine, cpu));
    irqs_restore(cpu, saved);
}

void machine_begin(const char *policy) {
    memset(cores, 0, sizeof cores);
    memset(interrupts, 0, sizeof interrupts);
    late_calls = invpcids = toggles = 0;
    is_delivery_held = false, while_waiting = NULL, late_choice = TLBKIT_LATE_WAIT, last_left = NULL;
    features_of_all = TLBKIT_FEATURE_PCID | TLBKIT_FEATURE_INVPCID;
    struct tlbkit_setup setup = {
        .ops = table,
        .policy = policy,
        .cpus = states,
        .cpu_count = CPUS,
        .matrix = matrix,
        .matrix_words = sizeof matrix / sizeof *matrix,
        .kernel_root = root_of(NULL),
        .stats = stats,
    };
    // What is in a kernel's memory before.
    memset(matrix, 0x5a, sizeof matrix);
    memset(set_a, 0x5a, sizeof set_a);
    memset(set_b, 0x5a, sizeof set_b);
    OK(tlbkit_machine_init(&machine, &setup));
    OK(tlbkit_space_init(&space_a, &machine, root_of(&space_a), set_a, 1));
    OK(tlbkit_space_init(&space_b, &machine, root_of(&space_b), set_b, 1));
    for (unsigned page = 0; page < PAGES; page++)
        for (unsigned table = 0; table < 3; table++)
            tables[table][page] = 1000 * (table + 1) + page;
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        irqs_on[cpu] = false;
        here = cpu;
        OK(tlbkit_bring_up(&machine, cpu));
        irqs_on[cpu] = true;
    }
    here = 0;
}
