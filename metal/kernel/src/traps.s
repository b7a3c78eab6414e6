# From SYSCALL into the kernel and back.

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
    call {syscall}
    addq $8, %rsp
    popq %rcx
    popq %r11
    popq %rsp
    sysretq
