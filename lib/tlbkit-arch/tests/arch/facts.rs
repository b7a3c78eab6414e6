//! Address arithmetic, entries and the random sequence, against numbers worked out by hand or published.

use tlbkit::{PhysAddr, Stride, VirtAddr};
use tlbkit_arch::addr::{half_bytes, is_canonical_within};
use tlbkit_arch::{Pte, Rights, SplitMix64, WalkStep, entry_at, index, is_canonical, next, span_shift, span_start};

/// Index 1 at level 4, 2 at level 3, 3 at level 2, 4 at level 1, byte 5.
const VA: VirtAddr = VirtAddr(1 << 39 | 2 << 30 | 3 << 21 | 4 << 12 | 5);

#[test]
fn each_level_has_nine_bits_of_the_address() {
    assert_eq!([1, 2, 3, 4, 5].map(span_shift), [12, 21, 30, 39, 48]);
    assert_eq!([4, 3, 2, 1].map(|level| index(VA, level)), [1, 2, 3, 4]);
    assert_eq!(index(VirtAddr(!0), 4), 511);
    assert_eq!(entry_at(PhysAddr(0x5000), VA, 2), PhysAddr(0x5018));
    assert_eq!(span_start(VA, 2), VirtAddr(1 << 39 | 2 << 30 | 3 << 21));
    assert_eq!(next(VA, 3), VirtAddr(1 << 39 | 3 << 30));
    assert_eq!(next(span_start(VA, 1), 1), VirtAddr(span_start(VA, 1).0 + 4096));
}

#[test]
fn the_hole_begins_and_ends_where_the_topmost_bit_is_not_repeated() {
    assert!(is_canonical(VirtAddr((1 << 47) - 1)) && is_canonical(VirtAddr(!0 << 47)));
    assert!(!is_canonical(VirtAddr(1 << 47)) && !is_canonical(VirtAddr((!0 << 47) - 1)));
    let with_five = |va| is_canonical_within(VirtAddr(va), half_bytes(5));
    assert!(with_five((1 << 56) - 1) && with_five(!0 << 56));
    assert!(!with_five(1 << 56) && !with_five((!0 << 56) - 1));
}

#[test]
fn the_bits_of_an_entry_are_those_of_the_manual() {
    let low = [Pte::PRESENT, Pte::WRITE, Pte::USER, Pte::ACCESSED, Pte::DIRTY, Pte::LARGE, Pte::GLOBAL];
    assert_eq!(low, [0x1, 0x2, 0x4, 0x20, 0x40, 0x80, 0x100]);
    assert_eq!((Pte::NO_EXECUTE, Pte::ADDRESS), (0x8000_0000_0000_0000, 0x000f_ffff_ffff_f000));
}

#[test]
fn bits_are_set_and_cleared_one_by_one() {
    let entry = Pte::new(PhysAddr(0x1234_5000), 0x63);
    assert_eq!((entry.bits(), entry.frame()), (0x63, PhysAddr(0x1234_5000)));
    assert_eq!((entry.with(0x06).0, entry.without(0x06).0), (0x1234_5067, 0x1234_5061));
    assert!(Pte::EMPTY.is_empty() && !entry.is_empty() && !Pte(1 << 63).is_empty());
}

#[test]
fn a_walk_goes_on_ends_or_faults() {
    let entry = |bits| Pte::new(PhysAddr(0x1234_5000), bits);
    assert_eq!(entry(Pte::WRITE).step(1), WalkStep::NotPresent);
    assert_eq!(entry(Pte::PRESENT).step(4), WalkStep::Table(PhysAddr(0x1234_5000)));
    assert_eq!(entry(Pte::PRESENT | Pte::NO_EXECUTE).step(1), WalkStep::Page(PhysAddr(0x1234_5000), Stride::Page4K));
    let large = Pte::PRESENT | Pte::LARGE;
    // Bit 7 is no size in a table of base pages, and bit 12 no address in a large page.
    assert_eq!(entry(large).step(1), WalkStep::Page(PhysAddr(0x1234_5000), Stride::Page4K));
    assert_eq!(entry(large).step(2), WalkStep::Page(PhysAddr(0x1220_0000), Stride::Page2M));
    assert_eq!(entry(large).step(3), WalkStep::Page(PhysAddr(0), Stride::Page1G));
    assert_eq!(entry(large).step(4), WalkStep::Table(PhysAddr(0x1234_5000)), "nothing is that large");
}

#[test]
fn what_one_level_forbids_no_other_allows() {
    let entry = |bits| Pte(Pte::PRESENT | bits);
    let rights = Rights::ALL.below(entry(Pte::WRITE | Pte::USER));
    assert_eq!(rights, Rights::ALL);
    assert_eq!(rights.below(entry(Pte::USER)), Rights { may_write: false, is_user: true });
    assert_eq!(rights.below(entry(Pte::WRITE)).below(entry(Pte::USER)), Rights { may_write: false, is_user: false });
}

const READ: u64 = Pte::PRESENT | Pte::USER | Pte::ACCESSED;

fn needs_flush(old: u64, new: u64) -> bool {
    Pte::new(PhysAddr(0x1000), old).needs_flush(Pte::new(PhysAddr(0x1000), new))
}

#[test]
fn c_40_less_needs_a_flush_and_more_does_not() {
    for lost in [Pte::PRESENT, Pte::WRITE, Pte::USER, Pte::ACCESSED, Pte::DIRTY] {
        let all = READ | Pte::WRITE | Pte::DIRTY;
        assert!(needs_flush(all, all & !lost), "{lost:#x} lost");
    }
    assert!(needs_flush(READ, READ | Pte::NO_EXECUTE));
    for other in [Pte::GLOBAL, Pte::LARGE, 1 << 3, 1 << 4, 1 << 59, 1 << 62] {
        assert!(needs_flush(READ, READ | other), "{other:#x} set: global, a size, a memory type, a protection key");
        assert!(needs_flush(READ | other, READ), "{other:#x} cleared");
    }
    assert!(!needs_flush(READ, READ | Pte::WRITE | Pte::DIRTY));
    assert!(!needs_flush(READ | Pte::NO_EXECUTE, READ));
    assert!(!needs_flush(READ, READ | 1 << 9 | 1 << 10 | 1 << 11), "software's bits are not hardware's business");
    assert!(!needs_flush(Pte::USER | Pte::WRITE, 0), "never cached");
}

#[test]
fn c_40_another_frame_needs_a_flush_unless_it_was_not_present() {
    let other = Pte::new(PhysAddr(0x2000), READ);
    assert!(Pte::new(PhysAddr(0x1000), READ).needs_flush(other));
    assert!(!Pte::EMPTY.needs_flush(other));
    assert!(!Pte::new(PhysAddr(0x1000), Pte::USER).needs_flush(other));
}

#[test]
fn the_random_sequence_is_the_published_one() {
    let first = |seed| {
        let mut random = SplitMix64::new(seed);
        [(); 5].map(|()| random.bits())
    };
    // Of Vigna's splitmix64.c, and of java.util.SplittableRandom, which is the same generator.
    let of_1234567 = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    assert_eq!(first(1_234_567), of_1234567);
    assert_eq!(first(0)[..3], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
}

#[test]
fn a_number_below_a_limit_is_below_it_and_takes_each_value() {
    let mut random = SplitMix64::new(1);
    let mut met = [0; 3];
    (0..3000).for_each(|_| met[random.below(3) as usize] += 1);
    assert!(met.iter().all(|&times| (900..1100).contains(&times)), "{met:?}");
    assert_eq!(random.below(0), 0);
}
