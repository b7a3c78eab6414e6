//! What each setting ends, and what is said beside it.

use super::Certainty::{No, Perhaps, Yes};
use super::*;

#[test]
fn a_setting_ends_calls_that_its_allocator_makes() {
    let ends = |allocator: &Allocator, cause| keeping(allocator).ends(cause);
    assert_eq!([BRK, MUNMAP, Cause::Free].map(|cause| ends(&Allocator::Glibc, cause)), [Yes, Perhaps, No]);
    assert_eq!(
        [Cause::ArenaDontNeed, Cause::DontNeed].map(|cause| ends(&Allocator::Glibc, cause)),
        [Yes, Perhaps],
        "a program on glibc may call madvise itself"
    );
    assert_eq!((ends(&Allocator::Go, BRK), ends(&Allocator::Tcmalloc, BRK)), (No, No));
    let jemalloc = Allocator::Jemalloc { variable: "JE_MALLOC_CONF".into() };
    assert_eq!([Cause::Free, MUNMAP].map(|cause| ends(&jemalloc, cause)), [Yes, No]);
    assert!(keeping(&jemalloc).change().to_string().starts_with("JE_MALLOC_CONF=dirty_decay_ms:"));
    let others = [Allocator::Tcmalloc, Allocator::Mimalloc, Allocator::OldMimalloc, Allocator::Go];
    for allocator in [Allocator::Glibc, jemalloc].into_iter().chain(others) {
        let (change, Keeping { remark, .. }) = (keeping(&allocator).change(), keeping(&allocator));
        assert_eq!(change.to_string().parse::<Change>().unwrap(), change, "as it is typed for a trial");
        assert!(["Switches off: ", "Memory: ", "Scope: "].iter().all(|part| remark.contains(part)), "{remark}");
    }
}
