// The fat binary of the kernels, in the program's read-only data. TP_KERNEL_IMAGE is its path.

    .section .rodata.tp_kernel_image, "a", @progbits
    .balign 64
    .global tp_kernel_image
    .hidden tp_kernel_image
tp_kernel_image:
    .incbin TP_KERNEL_IMAGE
    .global tp_kernel_image_end
    .hidden tp_kernel_image_end
tp_kernel_image_end:
    .byte 0

// No executable stack.
    .section .note.GNU-stack, "", @progbits
