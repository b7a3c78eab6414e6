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
// A number made of all of this file: `tlbkit_header_fits` compares it with that of the archive.
#define TLBKIT_INTERFACE 0xaf262530c8aeac7bull
// gcc and clang.
#define TLBKIT_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define TLBKIT_MUST_USE __attribute__((warn_unused_result))
// At least what `tlbkit_set_words` and `tlbkit_matrix_words` return, for arrays whose size the compiler must know.
#define TLBKIT_SET_WORDS(cpus) (((cpus) + 63) / 64)
#define TLBKIT_MATRIX_WORDS(cpus)                                                           \
    ((cpus) * (TLBKIT_INBOX_WORDS(cpus) + TLBKIT_LINES(TLBKIT_SET_WORDS(cpus)) + 4 * 8 +    \
               3 * TLBKIT_SET_WORDS(cpus)) +                                                \
     2 * TLBKIT_SET_WORDS(cpus))
// Parts of it. An inbox has words on top above 512 CPUs.
#define TLBKIT_LINES(words) (((words) + 7) / 8 * 8)
#define TLBKIT_INBOX_WORDS(cpus) \
    TLBKIT_LINES(TLBKIT_SET_WORDS(cpus) + ((cpus) <= 512 ? 0 : TLBKIT_SET_WORDS(TLBKIT_SET_WORDS(cpus))))

// Or-ed to the stride of `tlbkit_flush_range` and `tlbkit_flush_kernel_range`: page-table pages below the range were
// taken out, and are freed after the call; CPUs that hold the space lazily are told as well. The stride is that of the
// smallest translation below them that has not been flushed: only what is named goes, and the paths to it.
#define TLBKIT_FLUSH_TABLES_FREED (1 << 8)

// Or-ed to the stride of the same calls: everything goes, whatever the range.
#define TLBKIT_FLUSH_EVERYTHING (1 << 9)

// CR4.PCIDE is set on the CPU.
#define TLBKIT_FEATURE_PCID 1

// INVPCID exists on the CPU.
#define TLBKIT_FEATURE_INVPCID 2

// 8-byte words of a machine.
#define TLBKIT_MACHINE_WORDS 88

// 8-byte words of one CPU's state.
#define TLBKIT_CPU_STATE_WORDS 64

// 8-byte words of a space.
#define TLBKIT_SPACE_WORDS 8

// 8-byte words of a gather.
#define TLBKIT_GATHER_WORDS 36

// 8-byte words of a batch.
#define TLBKIT_BATCH_WORDS 20

// 8-byte words of one CPU's counters.
#define TLBKIT_STATS_WORDS 1062

// What a call returns. Whatever is not `TLBKIT_STATUS_OK` has changed nothing, with two exceptions.
// `TLBKIT_STATUS_WRONG_CPU` of a call that flushes: the task may have migrated while it waited; what was to be flushed
// may be in a TLB still, and nothing is freed. `TLBKIT_STATUS_IRQS_OFF` of `tlbkit_flush_range` and
// `tlbkit_flush_range_alone`: the CPU that made the call has flushed, and others have not.
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
    // Other CPUs must be told and waited for, which needs interrupts on; `tlbkit_flush_range_alone` says it whether
    // they are on or off.
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
    // The call names another CPU than `this_cpu` of the table says: the task has migrated, or the number is wrong.
    TLBKIT_STATUS_WRONG_CPU,
    // The policy interrupts the CPUs that hold a dying space: it ends no space later.
    TLBKIT_STATUS_SHOT_DOWN,
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

// The size of one translation, as the logarithm to base 2 of its bytes, and so the step of a range.
enum tlbkit_stride {
    // 4 KiB.
    TLBKIT_STRIDE_PAGE4K = 12,
    // 2 MiB.
    TLBKIT_STRIDE_PAGE2M = 21,
    // 1 GiB.
    TLBKIT_STRIDE_PAGE1G = 30,
    // 512 GiB, which no single entry maps: the span of a table two levels below a five-level root. For ranges of
    // tables that were taken out.
    TLBKIT_STRIDE_SPAN512G = 39,
};

// Whether the entry that was changed had the global bit.
enum tlbkit_scope {
    // It had not.
    TLBKIT_SCOPE_LOCAL = 0,
    // It had.
    TLBKIT_SCOPE_GLOBAL = 1,
};

// What happened; the comment says what `value` is.
enum tlbkit_event {
    // A switch kept what its tag held.
    TLBKIT_EVENT_SWITCH_KEPT = 0,
    // A switch flushed what its tag held.
    TLBKIT_EVENT_SWITCH_FLUSHED = 1,
    // A flush begins: pages, or 4,294,967,295 for everything.
    TLBKIT_EVENT_FLUSH_BEGIN = 2,
    // Its half on this CPU is done.
    TLBKIT_EVENT_FLUSH_LOCAL_DONE = 3,
    // It was issued, and is not over.
    TLBKIT_EVENT_FLUSH_ISSUED = 4,
    // It is over on every CPU.
    TLBKIT_EVENT_FLUSH_END = 5,
    // A request is carried out: the CPU that asked.
    TLBKIT_EVENT_ANSWER_BEGIN = 6,
    // It has been carried out: the CPU that asked.
    TLBKIT_EVENT_ANSWER_END = 7,
    // A request found nothing left to do.
    TLBKIT_EVENT_ALREADY_CURRENT = 8,
    // A request was for a space that is not loaded here.
    TLBKIT_EVENT_WRONG_SPACE = 9,
    // A request made this CPU leave a space that it held lazily: the space's address.
    TLBKIT_EVENT_LAZY_LEFT = 10,
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

// Translations of many spaces and their frames that wait for one flush: on the stack of reclaim.
struct TLBKIT_ALIGNED(8) tlbkit_batch {
    uint64_t opaque[TLBKIT_BATCH_WORDS];
};

// The TLBs of a machine. One for a kernel, for ever.
struct TLBKIT_ALIGNED(64) tlbkit_machine {
    uint64_t opaque[TLBKIT_MACHINE_WORDS];
};

// Where a gather keeps frames, and who frees them.
struct tlbkit_frames {
    // Room for `capacity` frames, until the gather is finished.
    uint64_t *array;
    // Frames that fit.
    size_t capacity;
    // Frees one frame. Called by `tlbkit_gather_finish`, `tlbkit_gather_wait`, `tlbkit_batch_flush` and
    // `tlbkit_batch_finish` alone.
    void (*release)(void *context, uint64_t frame);
    // The first argument of `release`.
    void *context;
};

// One set of page tables: put it where the process is, on a cache line of its own.
struct TLBKIT_ALIGNED(64) tlbkit_space {
    uint64_t opaque[TLBKIT_SPACE_WORDS];
};

// Translations and frames that wait for one flush: on the stack of an unmap.
struct TLBKIT_ALIGNED(8) tlbkit_gather {
    uint64_t opaque[TLBKIT_GATHER_WORDS];
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
// have happened when it returns. All must be given but those marked as optional, which may be NULL. An archive with
// the feature `linked` takes those from `write_cr3` to `irqs_restore` by name instead, and does not look at them here.
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
    // CPU `missing` has not answered for about a millisecond of `relax`; returns an `enum tlbkit_late`. Optional:
    // asks again, so that a lost interrupt costs time and nothing else. A kernel that calls `tlbkit_declare_stopped`
    // must not return `TLBKIT_LATE_WAIT`.
    uint32_t (*late)(uint32_t cpu, uint32_t missing);
    // The last CPU that held this dying space lazily has left it. Interrupts are off, maybe in the handler: note it,
    // and free the space and its tables later, elsewhere. Must be given unless the policy says `lazy_refs=shot-down`.
    void (*last_lazy_reference)(uint32_t cpu, struct tlbkit_space *space);
    // The CPU that executes the call: compared with `cpu` when a call begins, before a waiting CPU answers others, and
    // when a call that waited ends; see `TLBKIT_STATUS_WRONG_CPU`. Interrupts on or off, maybe in an NMI. Optional:
    // `cpu` is believed.
    uint32_t (*this_cpu)(void);
    // CPU `missing` has not answered, however often it was asked, and was not declared stopped. Called for each of
    // them; if it returns, the wait goes on and is counted anew. Optional: the hook of `tlbkit_set_panic_hook` gets a
    // text that names them.
    void (*unanswered)(uint32_t cpu, uint32_t missing);
    // A request has made this CPU leave `space`, which it held lazily: the kernel's own tables are loaded now.
    // Interrupts are off, maybe in the handler. For a kernel that keeps a note of what is loaded. Optional.
    void (*lazy_left)(uint32_t cpu, struct tlbkit_space *space);
    // Something happened, for a tracepoint; `value` is what the `enum tlbkit_event` says. Interrupts on or off, maybe
    // in the handler. Only in an archive with the feature `events`. Optional.
    void (*event)(uint32_t cpu, uint32_t event, uint64_t value);
    // Turns of `relax` after which `late` is asked, again and again. 0 for the library's own: 16,384.
    uint32_t patience_turns;
    // How often `late` is asked in one wait before `unanswered` is. 0 for the library's own: 32,768.
    uint32_t patience_rounds;
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
    // At least `tlbkit_matrix_words(cpu_count)` words; set to zero by the call. Let them begin a cache line: then no
    // two CPUs share a line of what others write.
    uint64_t *matrix;
    // Words there.
    size_t matrix_words;
    // Physical address of the top-level table that idle CPUs can be left with.
    uint64_t kernel_root;
    // One for each possible CPU, or NULL. Used if the policy counts, for which the archive needs `--features history`.
    struct tlbkit_stats *stats;
};

// What went wrong, and where in the library. The texts end in a zero byte, which their lengths do not count; what is
// longer than a line is cut off.
struct tlbkit_misuse {
    // The rule that was broken, or the CPUs that have not answered.
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

// What the archive was built with, to be compared with the header's.
struct tlbkit_layout {
    // Bytes of a `struct tlbkit_machine`.
    uint64_t machine_bytes;
    // Bytes of a `struct tlbkit_cpu_state`.
    uint64_t cpu_state_bytes;
    // Bytes of a `struct tlbkit_space`.
    uint64_t space_bytes;
    // Bytes of a `struct tlbkit_gather`.
    uint64_t gather_bytes;
    // Bytes of a `struct tlbkit_batch`.
    uint64_t batch_bytes;
    // Bytes of a `struct tlbkit_stats`.
    uint64_t stats_bytes;
    // Alignment of the largest of them.
    uint64_t align_bytes;
    // `TLBKIT_INTERFACE` of the header that the archive was built with.
    uint64_t interface_hash;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Begins an empty batch, for any number of spaces. `frames` may be NULL if nothing will be held; it is copied.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_begin(struct tlbkit_batch *batch,
                                      const struct tlbkit_machine *machine,
                                      const struct tlbkit_frames *frames);

// Names translations of a space that were revoked, where no frame is freed or another mapping of it is still to come.
// The page tables have been changed, and their locks are still held. Interrupts on or off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_revoke(struct tlbkit_batch *batch,
                                       uint32_t cpu,
                                       const struct tlbkit_space *space);

// Names a translation of a space, whose entry has been cleared, and gives the batch the frame that the entry named.
// The lock of its page table is still held. `TLBKIT_STATUS_GATHER_FULL` if there is no room: nothing was named, and
// the frame is still the caller's. Interrupts on or off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_unmap(struct tlbkit_batch *batch,
                                      uint32_t cpu,
                                      const struct tlbkit_space *space,
                                      uint64_t frame);

// Names all that lay below a page-table page of a space that has been taken out, and gives the batch that page: CPUs
// that hold the space lazily are asked as well. Otherwise as `tlbkit_batch_unmap`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_batch_unmap_table(struct tlbkit_batch *batch,
                                            uint32_t cpu,
                                            const struct tlbkit_space *space,
                                            uint64_t frame);

// Gives the batch a frame that several spaces mapped. If nothing is named in this batch, before or after, the flush is
// one of everything on every CPU.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_batch_hold(struct tlbkit_batch *batch, uint64_t frame);

// Flushes everywhere what was named, asking each CPU once, then calls `release` for each frame. The batch is empty
// then and stays open: for a kernel that keeps one for each task. On the CPU that named or on another. Interrupts on,
// preemption off, no lock held that a CPU may wait for with its interrupts off. On an error nothing was done, but for
// `TLBKIT_STATUS_WRONG_CPU` after the flush: its frames are lost then.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_batch_flush(struct tlbkit_batch *batch, uint32_t cpu, uint32_t reason);

// The same, and ends the batch.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_batch_finish(struct tlbkit_batch *batch, uint32_t cpu, uint32_t reason);

// Flushes what batches owe to a space, everywhere: for whoever finds an entry gone and goes on without a flush of its
// own, before another frame is mapped there. `tlbkit_gather_finish` does so by itself. Interrupts on.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_drain(const struct tlbkit_machine *machine,
                                uint32_t cpu,
                                const struct tlbkit_space *space);

// Starts or restarts a CPU: first use, hot-plug, resume. Everything in its TLB goes, and the kernel's own tables are
// loaded. Before anything else on this CPU; interrupts off. A CPU that was stopped by force while it asked others
// waits here for their answers.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_bring_up(const struct tlbkit_machine *machine, uint32_t cpu);

// Takes this CPU out until its next `tlbkit_bring_up`. Interrupts off.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_offline(const struct tlbkit_machine *machine, uint32_t cpu);

// States that another CPU has stopped by force and executes nothing until its `tlbkit_bring_up`. It may have stopped
// before it sent an interrupt that others count on: a kernel that calls this returns `TLBKIT_LATE_ASK_AGAIN` from its
// `late`, or has none. A space that it was flushing must live until its `tlbkit_bring_up` returns.
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

// Carries out what other CPUs have asked: the handler of the shootdown interrupt, and each loop that waits for another
// CPU with interrupts off. Interrupts off. A stray interrupt is harmless, on a CPU that has left too.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_answer(const struct tlbkit_machine *machine, uint32_t cpu);

// True if the space is loaded here and may be used: what an NMI asks before it touches user memory. False on misuse.
TLBKIT_MUST_USE
bool tlbkit_is_running(const struct tlbkit_machine *machine,
                       uint32_t cpu,
                       const struct tlbkit_space *space);

// What CR3 holds on this CPU while the kernel half is loaded, without the no-flush bit: the root of the tables, and
// the tag in the low 12 bits. 0 on misuse. Interrupts off.
TLBKIT_MUST_USE uint64_t tlbkit_loaded(const struct tlbkit_machine *machine, uint32_t cpu);

// Calls `each` with every CPU that has not answered a request of `cpu`, but those that have left or were declared
// stopped: for a watchdog, on any CPU.
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
// a permission taken away, or after which the kernel frees by itself. The page tables have been changed. `stride` is
// an `enum tlbkit_stride`, with `TLBKIT_FLUSH_`s or-ed to it. Preemption off. Interrupts on; if they are off, and only
// then, `TLBKIT_STATUS_IRQS_OFF` says that another CPU would have to be told: this one has flushed, and the call is to
// be made again with interrupts on. An archive without checks ends in the panic hook instead.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_range(const struct tlbkit_machine *machine,
                                      uint32_t cpu,
                                      const struct tlbkit_space *space,
                                      uint64_t va,
                                      uint64_t pages,
                                      uint32_t stride,
                                      uint32_t reason);

// As `tlbkit_flush_range` with interrupts off, in any archive: tells no other CPU and waits for none. Interrupts on or
// off, any lock held. It also answers that others must flush where a CPU that used the space before is just between
// two other spaces, since it may be on its way to this one. A caller that knows that nobody else can switch to the
// space meanwhile may take that answer for "done".
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_range_alone(const struct tlbkit_machine *machine,
                                            uint32_t cpu,
                                            const struct tlbkit_space *space,
                                            uint64_t va,
                                            uint64_t pages,
                                            uint32_t stride);

// Drops what this CPU holds of `pages` translations from `va` on, in the tables that it has loaded: after a fault that
// was spurious, or when permission was just widened. It tells no other CPU, so nothing may be freed on the strength of
// it, and no permission counts as taken away. Interrupts on or off, preemption off.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_this_cpu(const struct tlbkit_machine *machine,
                                         uint32_t cpu,
                                         uint64_t va,
                                         uint64_t pages,
                                         uint32_t stride);

// Drops what this CPU holds of `pages` kernel addresses from `va` on, under isolation in every tag. Without it they
// count as global: one whose entry lacks that bit stays under the other tags. It tells no other CPU; otherwise as
// `tlbkit_flush_this_cpu`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_flush_kernel_this_cpu(const struct tlbkit_machine *machine,
                                                uint32_t cpu,
                                                uint64_t va,
                                                uint64_t pages,
                                                uint32_t stride);

// Drops all that this CPU holds of the space that is loaded, in both halves under isolation; global entries and other
// spaces stay. Otherwise as `tlbkit_flush_this_cpu`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_flush_loaded_this_cpu(const struct tlbkit_machine *machine, uint32_t cpu);

// Drops everything that this CPU holds: every space, both halves, global entries. Otherwise as
// `tlbkit_flush_this_cpu`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_flush_all_this_cpu(const struct tlbkit_machine *machine, uint32_t cpu);

// Flushes kernel addresses on every CPU, in every space, for a change that frees nothing, or after which the kernel
// frees by itself. `stride` as in `tlbkit_flush_range`. Interrupts on. Without isolation they count as global: entries
// that lack that bit go from all tags by a gather with `TLBKIT_SCOPE_LOCAL`.
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

// Names `pages` adjoining translations from `va` on whose entries have been cleared or changed; whoever frees what an
// entry named calls `tlbkit_gather_unmap`. Where the policy does not batch they are flushed at once, so interrupts are
// on.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_range(struct tlbkit_gather *gather,
                                       uint32_t cpu,
                                       uint64_t va,
                                       uint64_t pages,
                                       uint32_t stride,
                                       uint32_t scope,
                                       uint32_t reason);

// Names the translation of size `stride` at `va`, whose entry has been cleared, and gives the gather the frame that
// the entry named. `TLBKIT_STATUS_GATHER_FULL` if it has no room: nothing was named, and the frame is still the
// caller's, who finishes the gather and begins another for it. Interrupts as for `tlbkit_gather_range`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_unmap(struct tlbkit_gather *gather,
                                       uint32_t cpu,
                                       uint64_t va,
                                       uint32_t stride,
                                       uint32_t scope,
                                       uint32_t reason,
                                       uint64_t frame);

// Names what lay below a page-table page that has been taken out, and gives the gather that page, `frame`: paths
// through it go too, on CPUs that hold the space lazily as well. `va` is the first address below it. `unnamed_pages`
// counts, in pages of 4 KiB, what it still mapped from there on and nobody has named: 512 for a table of the last
// level that was taken out with its entries, 0 if each of them was named before. Fails as `tlbkit_gather_unmap` does.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_gather_unmap_table(struct tlbkit_gather *gather,
                                             uint32_t cpu,
                                             uint64_t va,
                                             uint64_t unnamed_pages,
                                             uint64_t frame);

// Gives the gather a frame to which no single page belongs: one that several named pages shared, or one of a range
// that is named as a whole. If nothing is named in this gather, before or after, the flush is one of everything; if
// something is, only that is flushed. `TLBKIT_STATUS_GATHER_FULL` as in `tlbkit_gather_unmap`.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_hold(struct tlbkit_gather *gather, uint64_t frame);

// A page-table page is freed that this gather does not keep: CPUs that hold the space lazily are told as well.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_tables_freed(struct tlbkit_gather *gather);

// Makes the flush a full one.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_everything(struct tlbkit_gather *gather);

// Flushes everywhere what was named, or everything if nothing was and a frame is held, then calls `release` for each
// frame, then ends the gather. Interrupts on, preemption off, no lock held that a CPU may wait for with its interrupts
// off. On an error the gather stays open, but for `TLBKIT_STATUS_WRONG_CPU` after the flush: its frames are lost then.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_finish(struct tlbkit_gather *gather, uint32_t cpu);

// Begins to flush everywhere what was named, and does not wait: the frames are freed by `tlbkit_gather_wait`. When it
// returns this CPU has flushed and the others are asked. Until the wait returns they may use what was named, so
// nothing is done to the frames, and the space lives.
//
// Interrupts on or off, under a spin lock or not; preemption off; not in an interrupt handler. Other gathers may be
// begun, issued and finished meanwhile. On an error the gather stays open, but for `TLBKIT_STATUS_WRONG_CPU` after the
// flush on this CPU: its frames are lost then.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_issue(struct tlbkit_gather *gather, uint32_t cpu);

// Writes true to `is_done` if no CPU can use any more what an issued gather names: its wait then returns at once,
// interrupts on or off. It waits for nobody, and may be asked again and again: a kernel whose interrupts stay off asks
// in a loop, and calls `tlbkit_answer` in between, or lets `tlbkit_gather_poll` do both. Preemption off. On an error
// the gather stays issued, but for `TLBKIT_STATUS_WRONG_CPU` after the look: its frames are lost then. On any error
// `is_done` is not written.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_is_done(struct tlbkit_gather *gather, uint32_t cpu, bool *is_done);

// Returns when `tlbkit_gather_is_done` would write true, and is called with interrupts on or off: what a kernel whose
// interrupts stay off calls before `tlbkit_gather_wait`. It answers other CPUs at each turn, and calls `late` and
// `unanswered` as every wait does. Whoever waits for another CPU in such a kernel, in the loop of a lock too, calls
// `tlbkit_answer` at each turn: one loop that does not is a deadlock. Preemption off. On an error the gather stays
// issued, but for `TLBKIT_STATUS_WRONG_CPU` after the wait: its frames are lost then.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_poll(struct tlbkit_gather *gather, uint32_t cpu);

// Waits until no CPU can use what an issued gather names, then calls `release` for each frame, then ends the gather.
// On the CPU that issued it or on another. Interrupts on unless `tlbkit_gather_is_done` has said true or
// `tlbkit_gather_poll` has returned; preemption off, no lock held that a CPU may wait for with its interrupts off. On
// an error the gather stays issued, but for `TLBKIT_STATUS_WRONG_CPU` after the wait: its frames are lost then.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_gather_wait(struct tlbkit_gather *gather, uint32_t cpu);

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

#if !defined(TLBKIT_X86)
extern void tlbkit_k_write_cr3(uint64_t value);
#endif

#if !defined(TLBKIT_X86)
extern void tlbkit_k_invlpg(uint64_t va);
#endif

#if !defined(TLBKIT_X86)
extern void tlbkit_k_invpcid(uint32_t kind, uint32_t pcid, uint64_t va);
#endif

#if !defined(TLBKIT_X86)
extern void tlbkit_k_toggle_pge(void);
#endif

#if !defined(TLBKIT_X86)
extern void tlbkit_k_relax(void);
#endif

#if !defined(TLBKIT_X86)
extern bool tlbkit_k_irqs_enabled(void);
#endif

#if !defined(TLBKIT_X86)
extern uint64_t tlbkit_k_irqs_save(void);
#endif

#if !defined(TLBKIT_X86)
extern void tlbkit_k_irqs_restore(uint64_t saved);
#endif

extern void tlbkit_k_send_ipi(uint32_t cpu, uint32_t to);

extern void tlbkit_k_send_ipi_to_others(uint32_t cpu);

// Words that a machine of `cpus` CPUs needs beside its CPUs: who has asked whom, and how each CPU is found.
TLBKIT_MUST_USE size_t tlbkit_matrix_words(uint32_t cpus);

// Makes a machine. No CPU takes part until its `tlbkit_bring_up`. The machine stays where it is for ever.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_machine_init(struct tlbkit_machine *machine,
                                       const struct tlbkit_setup *setup);

// Calls `hook` on misuse that no status can tell; NULL for none. One for all machines.
void tlbkit_set_panic_hook(tlbkit_panic_hook hook);

// Makes a space for the page tables at `root`; under isolation the user half's top-level table is one page above.
// `set` has at least `tlbkit_set_words` words, which the call sets to zero. Both belong to the space until
// `tlbkit_space_destroy` gives it back.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_init(struct tlbkit_space *space,
                                     const struct tlbkit_machine *machine,
                                     uint64_t root,
                                     uint64_t *set,
                                     size_t set_words);

// Ends a space that no task runs any more; that another CPU runs it is told to the hook. This CPU leaves it if it
// holds it lazily. `may_free` becomes true if the space and its tables can be freed now; otherwise another CPU holds
// it lazily, and they can be freed when `last_lazy_reference` names it, which may be before this call returns. Where
// the policy says `lazy_refs=shot-down`, and only there, such CPUs are interrupted, and `may_free` is always true.
// Interrupts on; not from a CPU that runs it.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_destroy(const struct tlbkit_machine *machine,
                                        uint32_t cpu,
                                        struct tlbkit_space *space,
                                        bool *may_free);

// The same with interrupts on or off, and under locks that no switch takes: it interrupts nobody and waits for nobody
// but a CPU in the middle of a switch. Not from an NMI, not in `last_lazy_reference`, and not where the policy says
// `lazy_refs=shot-down`.
TLBKIT_MUST_USE
enum tlbkit_status tlbkit_space_destroy_later(const struct tlbkit_machine *machine,
                                              uint32_t cpu,
                                              struct tlbkit_space *space,
                                              bool *may_free);

// Words that a space needs for the set of its CPUs.
TLBKIT_MUST_USE size_t tlbkit_set_words(uint32_t cpus);

// The space's name, never used again; 0 if it was never made.
TLBKIT_MUST_USE uint64_t tlbkit_space_id(const struct tlbkit_space *space);

// How many revocations the space has seen, plus one; 0 if it was never made.
TLBKIT_MUST_USE uint64_t tlbkit_space_generation(const struct tlbkit_space *space);

// A status in words, for a log.
TLBKIT_MUST_USE const char *tlbkit_status_text(uint32_t status);

// What this archive was built with. `tlbkit_header_fits()` compares them with the header's.
TLBKIT_MUST_USE struct tlbkit_layout tlbkit_layout(void);

// Whether a text `PRESET[:KEY=VALUE[+KEY=VALUE...]]` names a policy: `TLBKIT_STATUS_OK`, or what is wrong with it. The
// presets and keys are those of `tlbkit list policies` and `tlbkit list settings`; an archive that was built without
// `--features history` knows the preset "tlbkit" and what it can be changed to.
TLBKIT_MUST_USE enum tlbkit_status tlbkit_policy_check(const char *text);

#if defined(TLBKIT_X86)
// Finds out what this CPU can do, less what its errata forbid, switches global pages and tags on, and returns
// `TLBKIT_FEATURE_`s: what `features` of the table returns for this CPU from then on. Once on each CPU, before
// `tlbkit_bring_up`; ring 0, interrupts off. `trust` is an `enum tlbkit_x86_trust`, the same on every CPU.
TLBKIT_MUST_USE uint32_t tlbkit_x86_start(uint32_t trust);
#endif

#if defined(TLBKIT_X86)
// Switches tags off again on this CPU, as a kernel does before it hands the CPU to another one, and empties its TLB.
// The root that is loaded stays loaded, under tag 0. Ring 0, interrupts off, and after `tlbkit_offline` of this CPU,
// since until then the library uses tags.
void tlbkit_x86_disable_tags(void);
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

#if defined(TLBKIT_LINKED)
// What a kernel defines whose archive was built with `linked`. The contract of each is that of its place in
// `struct tlbkit_hardware_ops`, but most do without the CPU's number.
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

// True if this header and the archive were built from the same source, and the archive's constants are in memory: ask
// once, at boot.
static inline bool tlbkit_header_fits(void) {
    struct tlbkit_layout layout = tlbkit_layout();
    return layout.interface_hash == TLBKIT_INTERFACE && layout.machine_bytes == sizeof(struct tlbkit_machine) &&
           layout.cpu_state_bytes == sizeof(struct tlbkit_cpu_state) &&
           layout.space_bytes == sizeof(struct tlbkit_space) && layout.gather_bytes == sizeof(struct tlbkit_gather) &&
           layout.batch_bytes == sizeof(struct tlbkit_batch) && layout.stats_bytes == sizeof(struct tlbkit_stats);
}
