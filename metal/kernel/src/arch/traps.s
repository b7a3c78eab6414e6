# SYSCALL, and from one kernel stack to another.

.section .text
.code64

# SYSCALL: number and three arguments in rdi, rsi, rdx, r10; result in rax. GS is the kernel's always: programs never
# use it. Offsets 0 and 8 are those of `arch::cpu::Local`.
.global syscall_gate
syscall_gate:
    movq %rsp, %gs:0
    movq %gs:8, %rsp
    pushq %gs:0
    pushq %r11
    pushq %rcx
    subq $8, %rsp
    movq %r10, %rcx
    cld
    call on_syscall
    addq $8, %rsp
    popq %rcx
    popq %r11
    popq %rsp
    sysretq

# switch_stacks(save: *mut u64, load: u64)
.global switch_stacks
switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret

# Where a new task's kernel stack returns to: `Task::prepare` left the argument in rbx.
.global task_begin
task_begin:
    movq %rbx, %rdi
    call first_steps
    ud2

# enter_user(entry, stack, argument): never returns; interrupts on.
.global enter_user
enter_user:
    movq %rdi, %rcx
    movq %rsi, %rsp
    movq %rdx, %rdi
    movl $0x202, %r11d
    xorl %ebp, %ebp
    sysretq
