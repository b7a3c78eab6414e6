//! OSTD's own tests of its memory management, which it has its tool run: the same functions, one after another. Nothing
//! unwinds on this target, so a test that panics, whether it must or not, is the last of its boot.

use core::any::Any;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use ostd::boot::smp::register_ap_entry;
use ostd::ktest::{self, KtestError, KtestItem, KtestIter};
use ostd::power::{ExitCode, poweroff};
use ostd::prelude::println;
use ostd::sync::{LocalIrqDisabled, SpinLock};
use ostd::task::{TaskOptions, halt_cpu};

type Caught = Result<(), Box<dyn Any + Send>>;

/// The test that runs, by its place among all.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static THROWN: SpinLock<Option<ktest::PanicInfo>, LocalIrqDisabled> = SpinLock::new(None);

fn all() -> impl Iterator<Item = KtestItem> {
    KtestIter::new().filter(|test| test.info().module_path.starts_with("ostd::mm::"))
}

/// Runs all tests from that place on.
pub fn begin(from: usize) {
    let run = move || {
        for (at, test) in all().enumerate().skip(from) {
            RUNNING.store(at, Relaxed); // Relaxed: read by this task, when it panics
            println!("{{\"at\":{},\"name\":\"{}::{}\"}}", at, test.info().module_path, test.info().fn_name);
            judge(&test, |f| {
                f();
                Ok(())
            });
        }
        println!("{{\"test\":\"tests\"}}");
        poweroff(ExitCode::Success);
    };
    TaskOptions::new(run).data(()).spawn().expect("there is memory for a task");
    // Another CPU has no task, but answers.
    register_ap_entry(|| {
        loop {
            halt_cpu();
        }
    });
}

/// The running test has panicked.
pub fn end(info: &PanicInfo<'_>) -> ! {
    let (file, line, col) = info.location().map_or(("", 0, 0), |at| (at.file(), at.line(), at.column()));
    let message = info.message().to_string();
    *THROWN.lock() = Some(ktest::PanicInfo { message, file: file.to_string(), line: line as usize, col: col as usize });
    let test = all().nth(RUNNING.load(Relaxed)).expect("a test runs");
    judge(&test, |_| Err(Box::new(THROWN.lock().take().expect("it is there"))));
    poweroff(ExitCode::Success)
}

/// Says whether `test` does what it must, if `run` is how it ends.
fn judge(test: &KtestItem, run: fn(fn()) -> Caught) {
    let why = match test.run(&run) {
        Ok(()) => String::new(),
        Err(KtestError::Panic(info) | KtestError::ExpectedPanicNotMatch(_, info)) => info.message,
        Err(KtestError::ShouldPanicButNoPanic) => "it does not panic".to_string(),
        Err(KtestError::Unknown) => "it fails".to_string(),
    };
    println!("{{\"holds\":{},\"why\":{:?}}}", why.is_empty(), why);
}
