//! What is stored comes back as it was, out of memory and out of a file.

use super::blocks::MEMORY_BYTES;
use super::{BLOCK_OPS, KeepingEvents, Ops, Storing};
use crate::op::{Cause, Extent, Fault, Op, OpKind, Party, Pattern, Space, Taken};
use proptest::prelude::*;
use tlbkit::Stride;
use tlbkit_trace::{Code, Event, EventKind, FaultMode, FlushReason, FlushSize, Names, Syscall};

fn stored(ops: &[Op]) -> Ops {
    let mut storing = Storing::default();
    ops.iter().for_each(|op| storing.push(op));
    storing.finish().expect("room for a temporary file")
}

fn read(ops: &Ops) -> Vec<Op> {
    let mut all = Vec::new();
    ops.for_each(|op| all.push(*op)).expect("it was written a moment ago");
    all
}

/// Small, large, and at every end.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..300, any::<u64>(), Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 63)]
}

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::DontNeed),
        Just(Cause::CopyOnWrite),
        Just(Cause::Call(Syscall::Munmap)),
        Just(Cause::Call(Syscall::Brk))
    ]
}

fn taken() -> impl Strategy<Value = Taken> {
    let stride = prop_oneof![Just(Stride::Page4K), Just(Stride::Page2M), Just(Stride::Page1G)];
    (number(), number(), stride, any::<bool>(), any::<bool>(), number()).prop_map(
        |(page, pages, stride, frees_tables, trims, freed)| Taken { page, pages, stride, frees_tables, trims, freed },
    )
}

fn kind() -> impl Strategy<Value = OpKind> {
    let fault = prop_oneof![Just(Fault::New), Just(Fault::Huge), Just(Fault::Other)];
    let because = proptest::option::of((cause(), number()).prop_map(|(cause, pages)| {
        let extent = Extent::of(pages);
        Pattern { cause, extent }
    }));
    let space = || any::<u32>().prop_map(Space);
    prop_oneof![
        space().prop_map(|space| OpKind::Run { space }),
        Just(OpKind::Idle),
        Just(OpKind::Call),
        (number(), fault, because).prop_map(|(page, fault, because)| OpKind::Touch { page, fault, because }),
        (space(), cause(), taken()).prop_map(|(space, cause, taken)| OpKind::Revoke { space, cause, taken }),
        (space(), cause()).prop_map(|(space, cause)| OpKind::Retire { space, cause }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let party = prop_oneof![Just(Party::Asked), Just(Party::Other)];
    (number(), any::<u32>(), party, kind()).prop_map(|(time_ns, cpu, party, kind)| {
        let comm = Names::UNKNOWN;
        Op { time_ns, cpu, comm, party, kind }
    })
}

proptest! {
    #[test]
    fn what_is_packed_comes_back(ops in proptest::collection::vec(op(), 0..100)) {
        prop_assert_eq!(read(&stored(&ops)), ops);
    }
}

fn touch(n: u64) -> Op {
    let kind = OpKind::Touch { page: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), fault: Fault::New, because: None };
    Op { time_ns: n, cpu: n as u32 % 3, comm: Names::UNKNOWN, party: Party::Asked, kind }
}

#[test]
fn more_than_fits_into_memory_is_read_from_a_file_as_often_as_wanted() {
    // Each takes eleven bytes and more.
    let ops: Vec<Op> = (0..(MEMORY_BYTES / 8) as u64).map(touch).collect();
    let stored = stored(&ops);
    assert!(stored.blocks.file.is_some() && stored.blocks.memory.len() <= MEMORY_BYTES);
    assert_eq!(stored.count(), ops.len() as u64);
    assert!((0..2).all(|_| read(&stored) == ops));
}

#[test]
fn what_is_found_to_trim_later_trims() {
    let taken = Taken::pages(7, 1, Stride::Page4K);
    let revoke = OpKind::Revoke { space: Space(1), cause: Cause::CopyOnWrite, taken };
    let ops: Vec<Op> = (0..3 * u64::from(BLOCK_OPS)).map(|n| Op { kind: revoke, ..touch(n) }).collect();
    let mut storing = Storing::default();
    ops.iter().for_each(|op| storing.push(op));
    let late = [9000, 5, u64::from(BLOCK_OPS), 5];
    late.into_iter().for_each(|number| storing.trims(number));
    let trims = |op: &Op| matches!(op.kind, OpKind::Revoke { taken, .. } if taken.trims);
    let all = read(&storing.finish().expect("in memory"));
    let found: Vec<u64> = all.iter().filter(|op| trims(op)).map(|op| op.time_ns).collect();
    assert_eq!(found, [5, u64::from(BLOCK_OPS), 9000]);
}

fn event_kind() -> impl Strategy<Value = EventKind> {
    let id = any::<i32>;
    let (code, path) = (Code::address(0), Names::UNKNOWN);
    let size = prop_oneof![Just(FlushSize::All), number().prop_map(FlushSize::Pages)];
    let reason = proptest::sample::select(FlushReason::ALL.to_vec());
    let call = || proptest::sample::select(Syscall::ALL.to_vec());
    let args = proptest::collection::vec(number(), 5).prop_map(|args| [args[0], args[1], args[2], args[3], args[4]]);
    let switch = move |(prev, prev_is_runnable, next)| EventKind::Switch {
        prev,
        prev_comm: path,
        prev_is_runnable,
        next,
        next_comm: Names::UNKNOWN,
    };
    let fault = move |(address, error_code)| EventKind::Fault { mode: FaultMode::User, address, ip: code, error_code };
    let enter = |(call, mut args): (Syscall, [u64; 5])| {
        args[call.arguments().len()..].fill(0);
        EventKind::Enter { call, args }
    };
    prop_oneof![
        Just(EventKind::Lost { count: 0 }),
        (id(), any::<bool>(), id()).prop_map(switch),
        (reason, size).prop_map(|(reason, size)| EventKind::TlbFlush { reason, size }),
        any::<u32>().prop_map(move |cpu| EventKind::CallQueue { cpu, callsite: code, func: code, csd: 0 }),
        (id(), id()).prop_map(move |(parent, child)| EventKind::Fork { parent, child, child_comm: path }),
        (id(), id()).prop_map(move |(tid, old_tid)| EventKind::Exec { path, tid, old_tid }),
        id().prop_map(|tid| EventKind::Exit { tid, is_last: false }),
        (number(), any::<u32>()).prop_map(fault),
        (call(), args).prop_map(enter),
        (call(), number()).prop_map(|(call, result)| EventKind::Leave { call, result: result.cast_signed() }),
    ]
}

/// An event as it comes back, but for who leaves at a switch.
fn event() -> impl Strategy<Value = Event> {
    (number(), 0u32..5, 0i32..3, event_kind()).prop_map(|(time_ns, cpu, tid, mut kind)| {
        if let EventKind::Switch { prev, .. } = &mut kind {
            *prev = tid;
        }
        Event { time_ns, cpu, pid: tid, tid, comm: Names::UNKNOWN, stack: None, kind }
    })
}

proptest! {
    #[test]
    fn events_come_back_unless_they_tell_nothing_new(events in proptest::collection::vec(event(), 0..100)) {
        let mut keeping = KeepingEvents::default();
        events.iter().for_each(|event| keeping.push(event));
        let (mut kept, mut told) = (Vec::new(), Vec::new());
        keeping.finish().expect("in memory").for_each(|event| kept.push(*event)).expect("in memory");
        for (n, event) in events.iter().enumerate() {
            let before = events[..n].iter().rfind(|before| before.cpu == event.cpu);
            let is_known = before.is_some_and(|before| {
                let is_of_a_switch = matches!(
                    before.kind,
                    EventKind::Switch { .. } | EventKind::TlbFlush { reason: FlushReason::TaskSwitch, .. }
                );
                before.tid == event.tid && !is_of_a_switch
            });
            if !is_known || !matches!(event.kind, EventKind::Lost { .. }) {
                told.push(*event);
            }
        }
        prop_assert_eq!(kept, told);
    }
}
