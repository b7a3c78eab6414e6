# From 32-bit protected mode without paging to 64-bit Rust in the top 2 GiB; and the same for each further CPU, from the
# real mode in which it starts.

# What an image builder looks for and fills in: see xtask.
.section .boot.head, "awx"
.code32
.global _start32
_start32:
    jmp start32
    .align 16
    .ascii "tlbkit command :"
.global boot_command_line
boot_command_line:
    .fill 1024, 1, 0

# PVH: the 32-bit physical entry.
.section .note.pvh, "a"
    .long 4, 8, 18
    .asciz "Xen"
    .quad _start32

.section .boot, "awx"
.code32
start32:
    cli
    cld
    movl $boot_stack_top, %esp
    movl %ebx, %esi
    movl $__bss_start_phys, %edi
    movl $__bss_bytes, %ecx
    shrl $2, %ecx
    xorl %eax, %eax
    rep stosl
    call to_long_mode
    ljmpl $0x08, $start64

# Paging with the boot tables, long mode, NX, SYSCALL, write protection.
to_long_mode:
    movl $boot_pml4, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x20, %eax
    movl %eax, %cr4
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x901, %eax
    wrmsr
    movl %cr0, %eax
    andl $0x9fffffff, %eax
    orl $0x80010001, %eax
    movl %eax, %cr0
    lgdtl boot_gdt_pointer
    ret

.code64
start64:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movabsq $start_high, %rax
    jmpq *%rax

# A further CPU. This piece is copied to AP_START; it may use nothing but what it brings.
.code16
.global ap_piece, ap_piece_end
ap_piece:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl 0x8000 + (ap_gdt_pointer - ap_piece)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $ap32
    .align 4
ap_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt
ap_piece_end:

.code32
ap32:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $ap_low_stack_top, %esp
    call to_long_mode
    ljmpl $0x08, $ap64
.code64
ap64:
    movabsq $ap_high, %rax
    jmpq *%rax

    .align 8
boot_gdt:
    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff, 0x00cf9a000000ffff
boot_gdt_end:
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt

# The first GiB three times: where it is, as the direct map, and as the image.
    .align 4096
boot_pml4:
    .quad boot_pdpt + 3
    .fill 255, 8, 0
    .quad boot_pdpt + 3
    .fill 254, 8, 0
    .quad boot_pdpt_high + 3
boot_pdpt:
    .quad boot_pd + 3
    .fill 511, 8, 0
boot_pdpt_high:
    .fill 510, 8, 0
    .quad boot_pd + 3
    .quad 0
boot_pd:
    .set page, 0
    .rept 512
    .quad (page << 21) | 0x83
    .set page, page + 1
    .endr
    .fill 256, 1, 0
boot_stack_top:
    .fill 256, 1, 0
ap_low_stack_top:

.section .text
.code64
start_high:
    leaq IDLE_STACKS + 65536(%rip), %rsp
    movl %esi, %edi
    xorl %ebp, %ebp
    call first_cpu
    ud2
ap_high:
    movq AP_STACK(%rip), %rsp
    movl AP_INDEX(%rip), %edi
    xorl %ebp, %ebp
    call further_cpu
    ud2
