//! The machine files that come with the program are right, and wrong files are refused in one line.

use super::{MOST_CPUS, Machine, MachineError, NumberKind};

const GOOD: &str = include_str!("../../machines/skylake-laptop-kvm.toml");

/// The message for the good file with the first `from` replaced.
fn message_with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the file has {from}");
    Machine::parse("m.toml", &GOOD.replacen(from, to, 1)).expect_err("the file is wrong").to_string()
}

/// The line, from one, on which `text` first stands in the good file.
fn line_of(text: &str) -> usize {
    1 + GOOD.lines().position(|line| line.contains(text)).expect("the file has it")
}

#[test]
fn every_machine_of_the_program_is_valid() {
    assert_eq!(Machine::names().count(), 25);
    for name in Machine::names() {
        let machine = Machine::builtin(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(machine.name, name);
    }
}

#[test]
fn sourced_numbers_arrive_where_they_belong() {
    let machine = Machine::builtin("skylake-laptop-kvm").unwrap();
    assert_eq!(machine.system.frequency_mhz.count(), 2300);
    assert_eq!(machine.cycles.invlpg.cycles(), 195);
    assert_eq!(machine.cycles.invlpg.kind, NumberKind::Input);
}

#[test]
fn quantities_are_listed_with_their_names() {
    let machine = Machine::builtin("server-2008-8cpu").unwrap();
    let all = machine.quantities();
    let sets = all.iter().find(|(name, _)| name == "tlb.stlb[0].sets").expect("array sizes are listed");
    assert_eq!(sets.1.count(), 128);
    assert!(all.iter().any(|(name, _)| name == "cycles.invlpg"));
    assert!(!all.iter().any(|(name, _)| name == "cycles.invpcid_all"), "this CPU has no INVPCID");
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = Machine::builtin("pdp-11").unwrap_err().to_string();
    assert!(error.contains("pdp-11") && error.contains("zen4"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Machine::load("no/such/machine.toml").unwrap_err();
    assert!(matches!(error, MachineError::Read { .. }));
    assert!(error.to_string().ends_with(" no/such/machine.toml"), "{error}");
}

#[test]
fn a_file_is_loaded_by_path() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../machines/zen4.toml");
    assert_eq!(Machine::load(path).unwrap(), Machine::builtin("zen4").unwrap());
}

#[test]
fn wrong_numbers_give_one_line_with_place_value_and_limit() {
    let line = line_of("frequency_mhz");
    assert_eq!(
        message_with("value = 2300,", "value = 23,"),
        format!("m.toml:{line}: system.frequency_mhz = 23: must be 100 to 10000")
    );
    let line = line_of("pml4e");
    let message = message_with("pml4e = { value = 4,", "pml4e = { value = 4.5,");
    assert_eq!(message, format!("m.toml:{line}: psc.pml4e = 4.5: must be a whole number"));
    let message = message_with("cr3_keep = { value = 145,", "cr3_keep = { value = 5,");
    assert_eq!(message, format!("m.toml:{}: cycles.cr3_keep = 5: must be in its band 100 to 190", line_of("cr3_keep")));
}

#[test]
fn a_prior_needs_a_band_and_everything_a_source() {
    let message = message_with(r#", band = [100, 190]"#, "");
    assert!(message.ends_with("cycles.cr3_keep = 145: is a prior and needs a band"), "{message}");
    let message = message_with(r#"source = "document 000: a laptop""#, r#"source = " ""#);
    assert!(message.ends_with("system.sockets = 1: needs a source"), "{message}");
}

#[test]
fn wrong_shapes_give_one_line_too() {
    let line = line_of("invlpg =");
    let message = message_with("invlpg = {", "invplg = {");
    assert!(message.starts_with(&format!("m.toml:{line}: invplg = {{")), "{message}");
    assert!(message.contains("...: no such field is known; must be one of `invlpg`"), "{message}");
    assert!(!message.contains('\n'), "{message}");
    let message = message_with("[psc]", "[psc");
    assert!(message.starts_with(&format!("m.toml:{}: ", line_of("[psc]"))) && !message.contains('\n'), "{message}");
    let message = message_with("kind = \"input\"", "kind = \"guess\"");
    assert!(message.contains(".kind = \"guess\": must be one of `input`"), "{message}");
    let message = message_with("invlpg = { value = 195,", "invlpg = { value = \"many\",");
    assert_eq!(message, format!("m.toml:{line}: invlpg.value = \"many\": must be a number"));
    let message = message_with("[psc]", "\u{1b}[31m[psc]");
    assert!(!message.contains(char::is_control), "{message:?}");
    let message = message_with("pge = true\n", "");
    assert!(message.contains(": features.pge: is missing"), "{message}");
}

/// The message of what is wrong with `syscall`, which is `written`, behind file, line and section.
fn of_syscall(written: &str) -> String {
    let old = GOOD.lines().find(|line| line.starts_with("syscall = ")).unwrap();
    let message = message_with(old, &format!("syscall = {written}"));
    let begin = format!("m.toml:{}: ", line_of("syscall = "));
    message.strip_prefix(&begin).unwrap_or_else(|| panic!("{message}")).to_owned()
}

#[test]
fn what_the_parser_objects_to_is_said_in_words_of_the_file() {
    let number = r#"value = 5, kind = "prior", source = "x""#;
    let band = |band: &str| of_syscall(&format!("{{ {number}, band = {band} }}"));
    let two = "two numbers, the lowest and the highest";
    assert_eq!(of_syscall("5"), r#"syscall = 5: must be { value = NUMBER, kind = "KIND", source = "WHERE FROM" }"#);
    assert_eq!(band("5"), format!("syscall.band = 5: must be {two}"));
    assert_eq!(band("[1]"), format!("syscall.band = [1]: must be {two}"));
    assert_eq!(band("[1, 9, 2]"), format!("syscall.band = [1, 9, 2]: must be {two}"));
    assert_eq!(band("[\"a\", 9]"), "syscall.band = \"a\": must be a number");
    assert_eq!(of_syscall("{ value = 5 }"), "syscall.kind: is missing");
    assert_eq!(of_syscall(""), "syscall: needs a value");
    let known = "must be one of `value`, `kind`, `source`, `band`";
    assert_eq!(
        of_syscall(&format!("{{ {number}, bnd = 5 }}")),
        format!("syscall.bnd = 5: no such field is known; {known}")
    );
    let line = line_of("[cycles]");
    let old = GOOD.lines().find(|line| line.starts_with("syscall = ")).unwrap();
    assert_eq!(message_with(old, ""), format!("m.toml:{line}: cycles.syscall: is missing"));
    assert!(message_with("pge = true", "pge = 1").ends_with(": pge = 1: must be true or false"));
    let word = format!("features = 1\n{}", GOOD.replacen("[features]", "[others]", 1));
    let message = Machine::parse("m.toml", &word).unwrap_err().to_string();
    assert_eq!(message, "m.toml:1: features = 1: must be a section of fields");
}

#[test]
fn a_band_has_two_finite_ends_in_their_order() {
    let limit = "must be two finite numbers, none below 0, and the lower one first";
    for (band, shown) in
        [("[600, 70]", "[600, 70]"), ("[-1, 700]", "[-1, 700]"), ("[1, inf]", "[1, inf]"), ("[nan, 700]", "[NaN, 700]")]
    {
        let message = of_syscall(&format!("{{ value = 650, kind = \"prior\", source = \"x\", band = {band} }}"));
        assert_eq!(message, format!("cycles.syscall.band = {shown}: {limit}"));
    }
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let message = message_with("invpcid = true", "invpcid = false");
    assert!(message.contains("cycles.invpcid_address = 348: is a cost of a feature that the CPU lacks"), "{message}");
    let cost = GOOD.lines().find(|line| line.starts_with("invpcid_all")).unwrap();
    let message = message_with(cost, "");
    assert!(message.contains("cycles.invpcid_all: is missing although the CPU has the feature"), "{message}");
    let odd = GOOD.replacen("cpus = { value = 4,", "cpus = { value = 5,", 1);
    let odd = odd.replacen("smt = { value = 1,", "smt = { value = 2,", 1);
    let message = Machine::parse("m.toml", &odd).unwrap_err().to_string();
    let line = line_of("smt =");
    assert_eq!(message, format!("m.toml:{line}: system.smt = 2: must divide the 5 CPUs of a socket"));
    let message = message_with("sockets = { value = 1,", "sockets = { value = 3,");
    assert_eq!(message, format!("m.toml:{}: system.cpus = 4: must be a multiple of sockets, 3", line_of("cpus =")));
}

#[test]
fn groups_of_cores_divide_a_socket_and_are_no_farther_than_it() {
    let text = Machine::text("milan-36core").unwrap();
    let message_with = |field: &str, line: &str| {
        let old = text.lines().find(|line| line.starts_with(&format!("{field} = "))).unwrap();
        Machine::parse("m.toml", &text.replacen(old, line, 1)).unwrap_err().to_string()
    };
    let with = |field: &str, value: u32| {
        message_with(field, &format!("{field} = {{ value = {value}, kind = \"input\", source = \"a test\" }}"))
    };
    for (message, expected) in [
        (with("groups", 7), "system.groups = 7: must divide the 36 cores of a socket"),
        (with("same_group_cycles", 5000), "cache_line.same_group_cycles = 5000: at most same_socket_cycles, 321"),
        (message_with("groups", ""), "cache_line.same_group_cycles = 69: needs system.groups"),
        (message_with("same_group_cycles", ""), "system.groups = 6: needs cache_line.same_group_cycles"),
        (with("smt", 4), "system.smt = 4: must be"),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_machine_has_no_more_cpus_than_a_run() {
    let written = GOOD.lines().find(|line| line.starts_with("cpus = ")).unwrap();
    let with = |cpus: usize| {
        let line = format!("cpus = {{ value = {cpus}, kind = \"input\", source = \"a test\" }}");
        Machine::parse("m.toml", &GOOD.replacen(written, &line, 1))
    };
    assert_eq!(with(MOST_CPUS).unwrap().system.cpus.count(), MOST_CPUS);
    let message = with(MOST_CPUS + 1).unwrap_err().to_string();
    assert!(message.ends_with(&format!("system.cpus = {}: must be 1 to {MOST_CPUS}", MOST_CPUS + 1)), "{message}");
}

#[test]
fn array_shapes_that_no_policy_fits_are_refused() {
    let message = message_with("sets = { value = 16,", "sets = { value = 15,");
    assert!(message.contains("tlb.l1[0].sets = 15: must be a power of two"), "{message}");
    let message = message_with("policy = \"tree-plru\"", "policy = \"rotating-plru4\"");
    assert!(message.contains("tlb.l1[0].ways = 4: must be 12"), "{message}");
    let message = message_with("holds = [\"2M\"]", "holds = [\"4K\"]");
    assert!(message.contains("tlb.l1[1].holds = 4K: must be held by one array of a level, once"), "{message}");
    let message = message_with("holds = [\"2M\"]", "holds = [\"2M\", \"2M\"]");
    assert!(message.contains("tlb.l1[1].holds = 2M: must be held by one array of a level, once"), "{message}");
    let message = message_with("holds = [\"4K\"]", "holds = []");
    assert!(message.contains("no array holds 4K pages"), "{message}");
}
