//! The frames behind mapped pages, and which of them relatives share.

/// Where the content of a mapped page comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A file's page or the page of zeros: the first store copies it.
    Borrowed,
    /// The program's own, counted in [`Frames`].
    Own(u32),
}

/// References to the frames of all spaces.
#[derive(Default)]
pub(super) struct Frames(Vec<u32>);

impl Frames {
    pub(super) fn fresh(&mut self) -> Frame {
        self.0.push(1);
        Frame::Own(self.0.len() as u32 - 1)
    }

    pub(super) fn share(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.0[n as usize] += 1;
        }
    }

    pub(super) fn drop(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.0[n as usize] -= 1;
        }
    }

    pub(super) fn is_shared(&self, frame: Frame) -> bool {
        match frame {
            Frame::Borrowed => true,
            Frame::Own(n) => self.0[n as usize] > 1,
        }
    }
}
