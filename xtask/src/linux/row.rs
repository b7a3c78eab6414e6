//! A row of measured work, as the guest writes it, and what one boot says of it once its waits are taken out.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::boot::CLOCK_SHIFT;
use super::spread::Spread;
use super::waits::Waited;

/// One row of one boot.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) work: String,
    /// Instructions that all CPUs executed in each operation.
    executed: Vec<u64>,
    /// Operations before these, which are not counted.
    warm: usize,
    interrupts: u64,
}

/// What a boot says of one row: instructions of one operation; waiting, in instructions, and interrupts of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub(super) work: String,
    pub(super) operations: usize,
    pub(super) instructions: u64,
    pub(super) waiting: u64,
    pub(super) interrupts: u64,
}

impl Row {
    pub(super) fn of(line: &Value) -> Result<Self> {
        let number = |key: &str| line[key].as_u64().with_context(|| format!("a row without `{key}`: {line}"));
        let (pages, threads) = (number("pages")?, number("threads")?);
        let name = line["work"].as_str().context("a row without a name")?;
        let pages = match pages {
            0 => String::new(),
            1 => ", 1 page".to_owned(),
            pages => format!(", {pages} pages"),
        };
        let threads = if threads == 1 { String::new() } else { format!(", {threads} threads") };
        let ticks = line["ticks"].as_array().filter(|ticks| !ticks.is_empty());
        let ticks = ticks.with_context(|| format!("a row without operations: {line}"))?.iter();
        Ok(Self {
            work: format!("{name}{pages}{threads}"),
            executed: ticks.filter_map(Value::as_u64).map(|ticks| ticks >> CLOCK_SHIFT).collect(),
            warm: number("warm")? as usize,
            interrupts: number("interrupts")?,
        })
    }

    pub(super) fn operations(&self) -> usize {
        self.executed.len()
    }

    /// Takes what was waited in the operations of this row off the front of `waited`. Instructions are the median of
    /// the operations: a tick of the timer in one of them takes thousands and does not count.
    pub(super) fn count(&self, waited: &mut impl Iterator<Item = Waited>) -> Result<Counted> {
        let waited: Vec<Waited> = waited.skip(self.warm).take(self.operations()).collect();
        if waited.len() != self.operations() {
            bail!("{}: {} operations, and the waits of {}", self.work, self.operations(), waited.len());
        }
        let worked = self.executed.iter().zip(&waited).map(|(executed, waited)| {
            let worked = executed.checked_sub(waited.in_kernel + waited.in_program);
            worked.with_context(|| format!("{}: {executed} instructions, {waited:?} among them", self.work))
        });
        let worked = Spread::of(worked.collect::<Result<Vec<_>>>()?).context("no operations")?;
        Ok(Counted {
            work: self.work.clone(),
            operations: self.operations(),
            instructions: worked.median,
            waiting: waited.iter().map(|waited| waited.in_kernel).sum(),
            interrupts: self.interrupts,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_counted_without_its_waits_and_what_came_before_it() -> Result<()> {
        let line = json!({"work": "munmap", "pages": 33, "threads": 2, "warm": 1, "interrupts": 10,
            "ticks": [400, 440, 40000]});
        let row = Row::of(&line)?;
        let waited = |in_kernel| Waited { in_kernel, in_program: 5 };
        let mut all = [waited(90), waited(20), waited(30), waited(7), waited(1)].into_iter();
        let counted = row.count(&mut all)?;
        assert_eq!((counted.work.as_str(), counted.operations), ("munmap, 33 pages, 2 threads", 3));
        // 100 - 25, 110 - 35 and 10,000 - 12.
        assert_eq!((counted.instructions, counted.waiting, counted.interrupts), (75, 57, 10));
        assert_eq!(all.count(), 1, "the next row's");
        Ok(())
    }

    #[test]
    fn waits_that_do_not_belong_to_the_row_are_refused() -> Result<()> {
        let row = json!({"work": "fork", "pages": 0, "threads": 1, "warm": 0, "interrupts": 0, "ticks": [400]});
        let row = Row::of(&row)?;
        let count = |waited: Option<Waited>| row.count(&mut waited.into_iter()).map_err(|error| error.to_string());
        assert!(count(None).is_err_and(|error| error.contains("the waits of 0")));
        let longer = Waited { in_kernel: 60, in_program: 41 };
        assert!(count(Some(longer)).is_err_and(|error| error.contains("100 instructions")));
        assert!(Row::of(&json!({"work": "fork", "pages": 0, "threads": 1, "ticks": []})).is_err());
        Ok(())
    }
}
