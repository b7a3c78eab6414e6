//! The kernel's functions by address, by which the addresses of a recording become names.

use std::io::BufRead;

/// The functions of one running kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    /// The addresses of all functions, in ascending order.
    starts: Vec<u64>,
    /// Where the name of each function lies in `texts`: its begin and its length, in bytes.
    places: Vec<(u32, u32)>,
    texts: String,
    text_start: u64,
}

impl Symbols {
    /// The functions of the kernel that runs on this machine. There are none without the right to see addresses.
    pub(crate) fn of_this_kernel() -> Self {
        let file = std::fs::File::open("/proc/kallsyms");
        file.ok().map(|file| Self::from_kallsyms(std::io::BufReader::new(file))).unwrap_or_default()
    }

    /// The functions that a text in the form of `/proc/kallsyms` lists. Lines of another form, functions of modules,
    /// and data are skipped.
    pub(crate) fn from_kallsyms(mut reader: impl BufRead) -> Self {
        let mut found = Vec::new();
        let mut texts = String::new();
        let mut text_start = 0;
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if let Some((address, name)) = function(line.trim_ascii_end()) {
                // No kernel has 4 GiB of names.
                let Ok(start) = u32::try_from(texts.len()) else { break };
                texts.push_str(name);
                found.push((address, (start, name.len() as u32)));
                if name == "_text" {
                    text_start = address;
                }
            }
            line.clear();
        }
        found.sort_by_key(|&(address, _)| address);
        let (starts, places) = found.into_iter().unzip();
        Self { starts, places, texts, text_start }
    }

    /// The address at which the kernel's code begins, or 0 if it is unknown. Where addresses are randomised it differs
    /// from boot to boot.
    pub(crate) fn text_start(&self) -> u64 {
        self.text_start
    }

    /// The name of the function that holds `address`, or none if no function does.
    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self.starts.partition_point(|&start| start <= address);
        // The text does not say where the last function ends.
        if after == self.starts.len() {
            return None;
        }
        let &(start, length) = self.places.get(after.checked_sub(1)?)?;
        self.texts.get(start as usize..)?.get(..length as usize)
    }
}

/// Address and name in a line such as `ffffffff81000100 t name`, if it is a function of the kernel and not of a module.
fn function(line: &[u8]) -> Option<(u64, &str)> {
    let (address, rest) = line.split_at(memchr::memchr(b' ', line)?);
    let [b' ', b't' | b'T' | b'w' | b'W', b' ', name @ ..] = rest else { return None };
    let address = hexadecimal(address).filter(|&address| address != 0)?;
    let has_more = name.is_empty() || memchr::memchr2(b' ', b'\t', name).is_some();
    if has_more { None } else { Some((address, std::str::from_utf8(name).ok()?)) }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if !(1..=16).contains(&digits.len()) {
        return None;
    }
    let (mut sum, mut is_number) = (0, true);
    for &b in digits {
        let digit = if b <= b'9' { b.wrapping_sub(b'0') } else { b.wrapping_sub(b'a' - 10) };
        is_number &= matches!(b, b'0'..=b'9' | b'a'..=b'f');
        sum = sum << 4 | u64::from(digit);
    }
    is_number.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _text\nffffffff81000100 t flush_tlb_func\nffffffff81000100 d data\n\
                        junk\nffffffff81000400 T next\nffffffffc0000000 t f\t[module]\n";

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let symbols = Symbols::from_kallsyms(TEXT.as_bytes());
        assert_eq!(symbols.text_start(), 0xffff_ffff_8100_0000);
        assert_eq!(symbols.name(0xffff_ffff_8100_0100), Some("flush_tlb_func"));
        assert_eq!(symbols.name(0xffff_ffff_8100_03ff), Some("flush_tlb_func"));
        assert_eq!(symbols.name(0xffff_ffff_80ff_ffff), None);
        assert_eq!(symbols.name(0xffff_ffff_8100_0400), None, "the last function's end is unknown");
    }

    #[test]
    fn hidden_addresses_give_no_names() {
        let symbols = Symbols::from_kallsyms("0000000000000000 T _text\n0000000000000000 t f\n".as_bytes());
        assert_eq!(symbols.name(0x10), None);
    }
}
