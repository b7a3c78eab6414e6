//! Which tags a level remembers. Hardware keeps few: each has a short internal name, and loading one more forgets the
//! one that was loaded longest ago, with all its entries.

/// Tags in the order of their loading, the latest first.
#[derive(Clone, Debug)]
pub(super) struct Residency {
    limit: Option<usize>,
    order: Vec<u16>,
}

impl Residency {
    /// Room for `limit` tags, the `loaded` one among them; none for no limit.
    pub(super) fn new(limit: Option<usize>, loaded: u16) -> Self {
        Self { limit: limit.map(|tags| tags.max(1)), order: vec![loaded] }
    }

    /// `tag` is loaded; returns the tag that is forgotten for it.
    pub(super) fn load(&mut self, tag: u16) -> Option<u16> {
        let limit = self.limit?;
        match self.order.iter().position(|&known| known == tag) {
            Some(at) => self.order[..=at].rotate_right(1),
            None => self.order.insert(0, tag),
        }
        if self.order.len() > limit { self.order.pop() } else { None }
    }
}
