# Into a handler and out of it: 256 gates that store what the registers hold, in the order of their numbers. Assembled
# once for each set of gates: `{gates}` is its first, `{handler}` the function that is called. The frame is
# `arch::gates::Frame`.

.section .text
.code64
.global {gates}
    .align 16
{gates}:
    .set vector, 0
    .rept 256
    .align 16
    .if (vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    pushq $0
    .endif
    .byte 0x68
    .long vector
    jmp 2f
    .set vector, vector + 1
    .endr
2:
    pushq %r15
    pushq %r14
    pushq %r13
    pushq %r12
    pushq %r11
    pushq %r10
    pushq %r9
    pushq %r8
    pushq %rdi
    pushq %rsi
    pushq %rbp
    # The place of the stack pointer, whose value the CPU has stored further up.
    pushq $0
    pushq %rbx
    pushq %rdx
    pushq %rcx
    pushq %rax
    cld
    movq %rsp, %rdi
    # The CPU has aligned the stack, and 23 words lie on it: one more for a call.
    subq $8, %rsp
    call {handler}
    addq $8, %rsp
    popq %rax
    popq %rcx
    popq %rdx
    popq %rbx
    addq $8, %rsp
    popq %rbp
    popq %rsi
    popq %rdi
    popq %r8
    popq %r9
    popq %r10
    popq %r11
    popq %r12
    popq %r13
    popq %r14
    popq %r15
    addq $16, %rsp
    iretq
