//! A failing run as a trace that Perfetto and Chrome's `about:tracing` show: a track a CPU, a microsecond a step.

use crate::json;
use crate::timeline::{Line, LineKind};

/// The trace of `lines`.
#[must_use]
pub fn chrome_trace(lines: &[Line]) -> String {
    let events: Vec<_> = lines.iter().map(event).collect();
    format!("{{\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

fn event(line: &Line) -> String {
    let (phase, more) = match line.kind {
        LineKind::Begin => ("B", ""),
        LineKind::End => ("E", ""),
        LineKind::Step => ("i", ",\"s\":\"t\""),
    };
    let name = json::string(&line.text);
    format!("{{\"name\":{name},\"ph\":\"{phase}\",\"ts\":{},\"pid\":0,\"tid\":{}{more}}}", line.step, line.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_slice_and_a_step_an_instant() {
        let line = |kind| Line { step: 3, cpu: 1, kind, text: "unmap".to_owned() };
        let trace = chrome_trace(&[line(LineKind::Begin), line(LineKind::Step), line(LineKind::End)]);
        assert_eq!([trace.matches("\"B\"").count(), trace.matches("\"i\"").count()], [1, 1]);
        assert!(trace.contains(r#"{"name":"unmap","ph":"E","ts":3,"pid":0,"tid":1}"#));
    }
}
