//! The interrupts, by names that the kernel defines: only it knows its APIC.

unsafe extern "C" {
    fn tlbkit_k_send_ipi(cpu: u32, to: u32);
    fn tlbkit_k_send_ipi_to_others(cpu: u32);
}

#[inline(always)]
pub(crate) fn send(cpu: u32, to: u32) {
    // SAFETY: a function of the kernel's, called as the header says.
    unsafe { tlbkit_k_send_ipi(cpu, to) }
}

#[inline(always)]
pub(crate) fn send_to_others(cpu: u32) {
    // SAFETY: as above.
    unsafe { tlbkit_k_send_ipi_to_others(cpu) }
}
