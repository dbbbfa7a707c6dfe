//! The real binary as a child process.

use crate::power;
use muniment_wire::Connection;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    args: Vec<String>,
    patience: Duration,
    router: bool,
    powerloss: bool,
    ordered: bool,
    sync_delay: Duration,
    budget: Option<u64>,
    clock: bool,
    port: u16,
    binary: Option<PathBuf>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            args: Vec::new(),
            patience: Duration::from_secs(30),
            router: false,
            powerloss: false,
            ordered: false,
            sync_delay: Duration::ZERO,
            budget: None,
            clock: false,
            port: 0,
            binary: None,
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &to),
            false => _ = fs::copy(entry.path(), &to).unwrap(),
        }
    }
}

impl ServerOptions {
    /// `muniment serve` on a free port and a new directory.
    pub fn new() -> ServerOptions {
        ServerOptions::default()
    }

    /// Starts a router instead of a server that keeps data.
    #[must_use]
    pub fn router(mut self) -> ServerOptions {
        self.router = true;
        self
    }

    /// A router with the same arguments.
    pub(crate) fn router_with_arguments(&self) -> ServerOptions {
        ServerOptions {
            args: self.args.clone(),
            ..ServerOptions::new().router()
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> ServerOptions {
        self.args.push(arg.into());
        self
    }

    /// Uses this port each time, instead of a free one: other members of a set know it.
    #[must_use]
    pub fn port(mut self, port: u16) -> ServerOptions {
        self.port = port;
        self
    }

    /// How long the server may take until it answers, for directories whose recovery is long. The default is
    /// thirty seconds, because a debug build shares two cores with other tests.
    #[must_use]
    pub fn patience(mut self, d: Duration) -> ServerOptions {
        self.patience = d;
        self
    }

    /// Keeps an image of the disk, for [`Server::power_cut`].
    #[must_use]
    pub fn powerloss(mut self) -> ServerOptions {
        self.powerloss = true;
        self
    }

    /// Does the same as [`ServerOptions::powerloss`], with ext4's guarantees for names instead of POSIX's.
    #[must_use]
    pub fn powerloss_ordered(mut self) -> ServerOptions {
        self.ordered = true;
        self.powerloss()
    }

    /// Makes each sync take this much longer (only with the power-loss layer, whose syncs are quick).
    #[must_use]
    pub fn sync_delay(mut self, d: Duration) -> ServerOptions {
        self.sync_delay = d;
        self
    }

    /// Lets the test set the server's wall clock: see [`Server::set_clock`].
    #[must_use]
    pub fn clock(mut self) -> ServerOptions {
        self.clock = true;
        self
    }

    /// Makes the disk full after this many written bytes; see [`Server::set_budget`].
    #[must_use]
    pub fn budget(mut self, bytes: u64) -> ServerOptions {
        self.budget = Some(bytes);
        self
    }
}

/// A running (or killed) server. It ends when this is dropped, and with the thread that started it.
pub struct Server {
    options: ServerOptions,
    home: tempfile::TempDir,
    child: Option<Child>,
    port: u16,
}

/// The storage engine for tests that choose none themselves, if one is given.
pub(crate) fn engine() -> Option<String> {
    std::env::var("MUNIMENT_TEST_ENGINE").ok()
}

/// The number of workers for tests that choose none themselves, if one is given.
fn workers() -> Option<String> {
    std::env::var("MUNIMENT_TEST_WORKERS").ok()
}

/// The binary under test: `MUNIMENT_BIN`, or this build's.
///
/// # Panics
/// If there is none.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MUNIMENT_BIN") {
        return path.into();
    }
    let here = power::build_dir();
    let other = here.with_file_name("release");
    let found = [here.join("muniment"), other.join("muniment")]
        .into_iter()
        .find(|p| p.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "no muniment binary in {}: run `cargo build -p muniment` first, or set MUNIMENT_BIN",
            here.display()
        )
    })
}

/// Stops a running server's process (SIGSTOP), which it does not notice. If the test crashes, the process
/// still ends. On a busy machine the threads go on for a while after the signal; this waits until they stand still.
pub fn freeze(pid: u32) {
    signal(pid, libc::SIGSTOP);
    let until = Instant::now() + Duration::from_secs(5);
    while !stands_still(pid) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether all threads of a process are stopped.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state comes after the name, which is in parentheses.
        let state = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest.trim_start());
        state.is_empty() || state.starts_with(['T', 't', 'Z', 'X'])
    })
}

/// Lets a stopped process continue (SIGCONT).
pub fn thaw(pid: u32) {
    signal(pid, libc::SIGCONT);
}

/// Asks a process to end (SIGTERM), without waiting for it.
pub fn ask_to_end(pid: u32) {
    signal(pid, libc::SIGTERM);
}

/// Kills a running server's process (SIGKILL) while the server is borrowed elsewhere. [`Server::kill9`] has to be called
/// before it is started again.
pub fn end_at_once(pid: u32) {
    signal(pid, libc::SIGKILL);
}

fn signal(pid: u32, number: libc::c_int) {
    // SAFETY: the function takes plain numbers.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, number) }, 0);
}

impl Server {
    /// Starts a server on a new directory and waits until it answers.
    ///
    /// # Panics
    /// With the server's log, if it does not answer in time (see [`ServerOptions::patience`]).
    pub fn start(options: ServerOptions) -> Server {
        let mut server = Server::prepare(options);
        server.start_again();
        server
    }

    /// Makes a server on a new directory, without starting it.
    pub fn prepare(options: ServerOptions) -> Server {
        end_what_hangs();
        let home = tempfile::Builder::new()
            .prefix("muniment-test-")
            .tempdir()
            .expect("a temporary directory");
        let server = Server {
            options,
            home,
            child: None,
            port: 0,
        };
        fs::create_dir(server.dir()).unwrap();
        if let Some(bytes) = server.options.budget {
            server.write_faults(bytes, None, None);
        }
        if server.options.clock {
            server.set_clock(0);
        }
        server
    }

    /// Replaces the added arguments from the next start on.
    pub fn set_args(&mut self, args: &[&str]) {
        self.options.args = args.iter().map(|a| (*a).to_string()).collect();
    }

    /// Adds arguments from the next start on.
    pub fn add_args(&mut self, args: &[&str]) {
        self.options
            .args
            .extend(args.iter().map(|a| (*a).to_string()));
    }

    /// Sets the binary from the next start on; `None` is the one under test.
    pub fn set_binary(&mut self, binary: Option<&Path>) {
        self.options.binary = binary.map(Path::to_path_buf);
    }

    /// Sets the port from the next start on.
    pub fn set_port(&mut self, port: u16) {
        self.options.port = port;
    }

    /// Starts the server on its directory.
    ///
    /// # Panics
    /// With the server's log, if it does not answer in time (see [`ServerOptions::patience`]).
    pub fn start_again(&mut self) {
        if let Err(why) = self.try_start() {
            panic!("{why}\n--- log of the server:\n{}", self.log());
        }
    }

    /// Starts the server on its directory. If it does not answer, the error says why, and its log is in
    /// [`Server::log`].
    ///
    /// # Errors
    /// If it has ended, or has not answered in time (it is killed then).
    pub fn try_start(&mut self) -> Result<(), String> {
        assert!(self.child.is_none(), "the server runs already");
        let port_file = self.home.path().join("port");
        let _ = fs::remove_file(&port_file);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let chosen = |flag: &str| self.options.args.iter().any(|a| a == flag);
        let engine = engine().filter(|_| !chosen("--storageEngine") && !self.options.router);
        let workers = workers().filter(|_| !chosen("--workers"));
        let port = self.options.port.to_string();
        let port = Some(port.as_str()).filter(|_| !chosen("--port"));
        let program = self.options.binary.clone().unwrap_or_else(binary);
        let mut command = Command::new(&program);
        let dir = (!self.options.router).then(|| self.dir());
        command
            .arg(if self.options.router {
                "router"
            } else {
                "serve"
            })
            .args(port.iter().flat_map(|port| ["--port", port]))
            .arg("--portFile")
            .arg(&port_file)
            .args(
                dir.iter()
                    .flat_map(|dir| ["--dbpath".as_ref(), dir.as_os_str()]),
            )
            .args(engine.iter().flat_map(|name| ["--storageEngine", name]))
            .args(workers.iter().flat_map(|most| ["--workers", most]))
            .args(&self.options.args)
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.add_layer(&mut command);
        // SAFETY: only an async-signal-safe call is made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let deadline = Instant::now() + self.options.patience;
        loop {
            if let Some(port) = answers(&port_file, chosen("requireTLS")) {
                self.port = port;
                self.child = Some(child);
                return Ok(());
            }
            if let Some(status) = child.try_wait().unwrap() {
                return Err(format!("the server ended: {status}"));
            }
            if Instant::now() > deadline {
                let doing = threads(child.id());
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "the server does not answer after {:?}; its threads: {doing}",
                    self.options.patience
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts a second server on the same directory, which must be refused, and returns its output.
    ///
    /// # Panics
    /// If it does not end by itself, with a failure, within ten seconds.
    pub fn refused_second(&self) -> String {
        let mut child = Command::new(binary())
            .args(["serve", "--port", "0", "--dbpath"])
            .arg(self.dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("a second server runs on the same directory");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let out = child.wait_with_output().unwrap();
        assert!(!out.status.success(), "the second server ended well");
        let both = [out.stdout, out.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    fn add_layer(&self, command: &mut Command) {
        let o = &self.options;
        if !o.powerloss && o.budget.is_none() && !o.clock {
            return;
        }
        let layer = powerloss_image::Settings {
            library: power::layer().to_owned(),
            dir: self.dir(),
            shadow: o.powerloss.then(|| self.shadow()),
            ordered: o.ordered,
            sync_us: o.sync_delay.as_micros() as u64,
            budget: o.budget.map(|_| self.budget_path()),
            clock: o.clock.then(|| self.clock_path()),
        };
        layer.apply(command);
    }

    /// The data directory.
    pub fn dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn shadow(&self) -> PathBuf {
        self.home.path().join("shadow")
    }

    fn budget_path(&self) -> PathBuf {
        self.home.path().join("budget")
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("log")
    }

    /// Writes the limits of the disk; a count of `None` sets no limit.
    fn write_faults(&self, bytes: u64, writes: Option<u64>, syncs: Option<u64>) {
        static ROUND: AtomicU64 = AtomicU64::new(1);
        let round = ROUND.fetch_add(1, Ordering::SeqCst);
        let (writes, syncs) = (writes.unwrap_or(u64::MAX), syncs.unwrap_or(u64::MAX));
        // The numbers have a fixed width and are written in place, so that no reader sees a part of one.
        let text = format!("{bytes:020} {writes:020} {syncs:020} {round:020}");
        let path = self.budget_path();
        let open = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path);
        std::os::unix::fs::FileExt::write_all_at(&open.unwrap(), text.as_bytes(), 0).unwrap();
    }

    fn clock_path(&self) -> PathBuf {
        self.home.path().join("clock")
    }

    /// Sets the difference between the server's wall clock and the machine's, in milliseconds, from now on
    /// and also after a restart. The server's clock is ahead if the number is positive.
    pub fn set_clock(&self, ms: i64) {
        assert!(self.options.clock, "started without a clock of its own");
        let open = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.clock_path());
        // The number has a fixed width and is written in place, so that no reader sees a part of it.
        let text = format!("{ms:<24}");
        std::os::unix::fs::FileExt::write_all_at(&open.unwrap(), text.as_bytes(), 0).unwrap();
    }

    /// Limits the bytes that the server may have written since its start to `bytes`; 0 makes the disk full at
    /// once, `u64::MAX` sets no limit.
    pub fn set_budget(&self, bytes: u64) {
        assert!(self.options.budget.is_some(), "started without a budget");
        self.write_faults(bytes, None, None);
    }

    /// Limits the server to `writes` further calls that write. Then the disk is full until this or
    /// [`Server::set_budget`] is called again. Calls with 0, 1, 2 … test a failure of each write in turn.
    pub fn set_writes(&self, writes: u64) {
        assert!(self.options.budget.is_some(), "started without a budget");
        self.write_faults(u64::MAX, Some(writes), None);
    }

    /// Lets `syncs` syncs succeed from now on, and makes the next one fail with `EIO`.
    pub fn fail_sync(&self, syncs: u64) {
        assert!(self.options.budget.is_some(), "started without a budget");
        self.write_faults(u64::MAX, None, Some(syncs));
    }

    /// The output of the server since it was first started.
    pub fn log(&self) -> String {
        fs::read(self.log_path())
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default()
    }

    /// Replaces the content of the server's directory by a copy of another server's. Neither of the two may
    /// run.
    ///
    /// # Panics
    /// If the disk fails.
    pub fn copy_from(&self, other: &Server) {
        let dir = self.dir();
        fs::remove_dir_all(&dir).unwrap();
        copy_dir(&other.dir(), &dir);
    }

    /// Empties the directory. The server must not run.
    ///
    /// # Panics
    /// If the disk fails.
    pub fn empty(&self) {
        fs::remove_dir_all(self.dir()).unwrap();
        fs::create_dir(self.dir()).unwrap();
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A new connection, whose replies may take thirty seconds.
    pub fn connect(&self) -> Connection {
        let c = Connection::connect(&self.address()).and_then(|mut c| {
            c.set_timeout(Some(Duration::from_secs(30)))?;
            Ok(c)
        });
        c.unwrap_or_else(|e| panic!("{e}\n--- log of the server:\n{}", self.log()))
    }

    /// Waits up to a minute until `found` returns something.
    ///
    /// # Panics
    /// If that takes longer: a test that waited for ever would be ended only with the whole run.
    pub fn until<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = found() {
                return found;
            }
            let log = || tail(&self.log());
            assert!(
                Instant::now() < end,
                "{what}: not within a minute\n{}",
                log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The process, if it has not been ended through this harness.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// True if the process runs.
    pub fn is_running(&mut self) -> bool {
        match &mut self.child {
            Some(c) => c.try_wait().unwrap().is_none(),
            None => false,
        }
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill9(&mut self) {
        if let Some(mut c) = self.child.take() {
            let _ = c.kill();
            let _ = c.wait();
        }
    }

    /// Asks the process to end (SIGTERM) and waits.
    ///
    /// # Panics
    /// With its log if it does not end within thirty seconds.
    pub fn terminate(&mut self) -> ExitStatus {
        let mut c = self.child.take().expect("a running server");
        // SAFETY: the function takes plain numbers. The child has not been waited for, so the id is still its
        // own.
        unsafe { libc::kill(c.id() as libc::pid_t, libc::SIGTERM) };
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(status) = c.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = c.kill();
        let _ = c.wait();
        panic!("the server does not end on SIGTERM\n{}", self.log());
    }

    /// Ends the process if it runs (SIGTERM) and starts it on the same directory.
    pub fn restart(&mut self) {
        if self.child.is_some() {
            self.terminate();
        }
        self.start_again();
    }

    /// Cuts the power: the process is killed, and the directory becomes what the disk had. Start it with
    /// [`Server::start_again`].
    pub fn cut_power(&mut self) {
        assert!(
            self.options.powerloss,
            "started without the power-loss layer"
        );
        self.kill9();
        powerloss_image::cut_power(&self.shadow(), &self.dir()).expect("an image of the disk");
    }

    /// Cuts the power, and starts the server on what is left.
    pub fn power_cut(&mut self) {
        self.cut_power();
        self.start_again();
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> u64 {
        let statm = self.proc_file("statm");
        let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
        // SAFETY: the function only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        pages.expect("a number of pages") * page
    }

    /// The most resident memory that the process ever had, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("a number of KiB") * 1024
    }

    /// Processor time used so far, user and system.
    pub fn cpu_time(&self) -> Duration {
        let stat = self.proc_file("stat");
        // The name, in parentheses, may have spaces.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|n| n.parse::<u64>().ok())
            .sum();
        // SAFETY: the function only returns a number.
        let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        Duration::from_micros(ticks * 1_000_000 / hz)
    }

    fn proc_file(&self, name: &str) -> String {
        let pid = self.pid().expect("a running server");
        let path = PathBuf::from(format!("/proc/{pid}/{name}"));
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}

/// The name, the state and the place in the kernel of each thread of the process.
fn threads(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let one = |task: PathBuf| {
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit(')').next().unwrap_or_default().trim();
        let state = state.get(..1).unwrap_or_default();
        format!("{} {state} {}", read("comm").trim(), read("wchan").trim())
    };
    let all: Vec<String> = tasks
        .into_iter()
        .flatten()
        .flatten()
        .map(|t| one(t.path()))
        .collect();
    all.join(", ")
}

/// The port in `port_file`, if a server answers there. One that refuses clients without TLS answers by ending
/// the connection.
fn answers(port_file: &Path, refuses: bool) -> Option<u16> {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut File::open(port_file).ok()?, &mut text).ok()?;
    let port: u16 = text.trim().parse().ok()?;
    let mut c = Connection::connect(&format!("127.0.0.1:{port}")).ok()?;
    c.set_timeout(Some(Duration::from_secs(5))).ok()?;
    (c.hello().is_ok() != refuses).then_some(port)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            eprintln!("--- log of the server:\n{}", tail(&self.log()));
        }
    }
}

/// Ends the tests of this process when they take longer than any should, so that a test which waits for ever
/// costs no more than that. The name of the test has been printed by then. Long runs have no such limit.
fn end_what_hangs() {
    static BEGUN: Once = Once::new();
    const LIMIT: Duration = Duration::from_secs(20 * 60);
    if std::env::var_os("MUNIMENT_LONG").is_some() {
        return;
    }
    BEGUN.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(LIMIT);
            // This output is not captured, as that of a macro would be.
            let _ = writeln!(std::io::stderr(), "the tests hang: ended after {LIMIT:?}");
            std::process::abort();
        });
    });
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.len().saturating_sub(40);
    lines.get(from..).unwrap_or_default().join("\n")
}
