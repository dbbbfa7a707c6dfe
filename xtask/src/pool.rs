//! Programs that run several at a time: most of what tests do is wait, for disks, elections and leases, so that
//! two cores are busy only when more than two of them run.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a job may run. One that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(25 * 60);

/// How often the pool looks whether a job has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A program to run.
pub struct Job {
    /// What it is called in the output. No two jobs have the same name.
    pub name: String,
    pub command: Command,
    /// Jobs of one lane run one after the other, in the order given, and before those that have none.
    pub lane: Option<&'static str>,
}

/// A job that has ended.
pub struct Ended {
    pub name: String,
    pub took: Duration,
    /// How it failed, if it did.
    pub failure: Option<String>,
    /// All that it printed, on either stream.
    pub output: String,
}

/// A job that runs.
struct Running {
    name: String,
    lane: Option<&'static str>,
    child: Child,
    since: Instant,
    output: PathBuf,
}

/// Runs all jobs, `width` at a time, those that took longest the last time first. `each` gets each one when it
/// has ended. The files with their output, and the one with their times, are in `dir`.
pub fn run(
    jobs: Vec<Job>,
    width: usize,
    dir: &Path,
    mut each: impl FnMut(Ended),
) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let kept = dir.join("seconds");
    let mut times = read_times(&fs::read_to_string(&kept).unwrap_or_default());
    let mut waiting = ordered(jobs, &times);
    let mut running: Vec<Running> = Vec::new();
    let mut started = 0;
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < width
            && let Some(job) = next(&mut waiting, &running)
        {
            running.push(start(job, &dir.join(format!("output-{started}")))?);
            started += 1;
        }
        let mut at = 0;
        while at < running.len() {
            match end_of(&mut running[at]) {
                None => at += 1,
                Some(failure) => {
                    let ended = collect(running.swap_remove(at), failure);
                    times.insert(ended.name.clone(), ended.took.as_secs_f64());
                    each(ended);
                }
            }
        }
        std::thread::sleep(LOOK);
    }
    fs::write(&kept, write_times(&times)).map_err(|e| format!("{}: {e}", kept.display()))
}

/// The jobs in the order in which they are to start: those of lanes, then what has no time yet, then what took
/// longest.
fn ordered(mut jobs: Vec<Job>, times: &HashMap<String, f64>) -> Vec<Job> {
    let time = |job: &Job| match job.lane {
        Some(_) => f64::INFINITY,
        None => times.get(&job.name).copied().unwrap_or(f64::MAX),
    };
    jobs.sort_by(|a, b| time(b).total_cmp(&time(a)));
    jobs
}

/// The first job that may start beside those that run.
fn next(waiting: &mut Vec<Job>, running: &[Running]) -> Option<Job> {
    let busy = |lane| running.iter().any(|r| r.lane == lane);
    let free = |job: &Job| job.lane.is_none() || !busy(job.lane);
    let at = waiting.iter().position(free)?;
    Some(waiting.remove(at))
}

fn start(mut job: Job, output: &Path) -> Result<Running, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", job.name);
    let file = File::create(output).map_err(failed)?;
    let child = job
        .command
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(failed)?)
        .stderr(file)
        .spawn()
        .map_err(failed)?;
    Ok(Running {
        name: job.name,
        lane: job.lane,
        child,
        since: Instant::now(),
        output: output.into(),
    })
}

/// Whether the job has ended, and then how it failed. One that has taken too long is ended.
fn end_of(job: &mut Running) -> Option<Option<String>> {
    match job.child.try_wait() {
        Ok(Some(status)) if status.success() => Some(None),
        Ok(Some(status)) => Some(Some(status.to_string())),
        Ok(None) if job.since.elapsed() < LIMIT => None,
        Ok(None) => {
            let _ = job.child.kill();
            let _ = job.child.wait();
            Some(Some(format!("it ran for {} s, too long", LIMIT.as_secs())))
        }
        Err(e) => Some(Some(e.to_string())),
    }
}

fn collect(job: Running, failure: Option<String>) -> Ended {
    let output = fs::read(&job.output).unwrap_or_default();
    let _ = fs::remove_file(&job.output);
    Ended {
        took: job.since.elapsed(),
        name: job.name,
        failure,
        output: String::from_utf8_lossy(&output).into_owned(),
    }
}

/// Lines of seconds and a name.
fn read_times(text: &str) -> HashMap<String, f64> {
    let line = |line: &str| {
        let (seconds, name) = line.split_once(' ')?;
        Some((name.to_string(), seconds.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn write_times(times: &HashMap<String, f64>) -> String {
    let line = |(name, seconds): (&String, &f64)| format!("{seconds:.1} {name}\n");
    times.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job {
            name: name.into(),
            command,
            lane: None,
        }
    }

    #[test]
    fn all_jobs_run_and_tell_how_they_ended() {
        let dir = std::env::temp_dir().join(format!("muniment-pool-{}", std::process::id()));
        let jobs = vec![
            shell("good", "echo fine"),
            shell("bad", "echo wrong >&2; exit 3"),
            shell("slow", "sleep 0.2; echo late"),
        ];
        let mut ended = Vec::new();
        run(jobs, 2, &dir, |e| {
            ended.push((e.name, e.output, e.failure.is_some()));
        })
        .unwrap();
        let times = read_times(&fs::read_to_string(dir.join("seconds")).unwrap());
        fs::remove_dir_all(&dir).unwrap();
        ended.sort();
        let expected = [
            ("bad", "wrong\n", true),
            ("good", "fine\n", false),
            ("slow", "late\n", false),
        ];
        let expected = expected.map(|(n, o, f)| (n.to_string(), o.to_string(), f));
        assert_eq!(ended, expected);
        assert!(times["slow"] >= 0.2, "{times:?}");
    }

    #[test]
    fn the_new_and_the_longest_start_first() {
        let times = read_times("3.0 short\n70.5 a long one\n");
        let jobs = ["short", "new", "a long one", "newer"].map(|n| shell(n, "true"));
        let order = ordered(jobs.into(), &times);
        let names: Vec<&str> = order.iter().map(|j| j.name.as_str()).collect();
        assert_eq!(names, ["new", "newer", "a long one", "short"]);
    }

    #[test]
    fn jobs_of_a_lane_run_one_after_the_other() {
        let dir = std::env::temp_dir().join(format!("muniment-lane-{}", std::process::id()));
        let lock = dir.join("lock");
        let script = format!("mkdir {0} && sleep 0.1 && rmdir {0}", lock.display());
        let jobs = ["third", "second", "first"].map(|name| Job {
            lane: Some("lane"),
            ..shell(name, &script)
        });
        let mut ended = Vec::new();
        run(jobs.into(), 3, &dir, |e| ended.push((e.name, e.failure))).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let expected = ["third", "second", "first"].map(|n| (n.to_string(), None));
        assert_eq!(ended, expected);
    }
}
