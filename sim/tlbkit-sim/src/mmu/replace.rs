//! Which way of a set gives room: LRU over up to 16 ways, tree-PLRU, and what the Skylake second level does. Each keeps
//! one word per set; the functions here take the word and return it changed.
//!
//! The LRU word is a stack of 4-bit way numbers, the least recent in the highest place. The places below the stack of a
//! set of fewer than 16 ways are zero.

/// Places of a word.
const PLACES: usize = 16;
const NIBBLES: u64 = 0x1111_1111_1111_1111;
/// Ways of one tree in the Skylake second level.
const TREE_WAYS: usize = 4;
const TREE_BITS: u32 = 3;
const TREES: usize = 3;
const RECENT_SHIFT: u32 = TREE_BITS * TREES as u32;

/// The stack of a set that was never used, way n at place n of the stack.
pub(super) const fn stack_unused(ways: usize) -> u64 {
    0xfedc_ba98_7654_3210 << stack_base(ways)
}

/// How far the stack is from the lowest bit.
#[inline(always)]
pub(super) const fn stack_base(ways: usize) -> u32 {
    4 * (PLACES - ways) as u32
}

/// Moves `way` to the lowest place of the stack.
#[inline(always)]
pub(super) const fn stack_touched(word: u64, way: usize, base: u32) -> u64 {
    let way = way as u64;
    if word >> base & 15 == way {
        return word;
    }
    let outside = (1 << base) - 1;
    let differs = word ^ (way * NIBBLES) | outside;
    let zero = differs.wrapping_sub(NIBBLES) & !differs & (NIBBLES << 3);
    // The lowest mark is exact; borrows reach only marks above it.
    let place = zero.trailing_zeros() & !3;
    let below = (1 << place) - 1;
    let above = !(below | 15 << place);
    word & above | (word & below) << 4 | way << base
}

/// The stack after its last way was taken, and that way.
#[inline(always)]
pub(super) const fn stack_rotated(word: u64, base: u32) -> (u64, usize) {
    let last = word >> (4 * (PLACES - 1));
    (word << 4 | last << base, last as usize)
}

/// Points every node on the way to `way` at the other half. Node 1 is the root, node n has children 2n and 2n + 1.
pub(super) const fn tree_touched(mut word: u64, way: usize, ways: usize) -> u64 {
    let (mut node, mut half) = (1, ways / 2);
    while half > 0 {
        let upper = (way & half != 0) as usize;
        word = word & !(1 << node) | ((1 - upper) as u64) << node;
        node = 2 * node + upper;
        half /= 2;
    }
    word
}

/// The leaf that the nodes point at.
pub(super) const fn tree_victim(word: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (word >> node & 1) as usize;
    }
    node - ways
}

/// Three trees of four ways, and which of them was used last.
pub(super) const fn trees_touched(word: u64, way: usize) -> u64 {
    let tree = way / TREE_WAYS;
    let shift = tree as u32 * TREE_BITS;
    let bits = tree_touched((word >> shift & 7) << 1, way % TREE_WAYS, TREE_WAYS) >> 1;
    word & !(7 << shift) & !(3 << RECENT_SHIFT) | bits << shift | (tree as u64) << RECENT_SHIFT
}

/// The tree after the one used last; inside it, tree-PLRU.
pub(super) const fn trees_victim(word: u64) -> usize {
    let tree = ((word >> RECENT_SHIFT) as usize + 1) % TREES;
    let bits = (word >> (tree as u32 * TREE_BITS) & 7) << 1;
    tree * TREE_WAYS + tree_victim(bits, TREE_WAYS)
}
