//! How much stack the functions of the header take, from `objdump -d --no-show-raw-insn`: what each function pushes and
//! subtracts, and the deepest chain of direct calls below it.
//!
//! A call through a pointer is one of the kernel's own functions, so it counts as its return address alone. A chain
//! that ends in the panic hook is left out: the kernel does not come back from there.

use std::collections::BTreeMap;

/// What one function takes, and whom it calls.
#[derive(Default)]
struct Function {
    frame_bytes: u64,
    callees: Vec<String>,
}

/// Bytes of stack below each function, its own return address among them. A chain that comes back to itself is an
/// error.
pub(crate) fn depths(listing: &str) -> Result<BTreeMap<String, u64>, String> {
    let functions = functions(listing);
    let mut known = BTreeMap::new();
    for name in functions.keys() {
        depth(name, &functions, &mut known, &mut Vec::new())?;
    }
    Ok(known)
}

fn functions(listing: &str) -> BTreeMap<String, Function> {
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    let mut current = String::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            current = name.1.to_owned();
            functions.entry(current.clone()).or_default();
        } else if let (Some((_, instruction)), Some(function)) = (line.split_once(":\t"), functions.get_mut(&current)) {
            let text = instruction.split_whitespace().collect::<Vec<_>>().join(" ");
            function.take(&text, &current);
        }
    }
    functions
}

impl Function {
    fn take(&mut self, text: &str, own: &str) {
        if text.starts_with("push ") {
            self.frame_bytes += 8;
        } else if let Some(hex) = text.strip_prefix("sub $0x").and_then(|rest| rest.strip_suffix(",%rsp")) {
            self.frame_bytes += u64::from_str_radix(hex, 16).unwrap_or(0);
        } else if text.starts_with("call") || text.starts_with('j') {
            // A jump within the function names it with an offset.
            let to = text.split_once('<').map(|(_, to)| to.trim_end_matches('>'));
            let other = to.map(|to| to.split('+').next().unwrap_or(to)).filter(|name| *name != own);
            self.callees.extend(other.map(str::to_owned));
        }
    }
}

fn depth(
    name: &str,
    functions: &BTreeMap<String, Function>,
    known: &mut BTreeMap<String, u64>,
    above: &mut Vec<String>,
) -> Result<u64, String> {
    if let Some(&bytes) = known.get(name) {
        return Ok(bytes);
    }
    if name.contains("panic") {
        return Ok(0);
    }
    if above.iter().any(|other| other == name) {
        return Err(format!("{name} calls itself by {above:?}"));
    }
    let Some(function) = functions.get(name) else { return Ok(8) };
    above.push(name.to_owned());
    let mut deepest = 0;
    for callee in &function.callees {
        deepest = deepest.max(depth(callee, functions, known, above)?);
    }
    above.pop();
    let bytes = 8 + function.frame_bytes + deepest;
    known.insert(name.to_owned(), bytes);
    Ok(bytes)
}

#[test]
fn the_deepest_chain_counts() -> Result<(), String> {
    let listing = "\
0000 <a>:
 1:\tpush   %rbx
 2:\tsub    $0x10,%rsp
 3:\tcall   20 <b>
 4:\tjne    2 <a+0x2>
 5:\tcall   *0x8(%rax)
 6:\tjmp    30 <c>
0020 <b>:
 7:\tsub    $0x40,%rsp
 8:\tcall   40 <core_panicking_panic>
0030 <c>:
 9:\tret
0040 <core_panicking_panic>:
 a:\tsub    $0x4000,%rsp";
    let depths = depths(listing)?;
    assert_eq!((depths["a"], depths["b"], depths["c"]), (8 + 24 + 72, 72, 8));
    assert!(super::stack::depths("0 <a>:\n 1:\tcall 2 <b>\n2 <b>:\n 3:\tcall 0 <a>").is_err());
    Ok(())
}
