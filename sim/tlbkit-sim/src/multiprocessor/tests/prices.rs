//! Each price of the machine is paid once. It is raised by some cycles, and somebody does what it is paid for: then the
//! accounts hold so much more for each time, on the account on which it belongs, and nowhere else. What is charged
//! twice, with the clock moving along, balances; this finds it.

use tlbkit::sync::fence;
use tlbkit::{Cr3, Event, Invlpgb, Invpcid, Pcid, VirtAddr};
use tlbkit_arch::Pte;

use super::*;
use crate::code::{CallLines, LinesOf};
use crate::lines::Lines;
use crate::mmu::{Access, Overlap, Tables};
use crate::multiprocessor::costs::Costs;
use crate::multiprocessor::{CallKind, Port, Ring, answer_flush};
use crate::observer::Ledger;

const DEARER_CYCLES: u64 = 64;
/// Somewhere in the program's half.
const PAGE: VirtAddr = VirtAddr(0x7000);
const ROOT: PhysAddr = PhysAddr(1 << 20);

/// What is paid for, its price, who does it, how often each account pays for that, and on which machine.
struct Price {
    what: &'static str,
    of: fn(&mut Costs) -> &mut u64,
    act: Part,
    paid: &'static [(Cause, u64)],
    on: &'static str,
}

const ONE_SOCKET: &str = "recent-bare";
const TWO_SOCKETS: &str = "server-2018-48cpu";

const fn price(what: &'static str, of: fn(&mut Costs) -> &mut u64, paid: &'static [(Cause, u64)], act: Part) -> Price {
    Price { what, of, act, paid, on: ONE_SOCKET }
}

fn with_port(machine: &'static Multiprocessor, body: impl FnOnce(&Port)) {
    machine.with_cpu(0, |cpu| body(cpu.hardware()));
}

/// What both CPUs have spent when CPU 0 has done it, and CPU 1 waits for interrupts.
fn spent_on(price: &Price, dearer: u64) -> Ledger {
    let raise = |machine: &mut Multiprocessor| {
        *(price.of)(&mut machine.costs) += dearer;
        machine.processors[0].charge_to(Cause::Kernel);
        machine.lines = Lines::new(machine.costs.lines, machine.topology, 2).into();
    };
    let wait: Part = |machine, _| {
        machine.halt();
        machine.sync(NEVER);
    };
    let end = |machine: &Multiprocessor| {
        let mut sum = machine.processor(0).ledger();
        sum.add(&machine.processor(1).ledger());
        assert_eq!(sum.total(), machine.processor(0).now() + machine.processor(1).now());
        sum
    };
    play_to_the_end(price.on, Code::TLBKIT, raise, [price.act, wait], |machine, _| end(machine))
}

/// What CPU 1 waits for is what CPU 0 takes longer, if that interrupts it.
const PRICES: &[Price] = &[
    price(
        "INVLPG",
        |it| &mut it.invlpg,
        &[(Cause::Kernel, 1)],
        |machine, _| {
            with_port(machine, |port| port.invlpg(PAGE));
        },
    ),
    price(
        "a CR3 write that flushes",
        |it| &mut it.cr3_flush,
        &[(Cause::Kernel, 1)],
        |machine, _| {
            with_port(machine, |port| port.write_cr3(Cr3::flushing(ROOT, Pcid(1))));
        },
    ),
    price(
        "a CR3 write that keeps",
        |it| &mut it.cr3_keep,
        &[(Cause::Kernel, 1)],
        |machine, _| {
            with_port(machine, |port| port.write_cr3(Cr3::keeping(ROOT, Pcid(1))));
        },
    ),
    price(
        "a change of CR4.PGE",
        |it| &mut it.cr4_pge_toggle,
        &[(Cause::Kernel, 1)],
        |machine, _| {
            with_port(machine, |port| port.toggle_pge());
        },
    ),
    price(
        "INVLPGB",
        |it| &mut it.invlpgb,
        &[(Cause::FlushSend, 1)],
        |machine, _| {
            with_port(machine, |port| port.invlpgb(Invlpgb::Single(Pcid(16))));
        },
    ),
    price(
        "TLBSYNC",
        |it| &mut it.tlbsync,
        &[(Cause::FlushWait, 1)],
        |machine, _| {
            with_port(machine, |port| port.tlbsync());
        },
    ),
    price(
        "INVPCID of an address",
        |it| &mut it.invpcid_address,
        &[(Cause::Kernel, 1)],
        |machine, _| {
            with_port(machine, |port| port.invpcid(Invpcid::Address(Pcid(1), PAGE)));
        },
    ),
    price(
        "INVPCID of a PCID",
        |it| &mut it.invpcid_single,
        &[(Cause::Kernel, 1)],
        |machine, _| {
            with_port(machine, |port| port.invpcid(Invpcid::Single(Pcid(1))));
        },
    ),
    price(
        "INVPCID of all",
        |it| &mut it.invpcid_all,
        &[(Cause::Kernel, 2)],
        |machine, _| {
            with_port(machine, |port| {
                [Invpcid::All, Invpcid::AllAndGlobals].into_iter().for_each(|all| port.invpcid(all))
            });
        },
    ),
    price(
        "PAUSE of the protocol",
        |it| &mut it.pause,
        &[(Cause::LockSpin, 1), (Cause::FlushWait, 1)],
        |machine, _| {
            with_port(machine, |port| {
                port.relax();
                machine.running().within(Cause::FlushWait, || port.relax());
            });
        },
    ),
    price("PAUSE of the kernel", |it| &mut it.pause, &[(Cause::LockSpin, 1)], |machine, _| machine.pause()),
    price("a fence", |it| &mut it.full_fence, &[(Cause::Kernel, 1)], |_, _| fence(Ordering::SeqCst)),
    price(
        "a hit",
        |it| &mut it.lines.local_cycles,
        &[(Cause::Kernel, 2)],
        |_, shared| {
            (0..3).for_each(|_| assert_eq!(shared.word.0.load(ORDER), 0));
        },
    ),
    price(
        "a transfer",
        |it| &mut it.lines.same_socket_cycles,
        &[(Cause::Kernel, 1)],
        |_, shared| {
            (0..3).for_each(|_| assert_eq!(shared.word.0.load(ORDER), 0));
        },
    ),
    price(
        "a locked operation",
        |it| &mut it.lines.locked_cycles,
        &[(Cause::Kernel, 2)],
        |_, shared| {
            (0..2).for_each(|_| _ = shared.word.0.fetch_add(1, ORDER));
        },
    ),
    price(
        "an interrupt, sent",
        |it| &mut it.ipi_send,
        &[(Cause::FlushSend, 1), (Cause::Idle, 1)],
        |machine, _| {
            with_port(machine, |port| port.send_ipi(CpuId(1)));
        },
    ),
    price(
        "an interrupt to all others, sent",
        |it| &mut it.ipi_send_shorthand,
        &[(Cause::FlushSend, 1), (Cause::Idle, 1)],
        |machine, _| with_port(machine, |port| port.send_ipi_to_others()),
    ),
    price(
        "a wake-up, sent",
        |it| &mut it.ipi_send,
        &[(Cause::Kernel, 1), (Cause::Idle, 1)],
        |machine, _| {
            machine.send_kick(1);
        },
    ),
    price(
        "an interrupt on its way",
        |it| &mut it.ipi_same_socket,
        &[(Cause::Idle, 1)],
        |machine, _| {
            with_port(machine, |port| port.send_ipi(CpuId(1)));
        },
    ),
    Price {
        on: TWO_SOCKETS,
        ..price(
            "an interrupt on its way to another socket",
            |it| &mut it.ipi_cross_socket,
            &[(Cause::Idle, 1)],
            |machine, _| {
                with_port(machine, |port| port.send_ipi(CpuId(1)));
            },
        )
    },
    price(
        "the end of sleep",
        |it| &mut it.idle_wake,
        &[(Cause::Idle, 1)],
        |machine, _| {
            // CPU 1 sleeps by then.
            machine.sleep_until(1, Cause::Kernel);
            machine.send_kick(1);
        },
    ),
    price(
        "an interrupt, taken",
        |it| &mut it.interrupt,
        &[(Cause::Interrupt, 1)],
        |machine, _| {
            with_port(machine, |port| port.send_ipi(CpuId(1)));
        },
    ),
    price("the begin of a flush", |it| &mut it.calls.flush_begin, &[(Cause::FlushLocal, 1)], flush_and_ask),
    price("the local half of a flush", |it| &mut it.calls.flush_local, &[(Cause::FlushLocal, 1)], flush_and_ask),
    price("the choice of CPUs", |it| &mut it.calls.flush_choose, &[(Cause::FlushSend, 1)], flush_and_ask),
    price("asking any CPU", |it| &mut it.calls.flush_ask, &[(Cause::FlushSend, 1)], flush_and_ask),
    price("asking a CPU", |it| &mut it.calls.flush_told, &[(Cause::FlushSend, 3)], flush_and_ask),
    price("leaving a CPU alone", |it| &mut it.calls.flush_skipped, &[(Cause::FlushSend, 5)], flush_and_ask),
    price(
        "a request, carried out",
        |it| &mut it.calls.request,
        &[(Cause::Interrupt, 1)],
        |machine, _| {
            let answer =
                |port: &Port| [Event::AnswerBegin, Event::AnswerEnd].iter().for_each(|of| port.event(of(CpuId(1))));
            machine.running().within(Cause::Interrupt, || with_port(machine, answer));
        },
    ),
    price(
        "the handler",
        |it| &mut it.calls.handler,
        &[(Cause::Interrupt, 1)],
        |machine, _| {
            machine.running().within(Cause::Interrupt, || answer_flush(machine, 0, Ring::Kernel));
        },
    ),
];

/// A flush that looks at CPUs twice.
fn flush_and_ask(machine: &'static Multiprocessor, _: &Shared) {
    let events = [
        Event::FlushBegin(1),
        Event::FlushLocalDone,
        Event::Chosen { asked: 0, skipped: 3 },
        Event::Chosen { asked: 1, skipped: 2 },
        Event::Chosen { asked: 2, skipped: 0 },
        Event::FlushEnd,
    ];
    with_port(machine, |port| events.iter().for_each(|event| port.event(*event)));
}

#[test]
fn each_price_is_paid_once_by_who_has_to() {
    let mut wrong = Vec::new();
    for price in PRICES {
        let (before, after) = (spent_on(price, 0), spent_on(price, DEARER_CYCLES));
        for cause in Cause::ALL {
            let times: u64 = price.paid.iter().filter(|(on, _)| *on == cause).map(|(_, times)| times).sum();
            let (longer, expected) = (after.of(cause) - before.of(cause), times * DEARER_CYCLES);
            if longer != expected {
                wrong.push(format!("{}: {longer} cycles longer on {cause:?}, not {expected}", price.what));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every address is mapped, to the frame of the only table.
struct OneTable;

impl Tables for OneTable {
    fn read(&self, _: PhysAddr) -> u64 {
        ROOT.0 | Pte::PRESENT | Pte::WRITE | Pte::USER
    }

    fn set_accessed_dirty(&self, _: PhysAddr, _: u64) {}
}

#[test]
fn a_walk_is_paid_once_and_two_hits_are_a_cycle() {
    let part: Part = |machine, _| {
        with_port(machine, |port| port.write_cr3(Cr3::flushing(ROOT, Pcid::KERNEL)));
        let (cpu, began) = (machine.running(), machine.running().now());
        let load = || cpu.access_as_user(PAGE.0, Access::Read, Overlap::Independent, &OneTable).map(drop);
        assert_eq!(load(), Ok(()));
        let walked = cpu.mmu().counters().walk_cycles;
        (0..4).for_each(|_| assert_eq!(load(), Ok(())));
        cpu.load_as_kernel(!0 << 47, &OneTable).expect("a page");
        let walked_by_kernel = cpu.mmu().counters().walk_cycles - walked;
        let spent = [Cause::WalkUser, Cause::User, Cause::WalkKernel].map(|cause| spent(machine, 0, cause));
        assert!(walked > 0 && walked_by_kernel > 0);
        assert_eq!(spent, [walked, 2, walked_by_kernel]);
        assert_eq!(cpu.now() - began, spent.iter().sum());
    };
    play_on(ONE_SOCKET, Code::TLBKIT, [part, |_, _| ()]);
}

/// A price that is new is named here, and beside the others or in the tests of runs.
#[test]
fn each_price_has_its_test() {
    let model = Machine::builtin(ONE_SOCKET).expect("a built-in machine");
    let Costs {
        // Those above.
        invlpg: _,
        invlpgb: _,
        tlbsync: _,
        cr3_flush: _,
        cr3_keep: _,
        cr4_pge_toggle: _,
        invpcid_address: _,
        invpcid_single: _,
        invpcid_all: _,
        interrupt: _,
        ipi_send: _,
        ipi_send_shorthand: _,
        ipi_same_socket: _,
        ipi_cross_socket: _,
        idle_wake: _,
        full_fence: _,
        calls: _,
        pause: _,
        // What the kernel pays, in `tests/sim/accounts.rs`.
        page_fault: _,
        syscall: _,
        halt_entry: _,
        context_switch: _,
        zero_page: _,
        give_back_page: _,
        copy_page: _,
        pte_access: _,
        // Work under the lock of lists, in `lru_lock.rs`.
        instruction_cycles: _,
        // Lines within a group, in the tests of `lines`.
        lines: _,
        // No price.
        time_slice: _,
        smt_percent: _,
        frequency_mhz: _,
    } = Costs::new(&model, &Policy::DEFAULT, Code::TLBKIT);
}

/// The first call after much other work waits for its lines, the second finds them near.
#[test]
fn what_a_cold_call_waits_is_paid_once() {
    let part: Part = |machine, shared| {
        let cpu = machine.running();
        let spent_by = |act: Part| {
            let before = cpu.ledger();
            act(machine, shared);
            [Cause::FlushLocal, Cause::FlushSend, Cause::Interrupt]
                .map(|cause| cpu.ledger().of(cause) - before.of(cause))
        };
        let answer: Part = |machine, _| {
            machine.running().within(Cause::Interrupt, || answer_flush(machine, 0, Ring::Kernel));
        };
        let waits = |kind, lines: fn(&LinesOf) -> CallLines| machine.cold_cycles(0, kind, lines);
        // Lines that CPUs share are fetched, and so are others, which then are pushed out.
        _ = [flush_and_ask, answer].map(spent_by);
        cpu.advance_for(Cause::User, 1 << 30);
        let cold = [flush_and_ask, answer].map(spent_by);
        let (flush, ask) = (waits(CallKind::Flush, |of| of.flush), waits(CallKind::Flush, |of| of.ask));
        let expected = [[flush, ask, 0], [0, 0, waits(CallKind::Answer, |of| of.answer)]];
        assert!(flush > 0 && ask > 0 && expected[1][2] > 0, "{expected:?}");
        let warm = [flush_and_ask, answer].map(spent_by);
        let longer = [0, 1].map(|act| [0, 1, 2].map(|on| cold[act][on] - warm[act][on]));
        assert_eq!(longer, expected);
    };
    play_on(TWO_SOCKETS, Code::TLBKIT, [part, |_, _| ()]);
}
