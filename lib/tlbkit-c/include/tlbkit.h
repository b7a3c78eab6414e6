// tlbkit: the TLB subsystem of an x86-64 kernel. SPDX-License-Identifier: MIT OR Apache-2.0
//
// Generated from lib/tlbkit-c/src by cbindgen; do not edit. docs/porting.md says what to call where.
//
// A pointer is null, misaligned (both are refused), or points to what is said here. Numbers that stand for a choice are
// plain integers, named by the enum in their comment. Functions may be called on any CPU, and `cpu` is the one they
// are called on.

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
// gcc and clang.
#define TLBKIT_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define TLBKIT_MUST_USE __attribute__((warn_unused_result))
// What `tlbkit_set_words` and `tlbkit_matrix_words` return, for arrays whose size the compiler must know.
#define TLBKIT_SET_WORDS(cpus) (((cpus) + 63) / 64)
#define TLBKIT_MATRIX_WORDS(cpus) ((cpus) * TLBKIT_INBOX_WORDS(cpus) + ((cpus) + 2) * TLBKIT_SET_WORDS(cpus))
// A part of it: above 512 CPUs an inbox has words on top, and takes whole cache lines.
#define TLBKIT_INBOX_WORDS(cpus)                                   \
    ((cpus) <= 512 ? TLBKIT_SET_WORDS(cpus)                        \
                   : (TLBKIT_SET_WORDS(cpus) + TLBKIT_SET_WORDS(TLBKIT_SET_WORDS(cpus)) + 7) / 8 * 8)

// CR4.PCIDE is set on the CPU.
#define TLBKIT_FEATURE_PCID 1

// INVPCID exists on the CPU.
#define TLBKIT_FEATURE_INVPCID 2

// 8-byte words of a machine.
#define TLBKIT_MACHINE_WORDS 40

// 8-byte words of one CPU's state.
#define TLBKIT_CPU_STATE_WORDS 64

// 8-byte words of a space.
#define TLBKIT_SPACE_WORDS 8

// 8-byte words of a gather.
#define TLBKIT_GATHER_WORDS 32

// 8-byte words of one CPU's counters.
#define TLBKIT_STATS_WORDS 1062

// What a call returns. Whatever is not `TLBKIT_STATUS_OK` has changed nothing.
enum tlbkit_status {
    // Done.
    TLBKIT_STATUS_OK = 0,
    // A pointer that must not be null is.
    TLBKIT_STATUS_NULL_POINTER,
    // A pointer lacks the alignment of its type.
    TLBKIT_STATUS_MISALIGNED,
    // A struct was never made, or has ended.
    TLBKIT_STATUS_NOT_MADE,
    // There is no such CPU.
    TLBKIT_STATUS_NO_SUCH_CPU,
    // The CPU was not brought up, or is offline.
    TLBKIT_STATUS_CPU_OFFLINE,
    // Storage is too small for the number of CPUs.
    TLBKIT_STATUS_TOO_SMALL,
    // Interrupts are on and must be off.
    TLBKIT_STATUS_IRQS_ON,
    // Interrupts are off and must be on: other CPUs may have to be waited for.
    TLBKIT_STATUS_IRQS_OFF,
    // A value is out of its range.
    TLBKIT_STATUS_BAD_VALUE,
    // No preset has this name.
    TLBKIT_STATUS_NO_SUCH_PRESET,
    // A word of the policy is no `KEY=VALUE`, or has a key that there is not.
    TLBKIT_STATUS_NO_SUCH_KEY,
    // The policy does what only older kernels did, and the archive was built without `--features history`.
    TLBKIT_STATUS_NEEDS_HISTORY,
    // The table of functions lacks one that must be there.
    TLBKIT_STATUS_NO_FUNCTION,
    // The space runs here.
    TLBKIT_STATUS_SPACE_RUNS_HERE,
    // The gather has no room for the frame: finish it and begin another.
    TLBKIT_STATUS_GATHER_FULL,
    // The policy does not count, or no counters were given.
    TLBKIT_STATUS_NOT_COUNTED,
};

// What to do about a CPU that is late: what `late` of the table returns.
enum tlbkit_late {
    // Wait on.
    TLBKIT_LATE_WAIT = 0,
    // Interrupt it again.
    TLBKIT_LATE_ASK_AGAIN = 1,
};

// How the user half is flushed under isolation.
enum tlbkit_user_flush {
    // INVPCID page by page, now.
    TLBKIT_USER_FLUSH_INVPCID = 0,
    // One flushing CR3 write on the way back to user mode.
    TLBKIT_USER_FLUSH_DEFERRED_CR3 = 1,
};

// The size of one translation, and so the step of a range.
enum tlbkit_stride {
    // 4 KiB.
    TLBKIT_STRIDE_PAGE4K = 12,
    // 2 MiB.
    TLBKIT_STRIDE_PAGE2M = 21,
    // 1 GiB.
    TLBKIT_STRIDE_PAGE1G = 30,
};

// Whether the entry that was changed had the global bit.
enum tlbkit_scope {
    // It had not.
    TLBKIT_SCOPE_LOCAL = 0,
    // It had.
    TLBKIT_SCOPE_GLOBAL = 1,
};

// Why translations were revoked.
enum tlbkit_reason {
    // A mapping was removed page by page.
    TLBKIT_REASON_REMOVE_PTE,
    // A whole space was emptied.
    TLBKIT_REASON_REMOVE_ALL,
    // Write permission was taken away.
    TLBKIT_REASON_WRITE_PROTECT,
    // Fork shared the pages of the parent.
    TLBKIT_REASON_FORK,
    // A copy replaced a shared page.
    TLBKIT_REASON_COPY_ON_WRITE,
    // A mapping was replaced by another.
    TLBKIT_REASON_ENTER,
    // A page-table page was freed.
    TLBKIT_REASON_FREE_TABLE,
    // A kernel mapping was made over an old one.
    TLBKIT_REASON_KERNEL_ENTER,
    // A kernel mapping was removed.
    TLBKIT_REASON_KERNEL_REMOVE,
    // The window to foreign page tables was moved.
    TLBKIT_REASON_FOREIGN_TABLES,
    // A page was moved to another frame.
    TLBKIT_REASON_MIGRATE,
    // A space ended.
    TLBKIT_REASON_DESTROY,
};

// Where a flush of one reason had its effect.
enum tlbkit_place {
    // On the CPU that asked, user addresses.
    TLBKIT_PLACE_LOCAL,
    // Interrupts sent to others, any address.
    TLBKIT_PLACE_REMOTE,
    // On the CPU that asked, kernel addresses.
    TLBKIT_PLACE_KERNEL,
};

// Whether INVLPG is believed to drop global entries while tags are on: what a kernel's command line can say to
// `tlbkit_x86_start`.
enum tlbkit_x86_trust {
    // As the table of errata and the microcode say; under a hypervisor, whose microcode nobody can check, as if it
    // were old.
    TLBKIT_X86_TRUST_BY_TABLE = 0,
    // It is, so tags are used: for a host that is known to be mended.
    TLBKIT_X86_TRUST_ALWAYS = 1,
    // It is not, so tags stay off, whatever the model.
    TLBKIT_X86_TRUST_NEVER = 2,
};

// The TLBs of a machine. One for a kernel, for ever.
struct TLBKIT_ALIGNED(64) tlbkit_machine {
    uint64_t opaque[TLBKIT_MACHINE_WORDS];
};

// One set of page tables: put it where the process is, on a cache line of its own.
struct TLBKIT_ALIGNED(64) tlbkit_space {
    uint64_t opaque[TLBKIT_SPACE_WORDS];
};

// Translations and frames that wait for one flush: on the stack of an unmap.
struct TLBKIT_ALIGNED(8) tlbkit_gather {
    uint64_t opaque[TLBKIT_GATHER_WORDS];
};

// Where a gather keeps frames, and who frees them.
struct tlbkit_frames {
    // Room for `capacity` frames, until the gather is finished.
    uint64_t *array;
    // Frames that fit.
    size_t capacity;
    // Frees one frame. Called by `tlbkit_gather_finish` alone.
    void (*release)(void *context, uint64_t frame);
    // The first argument of `release`.
    void *context;
};

#if defined(TLBKIT_HISTORY)
// Flushes of one size.
struct tlbkit_size_count {
    // How many.
    uint64_t samples;
    // Cycles of their local halves.
    uint64_t cycles;
};
#endif

// What the library needs of a CPU. Each function is called on the CPU that it names as `cpu`, and what it does must
// have happened when it returns. All must be given but those marked as optional, which may be NULL.
struct tlbkit_hardware_ops {
    // What this CPU can do: `TLBKIT_FEATURE_`s, as they are after the kernel has set up CR4.
    uint32_t (*features)(uint32_t cpu);
    // MOV to CR3. Bit 63 and the tag are set only on CPUs with PCIDs.
    void (*write_cr3)(uint32_t cpu, uint64_t value);
    // INVLPG.
    void (*invlpg)(uint32_t cpu, uint64_t va);
    // INVPCID of type 0 to 3. Optional if no CPU has it.
    void (*invpcid)(uint32_t cpu, uint32_t kind, uint32_t pcid, uint64_t va);
    // Clears and sets CR4.PGE. Called with interrupts off.
    void (*toggle_pge)(uint32_t cpu);
    // Sends the interrupt whose handler calls `tlbkit_answer`.
    void (*send_ipi)(uint32_t cpu, uint32_t to);
    // Sends it to every online CPU but this one.
    void (*send_ipi_to_others)(uint32_t cpu);
    // PAUSE.
    void (*relax)(uint32_t cpu);
    // Whether interrupts are on.
    bool (*irqs_enabled)(uint32_t cpu);
    // Turns interrupts off and returns what `irqs_restore` needs.
    uint64_t (*irqs_save)(uint32_t cpu);
    // Back to what was before `irqs_save`.
    void (*irqs_restore)(uint32_t cpu, uint64_t saved);
    // A cycle counter. Optional if the policy does not count.
    uint64_t (*now_cycles)(uint32_t cpu);
    // CPU `missing` has not answered for a long time; returns an `enum tlbkit_late`. Optional: waits on. A kernel
    // that calls `tlbkit_declare_stopped` must return `TLBKIT_LATE_ASK_AGAIN`.
    uint32_t (*late)(uint32_t cpu, uint32_t missing);
    // The last CPU that held this dying space lazily has left it. Interrupts are off, maybe in the handler: note it,
    // and free the tables later. Needed where lazy references are counted.
    void (*last_lazy_reference)(uint32_t cpu, struct tlbkit_space *space);
};

// One CPU's part. As many as there are possible CPUs, for ever.
struct TLBKIT_ALIGNED(64) tlbkit_cpu_state {
    uint64_t opaque[TLBKIT_CPU_STATE_WORDS];
};

// One CPU's counters, if flushes are to be counted. As many as there are possible CPUs, for ever.
struct TLBKIT_ALIGNED(8) tlbkit_stats {
    uint64_t opaque[TLBKIT_STATS_WORDS];
};

// Everything that a machine is made of. The struct itself is only read during the call; what `cpus`, `matrix` and
// `stats` point to belongs to the machine for ever.
struct tlbkit_setup {
    // The functions of the hardware; copied.
    const struct tlbkit_hardware_ops *ops;
    // The policy as a text, see `tlbkit_policy_check`. NULL for the library's own.
    const char *policy;
    // One for each possible CPU.
    struct tlbkit_cpu_state *cpus;
    // Possible CPUs.
    uint32_t cpu_count;
    // At least `tlbkit_matrix_words(cpu_count)` words; set to zero by the call.
    uint64_t *matrix;
    // Words there.
    size_t matrix_words;
    // Physical address of the top-level table that idle CPUs can be left with.
    uint64_t kernel_root;
    // One for each possible CPU, or NULL. Used if the policy counts, for which the archive needs `--features history`.
    struct tlbkit_stats *stats;
};

// What went wrong, and where in the library. The texts do not end in a zero byte.
struct tlbkit_misuse {
    // The rule that was broken, or null if it takes formatting to say it.
    const char *message;
    // Bytes of the message.
    size_t message_bytes;
    // The source file that found it.
    const char *file;
    // Bytes of the file's name.
    size_t file_bytes;
    // The line that found it.
    uint32_t line;
};

// Prints and stops the machine. If it returns, the CPU spins for ever.
typedef void (*tlbkit_panic_hook)(const struct tlbkit_misuse *misuse);

// The sizes that the archive was built with, to be compared with the header's.
struct tlbkit_layout {
    // Bytes of a `struct tlbkit_machine`.
    uint64_t machine_bytes;
    // Bytes of a `struct tlbkit_cpu_state`.
    uint64_t cpu_state_bytes;
    // Bytes of a `struct tlbkit_space`.
    uint64_t space_bytes;
    // Bytes of a `struct tlbkit_gather`.
    uint64_t gather_bytes;
    // Bytes of a `struct tlbkit_stats`.
    uint64_t stats_bytes;
    // Alignment of the largest of them.
    uint64_t align_bytes;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts or restarts a CPU: first use, hot-plug, resume. Everything in its TLB goes, and the kernel's own tables are
// loaded. Before anything else on this CPU; interrupts off. A CPU that was stopped by force while it asked others
// waits here for their answers.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_bring_up(const struct tlbkit_machine *machine, uint32_t cpu);

// Takes this CPU out until its next `tlbkit_bring_up`. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_offline(const struct tlbkit_machine *machine, uint32_t cpu);

// States that another CPU has stopped by force and executes nothing until its `tlbkit_bring_up`. It may have stopped
// before it sent an interrupt that others count on: a kernel that calls this must have a `late` in its table, and
// return `TLBKIT_LATE_ASK_AGAIN` from it. A space that it was flushing must live until its `tlbkit_bring_up` returns.
// Not for a guest's CPU that may go on by itself.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_declare_stopped(const struct tlbkit_machine *machine, uint32_t stopped);

// Loads a space for the task that runs next; nothing if it runs already. In the context switch, interrupts off. The
// space that is left stays alive until the call returns.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_switch_to(const struct tlbkit_machine *machine,
                                    uint32_t cpu,
                                    const struct tlbkit_space *space);

// Idle or a kernel thread runs next: the user space stays loaded, unused, as the policy says. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_enter_lazy(const struct tlbkit_machine *machine, uint32_t cpu);

// Loads the kernel's own tables: before deep idle. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_load_kernel(const struct tlbkit_machine *machine, uint32_t cpu);

// On the way from user mode into the kernel, under isolation; else nothing. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_enter_kernel(const struct tlbkit_machine *machine, uint32_t cpu);

// On the way back to user mode, under isolation; else nothing. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_exit_to_user(const struct tlbkit_machine *machine, uint32_t cpu);

// Carries out what other CPUs have asked: the handler of the shootdown interrupt. Interrupts off. A stray interrupt
// is harmless, on a CPU that has left too.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_answer(const struct tlbkit_machine *machine, uint32_t cpu);

// True if the space is loaded here and may be used: what an NMI asks before it touches user memory. False on misuse.
TLBKIT_MUST_USE
bool tlbkit_is_running(const struct tlbkit_machine *machine,
                       uint32_t cpu,
                       const struct tlbkit_space *space);

// Calls `each` with every CPU that has not answered this CPU's request: for a watchdog.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_missing(const struct tlbkit_machine *machine,
                                  uint32_t cpu,
                                  void (*each)(void *context, uint32_t missing),
                                  void *context);

// Flushes more than `pages` pages as everything from now on, whatever the policy's rule was; 0 for always.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_set_ceiling(const struct tlbkit_machine *machine, uint32_t pages);

// Flushes the user half this way (an `enum tlbkit_user_flush`) from now on.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_set_user_flush(const struct tlbkit_machine *machine, uint32_t how);

// Flushes `pages` translations of a space from `va` on, everywhere, at once: for a change that frees nothing, such as
// a permission taken away. The page tables have been changed. Interrupts on, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_range(const struct tlbkit_machine *machine,
                                      uint32_t cpu,
                                      const struct tlbkit_space *space,
                                      uint64_t va,
                                      uint32_t pages,
                                      uint32_t stride,
                                      uint32_t reason);

// Flushes kernel addresses on every CPU, in every space, for a change that frees nothing. Interrupts on.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_kernel_range(const struct tlbkit_machine *machine,
                                             uint32_t cpu,
                                             uint64_t va,
                                             uint64_t pages,
                                             uint32_t stride,
                                             uint32_t reason);

// Begins an empty gather for a space, or for the kernel's addresses if `space` is NULL. `frames` may be NULL if
// nothing will be held; it is copied. The space outlives the gather.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_begin(struct tlbkit_gather *gather,
                                       const struct tlbkit_machine *machine,
                                       const struct tlbkit_space *space,
                                       const struct tlbkit_frames *frames);

// Names `pages` adjoining translations from `va` on whose entries have been cleared or changed. Where the policy does
// not batch they are flushed at once, so interrupts are on.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_range(struct tlbkit_gather *gather,
                                       uint32_t cpu,
                                       uint64_t va,
                                       uint64_t pages,
                                       uint32_t stride,
                                       uint32_t scope,
                                       uint32_t reason);

// Gives the gather a frame that nothing maps any more. `TLBKIT_STATUS_GATHER_FULL` if it has no room: the frame is
// still the caller's, who finishes the gather and begins another for it.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_hold(struct tlbkit_gather *gather, uint64_t frame);

// A page-table page is among the frames: CPUs that hold the space lazily are told as well.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_tables_freed(struct tlbkit_gather *gather);

// Makes the flush a full one.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_everything(struct tlbkit_gather *gather);

// Flushes everywhere what was named, then calls `release` for each frame, then ends the gather. Interrupts on,
// preemption off, no lock held that a CPU may wait for with its interrupts off. On an error the gather stays open.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_finish(struct tlbkit_gather *gather, uint32_t cpu);

#if defined(TLBKIT_HISTORY)
// Writes into `count` how many flushes of CPU `cpu` had this `enum tlbkit_reason` and `enum tlbkit_place`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_count(const struct tlbkit_machine *machine,
                                uint32_t cpu,
                                uint32_t reason,
                                uint32_t place,
                                uint64_t *count);
#endif

#if defined(TLBKIT_HISTORY)
// Writes into `count` how many flushes of CPU `cpu` were of `pages` pages, 1 to 512; 0 for flushes of everything.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_count_size(const struct tlbkit_machine *machine,
                                     uint32_t cpu,
                                     uint32_t pages,
                                     struct tlbkit_size_count *count);
#endif

#if defined(TLBKIT_HISTORY)
// Mapped pages of the space, for the range rules by family shift.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_active_pages(struct tlbkit_gather *gather, uint64_t pages);
#endif

#if defined(TLBKIT_HISTORY)
// True if the policy wants the page tables searched for large pages before the flush; if one is found, the caller
// says `tlbkit_gather_everything`. False on misuse.
TLBKIT_MUST_USE bool tlbkit_gather_wants_walk(struct tlbkit_gather *gather, uint32_t cpu);
#endif

// Makes a space for the page tables at `root`; under isolation the user half's top-level table is one page above.
// `set` has at least `tlbkit_set_words` words, which the call sets to zero. Both belong to the space until
// `tlbkit_space_destroy` gives it back.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_init(struct tlbkit_space *space,
                                     const struct tlbkit_machine *machine,
                                     uint64_t root,
                                     uint64_t *set,
                                     size_t set_words);

// Ends a space that no task runs any more, interrupting the CPUs that hold it lazily. `may_free` becomes true if its
// tables can be freed now; otherwise when `last_lazy_reference` names it. Interrupts on; not from a CPU that runs it.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_destroy(const struct tlbkit_machine *machine,
                                        uint32_t cpu,
                                        struct tlbkit_space *space,
                                        bool *may_free);

// Words that a machine of `cpus` CPUs needs beside its CPUs: who has asked whom.
TLBKIT_MUST_USE size_t tlbkit_matrix_words(uint32_t cpus);

// Makes a machine. No CPU takes part until its `tlbkit_bring_up`. The machine stays where it is for ever.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_machine_init(struct tlbkit_machine *machine,
                                       const struct tlbkit_setup *setup);

// Calls `hook` on misuse that no status can tell; NULL for none. One for all machines.
void tlbkit_set_panic_hook(tlbkit_panic_hook hook);

// Whether a text `PRESET[:KEY=VALUE[+KEY=VALUE...]]` names a policy: `TLBKIT_STATUS_OK`, or what is wrong with it. The
// presets and keys are those of `tlbkit list policies` and `tlbkit list settings`; an archive that was built without
// `--features history` knows the preset "tlbkit" and what it can be changed to.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_policy_check(const char *text);

// Words that a space needs for the set of its CPUs.
TLBKIT_MUST_USE size_t tlbkit_set_words(uint32_t cpus);

// The space's name, never used again; 0 if it was never made.
TLBKIT_MUST_USE uint64_t tlbkit_space_id(const struct tlbkit_space *space);

// How many revocations the space has seen, plus one; 0 if it was never made.
TLBKIT_MUST_USE uint64_t tlbkit_space_generation(const struct tlbkit_space *space);

// A status in words, for a log.
TLBKIT_MUST_USE const char *tlbkit_status_text(uint32_t status);

// The sizes of this archive. `tlbkit_header_fits()` compares them with the header's.
TLBKIT_MUST_USE struct tlbkit_layout tlbkit_layout(void);

#if defined(TLBKIT_X86)
// Finds out what this CPU can do, less what its errata forbid, switches global pages and tags on, and returns
// `TLBKIT_FEATURE_`s: what `features` of the table returns for this CPU from then on. Once on each CPU, before
// `tlbkit_bring_up`; ring 0, interrupts off. `trust` is an `enum tlbkit_x86_trust`, the same on every CPU.
TLBKIT_MUST_USE uint32_t tlbkit_x86_start(uint32_t trust);
#endif

#if defined(TLBKIT_X86)
// Puts the instructions into every place of the table that is NULL and is one: `write_cr3`, `invlpg`, `invpcid`,
// `toggle_pge`, `relax`, `irqs_enabled`, `irqs_save`, `irqs_restore`, `now_cycles`. The kernel sends its
// interrupts itself. `irqs_save` and `irqs_restore` belong together, since only the kernel's own `irqs_restore` knows
// what its `irqs_save` returned: a table that has one of them alone is refused with `TLBKIT_STATUS_NO_FUNCTION`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_x86_fill(struct tlbkit_hardware_ops *ops);
#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

// True if this header and the archive were built from the same source: ask once, at boot.
static inline bool tlbkit_header_fits(void) {
    struct tlbkit_layout layout = tlbkit_layout();
    return layout.machine_bytes == sizeof(struct tlbkit_machine) &&
           layout.cpu_state_bytes == sizeof(struct tlbkit_cpu_state) &&
           layout.space_bytes == sizeof(struct tlbkit_space) && layout.gather_bytes == sizeof(struct tlbkit_gather) &&
           layout.stats_bytes == sizeof(struct tlbkit_stats);
}
