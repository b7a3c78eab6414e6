//! The frames behind mapped pages, and which of them relatives share.

/// Where the content of a mapped page comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A file's page or the page of zeros: the first store copies it.
    Borrowed,
    /// The program's own, counted in [`Frames`].
    Own(u32),
}

/// References to one frame.
struct References {
    all: u32,
    /// Those of spaces that are about to end, as far as they may be gone already.
    ending: u32,
}

/// References to the frames of all spaces.
#[derive(Default)]
pub(super) struct Frames {
    references: Vec<References>,
    /// Those that nobody has any more.
    free: Vec<u32>,
}

impl Frames {
    pub(super) fn fresh(&mut self) -> Frame {
        if let Some(n) = self.free.pop() {
            self.references[n as usize].all = 1;
            return Frame::Own(n);
        }
        self.references.push(References { all: 1, ending: 0 });
        Frame::Own(self.references.len() as u32 - 1)
    }

    pub(super) fn share(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.references[n as usize].all += 1;
        }
    }

    pub(super) fn drop(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            let references = &mut self.references[n as usize];
            references.all -= 1;
            if references.all == 0 {
                self.free.push(n);
            }
        }
    }

    pub(super) fn is_shared(&self, frame: Frame) -> bool {
        match frame {
            Frame::Borrowed => true,
            Frame::Own(n) => self.references[n as usize].all > 1,
        }
    }

    /// A space that has this frame begins to end.
    pub(super) fn begins_to_end(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.references[n as usize].ending += 1;
        }
    }

    /// Its end is over.
    pub(super) fn has_ended(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.references[n as usize].ending -= 1;
        }
        self.drop(frame);
    }

    /// Whether the others that share the frame are all about to end: by now they may be gone or not.
    pub(super) fn is_shared_in_doubt(&self, frame: Frame) -> bool {
        let Frame::Own(n) = frame else { return false };
        let References { all, ending } = self.references[n as usize];
        all > 1 && all <= ending + 1
    }
}
