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
pub(super) struct Frames {
    references: Vec<u32>,
    /// Those that nobody has any more.
    free: Vec<u32>,
}

impl Frames {
    pub(super) fn fresh(&mut self) -> Frame {
        if let Some(n) = self.free.pop() {
            self.references[n as usize] = 1;
            return Frame::Own(n);
        }
        self.references.push(1);
        Frame::Own(self.references.len() as u32 - 1)
    }

    pub(super) fn share(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            self.references[n as usize] += 1;
        }
    }

    pub(super) fn drop(&mut self, frame: Frame) {
        if let Frame::Own(n) = frame {
            let references = &mut self.references[n as usize];
            *references -= 1;
            if *references == 0 {
                self.free.push(n);
            }
        }
    }

    pub(super) fn is_shared(&self, frame: Frame) -> bool {
        match frame {
            Frame::Borrowed => true,
            Frame::Own(n) => self.references[n as usize] > 1,
        }
    }
}
