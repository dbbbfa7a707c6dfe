//! Starting and ending a server.

use crate::listener::{Listener, Waker};
use crate::log::{Logger, Severity};
use crate::oplog_window;
use crate::options::{LogTarget, ServerOptions, memory_limit};
use crate::parameters::Parameters;
use crate::replica_set::{Keys, Sockets, Threads};
use crate::state::{Parts, Restart, ServerState};
use muniment_exec::Database;
use muniment_storage::{DirLock, EngineKind, Store, StoreOptions};
use muniment_value::{Code, DocBuf, Error, Result, doc};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use muniment_value::MONGODB_VERSION;

/// The parts of the version that the server presents, as `buildInfo.versionArray`.
pub const MONGODB_VERSION_ARRAY: [i32; 4] = [8, 0, 16, 0];
/// Wire version of MongoDB 8.0.
pub const MAX_WIRE_VERSION: i32 = 25;
/// Muniment's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long connections may take to end.
const DRAIN: Duration = Duration::from_secs(10);
/// File descriptors kept for the storage and the rest of the process.
const RESERVED_FDS: u64 = 512;

/// `buildInfo.storageEngines`.
fn engine_names() -> muniment_value::ArrayBuf {
    EngineKind::ALL.iter().map(|(name, _)| *name).collect()
}

/// A running server. [`Server::wait`] ends it in order; a dropped one ends as well.
pub struct Server {
    state: Arc<ServerState>,
    listener: Arc<Listener>,
    waker: Arc<Waker>,
    /// On the data directory.
    lock: DirLock,
    threads: Vec<JoinHandle<()>>,
    ended: bool,
}

/// What of a server stays when it begins anew.
struct Stays {
    listener: Arc<Listener>,
    /// Signals go where they went.
    waker: Arc<Waker>,
    /// Nobody else takes the directory meanwhile.
    lock: DirLock,
    /// How often maintenance was begun and not ended: that ends with the process.
    maintenance: u32,
    /// The file may be another one by now: it is read at a start.
    keys: Option<Arc<Keys>>,
}

impl Server {
    /// Opens the data directory and starts to listen. Connections are served from here on.
    ///
    /// # Errors
    /// 98 DBPathInUse; what binding and opening raise; 2, 72 for bad options.
    pub fn start(options: ServerOptions) -> Result<Server> {
        crate::guard::install();
        let log = Arc::new(open_log(&options)?);
        let began = Instant::now();
        let started = Server::start_with(options, Arc::clone(&log), began, None);
        if let Err(e) = &started {
            log.log(
                Severity::Error,
                "CONTROL",
                20557,
                "initandlisten",
                "DBException in initAndListen, terminating",
                Some(&doc! { "error": e.to_string() }),
            );
        }
        started
    }

    /// `stays`: of a server that begins anew.
    fn start_with(
        options: ServerOptions,
        log: Arc<Logger>,
        began: Instant,
        stays: Option<Stays>,
    ) -> Result<Server> {
        let parameters = parameters_of(&options)?;
        muniment_query::running::set_javascript(options.javascript);
        log.set_level(parameters.log_level.load(Ordering::Relaxed) as i32);
        log_start(&log, &options);
        let maintenance = stays.as_ref().map_or(0, |stays| stays.maintenance);
        let keys = match &stays {
            Some(stays) => stays.keys.clone(),
            None => {
                let set = options.replica_set.as_deref().unwrap_or_default();
                let read = |file| Keys::read(file, set);
                let keys = options.key_file.as_deref().map(read).transpose()?;
                keys.map(Arc::new)
            }
        };
        let max_conns = raise_file_limit(options.max_conns, &log);
        fs::create_dir_all(&options.dbpath).map_err(|e| {
            Error::from(e).context(&format!(
                "cannot create the data directory {}: ",
                options.dbpath.display()
            ))
        })?;
        let lock = match &stays {
            Some(stays) => stays.lock.share(),
            None => DirLock::acquire(&options.dbpath, options.engine)?,
        };
        let opened = open_storage(&options, &parameters, &log, Some(lock.share()))?;
        // Only who owns the data directory may touch the address.
        let (listener, waker) = match stays {
            Some(stays) => (stays.listener, stays.waker),
            None => (Arc::new(Listener::bind(&options)?), Arc::new(Waker::new()?)),
        };
        let state = open_state(
            options,
            Parts {
                engine: opened.engine,
                log,
                parameters,
                port: listener.port(),
                max_conns,
                kept_for_set: opened.kept_for_set,
                oplog_window: opened.oplog_window,
                keys,
                ways: Box::new(Sockets),
                world: Box::new(Threads),
                maintenance,
            },
        )?;
        if state.options.handle_signals {
            handle_signals(&waker);
        }
        let mut server = Server {
            state: Arc::clone(&state),
            listener: Arc::clone(&listener),
            waker: Arc::clone(&waker),
            lock,
            threads: Vec::new(),
            ended: false,
        };
        let (listening, accepting) = (Arc::clone(&state), Arc::clone(&waker));
        server.spawn("listener", move || {
            listener.run(&listening, &accepting);
        })?;
        let housekeeping = Arc::clone(&state);
        server.spawn("housekeeping", move || {
            crate::housekeeping::run(&housekeeping);
        })?;
        let expiry = Arc::clone(&state);
        server.spawn("expiry", move || {
            crate::housekeeping::end_what_is_old(&expiry);
        })?;
        write_file(state.options.pid_file.as_deref(), std::process::id())?;
        write_file(state.options.port_file.as_deref(), state.port.into())?;
        state.log.info(
            "NETWORK",
            23016,
            "listener",
            "Waiting for connections",
            &doc! {
                "port": i32::from(state.port),
                "ssl": "off",
                "startupMillis": began.elapsed().as_millis() as i64,
            },
        );
        Ok(server)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let handle = std::thread::Builder::new()
            .name(name.to_string())
            .stack_size(1 << 20)
            .spawn(run)?;
        self.threads.push(handle);
        Ok(())
    }

    /// The bound TCP port.
    pub fn port(&self) -> u16 {
        self.state.port
    }

    /// What all connections share: for embedding and tests.
    pub fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    /// Waits until a signal or the `shutdown` command asks the server to end, then ends it.
    ///
    /// # Errors
    /// I/O errors of the last sync.
    pub fn wait(mut self) -> Result<()> {
        loop {
            let why = self.state.wait_for_stop();
            let Some(how) = why.restart else {
                return self.end(&why.reason);
            };
            self = self.begin_anew(&why.reason, how)?;
        }
    }

    /// Ends all but the sockets, and begins anew from what is on the disk.
    fn begin_anew(mut self, reason: &str, how: Restart) -> Result<Server> {
        let (options, log) = (self.state.options.clone(), Arc::clone(&self.state.log));
        self.ended = true;
        // What the last sync says does not matter: the log is read again.
        let _ = self.stop(reason);
        let stays = Stays {
            listener: Arc::clone(&self.listener),
            waker: Arc::clone(&self.waker),
            lock: self.lock.share(),
            maintenance: (self.state.replica_set.as_ref()).map_or(0, |s| s.member().maintenance),
            keys: self.state.keys.clone(),
        };
        // It holds the storage.
        drop(self);
        wait_for_last(&stays.lock)?;
        crate::replica_set::prepare_restart(&options, how)?;
        Server::start_with(options, log, Instant::now(), Some(stays))
    }

    /// Ends the server: stops accepting, interrupts operations, syncs.
    ///
    /// # Errors
    /// I/O errors of the last sync.
    pub fn shutdown(mut self) -> Result<()> {
        self.state.request_stop("asked by the embedding process");
        self.end("asked by the embedding process")
    }

    fn end(&mut self, reason: &str) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let closed = self.stop(reason);
        self.listener.cleanup();
        let state = &self.state;
        let files = [&state.options.pid_file, &state.options.port_file];
        for file in files.into_iter().flatten() {
            let _ = fs::remove_file(file);
        }
        state.log.info(
            "CONTROL",
            23138,
            "main",
            "Shutting down",
            &doc! { "exitCode": i32::from(closed.is_err()) },
        );
        closed
    }

    /// Ends everything that runs, and closes the storage.
    fn stop(&mut self, reason: &str) -> Result<()> {
        let state = &self.state;
        state.log.info(
            "CONTROL",
            23377,
            "main",
            "Shutting down",
            &doc! { "reason": reason },
        );
        state.begin_stopping();
        self.waker.wake();
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
        self.drain();
        state.transactions.kill_all(state);
        state.engine.cursors.kill_all();
        state.end_member();
        state.engine.store.close()
    }

    /// Waits for the connections to end. The idle ones are closed at once; the busy ones get the
    /// time to answer that they were interrupted.
    fn drain(&self) {
        let end = Instant::now() + DRAIN;
        // Writers that wait for fsyncUnlock would wait for ever.
        while self.state.engine.store.write_lock_depth() > 0 {
            if self.state.engine.store.unlock_writes().is_err() {
                break;
            }
        }
        loop {
            self.state
                .engine
                .operations
                .kill_all(Code::InterruptedAtShutdown);
            let open: Vec<_> = self.state.connections.lock().values().cloned().collect();
            if open.is_empty() {
                return;
            }
            let late = Instant::now() > end;
            for c in open {
                if late || !c.busy.load(Ordering::Relaxed) {
                    let _ = c.stream.shutdown();
                }
            }
            if Instant::now() > end + Duration::from_secs(1) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.request_stop("dropped");
        let _ = self.end("dropped");
    }
}

/// A storage that is open.
pub(crate) struct Opened {
    pub engine: Arc<Database>,
    /// See [`ServerState::kept_for_set`].
    pub kept_for_set: bool,
    /// See [`ServerState::oplog_window`].
    pub oplog_window: DocBuf,
}

/// Opens the storage of a server.
pub(crate) fn open_storage(
    options: &ServerOptions,
    parameters: &Parameters,
    log: &Logger,
    lock: Option<DirLock>,
) -> Result<Opened> {
    let opening = crate::replica_set::opening(options)?;
    let cache_bytes = options
        .cache_bytes
        .unwrap_or_else(|| (memory_limit() / 4).max(64 << 20));
    let storage = StoreOptions {
        cut_behind: opening.cut_behind,
        member: opening.member,
        path: options.dbpath.clone(),
        cache_bytes,
        journal_commit_interval: Duration::from_millis(
            parameters.journal_interval_ms.load(Ordering::Relaxed) as u64,
        ),
        accept_data_loss: options.accept_data_loss,
        engine: options.engine,
        machine: options.machine.clone(),
    };
    let store = Store::open_locked(storage, lock)?;
    if let Some(committed) = opening.kept_for_set {
        store.keep(committed)?;
    }
    let oplog_window = oplog_window::restore(options, &store, log);
    if !store.is_durable() {
        log.log(
            Severity::Warning,
            "STORAGE",
            22297,
            "initandlisten",
            "The storage engine keeps everything in memory: nothing survives the end of this \
             process",
            Some(&doc! { "storageEngine": store.engine_name() }),
        );
    }
    let engine = Database::new(store, options.dbpath.join("_tmp"));
    Ok(Opened {
        engine,
        kept_for_set: opening.kept_for_set.is_some(),
        oplog_window,
    })
}

/// What all connections will share, over a storage that is open. A member of a set takes up what it
/// was.
pub(crate) fn open_state(options: ServerOptions, parts: Parts) -> Result<Arc<ServerState>> {
    let maintenance = parts.maintenance;
    let state = Arc::new(ServerState::new(options, parts));
    let weak = Arc::downgrade(&state);
    state
        .engine
        .on_validation_failure(Box::new(move |ns, info| {
            if let Some(state) = weak.upgrade() {
                let mut attr = doc! { "namespace": ns };
                attr.append_all(info);
                state.log.log(
                    Severity::Warning,
                    "STORAGE",
                    20294,
                    "validation",
                    "Document would fail validation",
                    Some(&attr),
                );
            }
        }));
    let figures = crate::figures::ServerFigures(Arc::downgrade(&state));
    state.engine.set_figures(Arc::new(figures));
    for parameter in crate::parameters::ALL {
        parameter.apply(&state);
    }
    crate::own_collections::prepare(&state);
    crate::settings::take(&state);
    if let Some(set) = &state.replica_set {
        set.change(&state, |m| m.maintenance = maintenance);
    }
    crate::replica_set::start(&state)?;
    Ok(state)
}

/// Waits until the last thread has let go of the storage, which shares the lock on the directory.
fn wait_for_last(lock: &DirLock) -> Result<()> {
    let end = Instant::now() + DRAIN;
    while !lock.is_only() {
        if Instant::now() > end {
            return Err(Error::new(
                Code::DBPathInUse,
                "a thread of this server holds the storage still",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn open_log(options: &ServerOptions) -> Result<Logger> {
    Ok(match &options.log {
        LogTarget::Silent => Logger::silent(),
        LogTarget::Stdout => Logger::open(None, true, options.verbosity, options.quiet)?,
        LogTarget::File { path, append } => {
            Logger::open(Some(path), *append, options.verbosity, options.quiet).map_err(|e| {
                Error::from(e).context(&format!("cannot open the log {}: ", path.display()))
            })?
        }
    })
}

pub(crate) fn parameters_of(options: &ServerOptions) -> Result<Parameters> {
    let p = Parameters::default();
    let set = |at: &std::sync::atomic::AtomicI64, n: i64| at.store(n, Ordering::Relaxed);
    set(&p.slow_ms, options.slow_ms);
    set(&p.log_level, i64::from(options.verbosity));
    p.quiet.store(options.quiet, Ordering::Relaxed);
    set(
        &p.journal_interval_ms,
        options.journal_commit_interval.as_millis() as i64,
    );
    for (name, value) in &options.parameters {
        p.set_from_text(name, value)?;
    }
    Ok(p)
}

fn log_start(log: &Logger, options: &ServerOptions) {
    log.info(
        "CONTROL",
        4_615_611,
        "initandlisten",
        "Muniment starting",
        &doc! {
            "pid": std::process::id() as i64,
            "port": i32::from(options.port),
            "dbPath": options.dbpath.to_string_lossy().into_owned(),
            "host": crate::state::hostname(),
            "muniment": VERSION,
            "version": MONGODB_VERSION,
        },
    );
    log.info(
        "CONTROL",
        21951,
        "initandlisten",
        "Options set by command line",
        &doc! { "options": options.parsed.clone() },
    );
    log.startup_warning(
        22120,
        "Access control is not enabled for the database. Read and write access to data and \
         configuration is unrestricted",
    );
    if options.key_file.is_some() {
        log.startup_warning(
            22_121,
            "The key file authenticates the members of the replica set to each other only: with this \
             version of Muniment clients are not asked for credentials",
        );
    }
    if options
        .bind_ip
        .iter()
        .all(|h| h == "127.0.0.1" || h == "localhost" || h == "::1")
    {
        log.startup_warning(
            22140,
            "This server is bound to localhost. Remote systems will be unable to connect to this \
             server. Start the server with --bind_ip <address> to specify which IP addresses it \
             should serve responses from",
        );
    }
}

/// Raises the soft limit of open files to the hard one; returns how many connections fit.
fn raise_file_limit(wanted: usize, log: &Logger) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is ours.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return wanted;
        }
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        }
    }
    let fit = limit.rlim_cur.saturating_sub(RESERVED_FDS).max(16) as usize;
    if fit < wanted {
        log.startup_warning(
            22184,
            &format!(
                "Soft rlimits for open file descriptors too low: {} allow {fit} connections",
                limit.rlim_cur
            ),
        );
    }
    wanted.min(fit)
}

fn write_file(path: Option<&Path>, n: u32) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let write = || -> io::Result<()> {
        // Readers wait for the file: it appears whole.
        let tmp = path.with_extension("tmp");
        fs::write(&tmp, format!("{n}\n"))?;
        fs::rename(&tmp, path)
    };
    write().map_err(|e| Error::from(e).context(&format!("cannot write {}: ", path.display())))
}

static SIGNAL_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: libc::c_int) {
    let fd = SIGNAL_FD.load(Ordering::Relaxed);
    let byte = [signal as u8];
    // SAFETY: write is async-signal-safe; one byte from the stack.
    unsafe { libc::write(fd, byte.as_ptr().cast(), 1) };
}

/// SIGTERM and SIGINT end the server in order; SIGHUP and SIGPIPE do nothing.
fn handle_signals(waker: &Waker) {
    SIGNAL_FD.store(waker.write_fd(), Ordering::Relaxed);
    let handler = on_signal as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing but write to a pipe.
    unsafe {
        libc::signal(libc::SIGTERM, handler as libc::sighandler_t);
        libc::signal(libc::SIGINT, handler as libc::sighandler_t);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// `buildInfo`.
pub fn build_info() -> DocBuf {
    use muniment_value::array;
    let [a, b, c, d] = MONGODB_VERSION_ARRAY;
    doc! {
        "version": MONGODB_VERSION,
        "gitVersion": "0000000000000000000000000000000000000000",
        "modules": array![],
        "allocator": "system",
        "javascriptEngine": "quickjs",
        "sysInfo": "deprecated",
        "versionArray": array![a, b, c, d],
        "openssl": doc! { "running": "disabled", "compiled": "disabled" },
        "buildEnvironment": doc! {
            "distmod": "",
            "distarch": std::env::consts::ARCH,
            "target_arch": std::env::consts::ARCH,
            "target_os": std::env::consts::OS,
        },
        "bits": 64,
        "debug": cfg!(debug_assertions),
        "maxBsonObjectSize": 16_777_216,
        "storageEngines": engine_names(),
        "muniment": doc! { "version": VERSION },
    }
}
