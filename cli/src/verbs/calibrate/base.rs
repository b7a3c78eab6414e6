//! The built-in machine that is nearest to a host, for what no user program can measure.

use tlbkit_host::Survey;
use tlbkit_host::collateral::Fracturing;

/// Its name. What matters most is whether there is a hypervisor, which makes interrupts dearer by an order of
/// magnitude; then, what it backs memory with; then, who made the CPU.
pub(super) fn nearest(survey: &Survey) -> &'static str {
    match (survey.host.is_virtual, survey.collateral.fracturing()) {
        (true, Fracturing::On) => "recent-vm-fractured",
        (true, Fracturing::Off | Fracturing::Unclear) => "recent-vm",
        (false, _) if survey.host.vendor == "AuthenticAMD" => "zen4",
        (false, _) => "recent-bare",
    }
}
