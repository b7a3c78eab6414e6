//! System calls and faults: what a task does to its memory.

use std::ops::Range;

use tlbkit::{Hardware, IrqsOff, PAGE_BYTES, SpaceToken, Stride, VirtAddr};
use tlbkit_arch::entry_at;
use tlbkit_pmap::{Backing, Eviction, Fault, Frame, KernelWindow, Memory, Protection, Pte, Region, USER_END, Vm, pte};

use super::{Access, Content, Rights, pages};
use crate::machine::core::Mode;
use crate::machine::memory::CACHED_FILE;
use crate::machine::observation::Observation;
use crate::machine::port::Protocol;
use crate::machine::touch::Touched;
use crate::machine::values::Values;
use crate::machine::world::{Space, World};

/// Faults in a row after which an access is given up: other CPUs keep taking the page away.
const RETRIES: usize = 8;

impl<'k> World<'k> {
    pub(super) fn vm(&self, space: usize) -> &'k Space<'k> {
        self.spaces[space].get().expect("a space that was made")
    }

    /// A new, empty space, if one more can be had and a frame for it is left. Nobody else can see it yet, so nothing
    /// else happens meanwhile.
    pub(super) fn make_space(&self) -> Option<usize> {
        let space = self.kernel.made.get();
        if space == self.spaces.len() {
            return None;
        }
        let words = self.sets.len() / self.spaces.len();
        let set = &self.sets[space * words..][..words];
        let was_live = std::mem::replace(&mut self.machine.borrow_mut().is_live, false);
        let vm = Vm::new(self.tlb, &self.bus(), self.kernel_map, SpaceToken(space as u64), set);
        let vm = vm.ok().map(|vm| self.spaces[space].get_or_init(|| vm));
        if let Some(vm) = vm.filter(|_| self.kernel.converts_new) {
            let cpu = self.machine.borrow().current;
            // Where no frame is left, all CPUs share its tables.
            let _converted = self.with_cpu(cpu, |handle| vm.give_directories(&handle, &self.bus()));
        }
        self.machine.borrow_mut().is_live = was_live;
        self.kernel.made.set(space + usize::from(vm.is_some()));
        self.machine.borrow_mut().log.name_words(vm?, &format!("space {space}"));
        Some(space)
    }

    /// Gives the CPUs directories of their own in `space`, unless it has had large pages, or no frame is left.
    pub(super) fn convert(&self, cpu: usize, space: usize) {
        self.machine.borrow_mut().begin("convert", None, 0..0);
        let converted = self.with_cpu(cpu, |handle| self.vm(space).give_directories(&handle, &self.bus()));
        let mut machine = self.machine.borrow_mut();
        if converted.is_ok() {
            machine.report(&Observation::TablesReplaced { root: self.vm(space).space().root().0 });
        }
        machine.end();
    }

    /// One call that changes what the pages in `range` of `space` hold.
    pub(super) fn change<R>(
        &self,
        cpu: usize,
        space: usize,
        name: &'static str,
        range: &Range<u64>,
        call: impl FnOnce(Protocol<'_, 'k, '_>, &Space<'k>) -> R,
    ) -> R {
        self.machine.borrow_mut().values.begin_change(space, range);
        let result = self.revoke(cpu, space, name, range, call);
        self.machine.borrow_mut().values.end_change(space, range);
        result
    }

    /// One call that changes the entries of `range` of `space`: an operation with a promise.
    pub(super) fn revoke<R>(
        &self,
        cpu: usize,
        space: usize,
        name: &'static str,
        range: &Range<u64>,
        call: impl FnOnce(Protocol<'_, 'k, '_>, &Space<'k>) -> R,
    ) -> R {
        let vm = self.vm(space);
        self.machine.borrow_mut().begin(name, Some(vm.space().root().0), range.clone());
        let result = self.with_cpu(cpu, |handle| call(handle, vm));
        self.machine.borrow_mut().end();
        result
    }

    pub(super) fn map(&self, cpu: usize, space: usize, count: u8, content: Content) {
        let range = pages::range(0, count);
        let backing = match content {
            Content::Private | Content::Large => Backing::AnonPrivate,
            Content::Shared => Backing::AnonShared,
            Content::File => Backing::FilePrivate,
        };
        let pages = if content == Content::Large { 512 } else { (range.end - range.start) / PAGE_BYTES };
        let file = if self.kernel.reclaims { CACHED_FILE } else { 0 };
        let region = Region { file, ..Region::new(pages, backing, Protection::ReadWrite) };
        let region = if content == Content::Large { region.large() } else { region };
        // No room is no error: a random program maps what it likes.
        let at = self.with_cpu(cpu, |handle| self.vm(space).map_region(&handle, region));
        if let Ok(at) = at {
            let (range, values) = (at..at + pages * PAGE_BYTES, &mut self.machine.borrow_mut().values);
            values.mapped(space, &range);
            if content == Content::Shared {
                values.share(range);
            }
        }
    }

    pub(super) fn unmap(&self, cpu: usize, space: usize, range: &Range<u64>) {
        // Too many regions, or no frame to cut a large page with: nothing was done.
        let _done = self
            .change(cpu, space, "unmap", range, |handle, vm| vm.unmap(&handle, &self.bus(), range.start, count(range)));
    }

    pub(super) fn protect(&self, cpu: usize, space: usize, range: &Range<u64>, rights: Rights) {
        let protection = match rights {
            Rights::None => Protection::None,
            Rights::Read => Protection::Read,
            Rights::ReadWrite => Protection::ReadWrite,
        };
        // As above.
        let _done = self.revoke(cpu, space, "protect", range, |handle, vm| {
            vm.protect(&handle, &self.bus(), range.start, count(range), protection)
        });
    }

    pub(super) fn dontneed(&self, cpu: usize, space: usize, range: &Range<u64>) {
        // As above.
        let _done = self.change(cpu, space, "dontneed", range, |handle, vm| {
            vm.dontneed(&handle, &self.bus(), range.start, count(range))
        });
    }

    pub(super) fn age(&self, cpu: usize, space: usize, range: &Range<u64>) {
        // Without accessed bits pages are what they were: it promises nothing by itself.
        let aged = self
            .revoke(cpu, space, "age", &(0..0), |handle, vm| vm.age(&handle, &self.bus(), range.start, count(range)));
        debug_assert!(aged.is_ok(), "whole pages of the user half");
    }

    /// Takes the pages in `range` from every space that is alive, and flushes once.
    pub(super) fn evict(&self, cpu: usize, range: &Range<u64>) {
        let spaces: Vec<usize> = (0..self.spaces.len()).filter(|&space| self.kernel.is_alive(space)).collect();
        spaces.iter().for_each(|&space| self.kernel.hold(space));
        let all = |change: fn(&mut Values, usize, &Range<u64>)| {
            let values = &mut self.machine.borrow_mut().values;
            spaces.iter().for_each(|&space| change(values, space, range));
        };
        all(Values::begin_change);
        // What it takes out itself is all that it promises.
        self.machine.borrow_mut().begin("evict", None, 0..0);
        self.with_cpu(cpu, |handle| {
            let mut eviction = Eviction::new();
            for &space in &spaces {
                eviction.take(&handle, &self.bus(), self.vm(space), range.start, count(range));
            }
            eviction.finish(&handle, &self.bus());
        });
        self.machine.borrow_mut().end();
        all(Values::end_change);
        spaces.iter().for_each(|&space| self.kernel.unhold(space));
    }

    /// Drops the pages in `range` from the TLB of `cpu` alone: entries are right, so it promises nothing.
    pub(super) fn flush_here(&self, cpu: usize, range: &Range<u64>) {
        self.with_cpu(cpu, |handle| {
            handle.flush_this_cpu(VirtAddr(range.start), count(range) as u32, Stride::Page4K);
        });
    }

    pub(super) fn clear(&self, cpu: usize, space: usize) {
        self.change(cpu, space, "clear", &(0..USER_END), |handle, vm| vm.clear(&handle, &self.bus()));
    }

    /// Enters the frame that a private page has again, with other rights.
    pub(super) fn enter_again(&self, cpu: usize, space: usize, va: u64, rights: Rights) {
        let write = if rights == Rights::ReadWrite { Pte::WRITE } else { 0 };
        self.revoke(cpu, space, "enter", &(0..0), |handle, vm| {
            // Loads alone, between which nobody acts: the frame is still there when it is shared.
            let below = |table, level| {
                let pte = Pte(self.bus().load(entry_at(table, VirtAddr(va), level)));
                (pte.has(Pte::PRESENT) && (level == 1 || !pte.has(Pte::LARGE))).then_some(pte)
            };
            let table =
                [4, 3, 2].into_iter().try_fold(vm.space().root(), |table, level| Some(below(table, level)?.frame()));
            let leaf = table.and_then(|table| below(table, 1));
            let is_ours = |pte: &Pte| [pte::COW, pte::ZERO, pte::SHARED].iter().all(|&bit| !pte.has(bit));
            let Some(pte) = leaf.filter(is_ours) else { return };
            self.bus().share(pte.frame());
            let frame = Frame { at: pte.frame(), shift: 12 };
            // No memory: nothing was done.
            let _made = vm.enter(&handle, &self.bus(), va, frame, pte.without(Pte::WRITE).with(write).bits());
        });
    }

    /// Maps the next two pages of the file into the kernel's addresses, and reads through them: the window that had the
    /// addresses before left nothing there.
    pub(super) fn map_window(&self, cpu: usize) {
        let frames = self.kernel.next_file_pages().map(crate::machine::memory::file_page);
        self.machine.borrow_mut().begin("kernel map", None, 0..0);
        let window = self.with_cpu(cpu, |handle| self.kernel_map.map(&handle, &self.bus(), frames));
        let Ok(Some(window)) = window else { return self.machine.borrow_mut().end() };
        let range = addresses(&window);
        let mut machine = self.machine.borrow_mut();
        machine.promise_all_older(range.clone());
        machine.end();
        range.step_by(PAGE_BYTES as usize).for_each(|va| machine.watch(va));
        self.kernel.windows.borrow_mut().push(window);
    }

    pub(super) fn unmap_window(&self, cpu: usize) {
        let Some(window) = self.kernel.take_window() else { return };
        self.machine.borrow_mut().begin("kernel unmap", None, addresses(&window));
        self.with_cpu(cpu, |handle| self.kernel_map.unmap(&handle, &self.bus(), window));
        self.machine.borrow_mut().end();
    }

    /// The program touches `va`, and faults if it must.
    pub(super) fn touch(&self, cpu: usize, space: usize, va: u64, access: Access) {
        self.machine.borrow_mut().watch(va);
        self.enter_user(cpu);
        for _ in 0..RETRIES {
            self.point();
            let touched = self.machine.borrow_mut().touch(space, va, access);
            if touched == Touched::Done {
                break;
            }
            self.leave_user(cpu);
            if !self.resolve(cpu, space, va, access) {
                return;
            }
            self.enter_user(cpu);
        }
        self.leave_user(cpu);
    }

    /// The program computes: it could touch anything at any time.
    pub(super) fn compute(&self, cpu: usize, steps: u8) {
        self.enter_user(cpu);
        (0..steps).for_each(|_| self.point());
        self.leave_user(cpu);
    }

    /// True if the access may be tried again.
    fn resolve(&self, cpu: usize, space: usize, va: u64, access: Access) -> bool {
        let access = match access {
            Access::Read => tlbkit_pmap::Access::Read,
            Access::Write => tlbkit_pmap::Access::Write,
        };
        let root = self.vm(space).space().root().0;
        self.machine.borrow_mut().begin("fault", Some(root), 0..0);
        let fault = self.with_cpu(cpu, |handle| self.vm(space).fault(&handle, &self.bus(), va, access));
        self.machine.borrow_mut().end();
        matches!(fault, Fault::Mapped { .. } | Fault::Spurious)
    }

    fn enter_user(&self, cpu: usize) {
        let is_isolated = self.machine.borrow().cpus[cpu].is_isolated;
        self.with_cpu(cpu, |handle| {
            handle.hardware().with_irqs_off(|irqs| {
                if is_isolated {
                    self.defer(cpu, handle, irqs);
                    return self.set_mode(cpu, Mode::Undisturbed);
                }
                handle.exit_to_user(irqs);
                self.set_mode(cpu, Mode::User);
            });
        });
    }

    /// The CPU passes, if the program retires or reclaims anything: other programs keep the steps that their seeds had.
    pub(super) fn pass(&self, handle: Protocol<'_, 'k, '_>, irqs: &IrqsOff) {
        if self.kernel.passes {
            self.periods.pass(&handle, irqs);
        }
    }

    fn leave_user(&self, cpu: usize) {
        self.with_cpu(cpu, |handle| {
            handle.hardware().with_irqs_off(|irqs| {
                if self.machine.borrow().cpus[cpu].mode == Mode::Undisturbed {
                    self.catch_up(cpu, handle, irqs);
                } else {
                    self.set_mode(cpu, Mode::Kernel);
                    handle.enter_kernel(irqs);
                }
                self.pass(handle, irqs);
            });
        });
    }
}

fn addresses(window: &KernelWindow) -> Range<u64> {
    window.va..window.va + window.pages * PAGE_BYTES
}

fn count(range: &Range<u64>) -> u64 {
    (range.end - range.start) / PAGE_BYTES
}
