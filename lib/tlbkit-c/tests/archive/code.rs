//! What must not stand in a kernel's code, looked for in `objdump -d --no-show-raw-insn`.
//!
//! - No operand names a vector, mask or x87 register.
//! - No memory operand has a negative distance from `%rsp`: that is where a red zone would be.
//! - Where `%rbp` is a frame pointer (`mov %rsp,%rbp`), no operand lies further below it than what the function has
//!   pushed and subtracted since: the same red zone by its other name.

/// Each offending line, and why.
pub(crate) fn breaches(listing: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut frame = Frame::default();
    for line in listing.lines() {
        if line.ends_with(">:") {
            frame = Frame::default();
        }
        let Some((_, instruction)) = line.split_once(":\t") else { continue };
        frame.follow(instruction);
        if let Some(why) = breach(instruction).or_else(|| frame.breach(instruction)) {
            found.push(format!("{why}: {line}"));
        }
    }
    found
}

fn breach(instruction: &str) -> Option<&'static str> {
    let is_vector = ["%xmm", "%ymm", "%zmm", "%mm", "%st", "%k"].iter().any(|register| instruction.contains(register));
    if is_vector {
        Some("a vector or x87 register")
    } else if distance_below(instruction, "(%rsp").is_some() {
        Some("memory below the stack pointer")
    } else {
        None
    }
}

/// Bytes below `base` that a memory operand names.
fn distance_below(instruction: &str, base: &str) -> Option<u64> {
    let before = &instruction[..instruction.find(base)?];
    let digits = before.rsplit_once("-0x")?.1;
    u64::from_str_radix(digits, 16).ok()
}

/// A frame pointer, and how far the stack pointer is known to be below it.
#[derive(Default)]
struct Frame {
    room_bytes: Option<u64>,
}

impl Frame {
    fn follow(&mut self, instruction: &str) {
        let text: String = instruction.split_whitespace().collect::<Vec<_>>().join(" ");
        if text == "mov %rsp,%rbp" {
            self.room_bytes = Some(0);
        } else if let Some(room) = &mut self.room_bytes {
            let subtracted = text.strip_prefix("sub $0x").and_then(|rest| rest.strip_suffix(",%rsp"));
            *room += if text.starts_with("push ") { 8 } else { 0 };
            *room += subtracted.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        }
    }

    fn breach(&self, instruction: &str) -> Option<&'static str> {
        let (room, below) = (self.room_bytes?, distance_below(instruction, "(%rbp")?);
        (below > room).then_some("memory below what the frame has taken")
    }
}

#[test]
fn each_breach_is_seen_and_nothing_else() {
    let bad = "\
0000 <f>:
 1:\tmovaps %xmm0,0x10(%rsp)
 2:\tfldt   0x8(%rsp)
 3:\tfstp   %st(0)
 4:\tmov    %rax,-0x8(%rsp)
 5:\tmov    -0x78(%rsp,%rcx,8),%rax
0010 <g>:
 6:\tpush   %rbp
 7:\tmov    %rsp,%rbp
 8:\tmov    %rax,-0x8(%rbp)";
    let found: Vec<String> =
        breaches(bad).iter().map(|found| found.rsplit_once(": ").unwrap_or_default().1.into()).collect();
    assert_eq!(found.len(), 5, "{found:?}");
    let good = "\
0000 <f>:
 1:\tmov    %rax,0x8(%rsp)
 2:\tmov    %rsp,%rbp
 3:\tpush   %rbx
 4:\tsub    $0x10,%rsp
 5:\tmov    %rax,-0x18(%rbp)
0010 <g>:
 6:\tmov    -0x40(%rbp),%rax";
    assert_eq!(breaches(good), Vec::<String>::new());
}
