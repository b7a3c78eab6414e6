//! The code of this very test as the compiler left it: symbols out of the file, bytes out of memory.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

/// The crate whose code is looked at: a call of one of its functions is followed.
const CRATE: &str = "tlbkit_x86";

/// Where a function lies in memory, and how long it is.
#[derive(Clone, Debug)]
struct Function {
    name: String,
    start: u64,
    bytes: u64,
}

/// Functions by their first address.
type Functions = BTreeMap<u64, Function>;

/// Little-endian number of `N` bytes at `at` of a file.
fn number<const N: usize>(file: &[u8], at: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&file[at..at + N]);
    u64::from_le_bytes(wide)
}

/// The functions of an ELF file whose addresses are moved by `base`.
fn functions_of(file: &[u8], base: u64) -> Functions {
    const SYMBOLS: u64 = 2;
    const FUNCTION: u64 = 2;
    let (table, entry_bytes, count) =
        (number::<8>(file, 0x28) as usize, number::<2>(file, 0x3a) as usize, number::<2>(file, 0x3c) as usize);
    let section = |n: usize, field: usize| number::<8>(file, table + n * entry_bytes + field) as usize;
    let kind = |n: usize| number::<4>(file, table + n * entry_bytes + 4);
    let symbols = (0..count).find(|&n| kind(n) == SYMBOLS).expect("the test has a symbol table");
    let names = section(number::<4>(file, table + symbols * entry_bytes + 0x28) as usize, 0x18);
    let (first, bytes) = (section(symbols, 0x18), section(symbols, 0x20));
    let mut functions = Functions::new();
    for at in (first..first + bytes).step_by(24) {
        let (value, size) = (number::<8>(file, at + 8), number::<8>(file, at + 16));
        if number::<1>(file, at + 4) & 0xf == FUNCTION && size > 0 {
            let name = &file[names + number::<4>(file, at) as usize..];
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            functions.insert(base + value, Function { name, start: base + value, bytes: size });
        }
    }
    functions
}

/// The functions of this test, found once. `anchor` is the address of the function of that name.
fn functions(anchor: (&str, u64)) -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let file = std::fs::read("/proc/self/exe").expect("this test is a file");
        let in_file = functions_of(&file, 0);
        let found = in_file.values().find(|function| function.name == anchor.0).expect("the anchor has a symbol");
        functions_of(&file, anchor.1 - found.start)
    })
}

/// All instructions of the function at `start`, which has the symbol `name`, in the order in which they lie in memory;
/// functions of the crate stand where they are called.
pub(crate) fn code(name: &str, start: usize) -> Vec<Instruction> {
    let functions = functions((name, start as u64));
    flatten(functions, &functions[&(start as u64)], 0)
}

fn flatten(functions: &Functions, function: &Function, depth: u32) -> Vec<Instruction> {
    assert!(depth < 4, "{} calls itself", function.name);
    // SAFETY: the linker put this function there, and nobody writes code.
    let bytes = unsafe { std::slice::from_raw_parts(function.start as *const u8, function.bytes as usize) };
    let mut all = Vec::new();
    for instruction in Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE) {
        assert!(!instruction.is_invalid(), "{}: {instruction:?}", function.name);
        let callee = destination(&instruction).and_then(|to| functions.get(&to));
        match callee.filter(|callee| callee.start != function.start && callee.name.contains(CRATE)) {
            Some(callee) => all.extend(flatten(functions, callee, depth + 1)),
            None => all.push(instruction),
        }
    }
    all
}

/// Where a call or a jump goes, be it written in the instruction or in the linker's table of addresses.
fn destination(it: &Instruction) -> Option<u64> {
    match it.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch => Some(it.near_branch_target()),
        FlowControl::IndirectCall | FlowControl::IndirectBranch if it.is_ip_rel_memory_operand() => {
            // SAFETY: an aligned word of that table, which nobody writes once the program runs.
            Some(unsafe { (it.ip_rel_memory_address() as *const u64).read() })
        }
        _ => None,
    }
}
