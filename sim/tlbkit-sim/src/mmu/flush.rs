//! The instructions that invalidate translations, on this machine's arrays.
//!
//! Which translations each instruction invalidates is the table at the head of [`tlbkit_arch::scope`]. The arrays here
//! are made for speed and so have separate code; a test compares what is left in them with that table, entry by
//! entry.

use thiserror::Error;
use tlbkit::{Cr3, Invlpgb, Invpcid, Pcid, Stride, Tables, VirtAddr};
use tlbkit_arch::addr::is_canonical_within;

use super::config::Fracturing;
use super::counters::{Loss, LossCause};
use super::entry::{GLOBAL, PageSize, origin_bits_of, span_of, tag_of};
use super::level::{Globals, Level};
use super::state::{Mmu, Pieces};

/// The processor refuses an operand (#GP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum GeneralProtection {
    /// INVPCID 0 or 1 named a tag other than 0 while CR4.PCIDE is clear.
    #[error("INVPCID names PCID {} while PCIDs are off", .0.0)]
    PcidWhileOff(Pcid),
    /// INVPCID named a tag beyond 4,095.
    #[error("INVPCID names PCID {}, beyond 4095", .0.0)]
    PcidTooLarge(Pcid),
    /// INVPCID 0 named an address that is not canonical.
    #[error("INVPCID names {0:?}, which is not canonical")]
    Address(VirtAddr),
    /// CR4.PCIDE was set while CR3 held bits 11 ..= 0.
    #[error("CR4.PCIDE set while CR3 is {0:#x}")]
    PcidePreset(u64),
}

/// Whether a loss counts as collateral.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// The instruction named the page.
    Page,
    /// It did not.
    NotThePage,
}

impl Mmu {
    /// MOV to CR3. While PCIDs are off, bits 63 and 11 ..= 0 mean nothing.
    pub fn write_cr3(&mut self, cr3: Cr3) {
        self.counters.executed.cr3_writes += 1;
        self.cr3 = cr3;
        if !self.pcide {
            self.drop_everywhere(Globals::Stay, LossCause::Cr3);
            return;
        }
        self.load(cr3.pcid());
        if !cr3.keeps() {
            self.drop_tag(self.tag, LossCause::Cr3);
        }
    }

    /// INVLPG. An address that is not canonical is no error and does nothing.
    ///
    /// With fracturing it empties everything, whatever was cached: the kernel's direct map of all memory is mapped in
    /// large pages, so pieces of them are always there. INVPCID was not measured and stays with its page.
    pub fn invlpg(&mut self, va: VirtAddr) {
        self.counters.executed.pages += 1;
        if !is_canonical_within(va, self.half) {
            return;
        }
        self.path.drop_tag(self.tag);
        let loss = self.drop_page(va, self.tag, Globals::Too);
        self.record_loss(LossCause::Invlpg, loss, Named::Page);
        if self.config.fracturing == Fracturing::On {
            self.drop_everywhere(Globals::Too, LossCause::Fracturing);
        }
    }

    /// INVPCID.
    ///
    /// # Errors
    /// The operands that the processor refuses; nothing is dropped then.
    pub fn invpcid(&mut self, what: Invpcid) -> Result<(), GeneralProtection> {
        match what {
            Invpcid::Address(pcid, va) => {
                self.check_pcid(pcid)?;
                if !is_canonical_within(va, self.half) {
                    return Err(GeneralProtection::Address(va));
                }
                self.invalidate_address(pcid, va);
            }
            Invpcid::Single(pcid) => {
                self.check_pcid(pcid)?;
                if let Some(tag) = self.known_tag(pcid) {
                    self.drop_tag(tag, LossCause::Invpcid);
                }
            }
            Invpcid::AllAndGlobals => self.drop_everywhere(Globals::Too, LossCause::Invpcid),
            Invpcid::All => self.drop_everywhere(Globals::Stay, LossCause::Invpcid),
        }
        match what {
            Invpcid::Address(..) => self.counters.executed.pages += 1,
            _ => self.counters.executed.everything += 1,
        }
        Ok(())
    }

    /// INVLPGB, whichever CPU has executed it.
    pub fn invlpgb(&mut self, what: Invlpgb) {
        self.counters.executed.broadcasts += 1;
        match what {
            Invlpgb::Pages { pcid, first, pages, stride, tables } => {
                let Some(tag) = self.known_tag(pcid) else { return };
                for va in addresses(first, pages, stride) {
                    let loss = self.drop_page(va, tag, Globals::Stay);
                    self.record_loss(LossCause::Invlpgb, loss, Named::Page);
                    if tables == Tables::Freed {
                        self.forget_path(va, tag);
                    }
                }
            }
            Invlpgb::PagesOfAll { first, pages, stride } => {
                for va in addresses(first, pages, stride) {
                    for tag in 0..self.met.len() as u16 {
                        let loss = self.drop_page(va, tag, Globals::Too);
                        self.record_loss(LossCause::Invlpgb, loss, Named::Page);
                    }
                }
            }
            Invlpgb::Single(pcid) => {
                if let Some(tag) = self.known_tag(pcid) {
                    self.drop_tag(tag, LossCause::Invlpgb);
                }
            }
            Invlpgb::All => self.drop_everywhere(Globals::Stay, LossCause::Invlpgb),
            Invlpgb::AllAndGlobals => self.drop_everywhere(Globals::Too, LossCause::Invlpgb),
        }
    }

    /// The host flushes all that belongs to the guest, before it runs this CPU again.
    pub fn flush_by_host(&mut self) {
        self.drop_everywhere(Globals::Too, LossCause::Host);
    }

    /// Clears CR4.PGE and sets it again.
    pub fn toggle_pge(&mut self) {
        self.counters.executed.everything += 1;
        self.drop_everywhere(Globals::Too, LossCause::Pge);
    }

    /// Writes CR4.PCIDE.
    ///
    /// # Errors
    /// Setting it while CR3 holds bits 11 ..= 0.
    pub fn set_pcide(&mut self, to: Pcide) -> Result<(), GeneralProtection> {
        match to {
            Pcide::On if !self.pcide && self.cr3.pcid() != Pcid::KERNEL => {
                return Err(GeneralProtection::PcidePreset(self.cr3.0));
            }
            Pcide::Off if self.pcide => {
                self.drop_everywhere(Globals::Too, LossCause::Pge);
                self.load(Pcid(0));
            }
            Pcide::On | Pcide::Off => {}
        }
        self.pcide = to == Pcide::On;
        Ok(())
    }

    fn check_pcid(&self, pcid: Pcid) -> Result<(), GeneralProtection> {
        match pcid.0 {
            0 => Ok(()),
            4096.. => Err(GeneralProtection::PcidTooLarge(pcid)),
            _ if self.pcide => Ok(()),
            _ => Err(GeneralProtection::PcidWhileOff(pcid)),
        }
    }

    fn invalidate_address(&mut self, pcid: Pcid, va: VirtAddr) {
        let Some(tag) = self.known_tag(pcid) else { return };
        let loss = self.drop_page(va, tag, Globals::Stay);
        self.record_loss(LossCause::Invpcid, loss, Named::Page);
        self.forget_path(va, tag);
    }

    /// Makes `pcid` the loaded tag; a level that remembers fewer tags forgets one for it.
    fn load(&mut self, pcid: Pcid) {
        self.tag = self.known_tag(pcid).unwrap_or_else(|| {
            self.met.push(pcid);
            (self.met.len() - 1) as u16
        });
        self.l1.load(self.tag);
        self.stlb.load(self.tag);
        self.path.load(self.tag);
        let mut loss = Loss::default();
        if let Some(forgotten) = self.l1_residents.load(self.tag) {
            loss.l1 = u64::from(self.l1.drop_tag(forgotten));
        }
        if let Some(forgotten) = self.stlb_residents.load(self.tag) {
            loss.stlb = u64::from(self.stlb.drop_tag(forgotten));
            self.path.drop_tag(forgotten);
        }
        self.record_loss(LossCause::Residency, loss, Named::Page);
    }

    fn drop_tag(&mut self, tag: u16, cause: LossCause) {
        let loss = Loss { l1: u64::from(self.l1.drop_tag(tag)), stlb: u64::from(self.stlb.drop_tag(tag)) };
        self.path.drop_tag(tag);
        self.record_loss(cause, loss, Named::NotThePage);
    }

    fn drop_everywhere(&mut self, globals: Globals, cause: LossCause) {
        let loss = Loss { l1: u64::from(self.l1.drop_all(globals)), stlb: u64::from(self.stlb.drop_all(globals)) };
        self.path.drop_all(globals);
        if globals == Globals::Too {
            self.pieces = Pieces::None;
        }
        self.record_loss(cause, loss, Named::NotThePage);
    }

    /// Drops one page of whatever size. A page that is cached in pieces goes with all of them.
    fn drop_page(&mut self, va: VirtAddr, tag: u16, globals: Globals) -> Loss {
        let pieces = self.pieces;
        let drop = |level: &mut Level| match pieces {
            Pieces::None => u64::from(level.remove_page(va, tag, globals)),
            Pieces::Some => u64::from(drop_with_pieces(level, va, tag, globals)),
        };
        Loss { l1: drop(&mut self.l1), stlb: drop(&mut self.stlb) }
    }

    fn record_loss(&mut self, cause: LossCause, loss: Loss, named: Named) {
        self.counters.lost.add(cause, loss);
        if named == Named::NotThePage {
            self.counters.collateral += loss;
        }
    }
}

fn addresses(first: VirtAddr, pages: u32, stride: Stride) -> impl Iterator<Item = VirtAddr> {
    (0..u64::from(pages)).map(move |page| VirtAddr(first.0.wrapping_add(page * stride.bytes())))
}

/// A value of CR4.PCIDE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pcide {
    /// Tags count.
    On,
    /// Every entry has tag 0.
    Off,
}

/// Looks at every entry: pieces of a page lie in many sets.
fn drop_with_pieces(level: &mut Level, va: VirtAddr, tag: u16, globals: Globals) -> u32 {
    let page = PageSize::Small.page_of(va);
    level.remove_where(|key, data| {
        let bits = origin_bits_of(data);
        let in_scope = if data & GLOBAL != 0 { globals == Globals::Too } else { tag_of(data) == tag };
        in_scope && span_of(key).0 >> bits == page >> bits
    })
}
