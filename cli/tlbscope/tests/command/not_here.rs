//! What may keep a test from recording: not here, or not as this user. Any other failure is one.

/// How the messages begin that mean it.
const NOT_HERE: &[&str] =
    &["tlbscope: no program perf", "tlbscope: /sys/kernel/", "tlbscope: kernel.perf_event_paranoid"];

/// Whether one line of `said` is such a message, or perf's that the kernel refused it.
pub(crate) fn is_not_here(said: &str) -> bool {
    let is_refusal = |line: &str| {
        let of_perf = line.strip_prefix("tlbscope: perf record: ");
        of_perf.is_some_and(|said| said.contains("ermission") || said.contains("not permitted"))
    };
    said.lines()
        .map(str::trim_start)
        .any(|line| NOT_HERE.iter().any(|start| line.starts_with(start)) || is_refusal(line))
}
