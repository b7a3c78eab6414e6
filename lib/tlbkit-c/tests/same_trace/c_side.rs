//! The calls through the header's functions.

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use tlbkit::Reason;
use tlbkit_c::batch::{
    tlbkit_batch_begin, tlbkit_batch_finish, tlbkit_batch_flush, tlbkit_batch_hold, tlbkit_batch_revoke,
    tlbkit_batch_unmap, tlbkit_batch_unmap_table, tlbkit_drain,
};
use tlbkit_c::cpu::{
    tlbkit_answer, tlbkit_bring_up, tlbkit_declare_stopped, tlbkit_enter_kernel, tlbkit_enter_lazy,
    tlbkit_exit_to_user, tlbkit_is_running, tlbkit_load_kernel, tlbkit_loaded, tlbkit_missing, tlbkit_offline,
    tlbkit_set_ceiling, tlbkit_set_user_flush, tlbkit_switch_to,
};
use tlbkit_c::flush::{
    TLBKIT_FLUSH_EVERYTHING, TLBKIT_FLUSH_TABLES_FREED, tlbkit_flush_all_this_cpu, tlbkit_flush_kernel_range,
    tlbkit_flush_kernel_this_cpu, tlbkit_flush_loaded_this_cpu, tlbkit_flush_range, tlbkit_flush_range_alone,
    tlbkit_flush_this_cpu,
};
use tlbkit_c::gather::{
    Frames, tlbkit_gather_begin, tlbkit_gather_everything, tlbkit_gather_finish, tlbkit_gather_hold,
    tlbkit_gather_range, tlbkit_gather_tables_freed, tlbkit_gather_unmap, tlbkit_gather_unmap_table,
};
use tlbkit_c::gather::{tlbkit_gather_is_done, tlbkit_gather_issue, tlbkit_gather_poll, tlbkit_gather_wait};
use tlbkit_c::machine::{Setup, tlbkit_machine_init, tlbkit_matrix_words};
use tlbkit_c::ops::{HardwareOps, TLBKIT_FEATURE_INVPCID, TLBKIT_FEATURE_PCID};
use tlbkit_c::space::{tlbkit_set_words, tlbkit_space_generation, tlbkit_space_id};
use tlbkit_c::space::{tlbkit_space_destroy, tlbkit_space_destroy_later, tlbkit_space_init};
use tlbkit_c::status::Status;
use tlbkit_c::storage::{BatchStorage, CpuStateStorage, GatherStorage, MachineStorage, SpaceStorage};

use super::calls::{Call, End, Flag, Item, Part, Range, Side, Step};
use super::log::{self, CPUS, Did, Irqs};
use super::rust_side::{ROOTS, frame};

#[derive(Clone, Copy)]
pub(crate) struct World {
    machine: *mut MachineStorage,
    spaces: [*mut SpaceStorage; 2],
    #[cfg(feature = "reuse")]
    periods: *mut tlbkit_c::storage::GracePeriodsStorage,
}

const NOBODY: World = World {
    machine: ptr::null_mut(),
    spaces: [ptr::null_mut(); 2],
    #[cfg(feature = "reuse")]
    periods: ptr::null_mut(),
};

thread_local! {
    static WORLD: Cell<World> = const { Cell::new(NOBODY) };
}

unsafe extern "C" fn features(_cpu: u32) -> u32 {
    let features = log::features();
    let pcid = if features.pcid { TLBKIT_FEATURE_PCID } else { 0 };
    pcid | if features.invpcid { TLBKIT_FEATURE_INVPCID } else { 0 }
}

unsafe extern "C" fn write_cr3(cpu: u32, value: u64) {
    log::did(Did::Cr3(cpu, value));
}

unsafe extern "C" fn invlpg(cpu: u32, va: u64) {
    log::did(Did::Invlpg(cpu, va));
}

unsafe extern "C" fn invpcid(cpu: u32, kind: u32, pcid: u32, va: u64) {
    log::did(Did::Invpcid(cpu, u64::from(kind), pcid as u16, va));
}

unsafe extern "C" fn toggle_pge(cpu: u32) {
    log::did(Did::TogglePge(cpu));
}

unsafe extern "C" fn send_ipi(cpu: u32, to: u32) {
    log::interrupt(cpu, to);
}

unsafe extern "C" fn send_ipi_to_others(cpu: u32) {
    log::interrupt_others(cpu);
}

unsafe extern "C" fn relax(cpu: u32) {
    // SAFETY: the machine of this thread.
    log::deliver(cpu, |to| ok(unsafe { tlbkit_answer(WORLD.get().machine, to) }));
}

unsafe extern "C" fn irqs_enabled(cpu: u32) -> bool {
    log::irqs(cpu) == Irqs::On
}

unsafe extern "C" fn irqs_save(cpu: u32) -> u64 {
    log::save(cpu) as u64
}

unsafe extern "C" fn irqs_restore(cpu: u32, saved: u64) {
    log::restore(cpu, if saved == Irqs::On as u64 { Irqs::On } else { Irqs::Off });
}

fn number_of(space: *const SpaceStorage) -> usize {
    WORLD.get().spaces.iter().position(|&known| ptr::eq(known, space)).expect("a space that was made")
}

unsafe extern "C" fn last_lazy_reference(cpu: u32, space: *mut SpaceStorage) {
    log::did(Did::LastReference(cpu, number_of(space) as u64));
}

unsafe extern "C" fn root_here(cpu: u32, space: *const SpaceStorage) -> u64 {
    log::root(cpu, ROOTS[1 + number_of(space)])
}

unsafe extern "C" fn release(_context: *mut c_void, frame: u64) {
    log::did(Did::Frees(frame));
}

unsafe extern "C" fn note_missing(context: *mut c_void, missing: u32) {
    // SAFETY: `Call::Missing` gives its own word.
    unsafe { *context.cast::<u64>() |= 1 << missing };
}

static OPS: HardwareOps = HardwareOps {
    features: Some(features),
    write_cr3: Some(write_cr3),
    invlpg: Some(invlpg),
    invpcid: Some(invpcid),
    toggle_pge: Some(toggle_pge),
    send_ipi: Some(send_ipi),
    send_ipi_to_others: Some(send_ipi_to_others),
    relax: Some(relax),
    irqs_enabled: Some(irqs_enabled),
    irqs_save: Some(irqs_save),
    irqs_restore: Some(irqs_restore),
    now_cycles: None,
    late: None,
    last_lazy_reference: Some(last_lazy_reference),
    this_cpu: None,
    unanswered: None,
    lazy_left: None,
    event: None,
    patience_turns: 0,
    patience_rounds: 0,
    flush_by_host: None,
    host_flush: 0,
    invlpgb: None,
    tlbsync: None,
    broadcast_pages: 0,
    root_here: Some(root_here),
};

/// Zeroed memory that is never given back, as a kernel's is not.
fn memory<T>() -> *mut T {
    Box::leak(Box::<MaybeUninit<T>>::new(MaybeUninit::zeroed())).as_mut_ptr()
}

fn words(count: usize) -> *mut u64 {
    Box::leak(vec![0_u64; count].into_boxed_slice()).as_mut_ptr()
}

fn ok(status: Status) {
    assert_eq!(status, Status::Ok);
}

impl World {
    pub(crate) fn new(policy: &str) -> Self {
        let text = CString::new(policy).expect("a text without zeros");
        let matrix_words = tlbkit_matrix_words(CPUS);
        let setup = Setup {
            ops: &raw const OPS,
            policy: text.as_ptr(),
            cpus: memory::<[CpuStateStorage; CPUS as usize]>().cast(),
            cpu_count: CPUS,
            matrix: words(matrix_words),
            matrix_words,
            kernel_root: ROOTS[0],
            stats: ptr::null_mut(),
        };
        let world = Self {
            machine: memory(),
            spaces: [memory(), memory()],
            #[cfg(feature = "reuse")]
            periods: memory(),
        };
        // SAFETY: memory of the right sizes, for ever.
        ok(unsafe { tlbkit_machine_init(world.machine, &raw const setup) });
        #[cfg(feature = "reuse")]
        // SAFETY: as above.
        ok(unsafe {
            let passed = memory::<[tlbkit_c::storage::PassedStorage; CPUS as usize]>().cast();
            tlbkit_c::deferred::tlbkit_grace_periods_init(world.periods, world.machine, passed, CPUS)
        });
        for (&space, root) in world.spaces.iter().zip(&ROOTS[1..]) {
            let set_words = tlbkit_set_words(CPUS);
            // SAFETY: as above.
            ok(unsafe { tlbkit_space_init(space, world.machine, *root, words(set_words), set_words) });
        }
        WORLD.set(world);
        world
    }
}

/// A stride with what is or-ed to it.
const fn stride(range: Range, flag: Flag) -> u32 {
    range.stride
        | match flag {
            Flag::None => 0,
            Flag::TablesFreed => TLBKIT_FLUSH_TABLES_FREED,
            Flag::Everything => TLBKIT_FLUSH_EVERYTHING,
        }
}

/// Room for the frames of a call.
struct Room {
    array: [u64; 8],
}

impl Room {
    fn frames(&mut self) -> Frames {
        let array = self.array.as_mut_ptr();
        Frames { array, capacity: self.array.len(), release: Some(release), context: ptr::null_mut() }
    }
}

impl Side for World {
    fn make(&self, step: &Step) -> u64 {
        // SAFETY: memory that was made, as each function wants it; interrupts are as it wants them.
        unsafe { self.flush(step.cpu, &step.call).or_else(|| self.run(step.cpu, &step.call)) }.unwrap_or(0)
    }
}

impl World {
    unsafe fn flush(&self, cpu: u32, call: &Call) -> Option<u64> {
        let machine = self.machine;
        // SAFETY: the caller's, for all of them.
        unsafe {
            match call {
                Call::FlushRange(space, range, flag, why) => {
                    let (space, stride) = (self.spaces[*space], stride(*range, *flag));
                    ok(tlbkit_flush_range(machine, cpu, space, range.va, u64::from(range.pages), stride, *why as u32));
                }
                Call::FlushRangeAlone(space, range, flag) => {
                    let (space, stride) = (self.spaces[*space], stride(*range, *flag));
                    let alone = tlbkit_flush_range_alone(machine, cpu, space, range.va, u64::from(range.pages), stride);
                    assert!(matches!(alone, Status::Ok | Status::IrqsOff));
                    return Some(u64::from(alone == Status::IrqsOff));
                }
                Call::FlushKernelRange(range, flag, why) => {
                    let (pages, stride) = (u64::from(range.pages), stride(*range, *flag));
                    ok(tlbkit_flush_kernel_range(machine, cpu, range.va, pages, stride, *why as u32));
                }
                Call::FlushThisCpu(range) => {
                    ok(tlbkit_flush_this_cpu(machine, cpu, range.va, u64::from(range.pages), range.stride));
                }
                Call::FlushKernelThisCpu(range) => {
                    ok(tlbkit_flush_kernel_this_cpu(machine, cpu, range.va, u64::from(range.pages), range.stride));
                }
                Call::FlushLoadedThisCpu => ok(tlbkit_flush_loaded_this_cpu(machine, cpu)),
                Call::FlushAllThisCpu => ok(tlbkit_flush_all_this_cpu(machine, cpu)),
                Call::Gather(space, scope, why, parts, end) => {
                    let space = space.map_or(ptr::null_mut(), |space| self.spaces[space]);
                    return Some(self.gather(cpu, space, (*scope, *why as u32), parts, *end));
                }
                Call::Batch(items, why) => self.batch(cpu, items, *why),
                Call::Drain(space) => ok(tlbkit_drain(machine, cpu, self.spaces[*space])),
                #[cfg(feature = "reuse")]
                Call::Reuse(batches, why) => self.reuse(cpu, batches, *why),
                #[cfg(feature = "directories")]
                Call::ReloadRoots(space) => {
                    log::change_roots(0..CPUS);
                    ok(tlbkit_c::sharers::tlbkit_reload_roots(machine, cpu, self.spaces[*space]));
                }
                _ => return None,
            }
        }
        Some(0)
    }

    unsafe fn gather(
        &self,
        cpu: u32,
        space: *const SpaceStorage,
        (scope, why): (u32, u32),
        parts: &[Part],
        end: End,
    ) -> u64 {
        let mut room = Room { array: [0; 8] };
        let mut place = MaybeUninit::<GatherStorage>::zeroed();
        let (gather, frames) = (place.as_mut_ptr(), room.frames());
        // SAFETY: the caller's, for all of them.
        unsafe {
            ok(tlbkit_gather_begin(gather, self.machine, space, &raw const frames));
            for (n, part) in parts.iter().enumerate() {
                ok(match *part {
                    Part::Range(range) => {
                        let pages = u64::from(range.pages);
                        tlbkit_gather_range(gather, cpu, range.va, pages, range.stride, scope, why)
                    }
                    Part::Unmap(range) => {
                        tlbkit_gather_unmap(gather, cpu, range.va, range.stride, scope, why, frame(n))
                    }
                    Part::Table(va, unnamed) => tlbkit_gather_unmap_table(gather, cpu, va, unnamed, frame(n)),
                    Part::Hold => tlbkit_gather_hold(gather, frame(n)),
                    Part::TablesFreed => tlbkit_gather_tables_freed(gather),
                    Part::Everything => tlbkit_gather_everything(gather),
                });
            }
            let mut was_done = false;
            match end {
                #[cfg(feature = "directories")]
                End::Within(cpus) => return self.finish_within(gather, cpu, cpus),
                End::Finish => ok(tlbkit_gather_finish(gather, cpu)),
                End::Issue => {
                    ok(tlbkit_gather_issue(gather, cpu));
                    ok(tlbkit_gather_is_done(gather, cpu, &raw mut was_done));
                    ok(tlbkit_gather_wait(gather, cpu));
                }
                End::Poll => {
                    ok(tlbkit_gather_issue(gather, cpu));
                    ok(tlbkit_gather_poll(gather, cpu));
                    ok(tlbkit_gather_wait(gather, cpu));
                }
            }
            u64::from(was_done)
        }
    }

    #[cfg(feature = "directories")]
    unsafe fn finish_within(&self, gather: *mut GatherStorage, cpu: u32, cpus: Option<u32>) -> u64 {
        use tlbkit_c::sharers::*;
        let (sharers, reach, mut answers) = (memory(), memory(), [false; 2]);
        let bits = cpus.unwrap_or_default();
        // SAFETY: the caller's, for all of them.
        unsafe {
            for by in (0..CPUS).filter(|by| bits >> by & 1 != 0) {
                ok(tlbkit_sharers_hook(self.machine, by, sharers));
            }
            ok(tlbkit_reach_begin(reach));
            ok(tlbkit_reach_add(reach, sharers));
            if cpus.is_none() {
                ok(tlbkit_reach_everybody(reach));
            }
            ok(tlbkit_gather_finish_within(gather, cpu, reach));
            ok(tlbkit_sharers_may_include(sharers, 1, &raw mut answers[0]));
            ok(tlbkit_sharers_clear(sharers));
            ok(tlbkit_sharers_may_include(sharers, 1, &raw mut answers[1]));
        }
        u64::from(answers[0]) | u64::from(answers[1]) << 1
    }

    unsafe fn batch(&self, cpu: u32, items: &[Item], why: Reason) {
        let mut room = Room { array: [0; 8] };
        let mut place = MaybeUninit::<BatchStorage>::zeroed();
        let batch = place.as_mut_ptr();
        // SAFETY: the caller's, for all of them.
        unsafe {
            self.fill(batch, &room.frames(), cpu, items);
            ok(tlbkit_batch_flush(batch, cpu, why as u32));
            ok(tlbkit_batch_finish(batch, cpu, why as u32)); // of nothing
        }
    }

    #[cfg(feature = "reuse")]
    unsafe fn reuse(&self, cpu: u32, batches: &[(Vec<Item>, u32)], why: Reason) {
        use tlbkit_c::deferred::*;
        let mut rooms: Vec<_> = batches.iter().map(|_| Room { array: [0; 8] }).collect();
        let deferred: Vec<*mut BatchStorage> = batches.iter().map(|_| memory()).collect();
        // SAFETY: the caller's, for all of them.
        unsafe {
            for ((items, passing), (&batch, room)) in batches.iter().zip(deferred.iter().zip(&mut rooms)) {
                self.fill(batch, &room.frames(), cpu, items);
                ok(tlbkit_batch_defer(batch, cpu, self.periods));
                let before = log::set_irqs(*passing, Irqs::Off);
                ok(tlbkit_pass(self.periods, *passing));
                log::set_irqs(*passing, before);
            }
            for &other in &deferred[1..] {
                ok(tlbkit_deferred_fold(deferred[0], cpu, other));
            }
            ok(tlbkit_deferred_flush(deferred[0], cpu, self.periods, why as u32));
        }
    }

    unsafe fn fill(&self, batch: *mut BatchStorage, frames: &Frames, cpu: u32, items: &[Item]) {
        // SAFETY: the caller's, for all of them.
        unsafe {
            ok(tlbkit_batch_begin(batch, self.machine, frames));
            for (n, item) in items.iter().enumerate() {
                ok(match *item {
                    Item::Revoke(space) => tlbkit_batch_revoke(batch, cpu, self.spaces[space]),
                    Item::Unmap(space) => tlbkit_batch_unmap(batch, cpu, self.spaces[space], frame(n)),
                    Item::Table(space) => tlbkit_batch_unmap_table(batch, cpu, self.spaces[space], frame(n)),
                    Item::Hold => tlbkit_batch_hold(batch, frame(n)),
                });
            }
        }
    }

    unsafe fn run(&self, cpu: u32, call: &Call) -> Option<u64> {
        let (machine, mut word, mut is_said) = (self.machine, 0_u64, false);
        // SAFETY: the caller's, for all of them.
        ok(unsafe {
            match *call {
                Call::BringUp => tlbkit_bring_up(machine, cpu),
                Call::Offline => tlbkit_offline(machine, cpu),
                Call::Stopped(stopped) => tlbkit_declare_stopped(machine, stopped),
                Call::Switch(space) => tlbkit_switch_to(machine, cpu, self.spaces[space]),
                Call::EnterLazy => tlbkit_enter_lazy(machine, cpu),
                Call::LoadKernel => tlbkit_load_kernel(machine, cpu),
                Call::EnterKernel => tlbkit_enter_kernel(machine, cpu),
                Call::ExitToUser => tlbkit_exit_to_user(machine, cpu),
                Call::Answer => tlbkit_answer(machine, cpu),
                #[cfg(feature = "directories")]
                Call::ReloadRootHere(space) => {
                    log::change_roots(cpu..cpu + 1);
                    tlbkit_c::sharers::tlbkit_reload_root_here(machine, cpu, self.spaces[space])
                }
                Call::SetCeiling(pages) => tlbkit_set_ceiling(machine, pages),
                Call::SetUserFlush(how) => tlbkit_set_user_flush(machine, how),
                Call::IsRunning(space) => return Some(u64::from(tlbkit_is_running(machine, cpu, self.spaces[space]))),
                Call::Loaded => return Some(tlbkit_loaded(machine, cpu)),
                Call::Missing => tlbkit_missing(machine, cpu, Some(note_missing), (&raw mut word).cast()),
                Call::Id(space) => return Some(tlbkit_space_id(self.spaces[space])),
                Call::Generation(space) => return Some(tlbkit_space_generation(self.spaces[space])),
                Call::Destroy(space) => tlbkit_space_destroy(machine, cpu, self.spaces[space], &raw mut is_said),
                Call::DestroyLater(space) => {
                    tlbkit_space_destroy_later(machine, cpu, self.spaces[space], &raw mut is_said)
                }
                _ => return None,
            }
        });
        Some(word | u64::from(is_said))
    }
}
