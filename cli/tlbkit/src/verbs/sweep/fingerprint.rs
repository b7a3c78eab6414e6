//! A machine in sixteen digits. A point names its machine, perhaps by a file, and a file may change after its rows were
//! written.

use std::fmt::Write;

use tlbkit_machine::{Features, Guest, Machine, Tlb, TlbArray};

/// Of all that decides what comes out on `machine`: names, sources and comments may change.
pub(super) fn of(machine: &Machine) -> String {
    format!("{:016x}", fnv1a(&content(machine)))
}

/// FNV-1a: nobody chooses machines so that two of them collide.
pub(super) fn fnv1a(text: &str) -> u64 {
    let step = |print: u64, byte| (print ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Taken apart, so that what an array or a guest learns to say is not left out here unnoticed; `_` are numbers.
fn content(machine: &Machine) -> String {
    let Machine { name: _, description: _, features, tlb, guest, .. } = machine;
    let Features { pcid, invpcid, pge } = features;
    let Tlb { l1, stlb, stlb_pcids: _, l1_keeps_pcids: _ } = tlb;
    let mut text = format!("{pcid} {invpcid} {pge}\n");
    for array in l1.iter().chain(stlb) {
        let TlbArray { holds, index, policy, sets: _, ways: _ } = array;
        line(&mut text, format_args!("{holds:?} {index:?} {policy:?}"));
    }
    if let Some(guest) = guest {
        let Guest { fracturing, references_per_reference: _, reference_cycles: _ } = guest;
        line(&mut text, format_args!("{fracturing:?}"));
    }
    for (name, quantity) in machine.quantities() {
        line(&mut text, format_args!("{name} {}", quantity.value));
    }
    text
}

fn line(text: &mut String, said: std::fmt::Arguments<'_>) {
    writeln!(text, "{said}").expect("a String takes all");
}

#[cfg(test)]
mod tests {
    use tlbkit_machine::{Index, ReplacementPolicy, Size, Switch};

    use super::*;

    const FILE: &str = include_str!("../../../../../sim/machines/recent-vm.toml");

    fn machine() -> Machine {
        Machine::builtin("recent-vm").unwrap()
    }

    #[test]
    fn it_changes_with_what_decides_a_run() {
        let changes: [fn(&mut Machine); 8] = [
            |machine| machine.cycles.context_switch_base.value += 1.0,
            |machine| machine.tlb.stlb[0].ways.value -= 1.0,
            |machine| machine.tlb.stlb_pcids = None,
            |machine| machine.tlb.stlb[0].index = Index::Xor7,
            |machine| machine.tlb.l1[0].policy = ReplacementPolicy::TreePlru,
            |machine| machine.tlb.l1[0].holds.push(Size::Large),
            |machine| machine.features.pcid = false,
            |machine| machine.guest.as_mut().unwrap().fracturing = Switch::On,
        ];
        let mut prints = vec![of(&machine())];
        for change in changes {
            let mut other = machine();
            change(&mut other);
            prints.push(of(&other));
        }
        let all = prints.len();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), all, "two machines look the same");
    }

    #[test]
    fn it_does_not_change_with_names_sources_and_comments() {
        let mut text = FILE.to_owned();
        for (from, to) in [
            ("name = \"recent-vm\"", "# A word.\nname = \"mine\""),
            ("{ value = 2090, kind = \"calibrated\"", "{ value = 2090.0, kind = \"input\""),
            ("source = \"definition: fully associative\"", "source = \"I say so\""),
        ] {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        assert_eq!(of(&Machine::parse("m.toml", &text).unwrap()), of(&machine()));
    }

    #[test]
    fn it_is_frozen() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }
}
