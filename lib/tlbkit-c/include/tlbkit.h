// tlbkit: the TLB subsystem of an x86-64 kernel. SPDX-License-Identifier: MIT OR Apache-2.0
//
// Generated from lib/tlbkit-c/src by cbindgen; do not edit. docs/kernel/ says what to call where.
//
// Every pointer must point to what the comment of its function says; null and misaligned pointers are refused. Choices
// are passed as plain integers, and their comment names the enum. A function may be called on any CPU, and `cpu` is the
// number of the CPU that makes the call, unless its comment says otherwise.

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
// A hash of this file: `tlbkit_header_fits` compares it with the one in the archive.
#define TLBKIT_INTERFACE 0x99534df2e04e823bull
// For gcc and clang.
#define TLBKIT_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define TLBKIT_MUST_USE __attribute__((warn_unused_result))
// Upper bounds of what `tlbkit_set_words` and `tlbkit_matrix_words` return, for arrays of constant size.
#define TLBKIT_SET_WORDS(cpus) (((cpus) + 63) / 64)
#define TLBKIT_MATRIX_WORDS(cpus)                                                           \
    ((cpus) * (TLBKIT_INBOX_WORDS(cpus) + TLBKIT_LINES(TLBKIT_SET_WORDS(cpus)) + 4 * 8 +    \
               3 * TLBKIT_SET_WORDS(cpus)) +                                                \
     2 * TLBKIT_SET_WORDS(cpus) + 32)
// Parts of these. Above 512 CPUs an inbox has a second level.
#define TLBKIT_LINES(words) (((words) + 7) / 8 * 8)
#define TLBKIT_INBOX_WORDS(cpus) \
    TLBKIT_LINES(TLBKIT_SET_WORDS(cpus) + ((cpus) <= 512 ? 0 : TLBKIT_SET_WORDS(TLBKIT_SET_WORDS(cpus))))

// A flag for the stride of `tlbkit_flush_range` and `tlbkit_flush_kernel_range`: page-table pages of the range have
// been unhooked and are freed after the call, so CPUs in lazy TLB mode are interrupted too, as with `freed_tables` in
// Linux. The stride is the size of the smallest translation below those pages that has not been flushed: only the
// range at that stride, and the paging-structure-cache entries that lead to it, are invalidated.
#define TLBKIT_FLUSH_TABLES_FREED (1 << 8)

// A flag for the stride of the same calls: flushes everything, whatever the range.
#define TLBKIT_FLUSH_EVERYTHING (1 << 9)

// CR4.PCIDE is set on this CPU.
#define TLBKIT_FEATURE_PCID 1

// This CPU has INVPCID.
#define TLBKIT_FEATURE_INVPCID 2

// Size of a machine in 8-byte words.
#define TLBKIT_MACHINE_WORDS 104

// Size of one CPU's state in 8-byte words.
#define TLBKIT_CPU_STATE_WORDS 64

// Size of a space in 8-byte words.
#define TLBKIT_SPACE_WORDS 8

// Size of a gather in 8-byte words.
#define TLBKIT_GATHER_WORDS 36

#if !defined(TLBKIT_REUSE)
// Size of a batch in 8-byte words.
#define TLBKIT_BATCH_WORDS 20
#endif

#if defined(TLBKIT_REUSE)
// Size of a batch that may be deferred in 8-byte words.
#define TLBKIT_BATCH_WORDS 21
#endif

#if defined(TLBKIT_REUSE)
// Size of a machine's grace periods in 8-byte words.
#define TLBKIT_GRACE_PERIODS_WORDS 16
#endif

#if defined(TLBKIT_REUSE)
// Size of what one CPU has passed in 8-byte words.
#define TLBKIT_PASSED_WORDS 8
#endif

#if defined(TLBKIT_DIRECTORIES)
// Size of the sharers of a table, and of a reach, in 8-byte words.
#define TLBKIT_SHARERS_WORDS 2
#endif

// Size of one CPU's counters in 8-byte words.
#define TLBKIT_STATS_WORDS 1062

// What a call returns. A call that does not return `TLBKIT_STATUS_OK` has changed nothing, with two exceptions. If a
// call that flushes returns `TLBKIT_STATUS_WRONG_CPU`, the task may have migrated while it waited: the flush may be
// incomplete, and nothing has been freed. If `tlbkit_flush_range` or `tlbkit_flush_range_alone` returns
// `TLBKIT_STATUS_IRQS_OFF`, the CPU that made the call has flushed, and others may not have.
enum tlbkit_status {
    // Success.
    TLBKIT_STATUS_OK = 0,
    // A pointer is null that must not be.
    TLBKIT_STATUS_NULL_POINTER,
    // A pointer is not aligned for its type.
    TLBKIT_STATUS_MISALIGNED,
    // A struct was not initialized, or has ended.
    TLBKIT_STATUS_NOT_MADE,
    // There is no CPU of this number.
    TLBKIT_STATUS_NO_SUCH_CPU,
    // The CPU is not online.
    TLBKIT_STATUS_CPU_OFFLINE,
    // An array is too small for the number of CPUs.
    TLBKIT_STATUS_TOO_SMALL,
    // Interrupts are on and must be off.
    TLBKIT_STATUS_IRQS_ON,
    // Interrupts are off, but other CPUs must be interrupted and waited for, which requires them on.
    // `tlbkit_flush_range_alone` returns this whether interrupts are on or off.
    TLBKIT_STATUS_IRQS_OFF,
    // A value is out of range.
    TLBKIT_STATUS_BAD_VALUE,
    // There is no policy preset of this name.
    TLBKIT_STATUS_NO_SUCH_PRESET,
    // A part of the policy text is not `KEY=VALUE`, or there is no such key.
    TLBKIT_STATUS_NO_SUCH_KEY,
    // The policy is one of older kernels, for which the archive needs `--features history`.
    TLBKIT_STATUS_NEEDS_HISTORY,
    // A required function is missing in the table of functions.
    TLBKIT_STATUS_NO_FUNCTION,
    // The space is running on this CPU.
    TLBKIT_STATUS_SPACE_RUNS_HERE,
    // The gather or batch has no room for the frame: finish it and begin another one.
    TLBKIT_STATUS_GATHER_FULL,
    // The policy does not count flushes, or there are no counters.
    TLBKIT_STATUS_NOT_COUNTED,
    // The call was made on another CPU than the one it names, according to `this_cpu` of the table: the task has
    // migrated, or the number is wrong.
    TLBKIT_STATUS_WRONG_CPU,
    // Under the policy `lazy_refs=shot-down` a space must be destroyed by `tlbkit_space_destroy`.
    TLBKIT_STATUS_SHOT_DOWN,
};

// What to do about a CPU that is late in answering: returned by `late` of the table.
enum tlbkit_late {
    // Go on waiting.
    TLBKIT_LATE_WAIT = 0,
    // Send it another IPI, and go on waiting.
    TLBKIT_LATE_ASK_AGAIN = 1,
};

// How the user half is flushed under isolation.
enum tlbkit_user_flush {
    // At once, page by page with INVPCID.
    TLBKIT_USER_FLUSH_INVPCID = 0,
    // Deferred: one flushing CR3 write on exit to user mode.
    TLBKIT_USER_FLUSH_DEFERRED_CR3 = 1,
};

// The size of the translations in a range, as the base-2 logarithm of its bytes, like Linux' `stride_shift`.
enum tlbkit_stride {
    // 4 KiB.
    TLBKIT_STRIDE_PAGE4K = 12,
    // 2 MiB.
    TLBKIT_STRIDE_PAGE2M = 21,
    // 1 GiB.
    TLBKIT_STRIDE_PAGE1G = 30,
    // 512 GiB. No entry maps a page of that size: it is what a page-table page two levels below a five-level root
    // covers, for ranges of page-table pages that were unhooked.
    TLBKIT_STRIDE_SPAN512G = 39,
};

// Whether the changed entry has the global bit.
enum tlbkit_scope {
    // It has not.
    TLBKIT_SCOPE_NON_GLOBAL = 0,
    // It has.
    TLBKIT_SCOPE_GLOBAL = 1,
};

// What happened. The comment says what `value` is, if anything.
enum tlbkit_event {
    // A context switch kept the translations of its PCID.
    TLBKIT_EVENT_SWITCH_KEPT = 0,
    // A context switch flushed the translations of its PCID.
    TLBKIT_EVENT_SWITCH_FLUSHED = 1,
    // A flush begins. `value` is the number of pages, or 4,294,967,295 for everything.
    TLBKIT_EVENT_FLUSH_BEGIN = 2,
    // The local part of the flush is complete.
    TLBKIT_EVENT_FLUSH_LOCAL_DONE = 3,
    // The flush was issued. It is not complete yet.
    TLBKIT_EVENT_FLUSH_ISSUED = 4,
    // The flush is complete on every CPU.
    TLBKIT_EVENT_FLUSH_END = 5,
    // A responder begins to carry out a request. `value` is the initiator's CPU.
    TLBKIT_EVENT_ANSWER_BEGIN = 6,
    // The responder has carried it out. `value` is the initiator's CPU.
    TLBKIT_EVENT_ANSWER_END = 7,
    // A request found this CPU already up to date.
    TLBKIT_EVENT_ALREADY_CURRENT = 8,
    // A request was for a space that is not loaded on this CPU.
    TLBKIT_EVENT_WRONG_SPACE = 9,
    // A request made this CPU leave a space that it held in lazy TLB mode. `value` is the space's address.
    TLBKIT_EVENT_LAZY_LEFT = 10,
    // CPUs that get no IPI for this flush. `value` is how many of them flush when they enter the kernel, and in the
    // upper half how many their host flushes.
    TLBKIT_EVENT_SPARED = 11,
    // This CPU has done the flushes that were deferred until it entered the kernel.
    TLBKIT_EVENT_CAUGHT_UP = 12,
};

// Why translations were taken away: for counting, never for deciding (Linux: `tlb_flush_reason`).
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

// Whether INVLPG is trusted to invalidate global translations while PCIDs are enabled. A kernel can pass this from its
// command line to `tlbkit_x86_start`.
enum tlbkit_x86_trust {
    // As the table of errata and the microcode revision say. Under a hypervisor the revision cannot be verified, so
    // the microcode counts as unfixed.
    TLBKIT_X86_TRUST_BY_TABLE = 0,
    // Trusted, so PCIDs are enabled: for a host that is known to have fixed microcode.
    TLBKIT_X86_TRUST_ALWAYS = 1,
    // Not trusted, so PCIDs stay disabled, whatever the model.
    TLBKIT_X86_TRUST_NEVER = 2,
};

// What the host of a guest flushes without an IPI: `host_flush` of the table.
enum tlbkit_host_flush {
    // Nothing.
    TLBKIT_HOST_FLUSH_NONE = 0,
    // Translations; not the paths to page tables that a CPU has cached.
    TLBKIT_HOST_FLUSH_TRANSLATIONS = 1,
    // Both.
    TLBKIT_HOST_FLUSH_TRANSLATIONS_AND_PATHS = 2,
};

// Translations and frames of many spaces that wait for one flush, like `struct arch_tlbflush_unmap_batch`: on the
// stack of reclaim.
struct TLBKIT_ALIGNED(8) tlbkit_batch {
    uint64_t opaque[TLBKIT_BATCH_WORDS];
};

// The TLBs of all CPUs. A kernel has one, which it never frees.
struct TLBKIT_ALIGNED(64) tlbkit_machine {
    uint64_t opaque[TLBKIT_MACHINE_WORDS];
};

// The storage of a gather's frames, and the function that frees them.
struct tlbkit_frames {
    // An array with room for `capacity` frames, which belongs to the gather until it is finished.
    uint64_t *array;
    // The number of frames that fit into `array`.
    size_t capacity;
    // Frees one frame. Called only by `tlbkit_gather_finish`, `tlbkit_gather_wait`, `tlbkit_batch_flush` and
    // `tlbkit_batch_finish`.
    void (*release)(void *context, uint64_t frame);
    // The first argument of `release`.
    void *context;
};

// The TLB state of one set of page tables, like `mm_context_t`: embed it in the process structure. It has its own
// cache line.
struct TLBKIT_ALIGNED(64) tlbkit_space {
    uint64_t opaque[TLBKIT_SPACE_WORDS];
};

#if defined(TLBKIT_REUSE)
// The grace periods of a machine, for flush at reuse. A kernel has one, which it never frees.
struct TLBKIT_ALIGNED(64) tlbkit_grace_periods {
    uint64_t opaque[TLBKIT_GRACE_PERIODS_WORDS];
};
#endif

#if defined(TLBKIT_REUSE)
// What one CPU has passed: a cache line. A kernel has one per possible CPU, and never frees it.
struct TLBKIT_ALIGNED(64) tlbkit_passed {
    uint64_t opaque[TLBKIT_PASSED_WORDS];
};
#endif

// Translations and frames that wait for one flush, like `struct mmu_gather`: on the stack of an unmap.
struct TLBKIT_ALIGNED(8) tlbkit_gather {
    uint64_t opaque[TLBKIT_GATHER_WORDS];
};

#if defined(TLBKIT_HISTORY)
// The flushes of one size.
struct tlbkit_size_count {
    // Their number.
    uint64_t samples;
    // The cycles that their local parts took.
    uint64_t cycles;
};
#endif

// The hardware interface. Each function is called on the CPU that is passed as `cpu`, and its effect must be complete
// when it returns. A function that is not marked as optional must not be NULL. An archive with the feature `linked`
// calls the functions from `write_cr3` to `irqs_restore` by symbol instead, and ignores them here.
struct tlbkit_hardware_ops {
    // The features of this CPU, as `TLBKIT_FEATURE_` flags, after the kernel has set up CR4.
    uint32_t (*features)(uint32_t cpu);
    // MOV to CR3. Bit 63 and the PCID are set only on CPUs with `TLBKIT_FEATURE_PCID`.
    void (*write_cr3)(uint32_t cpu, uint64_t value);
    // INVLPG.
    void (*invlpg)(uint32_t cpu, uint64_t va);
    // INVPCID of type 0 to 3. Optional if no CPU has `TLBKIT_FEATURE_INVPCID`.
    void (*invpcid)(uint32_t cpu, uint32_t kind, uint32_t pcid, uint64_t va);
    // Clears CR4.PGE and sets it again. Called with interrupts off.
    void (*toggle_pge)(uint32_t cpu);
    // Sends the IPI whose handler calls `tlbkit_answer`.
    void (*send_ipi)(uint32_t cpu, uint32_t to);
    // Sends this IPI to every online CPU but this one.
    void (*send_ipi_to_others)(uint32_t cpu);
    // PAUSE.
    void (*relax)(uint32_t cpu);
    // True if interrupts are enabled.
    bool (*irqs_enabled)(uint32_t cpu);
    // Disables interrupts and returns what `irqs_restore` needs.
    uint64_t (*irqs_save)(uint32_t cpu);
    // Restores the state before `irqs_save`.
    void (*irqs_restore)(uint32_t cpu, uint64_t saved);
    // Reads a cycle counter. Optional if the policy does not count flushes.
    uint64_t (*now_cycles)(uint32_t cpu);
    // Called when CPU `missing` has not answered for about a millisecond of `relax`. Returns an `enum tlbkit_late`.
    // Optional: by default the IPI is sent again, so that a lost one only costs time. A kernel that calls
    // `tlbkit_declare_stopped` must not return `TLBKIT_LATE_WAIT`.
    uint32_t (*late)(uint32_t cpu, uint32_t missing);
    // Called when the last CPU that held this dying space in lazy TLB mode has left it. Interrupts are off, and it may
    // run in the IPI handler: only record the space, and free it and its page tables later, elsewhere. Required unless
    // the policy says `lazy_refs=shot-down`.
    void (*last_lazy_reference)(uint32_t cpu, struct tlbkit_space *space);
    // Returns the CPU that executes the call. It is compared with `cpu` when a call begins, before a waiting CPU
    // answers other CPUs, and when a call that waited ends; see `TLBKIT_STATUS_WRONG_CPU`. Interrupts on or off,
    // possibly in an NMI. Optional: without it `cpu` is trusted.
    uint32_t (*this_cpu)(void);
    // Called when CPU `missing` has not answered in spite of all repeated IPIs, and was not declared stopped: once for
    // each such CPU. If it returns, the wait goes on, and is counted from zero. Optional: by default the hook of
    // `tlbkit_set_panic_hook` gets a message that names the CPUs.
    void (*unanswered)(uint32_t cpu, uint32_t missing);
    // Called when a request has made this CPU leave `space`, which it held in lazy TLB mode: the kernel's own tables
    // are loaded now. Interrupts are off, and it may run in the IPI handler. For a kernel that tracks which space is
    // loaded. Optional.
    void (*lazy_left)(uint32_t cpu, struct tlbkit_space *space);
    // Called for every `enum tlbkit_event`, which says what `value` is: for tracepoints. Interrupts on or off,
    // possibly in the IPI handler. Only called by an archive with the feature `events`. Optional.
    void (*event)(uint32_t cpu, uint32_t event, uint64_t value);
    // After how many turns of `relax` a waiting CPU calls `late`, each time. 0 for the default: 16,384.
    uint32_t patience_turns;
    // After how many calls of `late` in one wait `unanswered` is called. 0 for the default: 1,024,
    // which makes about a second. A guest whose host may take a CPU away for longer needs more.
    uint32_t patience_rounds;
    // Has the host of this guest flush CPUs without an IPI. Bit 0 of `cpus` is CPU `first`. `pages` pages from `start`
    // on, each `bytes` beyond the one before; everything if `pages` is 0; under every PCID, and global translations
    // too. Returns the CPUs that the host does not flush, which then get an IPI. A CPU that is not returned executes
    // nothing with what it has cached before: it has been flushed, or the host flushes it before it runs it again. The
    // mark for that is made by a locked operation that fails if the host runs the CPU, even if the mark is there
    // already. Interrupts on or off. Only called by an archive with the feature `guest`, and only if `host_flush` is
    // not 0.
    uint64_t (*flush_by_host)(uint32_t cpu,
                              uint32_t first,
                              uint64_t cpus,
                              uint64_t start,
                              uint32_t pages,
                              uint64_t bytes);
    // An `enum tlbkit_host_flush`: what that host flushes. 0 on a machine that is no guest.
    uint32_t host_flush;
    // INVLPGB, with what its registers hold. It need not be complete when the function returns, and is not called for
    // more than `broadcast_pages` pages. Only called by an archive with the feature `broadcast`, and only if
    // `broadcast_pages` is not 0.
    void (*invlpgb)(uint32_t cpu, uint64_t rax, uint32_t ecx, uint32_t edx);
    // TLBSYNC: each INVLPGB of this CPU is complete on every CPU when it returns. It is called on the CPU of the
    // INVLPGBs before it, with preemption off.
    void (*tlbsync)(uint32_t cpu);
    // The most pages that one INVLPGB takes: one more than bits 15 to 0 of EDX of CPUID 8000_0008. 0 unless every CPU
    // has the instruction (EBX, bit 3) and PCIDs.
    uint32_t broadcast_pages;
    // The physical address of the top-level table that this CPU loads for `space`. Called in every switch to it, and
    // in answers: interrupts are off. Only called by an archive with the feature `directories`. Optional: by default
    // the one that the space was made with.
    uint64_t (*root_here)(uint32_t cpu, const struct tlbkit_space *space);
};

// The state of one CPU. A kernel has one per possible CPU, and never frees it.
struct TLBKIT_ALIGNED(64) tlbkit_cpu_state {
    uint64_t opaque[TLBKIT_CPU_STATE_WORDS];
};

// The counters of one CPU, for policies that count flushes. A kernel has one per possible CPU, and never frees it.
struct TLBKIT_ALIGNED(8) tlbkit_stats {
    uint64_t opaque[TLBKIT_STATS_WORDS];
};

// Everything that a machine needs. The struct itself is only read during the call; the memory behind `cpus`, `matrix`
// and `stats` belongs to the machine from then on and is never returned.
struct tlbkit_setup {
    // The hardware interface; copied.
    const struct tlbkit_hardware_ops *ops;
    // The policy as a text, see `tlbkit_policy_check`. NULL for the default policy.
    const char *policy;
    // An array with one element per possible CPU.
    struct tlbkit_cpu_state *cpus;
    // The number of possible CPUs.
    uint32_t cpu_count;
    // At least `tlbkit_matrix_words(cpu_count)` words, which the call zeroes. They should begin at a cache line, so
    // that no two CPUs write to the same line.
    uint64_t *matrix;
    // The number of words in `matrix`.
    size_t matrix_words;
    // Physical address of a top-level table that maps the kernel alone, like `init_mm`'s: idle CPUs may keep it
    // loaded.
    uint64_t kernel_root;
    // An array with one element per possible CPU, or NULL. Used if the policy counts flushes, for which the archive
    // needs `--features history`.
    struct tlbkit_stats *stats;
};

// What went wrong, and where in the library. The strings end in a zero byte, which their lengths do not count, and are
// truncated to one line.
struct tlbkit_misuse {
    // The rule that was broken, or the CPUs that have not answered.
    const char *message;
    // The length of `message`.
    size_t message_bytes;
    // The source file of the check that failed.
    const char *file;
    // The length of `file`.
    size_t file_bytes;
    // The line of the check.
    uint32_t line;
};

// Prints the message and stops the machine. If it returns, the CPU spins for ever.
typedef void (*tlbkit_panic_hook)(const struct tlbkit_misuse *misuse);

#if defined(TLBKIT_DIRECTORIES)
// Which CPUs have walked to one last-level table: beside what the kernel keeps about its frame. Zeros are nobody.
struct TLBKIT_ALIGNED(8) tlbkit_sharers {
    uint64_t opaque[TLBKIT_SHARERS_WORDS];
};
#endif

#if defined(TLBKIT_DIRECTORIES)
// Which CPUs can hold what a gather has recorded.
struct TLBKIT_ALIGNED(8) tlbkit_reach {
    uint64_t opaque[TLBKIT_SHARERS_WORDS];
};
#endif

// What the archive was built with, for comparison with the header.
struct tlbkit_layout {
    // Size of a `struct tlbkit_machine` in bytes.
    uint64_t machine_bytes;
    // Size of a `struct tlbkit_cpu_state` in bytes.
    uint64_t cpu_state_bytes;
    // Size of a `struct tlbkit_space` in bytes.
    uint64_t space_bytes;
    // Size of a `struct tlbkit_gather` in bytes.
    uint64_t gather_bytes;
    // Size of a `struct tlbkit_batch` in bytes.
    uint64_t batch_bytes;
    // Size of a `struct tlbkit_stats` in bytes.
    uint64_t stats_bytes;
    // The largest alignment of these structs.
    uint64_t align_bytes;
    // `TLBKIT_INTERFACE` of the header that the archive was built with.
    uint64_t interface_hash;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Begins an empty batch, for any number of spaces. `frames` is copied; it may be NULL if no frame will be held.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_begin(struct tlbkit_batch *batch,
                                      const struct tlbkit_machine *machine,
                                      const struct tlbkit_frames *frames);

// Records that translations of a space have been revoked, where no frame is freed, or where the frame is still mapped
// elsewhere and will be recorded with its last mapping. The page tables have been changed, and their locks are still
// held. Interrupts on or off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_revoke(struct tlbkit_batch *batch,
                                       uint32_t cpu,
                                       const struct tlbkit_space *space);

// Records a translation of a space, whose entry has been cleared, and passes the frame that it mapped to the batch.
// The page-table lock is still held. Returns `TLBKIT_STATUS_GATHER_FULL` if there is no room: then nothing was
// recorded, and the frame still belongs to the caller. Interrupts on or off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_unmap(struct tlbkit_batch *batch,
                                      uint32_t cpu,
                                      const struct tlbkit_space *space,
                                      uint64_t frame);

// Records a page-table page of a space that has been unhooked, with everything that it mapped, and passes it to the
// batch. The flush also interrupts CPUs that have the space loaded in lazy TLB mode. Otherwise as
// `tlbkit_batch_unmap`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_unmap_table(struct tlbkit_batch *batch,
                                            uint32_t cpu,
                                            const struct tlbkit_space *space,
                                            uint64_t frame);

// Passes to the batch a frame that several spaces mapped. If nothing is recorded in this batch, before or after,
// everything is flushed on every CPU.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_batch_hold(struct tlbkit_batch *batch, uint64_t frame);

// Flushes what was recorded on every CPU, with one request per CPU, then calls `release` for each frame. The batch is
// empty afterwards and stays open, for a kernel that keeps one in each task. On the CPU that recorded or on any other
// one. Interrupts on, preemption off, and no lock held that a CPU may wait for with interrupts off. On an error
// nothing was done, except for `TLBKIT_STATUS_WRONG_CPU` after the flush: then the frames are leaked.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_batch_flush(struct tlbkit_batch *batch, uint32_t cpu, uint32_t reason);

// As `tlbkit_batch_flush`, and ends the batch.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_batch_finish(struct tlbkit_batch *batch, uint32_t cpu, uint32_t reason);

// Flushes on every CPU what batches have recorded for a space and not flushed yet, like `flush_tlb_batched_pending`. A
// caller that finds an entry gone and does not flush by itself must call this before it maps another frame there.
// `tlbkit_gather_finish` does the same by itself. Interrupts on.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_drain(const struct tlbkit_machine *machine,
                                uint32_t cpu,
                                const struct tlbkit_space *space);

// Brings this CPU online: at boot, hotplug or resume. Its TLB is flushed completely, and the kernel's own tables are
// loaded. Before any other call on this CPU; interrupts off. If the CPU was stopped by force while it waited for other
// CPUs to answer, it waits for those answers here.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_bring_up(const struct tlbkit_machine *machine, uint32_t cpu);

// Takes this CPU offline until its next `tlbkit_bring_up`. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_offline(const struct tlbkit_machine *machine, uint32_t cpu);

// Declares that another CPU was stopped by force, and executes nothing until its `tlbkit_bring_up`. It may have
// stopped before it sent an IPI that other CPUs rely on, so a kernel that calls this must return
// `TLBKIT_LATE_ASK_AGAIN` from `late`, or have no `late`. A space that the CPU was flushing must stay alive until its
// `tlbkit_bring_up` returns. Not for the virtual CPU of a guest, which may resume by itself.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_declare_stopped(const struct tlbkit_machine *machine, uint32_t stopped);

// Loads the space of the task that runs next, like `switch_mm_irqs_off`. Does nothing if the space is running already.
// Interrupts off. The space that is left must stay alive until the call returns.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_switch_to(const struct tlbkit_machine *machine,
                                    uint32_t cpu,
                                    const struct tlbkit_space *space);

// Enters lazy TLB mode, like `enter_lazy_tlb`: the idle task or a kernel thread runs next, and the user space stays
// loaded but unused, if the policy says so. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_enter_lazy(const struct tlbkit_machine *machine, uint32_t cpu);

// Loads the kernel's own tables, like `leave_mm`: before deep idle. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_load_kernel(const struct tlbkit_machine *machine, uint32_t cpu);

// Loads the kernel half on entry from user mode, under page-table isolation; otherwise does nothing. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_enter_kernel(const struct tlbkit_machine *machine, uint32_t cpu);

// Loads the user half on exit to user mode, under page-table isolation; otherwise does nothing. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_exit_to_user(const struct tlbkit_machine *machine, uint32_t cpu);

#if defined(TLBKIT_ISOLATED)
// On the way to user mode, on a CPU that is not to be disturbed: from here on flushes of kernel addresses do not
// interrupt it, and are done by `tlbkit_do_deferred_flushes`. Until that returns, the kernel touches only addresses
// that are never unmapped. Every way back calls it. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_defer_kernel_flushes(const struct tlbkit_machine *machine, uint32_t cpu);
#endif

#if defined(TLBKIT_ISOLATED)
// On the way into the kernel: does the flushes that were deferred, by one flush of everything, before anything is
// touched that may be unmapped. From user mode always; from the kernel in NMIs, machine checks, debug exceptions and
// faults of IRET. True if the CPU was deferring: such a handler then calls `tlbkit_defer_kernel_flushes` on its way
// out. False on misuse. Interrupts off.
TLBKIT_MUST_USE bool tlbkit_do_deferred_flushes(const struct tlbkit_machine *machine, uint32_t cpu);
#endif

// Carries out the flush requests of other CPUs. Called by the handler of the shootdown IPI, and by every loop that
// waits for another CPU with interrupts off. Interrupts off. A spurious call is harmless, also on a CPU that is
// offline.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_answer(const struct tlbkit_machine *machine, uint32_t cpu);

// True if the space is loaded on this CPU and safe to access, like `nmi_uaccess_okay`: an NMI handler checks it before
// it accesses user memory. False on misuse.
TLBKIT_MUST_USE
bool tlbkit_is_running(const struct tlbkit_machine *machine,
                       uint32_t cpu,
                       const struct tlbkit_space *space);

// The value of CR3 on this CPU while the kernel half is loaded, without the no-flush bit: the root of the page tables,
// and the PCID in the low 12 bits. 0 on misuse. Interrupts off.
TLBKIT_MUST_USE uint64_t tlbkit_loaded(const struct tlbkit_machine *machine, uint32_t cpu);

// Calls `each` with every CPU that has not answered a request of `cpu`, except for CPUs that are offline or were
// declared stopped. For a watchdog, on any CPU.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_missing(const struct tlbkit_machine *machine,
                                  uint32_t cpu,
                                  void (*each)(void *context, uint32_t missing),
                                  void *context);

// Sets the ceiling, like Linux' `tlb_single_page_flush_ceiling`: from now on a flush of more than `pages` pages
// becomes a full one, whatever the policy said. 0 makes every flush a full one.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_set_ceiling(const struct tlbkit_machine *machine, uint32_t pages);

// Sets how the user half is flushed from now on, by an `enum tlbkit_user_flush`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_set_user_flush(const struct tlbkit_machine *machine, uint32_t how);

#if defined(TLBKIT_REUSE)
// Initializes the grace periods of a machine. `passed` has one element per possible CPU, which belong to it for ever.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_grace_periods_init(struct tlbkit_grace_periods *periods,
                                             const struct tlbkit_machine *machine,
                                             struct tlbkit_passed *passed,
                                             uint32_t passed_count);
#endif

#if defined(TLBKIT_REUSE)
// This CPU flushes what it runs, unless that is current, so that no deferred batch asks it. At each tick, in each
// switch, or after each answer: the more often, the fewer CPUs are interrupted. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_pass(const struct tlbkit_grace_periods *periods, uint32_t cpu);
#endif

#if defined(TLBKIT_REUSE)
// Closes a batch without a flush: it interrupts nobody, and other CPUs may go on reading what was recorded. Only for
// pages that could only be read, are clean, and of which nothing is written anywhere until `tlbkit_deferred_flush` has
// returned: neither into the frames nor, by a call or another mapping, into the file. A fault that maps a writable
// page where an entry was found cleared calls `tlbkit_drain` first, under the lock of the page table.
//
// From here on the struct takes `tlbkit_deferred_fold` and `tlbkit_deferred_flush` alone. One that is never flushed
// leaks its frames. `TLBKIT_STATUS_BAD_VALUE` if a page-table page was recorded: then it stays open. Interrupts on or
// off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_defer(struct tlbkit_batch *batch,
                                      uint32_t cpu,
                                      const struct tlbkit_grace_periods *periods);
#endif

#if defined(TLBKIT_REUSE)
// Folds the deferred batch `other` into another one, so that one flush serves both, and ends it: its frames move into
// the array of `batch`. `TLBKIT_STATUS_GATHER_FULL` if they do not fit there: then nothing was done. Interrupts on or
// off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_deferred_fold(struct tlbkit_batch *batch,
                                        uint32_t cpu,
                                        struct tlbkit_batch *other);
#endif

#if defined(TLBKIT_REUSE)
// Flushes what was deferred, on the CPUs that have not passed since it was closed, then calls `release` for each
// frame, and ends the batch. On any CPU. Interrupts on, preemption off, and no lock held that a CPU may wait for with
// interrupts off. On an error the batch stays deferred, except for `TLBKIT_STATUS_WRONG_CPU` after the flush: then it
// has ended, and its frames are leaked.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_deferred_flush(struct tlbkit_batch *batch,
                                         uint32_t cpu,
                                         const struct tlbkit_grace_periods *periods,
                                         uint32_t reason);
#endif

// Flushes `pages` translations of a space from `va` on, on every CPU, before it returns: for a change that frees
// nothing, such as a revoked permission, or after which the kernel frees by itself. The page tables have been changed.
// `stride` is an `enum tlbkit_stride`, combined with `TLBKIT_FLUSH_` flags. Preemption off, interrupts on. With
// interrupts off, and only then, the call may return `TLBKIT_STATUS_IRQS_OFF`: this CPU has flushed, but another one
// would have to be interrupted, so the call must be repeated with interrupts on. An archive without checks calls the
// panic hook instead.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_range(const struct tlbkit_machine *machine,
                                      uint32_t cpu,
                                      const struct tlbkit_space *space,
                                      uint64_t va,
                                      uint64_t pages,
                                      uint32_t stride,
                                      uint32_t reason);

// As `tlbkit_flush_range` with interrupts off, in any archive: interrupts no other CPU and waits for none. Interrupts
// on or off, any lock held. It may also return `TLBKIT_STATUS_IRQS_OFF` because a CPU that used the space before is in
// the middle of a switch between two other spaces: that CPU might be switching to this one. A caller that knows that
// no other CPU can switch to the space meanwhile may treat that status as success.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_range_alone(const struct tlbkit_machine *machine,
                                            uint32_t cpu,
                                            const struct tlbkit_space *space,
                                            uint64_t va,
                                            uint64_t pages,
                                            uint32_t stride);

// Invalidates `pages` translations from `va` on of the loaded space on this CPU only: after a spurious fault, or when
// permissions were only widened. Other CPUs may keep stale translations, so the caller must not free anything or rely
// on a revoked permission because of this call. Interrupts on or off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_this_cpu(const struct tlbkit_machine *machine,
                                         uint32_t cpu,
                                         uint64_t va,
                                         uint64_t pages,
                                         uint32_t stride);

// Invalidates `pages` translations of kernel addresses from `va` on, on this CPU only. Under page-table isolation they
// are invalidated under every PCID. Without it they are assumed to be global: a translation whose entry lacks the
// global bit stays cached under the other PCIDs. Otherwise as `tlbkit_flush_this_cpu`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_kernel_this_cpu(const struct tlbkit_machine *machine,
                                                uint32_t cpu,
                                                uint64_t va,
                                                uint64_t pages,
                                                uint32_t stride);

// Invalidates all translations of the loaded space on this CPU only, of both halves under page-table isolation. Global
// translations and those of other spaces stay. Otherwise as `tlbkit_flush_this_cpu`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_flush_loaded_this_cpu(const struct tlbkit_machine *machine, uint32_t cpu);

// Invalidates all translations on this CPU only: of every space, of both halves, and global ones. Otherwise as
// `tlbkit_flush_this_cpu`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_flush_all_this_cpu(const struct tlbkit_machine *machine, uint32_t cpu);

// Flushes kernel addresses on every CPU and in every space before it returns, like `flush_tlb_kernel_range`: for a
// change that frees nothing, or after which the kernel frees by itself. `stride` as in `tlbkit_flush_range`.
// Interrupts on. Without page-table isolation the translations are assumed to be global; for entries that lack the
// global bit use a gather with `TLBKIT_SCOPE_NON_GLOBAL`, which flushes them under every PCID.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_kernel_range(const struct tlbkit_machine *machine,
                                             uint32_t cpu,
                                             uint64_t va,
                                             uint64_t pages,
                                             uint32_t stride,
                                             uint32_t reason);

// Begins an empty gather for a space, or for kernel addresses if `space` is NULL. `frames` is copied; it may be NULL
// if no frame will be held. The space must outlive the gather.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_begin(struct tlbkit_gather *gather,
                                       const struct tlbkit_machine *machine,
                                       const struct tlbkit_space *space,
                                       const struct tlbkit_frames *frames);

// Records `pages` adjoining translations from `va` on, whose entries have been cleared or changed. If a frame is freed
// with an entry, call `tlbkit_gather_unmap` instead. A policy that does not batch flushes them at once, so interrupts
// must be on under such a policy.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_range(struct tlbkit_gather *gather,
                                       uint32_t cpu,
                                       uint64_t va,
                                       uint64_t pages,
                                       uint32_t stride,
                                       uint32_t scope,
                                       uint32_t reason);

// Records the translation of size `stride` at `va`, whose entry has been cleared, and passes the frame that it mapped
// to the gather. Returns `TLBKIT_STATUS_GATHER_FULL` if the gather has no room: then nothing was recorded, and the
// frame still belongs to the caller, who finishes this gather and begins another one. Interrupts as for
// `tlbkit_gather_range`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_unmap(struct tlbkit_gather *gather,
                                       uint32_t cpu,
                                       uint64_t va,
                                       uint32_t stride,
                                       uint32_t scope,
                                       uint32_t reason,
                                       uint64_t frame);

// Records a page-table page that has been unhooked, and passes it to the gather as `frame`. Paging-structure-cache
// entries that point to it are invalidated too, also on CPUs in lazy TLB mode. `va` is the first address that it
// mapped. `unnamed_pages` is the number of 4 KiB pages from there on that it still mapped and that have not been
// recorded: 512 for a last-level table that was unhooked with its entries, 0 if each of them was recorded before.
// Fails as `tlbkit_gather_unmap` does.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_unmap_table(struct tlbkit_gather *gather,
                                             uint32_t cpu,
                                             uint64_t va,
                                             uint64_t unnamed_pages,
                                             uint64_t frame);

// Passes to the gather a frame that belongs to no single page: one that several recorded pages shared, or one of a
// range that is recorded as a whole. If nothing is recorded in this gather, before or after, everything is flushed;
// otherwise only what was recorded is. `TLBKIT_STATUS_GATHER_FULL` as for `tlbkit_gather_unmap`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_hold(struct tlbkit_gather *gather, uint64_t frame);

// Says that a page-table page will be freed that this gather does not hold, so that the flush also interrupts CPUs in
// lazy TLB mode.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_tables_freed(struct tlbkit_gather *gather);

// Code may be walking what was recorded without a lock, counting on interrupts that are off: each CPU that may use the
// space gets an IPI, is left neither to its host nor to INVLPGB, and flushes before it answers. Call it before the
// first table is recorded. Only needed in an archive with the feature `guest`, `broadcast`, `directories` or `early`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_interrupt_walkers(struct tlbkit_gather *gather);

// Turns the flush into a full one, whatever was recorded.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_everything(struct tlbkit_gather *gather);

// Flushes what was recorded on every CPU, or everything if a frame is held and nothing was recorded; then calls
// `release` for each frame, and ends the gather. Interrupts on, preemption off, and no lock held that a CPU may wait
// for with interrupts off. On an error the gather stays open, except for `TLBKIT_STATUS_WRONG_CPU` after the flush:
// then it has ended, and its frames are leaked.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_finish(struct tlbkit_gather *gather, uint32_t cpu);

// Begins the flush of what was recorded, and does not wait for it: `tlbkit_gather_wait` does, and frees the frames.
// When this returns, this CPU has flushed and requests have been sent to the other CPUs. Until the wait returns they
// may still use stale translations, so the frames must not be reused, and the space must stay alive.
//
// Interrupts on or off, with or without a spin lock held; preemption off; not in an interrupt handler. Other gathers
// may be begun, issued and finished meanwhile. On an error the gather stays open, except for `TLBKIT_STATUS_WRONG_CPU`
// after the flush on this CPU: then it has ended, and its frames are leaked.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_issue(struct tlbkit_gather *gather, uint32_t cpu);

// Writes true to `is_done` if the flush of an issued gather is complete on every CPU. Its wait then returns at once,
// with interrupts on or off. This call never waits, and may be repeated: a kernel that keeps interrupts off calls it
// in a loop with `tlbkit_answer`, or lets `tlbkit_gather_poll` do both. Preemption off. On an error `is_done` is not
// written, and the gather stays issued, except for `TLBKIT_STATUS_WRONG_CPU` after the check: then it has ended, and
// its frames are leaked.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_is_done(struct tlbkit_gather *gather, uint32_t cpu, bool *is_done);

// Returns once `tlbkit_gather_is_done` would write true. Interrupts on or off: a kernel that keeps interrupts off
// calls this before `tlbkit_gather_wait`. It answers the requests of other CPUs in every turn of the loop, and calls
// `late` and `unanswered` as every wait does. In such a kernel every loop that waits for another CPU, including that
// of a spin lock, must call `tlbkit_answer` in every turn; a single loop that does not is a deadlock. Preemption off.
// On an error the gather stays issued, except for `TLBKIT_STATUS_WRONG_CPU` after the wait: then it has ended, and its
// frames are leaked.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_poll(struct tlbkit_gather *gather, uint32_t cpu);

// Waits until the flush of an issued gather is complete on every CPU, then calls `release` for each frame, and ends
// the gather. On the CPU that issued it or on any other one. Interrupts on, unless `tlbkit_gather_is_done` has written
// true or `tlbkit_gather_poll` has returned; preemption off, and no lock held that a CPU may wait for with interrupts
// off. On an error the gather stays issued, except for `TLBKIT_STATUS_WRONG_CPU` after the wait: then it has ended,
// and its frames are leaked.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_wait(struct tlbkit_gather *gather, uint32_t cpu);

#if defined(TLBKIT_HISTORY)
// Writes to `count` how many flushes of CPU `cpu` had this `enum tlbkit_reason` and `enum tlbkit_place`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_count(const struct tlbkit_machine *machine,
                                uint32_t cpu,
                                uint32_t reason,
                                uint32_t place,
                                uint64_t *count);
#endif

#if defined(TLBKIT_HISTORY)
// Writes to `count` how many flushes of CPU `cpu` were of `pages` pages, from 1 to 512; 0 stands for full flushes.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_count_size(const struct tlbkit_machine *machine,
                                     uint32_t cpu,
                                     uint32_t pages,
                                     struct tlbkit_size_count *count);
#endif

#if defined(TLBKIT_HISTORY)
// Sets the number of mapped pages of the space, which the `tlb_flushall_shift` rule needs.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_active_pages(struct tlbkit_gather *gather, uint64_t pages);
#endif

#if defined(TLBKIT_HISTORY)
// True if the policy wants the page tables to be searched for large pages before the flush. If the caller finds one,
// it calls `tlbkit_gather_everything`. False on misuse.
TLBKIT_MUST_USE bool tlbkit_gather_wants_walk(struct tlbkit_gather *gather, uint32_t cpu);
#endif

// The number of words that a machine of `cpus` CPUs needs in `matrix`: the request matrix, and what a call needs of
// each CPU.
TLBKIT_MUST_USE size_t tlbkit_matrix_words(uint32_t cpus);

// Initializes a machine. No CPU is online until its `tlbkit_bring_up`. The struct must never be moved or freed.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_machine_init(struct tlbkit_machine *machine,
                                       const struct tlbkit_setup *setup);

// Sets the function that is called on misuse that no status can report. NULL for none. There is one hook for all
// machines.
void tlbkit_set_panic_hook(tlbkit_panic_hook hook);

#if defined(TLBKIT_DIRECTORIES)
// This CPU is about to store an entry for the last-level table of these sharers in a directory of its own, under the
// lock of that table. A kernel keeps one `struct tlbkit_sharers` for each such table; all zeros is that of a new one.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_sharers_hook(const struct tlbkit_machine *machine,
                                       uint32_t cpu,
                                       const struct tlbkit_sharers *sharers);
#endif

#if defined(TLBKIT_DIRECTORIES)
// No directory names the table any more, and what was cached of it has been flushed; or its frame is a new table.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_sharers_clear(const struct tlbkit_sharers *sharers);
#endif

#if defined(TLBKIT_DIRECTORIES)
// Writes false to `may_include` if `cpu`, which may be any, has not hooked the table: then its directory does not name
// it. Under the lock under which CPUs do that.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_sharers_may_include(const struct tlbkit_sharers *sharers,
                                              uint32_t cpu,
                                              bool *may_include);
#endif

#if defined(TLBKIT_DIRECTORIES)
// Begins a reach: nothing is recorded yet, so it names nobody.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_reach_begin(struct tlbkit_reach *reach);
#endif

#if defined(TLBKIT_DIRECTORIES)
// Has the reach name every CPU: something was recorded that lies below no table whose sharers are known.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_reach_everybody(struct tlbkit_reach *reach);
#endif

#if defined(TLBKIT_DIRECTORIES)
// Adds the sharers of a table, below which something was recorded: after the last of its entries was changed, or, if
// the table itself was taken out, after the directories of its sharers no longer name it.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_reach_add(struct tlbkit_reach *reach, const struct tlbkit_sharers *sharers);
#endif

#if defined(TLBKIT_DIRECTORIES)
// As `tlbkit_gather_finish`, and interrupts only CPUs that `reach` names.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_finish_within(struct tlbkit_gather *gather,
                                               uint32_t cpu,
                                               const struct tlbkit_reach *reach);
#endif

#if defined(TLBKIT_DIRECTORIES)
// `root_here` of the table names other top-level tables for `space` than before: each CPU that has the space loaded
// loads what it names there, with all that is cached of the space flushed, or does so when it runs the space next.
// When this returns, no CPU walks what was there before. Interrupts on.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_reload_roots(const struct tlbkit_machine *machine,
                                       uint32_t cpu,
                                       const struct tlbkit_space *space);
#endif

#if defined(TLBKIT_DIRECTORIES)
// `root_here` names another top-level table on this CPU, which runs the space, than a moment ago, and the one before
// mapped nothing of the user half: loads it, and flushes nothing. Interrupts have been off since before it changed.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_reload_root_here(const struct tlbkit_machine *machine,
                                           uint32_t cpu,
                                           const struct tlbkit_space *space);
#endif

// Initializes a space for the page tables at `root`. Under page-table isolation, the top-level table of the user half
// is the next page. `set` has at least `tlbkit_set_words` words, which the call zeroes: it becomes the CPU set of the
// space, like `mm_cpumask`. The struct and `set` must stay in place until the space may be freed: see
// `tlbkit_space_destroy`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_init(struct tlbkit_space *space,
                                     const struct tlbkit_machine *machine,
                                     uint64_t root,
                                     uint64_t *set,
                                     size_t set_words);

// Destroys a space that no task runs any more. If another CPU still runs it, the panic hook is called. If this CPU
// holds it in lazy TLB mode, it leaves it. `may_free` becomes true if the space and its page tables can be freed now.
// Otherwise another CPU holds it lazily, and they can be freed once `last_lazy_reference` is called with it, which may
// be before this call returns. Under the policy `lazy_refs=shot-down`, and only then, such CPUs are interrupted
// instead, and `may_free` is always true. Interrupts on; not on a CPU that runs the space.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_destroy(const struct tlbkit_machine *machine,
                                        uint32_t cpu,
                                        struct tlbkit_space *space,
                                        bool *may_free);

// As `tlbkit_space_destroy`, but with interrupts on or off, and with locks held, provided that no context switch takes
// them: it interrupts no CPU, and waits only for a CPU in the middle of a switch. Not in an NMI, not in
// `last_lazy_reference`, and not under the policy `lazy_refs=shot-down`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_destroy_later(const struct tlbkit_machine *machine,
                                              uint32_t cpu,
                                              struct tlbkit_space *space,
                                              bool *may_free);

#if defined(TLBKIT_BROADCAST)
// Gives the space a PCID that all CPUs share, so that INVLPGB reaches it everywhere, like `use_global_asid`. The
// policy does so by itself for a space whose flush has interrupted enough CPUs; a kernel that knows earlier asks. It
// keeps the PCID until `tlbkit_space_destroy`. `pcid` becomes that PCID, or 0 if it has none: if the machine has no
// INVLPGB, if the policy says `broadcast=off`, or if all are taken. Interrupts on.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_share_pcid(const struct tlbkit_machine *machine,
                                     uint32_t cpu,
                                     const struct tlbkit_space *space,
                                     uint32_t *pcid);
#endif

// The number of words of a space's CPU set.
TLBKIT_MUST_USE size_t tlbkit_set_words(uint32_t cpus);

// The id of the space, which is never reused, like `context.ctx_id`. 0 if it was not initialized.
TLBKIT_MUST_USE uint64_t tlbkit_space_id(const struct tlbkit_space *space);

// The generation of the space, like `context.tlb_gen`: one more than the number of revocations so far. 0 if it was not
// initialized.
TLBKIT_MUST_USE uint64_t tlbkit_space_generation(const struct tlbkit_space *space);

// A description of a status, for a log.
TLBKIT_MUST_USE const char *tlbkit_status_text(uint32_t status);

// What this archive was built with. `tlbkit_header_fits()` compares it with the header.
TLBKIT_MUST_USE struct tlbkit_layout tlbkit_layout(void);

// Checks a policy text, `PRESET[:KEY=VALUE[+KEY=VALUE...]]`: returns `TLBKIT_STATUS_OK`, or what is wrong with it. The
// presets and keys are those of `tlbkit list policies` and `tlbkit list settings`. An archive that was built without
// `--features history` knows only the preset "tlbkit" and the settings that apply to it.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_policy_check(const char *text);

#if defined(TLBKIT_X86)
// Detects the features of this CPU, except for those that errata rule out, enables global pages and PCIDs, and returns
// `TLBKIT_FEATURE_` flags. `features` of the table must return these for this CPU from then on. Once on each CPU,
// before `tlbkit_bring_up`; ring 0, interrupts off. `trust` is an `enum tlbkit_x86_trust`, the same on every CPU.
TLBKIT_MUST_USE uint32_t tlbkit_x86_start(uint32_t trust);
#endif

#if defined(TLBKIT_X86)
// Disables PCIDs on this CPU and flushes its TLB, as a kernel does before it hands the CPU to another kernel. The root
// that is loaded stays loaded, under PCID 0. Ring 0, interrupts off, and after `tlbkit_offline` on this CPU, since the
// library uses PCIDs until then.
void tlbkit_x86_disable_tags(void);
#endif

#if defined(TLBKIT_X86)
// Sets those of the following functions of the table that are NULL: `write_cr3`, `invlpg`, `invpcid`, `toggle_pge`,
// `relax`, `irqs_enabled`, `irqs_save`, `irqs_restore`, `now_cycles`, `invlpgb`, `tlbsync`. The kernel sends IPIs
// itself. `irqs_save` and `irqs_restore` belong together, since only the kernel's own `irqs_restore` can interpret
// what its `irqs_save` returned: a table that has only one of them is refused with `TLBKIT_STATUS_NO_FUNCTION`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_x86_fill(struct tlbkit_hardware_ops *ops);
#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#if defined(TLBKIT_LINKED)
// The functions that a kernel defines if its archive was built with `linked`. The contract of each is that of the same
// function in `struct tlbkit_hardware_ops`; most of them have no argument for the CPU.
void tlbkit_k_send_ipi(uint32_t cpu, uint32_t to);
void tlbkit_k_send_ipi_to_others(uint32_t cpu);
#if !defined(TLBKIT_X86)
void tlbkit_k_write_cr3(uint64_t value);
void tlbkit_k_invlpg(uint64_t va);
void tlbkit_k_invpcid(uint32_t kind, uint32_t pcid, uint64_t va);
void tlbkit_k_toggle_pge(void);
void tlbkit_k_relax(void);
bool tlbkit_k_irqs_enabled(void);
uint64_t tlbkit_k_irqs_save(void);
void tlbkit_k_irqs_restore(uint64_t saved);
#endif
#endif

// True if this header and the archive were built from the same source, and the archive's constants were loaded. Check it
// once, at boot.
static inline bool tlbkit_header_fits(void) {
    struct tlbkit_layout layout = tlbkit_layout();
    return layout.interface_hash == TLBKIT_INTERFACE && layout.machine_bytes == sizeof(struct tlbkit_machine) &&
           layout.cpu_state_bytes == sizeof(struct tlbkit_cpu_state) &&
           layout.space_bytes == sizeof(struct tlbkit_space) && layout.gather_bytes == sizeof(struct tlbkit_gather) &&
           layout.batch_bytes == sizeof(struct tlbkit_batch) && layout.stats_bytes == sizeof(struct tlbkit_stats);
}
