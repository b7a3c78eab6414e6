//! Waiting for an emulator, and reading what its kernel wrote.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Waits for the end of `child`; nothing if it had to be ended after `limit`.
///
/// # Errors
/// The operating system's.
pub fn wait(mut child: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The JSON objects among the lines; null for one that breaks off.
#[must_use]
pub fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_is_no_object_is_left_out_and_what_is_none_yet_is_null() {
        assert_eq!(lines("SeaBIOS\n{\"a\":1}\n\n{\"a\""), [serde_json::json!({ "a": 1 }), Value::Null]);
    }

    #[test]
    fn who_does_not_end_is_ended() -> io::Result<()> {
        let sleeper = || Command::new("sleep").arg("60").spawn();
        assert_eq!(wait(sleeper()?, Duration::from_millis(30))?, None);
        let quick = Command::new("true").spawn()?;
        assert!(wait(quick, Duration::from_secs(60))?.is_some_and(|status| status.success()));
        Ok(())
    }
}
