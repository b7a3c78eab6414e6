//! Clean pages of a file that are taken without a flush.

use crate::common::Machine;
use crate::space::{PAGE, anon};
use Backing::{FilePrivate, FileShared};
use Protection::ReadWrite;
use tlbkit::*;
use tlbkit_pmap::{Backing, ChildFill, CleanEviction, Frame, Memory, Protection, Pte};
use tlbkit_testkit::leak;

/// One page that a store would copy is the page cache's own, and is taken; its reader is interrupted when the frame is
/// needed, and not before.
#[test]
fn pages_of_the_page_cache_alone_are_taken_and_flushed_when_they_are_needed() {
    let m = Machine::new(2, Policy { reclaim: Reclaim::AtReuse, ..Policy::default() });
    let periods = GracePeriods::new(leak((0..2).map(|_| Passed::new())));
    let vm = m.space();
    let map = |pages, backing| vm.map(&m.cpu(0), pages, backing, ReadWrite).unwrap();
    let (va, shared, zero) = (map(4, FilePrivate), map(1, FileShared), anon(m, vm, 1));
    let at = |page: u64| va + page * PAGE;
    m.mem.store(m.mem.file_page(0, 0), 5);
    (0..2).for_each(|cpu| assert_eq!(m.read(cpu, vm, at(0)), Ok(5)));
    m.write(0, vm, at(1), 6).unwrap();
    let child = m.space();
    vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
    m.read(0, vm, at(2)).unwrap();
    vm.protect(&m.cpu(0), m.mem, at(2), 1, Protection::None).unwrap();
    let entered = Frame { at: m.mem.file_page(0, 3), shift: 12 };
    m.mem.share(entered.at);
    vm.enter(&m.cpu(0), m.mem, at(3), entered, Pte::PRESENT | Pte::WRITE | Pte::USER).unwrap();
    [shared, zero].iter().for_each(|&va| _ = m.read(0, vm, va).unwrap());

    let before = m.interrupts(0);
    let mut eviction = CleanEviction::new(Vec::new());
    let taken = eviction.take(&m.cpu(0), m.mem, vm, va, 6);
    assert_eq!((taken, m.is_mapped(vm, at(0))), (1, false));
    assert_eq!(m.kernel_read(1, at(0)), Some(5), "by the old entry");
    let deferred = eviction.defer(&m.cpu(0), &periods);
    assert_eq!(m.interrupts(0), before);
    let frames = deferred.flush(&m.cpu(0), &periods, Reason::Migrate).into_frames();
    assert_eq!((frames.len(), frames[0].at, m.interrupts(0) - before), (1, m.mem.file_page(0, 0), 1));
    assert_eq!(m.kernel_read(1, at(0)), None);
    frames.into_iter().for_each(|frame| m.mem.put(frame));
    vm.protect(&m.cpu(0), m.mem, at(2), 1, ReadWrite).unwrap();
    let left = [at(1), at(2), at(3), shared, zero];
    assert!(left.iter().all(|&va| m.is_mapped(vm, va)), "a copy, what nobody may read, what is written in place");
    [vm, child].iter().for_each(|vm| m.end(0, vm));
    assert_eq!(m.used(), 0);
}
