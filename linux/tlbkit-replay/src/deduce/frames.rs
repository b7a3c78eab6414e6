//! The frames of mapped pages, and which of them several spaces share after a fork.

/// Where the content of a mapped page comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A page of a file or the page of zeros. The first write to it makes a copy.
    Borrowed,
    /// A frame of the program's own, whose references [`Frames`] counts.
    Own(u32),
}

/// How many spaces refer to one frame.
struct References {
    all: u32,
    /// How many of these spaces are about to end, and may have given the frame up already.
    ending: u32,
}

/// The references to the frames of all spaces.
#[derive(Default)]
pub(super) struct Frames {
    references: Vec<References>,
    /// The numbers of frames that no space has any more.
    free: Vec<u32>,
}

impl Frames {
    /// A new frame, to which one space refers.
    pub(super) fn fresh(&mut self) -> Frame {
        if let Some(n) = self.free.pop() {
            self.references[n as usize].all = 1;
            return Frame::Own(n);
        }
        self.references.push(References { all: 1, ending: 0 });
        Frame::Own(self.references.len() as u32 - 1)
    }

    /// One more space refers to the frame.
    pub(super) fn share(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.references[n as usize].all += 1;
        }
    }

    /// One space less refers to the frame.
    pub(super) fn drop(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            let references = &mut self.references[n as usize];
            references.all -= 1;
            if references.all == 0 {
                self.free.push(n);
            }
        }
    }

    /// Whether a write to the frame makes a copy: it is borrowed, or several spaces refer to it.
    pub(super) fn is_shared(&self, frame: Frame) -> bool {
        match frame {
            Frame::Borrowed => true,
            Frame::Own(n) => self.references[n as usize].all > 1,
        }
    }

    /// A space that refers to the frame begins to end.
    pub(super) fn begins_to_end(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.references[n as usize].ending += 1;
        }
    }

    /// A space that referred to the frame has ended.
    pub(super) fn has_ended(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.references[n as usize].ending -= 1;
        }
        self.drop(frame);
    }

    /// Whether all other spaces that refer to the frame are about to end. Then it is not known whether a write makes a
    /// copy.
    pub(super) fn is_shared_in_doubt(&self, frame: Frame) -> bool {
        let Frame::Own(n) = frame else { return false };
        let References { all, ending } = self.references[n as usize];
        all > 1 && all <= ending + 1
    }
}
