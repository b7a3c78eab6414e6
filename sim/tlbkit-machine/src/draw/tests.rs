//! What is drawn lies where it must, as often as it must, and is a machine.

use super::*;

/// A file of ours in which `field` is a prior of this value and band.
fn priors_with(field: &str, value: f64, band: [f64; 2]) -> Result<Priors, MachineError> {
    let text = Machine::text("recent-bare").unwrap();
    let of_field = |line: &&str| line.starts_with(&format!("{field} = "));
    let old = text.lines().find(of_field).expect("the file has it");
    let [low, high] = band;
    let new =
        format!("{field} = {{ value = {value:?}, kind = \"prior\", source = \"a test\", band = [{low:?}, {high:?}] }}");
    Priors::parse("m.toml", &text.replacen(old, &new, 1))
}

/// What is drawn for `name` by a thousand seeds, from the least to the most.
fn thousand(priors: &Priors, name: &str) -> Vec<f64> {
    let prior = priors.drawn().iter().find(|prior| prior.name.ends_with(name)).expect("it is drawn");
    let mut values: Vec<_> = (0..1000).map(|seed| prior.draw(seed, 0)).collect();
    values.sort_by(f64::total_cmp);
    values
}

#[test]
fn every_machine_of_the_program_is_drawn_and_nothing_but_its_priors_differs() {
    for name in Machine::names() {
        let priors = Priors::builtin(name).unwrap();
        assert!(priors.drawn().len() > 15 && priors.kept().len() > 5, "{name}");
        let file = Machine::builtin(name).unwrap();
        for seed in 1..=20 {
            let drawn = priors.draw(seed).unwrap_or_else(|error| panic!("{name} {seed}: {error}"));
            for ((field, new), (_, old)) in drawn.machine.quantities().into_iter().zip(file.quantities()) {
                match priors.drawn().iter().position(|prior| prior.name == field) {
                    Some(index) => {
                        assert!(old.kind == NumberKind::Prior, "{name} {field}");
                        let [low, high] = old.band.expect("a prior has one");
                        assert!(new.value == drawn.values[index], "{name} {field}");
                        assert!((low..=high).contains(&new.value), "{name} {field}: {}", new.value);
                    }
                    None => assert!(new.value == old.value, "{name} {field}"),
                }
            }
        }
    }
}

#[test]
fn counts_stay_and_so_does_what_is_no_prior_or_has_no_room() {
    let priors = Priors::builtin("ivybridge-8thread").unwrap();
    let is_drawn = |name: &str| priors.drawn().iter().any(|prior| prior.name == name);
    let is_kept = |name: &str| priors.kept().iter().any(|kept| kept == name);
    for count in ["tlb.l1[0].ways", "psc.pde", "walk.hot_lines", "caches.l2_sets", "apic.cpus_a_write"] {
        assert!(is_kept(count) && !is_drawn(count), "{count}");
    }
    for amount in ["cycles.syscall", "cycles.ipi_send", "software.instruction_cycles", "apic.pending_cycles"] {
        assert!(is_drawn(amount) && !is_kept(amount), "{amount}");
    }
    assert!(!is_drawn("cycles.invlpg") && !is_kept("cycles.invlpg"), "it is an input");
    let alone = priors_with("pause_cycles", 40.0, [40.0, 40.0]).unwrap();
    assert!(!alone.drawn().iter().any(|prior| prior.name == "software.pause_cycles"));
}

#[test]
fn half_of_the_draws_lie_on_each_side_of_the_value_evenly_by_their_logarithm() {
    let values = thousand(&priors_with("pause_cycles", 100.0, [1.0, 900.0]).unwrap(), "pause_cycles");
    let below = |limit: f64| values.iter().filter(|&&value| value < limit).count();
    for (limit, expected) in [(10.0, 250), (100.0, 500), (300.0, 750)] {
        assert!(below(limit).abs_diff(expected) < 50, "{} of 1000 below {limit}", below(limit));
    }
    assert!(values[0] >= 1.0 && values[999] <= 900.0 && values[0] < 1.1 && values[999] > 880.0);
}

#[test]
fn an_end_of_zero_is_drawn_on_a_linear_scale() {
    let priors = priors_with("pending_cycles", 100.0, [0.0, 900.0]).unwrap();
    let values = thousand(&priors, "pending_cycles");
    let below = |limit: f64| values.iter().filter(|&&value| value < limit).count();
    assert!(below(50.0).abs_diff(250) < 50 && below(300.0).abs_diff(750) < 50, "{} {}", below(50.0), below(300.0));
    let from_zero = thousand(&priors_with("pending_cycles", 0.0, [0.0, 100.0]).unwrap(), "pending_cycles");
    assert!(from_zero[490] == 0.0 && from_zero[510] > 0.0);
    assert!(from_zero.iter().filter(|&&value| value < 50.0).count().abs_diff(750) < 50);
}

/// Percent end at 100, whatever a band says; a clock has whole megahertz.
#[test]
fn a_draw_is_what_a_file_may_say() {
    let values = thousand(&priors_with("overlap_percent", 80.0, [48.0, 480.0]).unwrap(), "overlap_percent");
    assert!(values[999] <= 100.0 && values[999] > 99.0, "{}", values[999]);
    let clocks = thousand(&priors_with("frequency_mhz", 150.0, [50.5, 152.5]).unwrap(), "frequency_mhz");
    assert!(clocks.iter().all(|clock| clock.fract() == 0.0) && clocks[0] == 100.0 && clocks[999] == 152.0);
}

#[test]
fn a_seed_gives_one_machine_whatever_else_the_file_says() {
    let draw = |priors: &Priors, seed| {
        let values = priors.draw(seed).unwrap().values;
        priors.drawn().iter().map(|prior| prior.name.clone()).zip(values).collect::<Vec<_>>()
    };
    let file = Priors::builtin("recent-bare").unwrap();
    assert_eq!(draw(&file, 7), draw(&file, 7));
    assert_ne!(draw(&file, 7), draw(&file, 8));
    let known = priors_with("pause_cycles", 40.0, [40.0, 40.0]).unwrap();
    let others = draw(&file, 7).into_iter().filter(|(name, _)| name != "software.pause_cycles").collect::<Vec<_>>();
    assert_eq!(draw(&known, 7), others);
}

/// As drawn at first, every tenth machine has a line that comes sooner from another socket.
#[test]
fn what_is_far_is_never_nearer() {
    let priors = Priors::builtin("recent-bare").unwrap();
    let first = |seed| -> Vec<_> { priors.drawn().iter().map(|prior| prior.draw(seed, 0)).collect() };
    assert!((0..200).any(|seed| !priors.broken(&first(seed)).is_empty()), "nothing was ever drawn again");
    for seed in 0..200 {
        let lines = priors.draw(seed).unwrap().machine.cache_line;
        assert!(lines.same_socket_cycles.value <= lines.cross_socket_cycles.value, "{seed}");
    }
    let all: Vec<_> = Machine::names().flat_map(|name| Priors::builtin(name).unwrap().pairs).collect();
    for names in NO_MORE_THAN {
        assert!(all.iter().any(|pair| pair.names == names), "{names:?} are in no file, or never drawn");
    }
}

#[test]
fn bands_that_leave_no_such_draw_are_named() {
    let text = Machine::text("recent-bare").unwrap();
    let mut file = text.to_owned();
    for (field, kind) in [("local_hit", "input"), ("same_socket", "prior"), ("cross_socket", "input")] {
        let old = text.lines().find(|line| line.starts_with(&format!("{field}_cycles"))).unwrap();
        // No draw of four digits is the value.
        let numbers = format!("value = 100.01, kind = \"{kind}\", source = \"a test\", band = [50, 200]");
        file = file.replacen(old, &format!("{field}_cycles = {{ {numbers} }}"), 1);
    }
    let error = Priors::parse("m.toml", &file).unwrap().draw(1).unwrap_err().to_string();
    let line = 1 + file.lines().position(|line| line.starts_with("same_socket_cycles")).unwrap();
    let pairs = [("local_hit", "same_socket"), ("same_socket", "cross_socket")].map(|(less, more)| {
        format!(
            "m.toml:{line}: cache_line.{less}_cycles = 100.01: a draw inside the bands hardly ever has it at most \
             cache_line.{more}_cycles = 100.01, as the file has it"
        )
    });
    assert!(pairs.contains(&error), "{error}");
}
