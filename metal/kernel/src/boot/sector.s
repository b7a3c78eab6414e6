# The first sector of a disk image: loads what lies behind it to 1 MiB and jumps there, in 32-bit mode. The image's builder
# writes the number of 32 KiB chunks into the two bytes before the signature.
.section .bootsect, "", @progbits
.code16
sector:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7c00, %sp
    sti
    movb %dl, 0x7c00 + (drive - sector)
    movw $0x2401, %ax
    int $0x15
    movw 0x7dfc, %cx

next_chunk:
    pushw %cx
    # 64 sectors to 0x10000.
    movw $0x7c00 + (packet - sector), %si
    movb 0x7c00 + (drive - sector), %dl
    movb $0x42, %ah
    int $0x13
    jc stop
    # From there to where the image has grown to: 32 KiB through the BIOS's descriptors.
    movw $0x7c00 + (descriptors - sector), %si
    movw $0x4000, %cx
    movb $0x87, %ah
    int $0x15
    jc stop
    addw $0x8000, 0x7c00 + (target - sector)
    adcb $0, 0x7c00 + (target_high - sector)
    addl $64, 0x7c00 + (first_sector - sector)
    popw %cx
    loop next_chunk

    cli
    lgdtl 0x7c00 + (flat_pointer - sector)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x08, $(0x7c00 + (flat_code - sector))
stop:
    hlt
    jmp stop

.code32
flat_code:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    # No start_info.
    xorl %ebx, %ebx
    movl $0x100000, %eax
    jmpl *%eax

drive:
    .byte 0
    .align 4
packet:
    .byte 16, 0
    .word 64
    .word 0, 0x1000
first_sector:
    .long 1, 0
descriptors:
    .quad 0, 0
    # The source: 0x10000.
    .word 0xffff, 0
    .byte 1, 0x93
    .word 0
    # The target: 1 MiB at first.
    .word 0xffff
target:
    .word 0
target_high:
    .byte 0x10, 0x93
    .word 0
    .quad 0, 0
    .align 8
flat:
    .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
flat_pointer:
    .word 23
    .long 0x7c00 + (flat - sector)
    .org sector + 508
    .word 0
    .word 0xaa55
