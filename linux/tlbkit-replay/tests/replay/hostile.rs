//! Events that no kernel writes: a file from elsewhere may have them. Neither deduction nor replay nor blame panics.

use proptest::prelude::*;
use tlbkit::Policy;
use tlbkit_machine::Machine;
use tlbkit_replay::{Recording, replay};
use tlbkit_trace::{
    Blame, Code, Edge, Error, Event, EventKind, FaultMode, FlushReason, FlushSize, Health, Names, Source, Syscall,
};

/// Events out of memory.
struct Events {
    events: std::vec::IntoIter<Event>,
    names: Names,
    health: Health,
}

impl Source for Events {
    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        Ok(self.events.next())
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

/// Few places, so that events meet: inside huge pages, at the edges of tables, and at every end of the addresses.
fn address() -> impl Strategy<Value = u64> {
    let near = prop_oneof![
        6 => Just(0x7f00_0000_0000u64),
        1 => Just(0u64),
        1 => Just(1u64 << 47),
        1 => Just(1u64 << 63),
        1 => Just(u64::MAX)
    ];
    (near, 0u64..4, prop_oneof![Just(0u64), Just(1), Just(4096), Just(511 << 12)], any::<bool>()).prop_map(
        |(near, tables, inside, is_below)| {
            let by = (tables << 21) + inside;
            if is_below { near.wrapping_sub(by) } else { near.wrapping_add(by) }
        },
    )
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (1u64..4).prop_map(|tables| tables << 21),
        2 => (0u64..4).prop_map(|pages| pages << 12),
        1 => Just(64u64 << 20),
        1 => Just(1u64 << 47),
        1 => Just(u64::MAX)
    ]
}

fn call() -> impl Strategy<Value = (Syscall, [u64; 5], i64)> {
    use Syscall::{Brk, Clone, Madvise, Mmap, Mprotect, Mremap, Munmap};
    let seldom = prop_oneof![Just(Madvise), Just(Mprotect), Just(Brk), Just(Clone)];
    let call = prop_oneof![3 => Just(Mmap), 3 => Just(Mremap), 2 => Just(Munmap), 4 => seldom];
    let flags =
        prop_oneof![4 => Just(0x22u64), 1 => Just(0x21), 1 => Just(0x32), 1 => Just(0x2_0022), 1 => Just(0x4022)];
    let rights = prop_oneof![4 => Just(3u64), 1 => Just(0), 1 => Just(1), 1 => Just(4)];
    (call, address(), bytes(), bytes(), flags, rights, address()).prop_map(
        |(call, at, bytes, new_bytes, flags, rights, to)| {
            let args = match call {
                Mremap => [at, bytes, new_bytes, 1, to],
                Brk | Clone => [to, 0, 0, 0, 0],
                Madvise => [at, bytes, 4 + (rights & 4), 0, 0],
                _ => [at, bytes, rights, flags, 0],
            };
            let result = if matches!(call, Mmap | Mremap | Brk) { to as i64 } else { 0 };
            (call, args, result)
        },
    )
}

/// What a thread does; a call and its end are one.
fn deed() -> impl Strategy<Value = Vec<EventKind>> {
    use EventKind::{CallQueue, CallRun, Enter, Exec, Exit, Fault, Fork, Leave, Map, Sample, Switch, TlbFlush};
    let nobody = Names::UNKNOWN;
    let nowhere = Code::address(0);
    let size = prop_oneof![Just(FlushSize::All), bytes().prop_map(FlushSize::Pages)];
    let reason = (0..FlushReason::ALL.len()).prop_map(|index| FlushReason::ALL[index]);
    let tid = || 0i32..4;
    let switch = move |next| Switch { prev: 0, prev_comm: nobody, prev_is_runnable: true, next, next_comm: nobody };
    prop_oneof![
        8 => call().prop_map(|(call, args, result)| vec![Enter { call, args }, Leave { call, result }]),
        8 => (address(), prop_oneof![Just(4u32), Just(6), Just(7)])
            .prop_map(move |(address, error_code)| {
                vec![Fault { mode: FaultMode::User, address, ip: nowhere, error_code }]
            }),
        2 => (reason, size).prop_map(|(reason, size)| vec![TlbFlush { reason, size }]),
        1 => tid().prop_map(move |next| vec![switch(next)]),
        1 => (tid(), tid()).prop_map(move |(parent, child)| vec![Fork { parent, child, child_comm: nobody }]),
        1 => (tid(), tid()).prop_map(move |(tid, old_tid)| vec![Exec { path: nobody, tid, old_tid }]),
        1 => tid().prop_map(|tid| vec![Exit { tid, is_last: true }]),
        1 => address().prop_map(|at| vec![Sample { ip: Code::address(at) }]),
        1 => (prop_oneof![Just(0u32), Just(1), Just(u32::MAX)], 0u64..3)
            .prop_map(move |(cpu, csd)| vec![CallQueue { cpu, callsite: nowhere, func: nowhere, csd }]),
        1 => (any::<bool>(), 0u64..3).prop_map(move |(begins, csd)| {
            vec![CallRun { edge: if begins { Edge::Begin } else { Edge::End }, func: nowhere, csd }]
        }),
        1 => (address(), bytes())
            .prop_map(move |(address, bytes)| {
                vec![Map { address, bytes, offset: address, protection: 5, file: nobody }]
            }),
    ]
}

/// Mostly a microsecond later, once in a while at the end of time.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let step = prop_oneof![9 => Just(1000u64), 1 => Just(u64::MAX / 2)];
    let one = (0u32..2, 0i32..4, step, deed());
    proptest::collection::vec(one, 1..60).prop_map(|deeds| {
        let mut time_ns = 0u64;
        let mut events = Vec::new();
        for (cpu, tid, step, kinds) in deeds {
            time_ns = time_ns.saturating_add(step);
            let event = |kind| Event { time_ns, cpu, pid: 1, tid, comm: Names::UNKNOWN, stack: None, kind };
            events.extend(kinds.into_iter().map(event));
        }
        events
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_events_panic(events in events()) {
        let machine = Machine::builtin("recent-vm").expect("a machine");
        let policy = Policy::preset("linux-6.18").expect("a preset");
        let source = || Events {
            events: events.clone().into_iter(), names: Names::default(), health: Health::default(),
        };
        let recording = Recording::read(|| Ok(Box::new(source())), &|_, _, _| true).expect("good events");
        let most = &recording.deduced.most_pages;
        prop_assert!(most.iter().all(|&most| most == u64::MAX || most <= 1 << 35), "{most:?}");
        prop_assert!(replay(&recording, &[policy], &machine).is_ok());
        let (names, mut blame) = (Names::default(), Blame::default());
        events.iter().for_each(|event| blame.add(event, &names));
        let _shown = (blame.rows(), blame.cpu_ns(), blame.length_ns());
    }
}

/// Some seconds of them; more by `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(500)
}
