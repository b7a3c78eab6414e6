//! Random programs on three CPUs under random policies, with interrupts as late as can be and the oracle on.
//!
//! A program is a queue of steps. Whoever waits for another CPU takes the next step, so that steps of free CPUs, late
//! interrupts and second flushes happen in the middle of a flush; a CPU that is in one is skipped.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tlbkit::{
    Batching, Broadcast, Compare, CpuSetUpkeep, FamilyShift, Features, History, Isolation, KernelSet, LargePageWalk,
    Lazy, LocalFlush, PRESETS, Policy, RangeRule, Tags, UserFlush,
};
use tlbkit_arch::SplitMix64;

use crate::machine::{Delivery, HAS_HISTORY, KERNEL, MODERN, Owner, REFERENCES, USER, World, root_of};

const CPUS: usize = 3;

/// What a step does is drawn from three bytes.
type Step = (u8, u8, u8);

/// What the steps share besides the machine.
struct Program {
    /// The spaces by the numbers that steps use; none while one is being destroyed.
    names: Vec<Option<usize>>,
    busy: [bool; CPUS],
    /// For each CPU the space that it is flushing.
    pinned: [Option<usize>; CPUS],
}

type Shared = &'static RefCell<Program>;

fn address(arg: u8) -> u64 {
    USER + u64::from(arg % 2) * (1 << 21) + u64::from(arg / 2 % 4) * 4096
}

fn take(world: &'static World, program: Shared, (kind, who, arg): Step) {
    let cpu = usize::from(who) % CPUS;
    if kind % 20 < 3 {
        return world.deliver(cpu);
    }
    if std::mem::replace(&mut program.borrow_mut().busy[cpu], true) {
        return;
    }
    let name = usize::from(who / 4);
    let space = {
        let program = program.borrow();
        program.names[name % program.names.len()]
    };
    if let Some(space) = space {
        program.borrow_mut().pinned[cpu] = Some(space);
        act(world, cpu, space, (kind % 20, arg));
        program.borrow_mut().pinned[cpu] = None;
        if kind % 20 == 19 {
            replace(world, program, cpu, space);
        }
    }
    program.borrow_mut().busy[cpu] = false;
}

fn act(world: &'static World, cpu: usize, space: usize, (kind, arg): (u8, u8)) {
    let (va, kernel_va) = (address(arg), KERNEL + u64::from(arg % 4) * 4096);
    match kind {
        3..=5 => world.switch(cpu, space),
        6 => world.lazy(cpu),
        7 => world.load_kernel(cpu),
        8..=10 => use_pages(world, cpu),
        11 => _ = world.walk(cpu, va),
        12 => map_missing(world, Owner::Space(space)),
        13 => world.unmap(cpu, space, &[va]),
        14 => world.unmap(cpu, space, &(0..8).filter(|n| arg >> n & 1 != 0).map(address).collect::<Vec<_>>()),
        15 => world.free_table(cpu, Owner::Space(space), va),
        16 if arg % 8 == 0 => world.free_table(cpu, Owner::Kernel, kernel_va),
        16 => world.revoke(cpu, Owner::Kernel, &[kernel_va]),
        17 => turn_knobs(world, arg),
        18 => look_into(world, cpu, space, va),
        _ => {}
    }
}

/// A program uses all its pages, and the kernel too.
fn use_pages(world: &'static World, cpu: usize) {
    let kernel = (0..4).map(|n| KERNEL + n * 4096);
    if world.cpus[cpu].kept.task.get().is_none() {
        return kernel.for_each(|va| _ = world.touch_in_kernel(cpu, va));
    }
    for va in (0..8).map(address).chain(kernel) {
        world.touch_in_kernel(cpu, va);
        world.touch(cpu, va);
    }
}

fn map_missing(world: &'static World, owner: Owner) {
    let missing = |va: &u64| world.memory.borrow().find(owner, *va).is_none();
    for va in (0..8).map(address).filter(missing).collect::<Vec<_>>() {
        world.memory.borrow_mut().map(owner, va, tlbkit::Stride::Page4K);
    }
    for va in (0..4).map(|n| KERNEL + n * 4096) {
        if world.memory.borrow().find(Owner::Kernel, va).is_none() {
            world.map_kernel(va);
        }
    }
}

fn turn_knobs(world: &'static World, arg: u8) {
    let how = if arg.is_multiple_of(2) { UserFlush::Invpcid } else { UserFlush::DeferredCr3 };
    world.tlb.knobs().set_user_flush(how);
    world.tlb.knobs().set_ceiling(u32::from(arg / 2 % 8));
}

fn look_into(world: &'static World, cpu: usize, space: usize, va: u64) {
    world.enter_kernel(cpu);
    if world.cpus[cpu].cr3.get().root() != root_of(space) {
        world.quiet(cpu, |c, irqs| c.with_space(world.at(space), irqs, || world.touch_in_kernel(cpu, va)));
    }
}

/// Destroys a space that nobody runs or flushes, and makes another in its place.
fn replace(world: &'static World, program: Shared, cpu: usize, space: usize) {
    let is_used = world.cpus.iter().any(|core| core.kept.task.get() == Some(space));
    if is_used || program.borrow().pinned.contains(&Some(space)) {
        return;
    }
    let place = program.borrow().names.iter().position(|name| *name == Some(space)).unwrap();
    program.borrow_mut().names[place] = None;
    let _ended = world.destroy(cpu, space);
    let fresh = world.space();
    map_missing(world, Owner::Space(fresh));
    program.borrow_mut().names[place] = Some(fresh);
}

fn run(policy: Policy, features: Features, spaces: usize, steps: &[Step]) {
    run_on(World::of(policy, &[features; CPUS]), spaces, steps);
}

fn run_on(world: &'static World, spaces: usize, steps: &[Step]) {
    let names = (0..spaces).map(|_| Some(world.space())).collect();
    (0..spaces).for_each(|space| map_missing(world, Owner::Space(space)));
    let program: Shared =
        Box::leak(Box::new(RefCell::new(Program { names, busy: [false; CPUS], pinned: [None; CPUS] })));
    world.delivery.set(Delivery::Queued);
    for &step in steps {
        world.plan(move |world| take(world, program, step));
    }
    loop {
        let next = world.meanwhile.borrow_mut().pop_front();
        let Some(step) = next else { break };
        step(world);
    }
    (0..CPUS).for_each(|cpu| world.deliver(cpu));
    world.audit();
    world.revisit_all();
}

fn tags() -> impl Strategy<Value = Tags> {
    prop_oneof![Just(Tags::Off), (1u8..7).prop_map(Tags::RoundRobin), (1u8..7).prop_map(Tags::LeastRecent)]
}

fn range() -> impl Strategy<Value = RangeRule> {
    let ceiling = |compare| move |pages| RangeRule::Ceiling { pages, compare };
    let walk = LargePageWalk::Skip;
    prop_oneof![
        (0u32..5).prop_map(ceiling(Compare::Above)),
        (0u32..600).prop_map(ceiling(Compare::AtLeast)),
        (-1i8..3).prop_map(move |shift| RangeRule::FamilyShift(FamilyShift { shift, entries: 8, walk })),
    ]
}

prop_compose! {
    fn policies()(
        tags in tags(),
        range in range(),
        lazy in prop::sample::select(vec![Lazy::Off, Lazy::InterruptOnce, Lazy::SkipUnlessTablesFreed]),
        cpu_set in prop_oneof![
            Just(CpuSetUpkeep::Exact),
            prop::sample::select(vec![0, 1, 2, 8]).prop_map(|every| CpuSetUpkeep::Trimmed { every }),
            prop::sample::select(vec![0, 8]).prop_map(|every| CpuSetUpkeep::TrimmedWithTables { every }),
        ],
        batching in prop_oneof![Just(Batching::None), (0u8..7).prop_map(Batching::Packet), Just(Batching::Range)],
        isolation in prop::sample::select(vec![Isolation::Off, Isolation::On]),
        local_flush in prop::sample::select(vec![LocalFlush::BeforeRemote, LocalFlush::WhileRemote]),
        lazy_references in prop::sample::select(REFERENCES.to_vec()),
        kernel_set in prop::sample::select(vec![KernelSet::Unwritten, KernelSet::Written]),
    ) -> Policy {
        let history = History { batching, kernel_set, ..History::NONE };
        let history = if HAS_HISTORY { history } else { History::NONE };
        let range = match range {
            RangeRule::FamilyShift(_) if !HAS_HISTORY => Policy::default().range,
            range => range,
        };
        Policy {
            tags, range, lazy, lazy_references, cpu_set, isolation, local_flush, history,
            ..Policy::default()
        }
    }
}

fn features() -> impl Strategy<Value = Features> {
    prop_oneof![4 => Just(MODERN), 1 => Just(Features { invpcid: false, ..MODERN }), 1 => Just(Features::default())]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        max_shrink_iters: 500,
        ..ProptestConfig::default()
    })]

    /// INV-1, INV-3, INV-4, INV-5, INV-6, INV-7, INV-8, INV-10, INV-11 and INV-12 together.
    #[test]
    fn no_program_reaches_what_was_freed(
        policy in policies(),
        features in features(),
        spaces in 3usize..9,
        steps in prop::collection::vec(any::<Step>(), 20..120),
    ) {
        run(policy, features, spaces, &steps);
    }

    /// The same with INVLPGB, which is used as soon as a flush interrupts a CPU.
    #[test]
    fn no_program_reaches_what_was_freed_by_broadcast(
        policy in policies(),
        invpcid in any::<bool>(),
        pages in prop::sample::select(vec![1, 3, 8]),
        spaces in 3usize..9,
        steps in prop::collection::vec(any::<Step>(), 20..120),
    ) {
        let broadcast = Broadcast::From { cpus: 1 };
        let tags = if policy.tags == Tags::Off { Tags::RoundRobin(2) } else { policy.tags };
        let policy = Policy { broadcast, tags, ..policy };
        run_on(World::with_broadcast(policy, &[Features { invpcid, ..MODERN }; CPUS], pages), spaces, &steps);
    }
}

/// A fixed stream of steps for each preset.
fn stream(seed: u64) -> Vec<Step> {
    let mut random = SplitMix64::new(seed);
    let mut next = || random.bits() as u8;
    (0..400).map(|_| (next(), next(), next())).collect()
}

#[test]
fn every_preset_passes_random_programs() {
    for (preset, seed) in PRESETS.iter().flat_map(|preset| (0..8).map(move |seed| (preset, seed))) {
        run(preset.policy, MODERN, 3 + seed as usize % 6, &stream(seed));
    }
}
