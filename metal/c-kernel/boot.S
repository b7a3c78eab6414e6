// From the loader's 32-bit entry to C in long mode, on the first CPU and on the others.

#define KERNEL_BASE 0xffffffff80000000
#define PRESENT_WRITE 0x3
#define LARGE_GLOBAL 0x183
#define UNCACHED 0x18
#define CR0_PG_WP_PE 0x80010001
#define CR4_PAE_PGE 0xa0
#define EFER 0xc0000080
#define EFER_LME 0x100
#define STACK_BYTES 16384

    .section .note.pvh, "a", @note
    .long 4, 8, 18
    .asciz "Xen"
    .quad start32

// Four GiB by large pages at address 0 (for boot) and in the direct map; the first of them for the kernel as well.
    .section .boot, "awx"
    .balign 4096
    .global boot_tables
boot_tables:
    .quad low_gibibytes + PRESENT_WRITE
    .fill 255, 8, 0
    .quad low_gibibytes + PRESENT_WRITE
    .fill 254, 8, 0
    .quad high_gibibytes + PRESENT_WRITE
low_gibibytes:
    .quad gibibyte_0 + PRESENT_WRITE, gibibyte_1 + PRESENT_WRITE, gibibyte_2 + PRESENT_WRITE, gibibyte_3 + PRESENT_WRITE
    .fill 508, 8, 0
high_gibibytes:
    .fill 510, 8, 0
    .quad gibibyte_0 + PRESENT_WRITE, 0
    .set frame, 0
    .macro large_pages flags
    .rept 512
    .quad frame + LARGE_GLOBAL + \flags
    .set frame, frame + 0x200000
    .endr
    .endm
gibibyte_0: large_pages 0
gibibyte_1: large_pages 0
gibibyte_2: large_pages 0
gibibyte_3: large_pages UNCACHED // the local APIC is here

    .balign 8
    .global descriptors
descriptors:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cf9b000000ffff
descriptors_end:
descriptors_pointer:
    .word descriptors_end - descriptors - 1
    .quad descriptors

    .macro enter_long_mode
    mov $boot_tables, %eax
    mov %eax, %cr3
    mov $CR4_PAE_PGE, %eax
    mov %eax, %cr4
    mov $EFER, %ecx
    rdmsr
    or $EFER_LME, %eax
    wrmsr
    mov $CR0_PG_WP_PE, %eax
    mov %eax, %cr0
    .endm

    .code32
    .global start32
start32:
    cli
    cld
    mov %ebx, %edi
    enter_long_mode
    lgdt descriptors_pointer
    ljmp $8, $start64
    .code64
start64:
    mov $16, %eax
    mov %eax, %ss
    mov $stacks + STACK_BYTES, %rsp
    mov $kernel_main, %rax
    call *%rax

// Copied to 0x8000, where the start-up interrupt sends the other CPUs.
    .section .first_steps, "awx"
    .code16
    cli
    lgdtl low_descriptors_pointer
    mov %cr0, %eax
    or $1, %eax
    mov %eax, %cr0
    ljmpl $24, $steps32
low_descriptors_pointer:
    .word descriptors_end - descriptors - 1
    .long descriptors
    .code32
steps32:
    mov $16, %eax
    mov %eax, %ds
    enter_long_mode
    ljmp $8, $steps64
    .code64
steps64:
    mov $16, %eax
    mov %eax, %ss
    mov $1, %edi
    lock xadd %edi, cpus_started
    lea 1(%edi), %eax
    imul $STACK_BYTES, %rax, %rax
    lea stacks(%rax), %rsp
    mov $cpu_main, %rax
    call *%rax

    .bss
    .balign 16
stacks:
    .fill 4 * STACK_BYTES
    .data
    .global cpus_started
cpus_started:
    .long 1

// bool probe(const uint64_t *at, uint64_t *value): false if nothing is mapped there; the page-fault handler sees to it.
    .text
    .global probe, probe_access, probe_failed
probe:
probe_access:
    mov (%rdi), %rax
    mov %rax, (%rsi)
    mov $1, %eax
    ret
probe_failed:
    xor %eax, %eax
    ret
    .section .note.GNU-stack, "", @progbits
