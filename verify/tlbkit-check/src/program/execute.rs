//! The little kernel that carries out programs: what it remembers, and who does what when.

use std::cell::{Cell, RefCell};

use tlbkit::{Hardware, SpaceToken, UserFlush};
use tlbkit_pmap::{KernelWindow, Vm};

use super::{Op, Program, pages};
use crate::digest::mix;
use crate::machine::core::Progress;
use crate::machine::world::{SPACES, World};

/// What the kernel knows of its tasks and spaces.
pub(crate) struct Kernel {
    program: Program,
    /// The space whose task each CPU runs.
    runs: Vec<Cell<Option<usize>>>,
    /// CPUs that run a task of each space, or use it for a moment.
    users: [Cell<u32>; SPACES],
    alive: [Cell<bool>; SPACES],
    /// Spaces made so far.
    made: Cell<usize>,
    /// Spaces whose last lazy reference each CPU has dropped.
    to_reclaim: Vec<RefCell<Vec<usize>>>,
    pub(super) windows: RefCell<Vec<KernelWindow>>,
    /// Windows mapped so far.
    mapped: Cell<u64>,
    busy: Cell<usize>,
}

impl Kernel {
    pub(crate) fn new(program: Program) -> Self {
        let cpus = program.cpus.len();
        Self {
            program,
            runs: vec![Cell::new(None); cpus],
            users: [const { Cell::new(0) }; SPACES],
            alive: [const { Cell::new(false) }; SPACES],
            made: Cell::new(0),
            to_reclaim: (0..cpus).map(|_| RefCell::default()).collect(),
            windows: RefCell::default(),
            mapped: Cell::new(0),
            busy: Cell::new(cpus),
        }
    }

    /// The space whose task `cpu` runs.
    pub(crate) fn runs(&self, cpu: usize) -> Option<usize> {
        self.runs[cpu].get()
    }

    pub(super) fn set_runs(&self, cpu: usize, space: Option<usize>) {
        self.runs[cpu].set(space);
    }

    /// One more CPU uses `space`.
    pub(super) fn hold(&self, space: usize) {
        self.users[space].set(self.users[space].get() + 1);
    }

    /// One less does.
    pub(super) fn unhold(&self, space: usize) {
        self.users[space].set(self.users[space].get() - 1);
    }

    pub(super) fn is_alive(&self, space: usize) -> bool {
        self.alive[space].get()
    }

    pub(super) fn set_alive(&self, space: usize) {
        self.alive[space].set(true);
    }

    /// True, and dead from now on, if one CPU alone uses `space`.
    pub(super) fn begin_exit(&self, space: usize) -> bool {
        let is_last = self.users[space].get() == 1;
        if is_last {
            self.alive[space].set(false);
        }
        is_last
    }

    /// The file's pages that the next window shows: other ones than the window before.
    pub(super) fn next_file_pages(&self) -> [u64; 2] {
        let first = 2 * self.mapped.replace(self.mapped.get() + 1);
        [first, first + 1]
    }

    /// The protocol has told `cpu` that the last lazy reference to a dying space is gone.
    pub(crate) fn owe_reclaim(&self, cpu: usize, space: usize) {
        self.to_reclaim[cpu].borrow_mut().push(space);
    }

    /// A digest of all that is shared by the CPUs.
    fn digest(&self) -> u64 {
        let spaces =
            (0..SPACES).map(|space| u64::from(self.users[space].get()) << 1 | u64::from(self.alive[space].get()));
        spaces.fold(self.made.get() as u64 | (self.windows.borrow().len() as u64) << 32 | self.mapped.get() << 48, mix)
    }

    pub(super) fn next_to_reclaim(&self, cpu: usize) -> Option<usize> {
        self.to_reclaim[cpu].borrow_mut().pop()
    }
}

/// Brings the machine up and does what comes before everything else.
pub(crate) fn set_up(world: &World<'_>) {
    for cpu in 0..world.kernel.runs.len() {
        world.machine.borrow_mut().current = cpu;
        world.with_cpu(cpu, |handle| handle.hardware().with_irqs_off(|irqs| handle.bring_up(irqs)));
    }
    for _ in 0..2 {
        world.make_space().into_iter().for_each(|space| world.kernel.set_alive(space));
    }
    for &(cpu, op) in &world.kernel.program.setup {
        world.machine.borrow_mut().current = usize::from(cpu);
        world.carry_out(usize::from(cpu), op);
    }
}

/// What the fiber of `cpu` does: its program, then idling and answering until all programs are over.
pub(crate) fn cpu_body(world: &World<'_>, cpu: usize) {
    // The first step was granted to whoever resumed this fiber.
    world.point();
    for &op in &world.kernel.program.cpus[cpu] {
        world.carry_out(cpu, op);
        world.reclaim(cpu);
        if world.is_gone(cpu) {
            break;
        }
    }
    world.kernel.busy.set(world.kernel.busy.get() - 1);
    {
        let mut machine = world.machine.borrow_mut();
        machine.cpus[cpu].act();
        machine.cpus[cpu].progress = Progress::Idle;
        machine.note_change();
    }
    world.with_cpu(cpu, |handle| {
        while world.kernel.busy.get() > 0 {
            handle.hardware().relax();
        }
    });
    world.machine.borrow_mut().cpus[cpu].progress = Progress::Ended;
}

impl<'k> World<'k> {
    pub(super) fn vm(&self, space: usize) -> &Vm<'k> {
        self.spaces[space].get().expect("a space that was made")
    }

    /// A new, empty space, if one more can be had and a frame for it is left. Nobody else can see it yet, so nothing
    /// else happens meanwhile.
    pub(super) fn make_space(&self) -> Option<usize> {
        let space = self.kernel.made.get();
        if space == SPACES {
            return None;
        }
        let words = self.sets.len() / SPACES;
        let set = &self.sets[space * words..][..words];
        let was_live = std::mem::replace(&mut self.machine.borrow_mut().is_live, false);
        let vm = Vm::new(self.tlb, &self.bus(), self.kernel_map, SpaceToken(space as u64), set);
        self.machine.borrow_mut().is_live = was_live;
        let vm = vm.ok()?;
        self.kernel.made.set(space + 1);
        let vm = self.spaces[space].get_or_init(|| vm);
        self.machine.borrow_mut().name_words(vm, &format!("space {space}"));
        Some(space)
    }

    /// One operation of one CPU.
    fn carry_out(&self, cpu: usize, op: Op) {
        // What the kernel remembers decides what an operation does.
        let digest = self.kernel.digest();
        self.machine.borrow_mut().learn(digest);
        match op {
            Op::Run(space) => self.run_space(cpu, usize::from(space) % SPACES),
            Op::Idle => self.leave(cpu, |handle, irqs| handle.enter_lazy(irqs)),
            Op::KernelTables => self.leave(cpu, |handle, irqs| handle.load_kernel(irqs)),
            Op::Borrow(space) => self.borrow_space(cpu, usize::from(space) % SPACES),
            Op::Offline(steps) => self.offline(cpu, steps),
            Op::Stop(steps) => self.stop(cpu, steps),
            Op::Die(steps) => self.die(cpu, steps),
            Op::KernelMap => self.map_window(cpu),
            Op::KernelUnmap => self.unmap_window(cpu),
            Op::Ceiling(pages) => self.tlb.knobs().set_ceiling(u32::from(pages)),
            Op::DeferUserFlush => self.tlb.knobs().set_user_flush(UserFlush::DeferredCr3),
            _ => {
                if let Some(space) = self.kernel.runs(cpu) {
                    self.carry_out_in(cpu, space, op);
                }
            }
        }
    }

    /// One operation of a task of `space`.
    fn carry_out_in(&self, cpu: usize, space: usize, op: Op) {
        match op {
            Op::Map(count, content) => self.map(cpu, space, count, content),
            Op::Touch(page, access) => self.touch(cpu, space, pages::address(page), access),
            Op::Compute(steps) => self.compute(cpu, steps),
            Op::Unmap(page, count) => self.unmap(cpu, space, &pages::range(page, count)),
            Op::Protect(page, count, rights) => self.protect(cpu, space, &pages::range(page, count), rights),
            Op::DontNeed(page, count) => self.dontneed(cpu, space, &pages::range(page, count)),
            Op::Clear => self.clear(cpu, space),
            Op::Fork => self.fork(cpu, space),
            Op::Exit => self.exit(cpu, space),
            _ => {}
        }
    }
}
