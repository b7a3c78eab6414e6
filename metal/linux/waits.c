// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A plugin of QEMU that counts the instructions which CPUs execute while they wait, since their number says how the
 * emulator happens to share the host's thread among the CPUs and not how much work there is.
 *
 * Waiting is what lies between two executions of the same PAUSE by the same CPU, at most TURN_MAX instructions: a turn
 * of a loop that looks whether another CPU is ready. It needs no symbol, so it counts both kernels alike. A longer
 * stretch is a turn in which the CPU took an interrupt, or two waits with work between them: that is work, and so are
 * the first look of a wait and the last.
 *
 * The guest reads the time stamp counter before and after each operation. The second of two such reads writes a line:
 * what all CPUs executed meanwhile waiting in the kernel, and what in a program's own loops.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of QEMU's qemu-plugin.h, which the distribution's packages lack. */
typedef uint64_t plugin_id;
typedef void on_execution(unsigned cpu, void *data);
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { NO_REGISTERS };
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, on_execution *, int, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, on_execution *, int, void *);

/* QEMU up to 8 takes version 1 of the interface, and QEMU from 9 on, where this function is new, refuses it. */
extern void qemu_plugin_get_registers(void) __attribute__((weak));
int qemu_plugin_version = 1;
__attribute__((constructor)) static void choose_version(void) {
    if (qemu_plugin_get_registers)
        qemu_plugin_version = 2;
}

enum { CPUS_MAX = 64, TURN_MAX = 200 };

/* The program of the guest is linked statically, below this; the kernel's own code for programs is not. */
static const uint64_t PROGRAM_END = UINT64_C(1) << 32;
static const uint64_t KERNEL_BEGIN = UINT64_C(1) << 63;

static struct {
    uint64_t executed, executed_at_pause, pause;
} cpus[CPUS_MAX];
static struct waited {
    uint64_t kernel, programs;
} waited, waited_at_begin;
static bool is_measured;
static FILE *lines;

/* A block that a fault ends early counts as a whole, which a turn of a wait has none of. */
static void on_block(unsigned cpu, void *instructions) { cpus[cpu].executed += (uintptr_t)instructions; }

static void on_pause(unsigned cpu, void *address) {
    uint64_t pause = (uintptr_t)address, turn = cpus[cpu].executed - cpus[cpu].executed_at_pause;
    if (pause == cpus[cpu].pause && turn <= TURN_MAX)
        *(pause >= KERNEL_BEGIN ? &waited.kernel : &waited.programs) += turn;
    cpus[cpu].executed_at_pause = cpus[cpu].executed;
    cpus[cpu].pause = pause;
}

static void on_clock(unsigned cpu, void *address) {
    (void)cpu, (void)address;
    if (is_measured)
        fprintf(lines, "%" PRIu64 " %" PRIu64 "\n", waited.kernel - waited_at_begin.kernel,
                waited.programs - waited_at_begin.programs);
    waited_at_begin = waited;
    is_measured = !is_measured;
}

static void on_translation(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, NO_REGISTERS, (void *)count);
    for (size_t index = 0; index < count; index++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, index);
        /* Both have two bytes; the disassembler is slow. */
        if (qemu_plugin_insn_size(instruction) != 2)
            continue;
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        char *text = qemu_plugin_insn_disas(instruction);
        if (!strncmp(text, "pause", 5))
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_pause, NO_REGISTERS, (void *)address);
        else if (!strncmp(text, "rdtsc", 5) && address < PROGRAM_END)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_clock, NO_REGISTERS, (void *)address);
        free(text);
    }
}

/* Takes the file that the lines go to: `-plugin file=...,to=FILE`. */
int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments) {
    (void)info;
    if (count != 1 || strncmp(arguments[0], "to=", 3) || !(lines = fopen(arguments[0] + 3, "w")))
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
