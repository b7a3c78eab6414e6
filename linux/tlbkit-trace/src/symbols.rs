//! The kernel's functions by address, so that a recording's pointers become names.

use std::io::BufRead;

/// The functions of one running kernel.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    starts: Vec<u64>,
    texts: Vec<Box<str>>,
    text_start: u64,
}

impl Symbols {
    /// Those of the kernel that runs here; empty without the right to see addresses.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        let file = std::fs::File::open("/proc/kallsyms");
        file.ok().map(|file| Self::from_kallsyms(std::io::BufReader::new(file))).unwrap_or_default()
    }

    /// From text of the form of `/proc/kallsyms`. Lines that are not of that form, modules' functions and data are
    /// skipped.
    pub fn from_kallsyms(mut reader: impl BufRead) -> Self {
        let mut found = Vec::new();
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
            let mut words = line.split_ascii_whitespace();
            let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok()).unwrap_or(0);
            if let (Some("t" | "T" | "w" | "W"), Some(name), None) = (words.next(), words.next(), words.next())
                && address != 0
            {
                found.push((address, Box::from(name)));
            }
            line.clear();
        }
        found.sort_by_key(|&(address, _)| address);
        let text_start = found.iter().find(|(_, name)| &**name == "_text").map_or(0, |&(address, _)| address);
        let (starts, texts) = found.into_iter().unzip();
        Self { starts, texts, text_start }
    }

    /// Where the kernel's code begins: differs at every boot where addresses are randomised. 0 if unknown.
    #[must_use]
    pub fn text_start(&self) -> u64 {
        self.text_start
    }

    /// The function that holds `address`.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.starts.partition_point(|&start| start <= address);
        // Behind the last function nothing says where it ends.
        if after == self.starts.len() {
            return None;
        }
        self.texts.get(after.checked_sub(1)?).map(|text| &**text)
    }
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
