//! The processes that the lab starts: the embedded server, the null responder, the null router and
//! the raw engine. Each is this same executable with other arguments, dies with the lab, and leaves no
//! files afterwards.

use crate::responder::Responder;
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::stop;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that is removed with everything in it.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// Makes a fresh directory in `parent`.
    pub(crate) fn new(parent: &Path) -> Result<TempDir> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("muniment-bench-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir)
            .context(&format!("making the temporary directory {}", dir.display()))?;
        Ok(TempDir(dir))
    }

    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A directory that cannot be removed is left to the system's own cleaning of temporary
        // files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running child.
pub(crate) struct Process {
    child: Child,
    /// The process's directory, removed after the process has ended.
    dir: TempDir,
    what: &'static str,
}

impl Process {
    /// Starts this executable with `args`. Its stderr (and its stdout, unless `piped`) go to a file
    /// in `dir`, the end of which is quoted when something goes wrong.
    fn start(what: &'static str, args: &[String], dir: TempDir, piped: bool) -> Result<Process> {
        let child = spawn(&own()?, what, args, dir.path(), piped, None)?;
        Ok(Process { child, dir, what })
    }

    /// Kills the process with SIGKILL, as a crash would end it, and waits for its end.
    pub(crate) fn kill9(&mut self) {
        // Both calls fail only for a process that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server again in the same directory after its end; returns its address.
    ///
    /// # Errors
    /// The server still runs, or it does not come up; the error quotes the end of its output.
    pub(crate) fn server_again(&mut self, options: &ServerOptions) -> Result<String> {
        if matches!(self.child.try_wait(), Ok(None)) {
            return Err(Failure(format!("the {} still runs", self.what)));
        }
        let file = self.dir.path().join(PORT_FILE);
        let _ = std::fs::remove_file(&file);
        let (args, layer) = (options.args(&file), options.layer.as_ref());
        let program = &options.program;
        self.child = spawn(program, self.what, &args, self.dir.path(), false, layer)?;
        Ok(format!("127.0.0.1:{}", self.port(&file)?))
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process's directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The end of the process's output.
    fn last_words(&self) -> String {
        let text = std::fs::read(self.dir.path().join("output.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        let tail = lines
            .get(lines.len().saturating_sub(6)..)
            .unwrap_or_default();
        if tail.is_empty() {
            "it wrote nothing".to_string()
        } else {
            format!("it wrote:\n    {}", tail.join("\n    "))
        }
    }

    /// Fails, with the end of its output, if the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Failure(format!(
                "the {} has ended ({status}); {}",
                self.what,
                self.last_words()
            ))),
            Err(e) => Err(Failure(format!("the {}: {e}", self.what))),
        }
    }

    /// Waits until the process has written its port into `file`.
    fn port(&mut self, file: &Path) -> Result<u16> {
        let begin = Instant::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(file)
                && let Ok(port) = text.trim().parse::<u16>()
            {
                return Ok(port);
            }
            self.check_alive()?;
            if stop::asked() {
                return Err(Failure::new("interrupted"));
            }
            if begin.elapsed() > Duration::from_secs(20) {
                return Err(Failure(format!(
                    "the {} was not ready after 20 s; {}",
                    self.what,
                    self.last_words()
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes the pipes to the process; `None` after the first call.
    pub(crate) fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that has ended and was reaped has lost its process id, which may belong to
        // another process now; a signal would hit that one.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // SAFETY: the child is ours and not reaped yet, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of this executable.
///
/// # Errors
/// The system does not tell the path.
pub(crate) fn own() -> Result<PathBuf> {
    std::env::current_exe().context("finding this executable")
}

/// Starts the program `exe`; see [`Process::start`].
fn spawn(
    exe: &Path,
    what: &str,
    args: &[String],
    dir: &Path,
    piped: bool,
    layer: Option<&powerloss_image::Settings>,
) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("output.log"))
        .context("making the log file")?;
    let err = log.try_clone().context("making the log file")?;
    let mut c = Command::new(exe);
    c.args(args).stderr(err);
    if piped {
        c.stdin(Stdio::piped()).stdout(Stdio::piped());
    } else {
        c.stdin(Stdio::null()).stdout(log);
    }
    if let Some(layer) = layer {
        layer.apply(&mut c);
    }
    // The child gets its own process group: Ctrl-C at the terminal then reaches the lab alone,
    // which ends the child when it no longer needs it.
    c.process_group(0);
    // SAFETY: prctl is async-signal-safe and touches only the child itself.
    unsafe {
        c.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    c.spawn()
        .context(&format!("starting {} as {what}", exe.display()))
}

/// The file in a server's directory to which the server writes the port that it got.
const PORT_FILE: &str = "port";

/// The options with which an embedded server is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    /// The executable, which must be a Muniment.
    pub program: PathBuf,
    /// Its `--dbpath`, relative to its temporary directory.
    pub data: PathBuf,
    /// Its `--cacheSizeGB`.
    pub cache_gb: Option<f64>,
    /// Its `--journalCommitInterval`, milliseconds.
    pub journal_ms: Option<u64>,
    /// The file layer that the server runs under, which can lose unsynced data as a power loss
    /// does.
    pub layer: Option<powerloss_image::Settings>,
    /// The port; 0 lets the system choose a free one.
    pub port: u16,
    /// Further arguments.
    pub more: Vec<String>,
}

impl ServerOptions {
    fn args(&self, port_file: &Path) -> Vec<String> {
        let mut args: Vec<String> = ["serve", "--bind_ip", "127.0.0.1"]
            .iter()
            .map(ToString::to_string)
            .collect();
        let mut option = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        option("port", self.port.to_string());
        option("portFile", port_file.display().to_string());
        option("dbpath", self.data.display().to_string());
        if let Some(gb) = self.cache_gb {
            option("cacheSizeGB", gb.to_string());
        }
        if let Some(ms) = self.journal_ms {
            option("journalCommitInterval", ms.to_string());
        }
        args.extend(self.more.iter().cloned());
        args
    }
}

/// Starts a server of `program` on a free loopback port with its data below `parent`; returns it
/// with its address. `cache_gb` is its `--cacheSizeGB`.
pub(crate) fn server(
    program: &Path,
    parent: &Path,
    cache_gb: Option<f64>,
) -> Result<(Process, String)> {
    let dir = TempDir::new(parent)?;
    let options = ServerOptions {
        program: program.to_path_buf(),
        data: dir.path().join("data"),
        cache_gb,
        ..ServerOptions::default()
    };
    server_with(dir, &options)
}

/// Starts a server as [`server`] does, in `dir`, which is removed with it.
pub(crate) fn server_with(dir: TempDir, options: &ServerOptions) -> Result<(Process, String)> {
    std::fs::create_dir_all(&options.data).context("making the data directory")?;
    let args = options.args(&dir.path().join(PORT_FILE));
    let layer = options.layer.as_ref();
    listening("embedded server", &options.program, &args, dir, layer)
}

/// Starts a router of `program` on a free loopback port, with its directory below `parent`; returns
/// it with its address. `config` is the set that holds the cluster's configuration,
/// `NAME/HOST:PORT`.
pub(crate) fn router(program: &Path, parent: &Path, config: &str) -> Result<(Process, String)> {
    let dir = TempDir::new(parent)?;
    let file = dir.path().join(PORT_FILE).display().to_string();
    let args = [
        "router",
        "--bind_ip",
        "127.0.0.1",
        "--port",
        "0",
        "--portFile",
        &file,
        "--configdb",
        config,
    ];
    listening("router", program, &args.map(String::from), dir, None)
}

/// Starts the program `exe`, and waits until it has written its port into [`PORT_FILE`] in `dir`;
/// returns it with its address.
fn listening(
    what: &'static str,
    exe: &Path,
    args: &[String],
    dir: TempDir,
    layer: Option<&powerloss_image::Settings>,
) -> Result<(Process, String)> {
    let child = spawn(exe, what, args, dir.path(), false, layer)?;
    let file = dir.path().join(PORT_FILE);
    let mut p = Process { child, dir, what };
    let port = p.port(&file)?;
    Ok((p, format!("127.0.0.1:{port}")))
}

/// Starts a null responder: it parses each message and answers a constant.
pub(crate) fn null_responder(parent: &Path, form: Responder) -> Result<(Process, String)> {
    null("null responder", parent, ["null-responder", form.name()])
}

/// Starts a null router: it passes messages on to the server at this address or Unix socket.
pub(crate) fn null_router(parent: &Path, server: &str) -> Result<(Process, String)> {
    null("null router", parent, ["null-router", server])
}

/// Starts a process that does nothing but serve: a command of the lab and its last word.
fn null(
    what: &'static str,
    parent: &Path,
    [command, word]: [&str; 2],
) -> Result<(Process, String)> {
    let dir = TempDir::new(parent)?;
    let file = dir.path().join(PORT_FILE).display().to_string();
    let args = ["bench", command, &file, word].map(String::from);
    listening(what, &own()?, &args, dir, None)
}

/// Starts the raw engine, which takes its orders on stdin (see `raw_engine`).
pub(crate) fn raw_engine(parent: &Path, cache_gb: Option<f64>) -> Result<Process> {
    let dir = TempDir::new(parent)?;
    let mut args = vec![
        "bench".to_string(),
        "raw-engine".to_string(),
        dir.path().join("data").display().to_string(),
    ];
    if let Some(gb) = cache_gb {
        args.push(gb.to_string());
    }
    Process::start("raw engine", &args, dir, true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_temporary_directory_goes_away() {
        let t = TempDir::new(&std::env::temp_dir()).unwrap();
        let p = t.path().to_path_buf();
        std::fs::write(p.join("x"), "x").unwrap();
        drop(t);
        assert!(!p.exists());
    }

    #[test]
    fn a_child_that_ends_at_once_is_reported_with_its_words() {
        // The test executable refuses this option and says so, which the quoted output must show.
        let dir = TempDir::new(&std::env::temp_dir()).unwrap();
        let file = dir.path().join("port");
        let mut p = Process::start("child", &["--no-such-option".to_string()], dir, false).unwrap();
        let e = p.port(&file).unwrap_err().0;
        assert!(
            e.contains("has ended") && e.contains("no-such-option"),
            "{e}"
        );
    }
}
