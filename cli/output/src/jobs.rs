//! Many jobs side by side. If somebody wants the command to end, the results until then are not lost.

use std::panic;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use anyhow::Result;
use rayon::iter::{ParallelBridge, ParallelIterator};

use crate::stopping::{LOOK_EVERY, Stopping};

/// Whether all jobs were done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// Every job was done.
    All,
    /// Somebody wanted the command to end before that.
    Interrupted,
}

/// Does one job. Returns its result, or none if `stopping` came first: then the job goes on in vain until the command
/// ends.
pub fn one<T: Send + 'static>(
    stopping: &Stopping,
    job: impl Fn() -> Result<T> + Send + Sync + 'static,
) -> Result<Option<T>> {
    let mut done = None;
    let take = |_, result| {
        done = Some(result);
        Ok(())
    };
    each(1, stopping, move |_| job(), take)?;
    Ok(done)
}

/// Does `job` for every number below `jobs`, the lowest first and as many at a time as there are processors, and gives
/// each result to `take` as it comes. A job's error ends it, and so does `stopping`: what is under way is then given
/// up, and goes on in vain until the command ends.
pub fn each<T: Send + 'static>(
    jobs: usize,
    stopping: &Stopping,
    job: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
    mut take: impl FnMut(usize, T) -> Result<()>,
) -> Result<Done> {
    let (sender, results) = mpsc::channel();
    let worker = thread::spawn(move || {
        // The receiver is gone once the work was given up.
        (0..jobs).par_bridge().for_each(|index| sender.send((index, job(index))).unwrap_or_default());
    });
    let mut done = 0;
    while done < jobs && !stopping.is_wanted() {
        match results.recv_timeout(LOOK_EVERY) {
            Ok((index, result)) => take(index, result?)?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                // A job that panicked has sent nothing.
                worker.join().unwrap_or_else(|why| panic::resume_unwind(why));
                break;
            }
        }
        done += 1;
    }
    for (index, result) in results.try_iter() {
        take(index, result?)?;
        done += 1;
    }
    Ok(if done == jobs { Done::All } else { Done::Interrupted })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use anyhow::bail;

    use super::*;

    #[test]
    fn every_result_is_taken_once() {
        let mut taken = Vec::new();
        let done = each(100, &Stopping::never(), Ok, |index, result| {
            taken.push((index, result));
            Ok(())
        });
        taken.sort_unstable();
        assert_eq!((done.unwrap(), taken), (Done::All, (0..100).map(|index| (index, index)).collect()));
    }

    /// The second job would never end.
    #[test]
    fn what_is_done_is_kept_and_what_is_under_way_is_given_up() {
        let stopping = Stopping::never();
        let (_held, forever) = mpsc::channel::<()>();
        let forever = Mutex::new(forever);
        let job = move |index| {
            if index > 0 {
                let _ = forever.lock().unwrap().recv();
            }
            Ok(index)
        };
        let mut taken = Vec::new();
        let done = each(3, &stopping, job, |_, result| {
            taken.push(result);
            stopping.interrupt();
            Ok(())
        });
        assert_eq!((done.unwrap(), taken), (Done::Interrupted, vec![0]));
    }

    #[test]
    fn an_error_of_a_job_ends_it() {
        let job = |index| if index == 1 { bail!("job {index} is wrong") } else { Ok(()) };
        let done = each(2, &Stopping::never(), job, |_, ()| Ok(()));
        assert_eq!(done.unwrap_err().to_string(), "job 1 is wrong");
    }

    #[test]
    #[should_panic(expected = "of a job")]
    fn a_panic_of_a_job_is_not_taken_for_the_end() {
        let job = |index| {
            assert_ne!(index, 1, "the panic of a job");
            Ok(())
        };
        let _ = each(2, &Stopping::never(), job, |_, ()| Ok(()));
    }
}
