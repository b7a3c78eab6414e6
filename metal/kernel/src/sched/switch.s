# From one kernel stack to another, and the first way into ring 3.

.section .text
.code64

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
    call {first_steps}
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
