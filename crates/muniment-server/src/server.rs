//! Starts and ends a server.

use crate::audit::{self, Audit};
use crate::hangups::Hangups;
use crate::listener::{Listener, Waker};
use crate::oplog_window;
use crate::options::{MakeDbPath, ServerOptions};
use crate::parameters::Parameters;
use crate::pool::Pool;
use crate::signals;
use crate::startup;
use crate::state::{Parts, ServerState};
use muniment_exec::Database;
use muniment_logger::{LogTarget, Logger, Severity};
use muniment_member::{Keys, Restart, Sockets, Threads, Told, Trust};
use muniment_storage::{Damage, DirLock, EngineKind, Store, StoreOptions};
use muniment_tls::{Endpoint, Mode};
use muniment_value::{Code, DocBuf, Error, Result, doc};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use muniment_value::MONGODB_VERSION;

/// The parts of the version that the server presents, as `buildInfo.versionArray`.
pub const MONGODB_VERSION_ARRAY: [i32; 4] = [8, 0, 16, 0];
/// Wire version of MongoDB 8.0.
pub const MAX_WIRE_VERSION: i32 = 25;
/// Muniment's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long connections may take to end at a shutdown.
const DRAIN: Duration = Duration::from_secs(10);
/// The value of `buildInfo.storageEngines`, sorted.
fn engine_names() -> muniment_value::ArrayBuf {
    let mut names: Vec<_> = EngineKind::ALL
        .iter()
        .map(|(_, kind)| kind.mongodb_name())
        .collect();
    names.sort_unstable();
    names.into_iter().collect()
}

/// A running server. [`Server::wait`] ends it in order; a dropped one ends as well.
pub struct Server {
    state: Arc<ServerState>,
    listener: Arc<Listener>,
    waker: Arc<Waker>,
    hangups: Arc<Hangups>,
    /// Serves the connections, unless each has a thread of its own.
    pool: Option<Arc<Pool>>,
    /// The lock on the data directory.
    lock: DirLock,
    threads: Vec<JoinHandle<()>>,
    ended: bool,
}

/// The parts that a server keeps when it begins anew in the same process.
struct Stays {
    listener: Arc<Listener>,
    waker: Arc<Waker>,
    /// The lock on the directory, so that no other process takes it meanwhile.
    lock: DirLock,
    /// What commands have told the member, which is in force until the process ends.
    told: Told,
    /// Keys and certificates. They are read only when the process starts, since the files may have changed by
    /// now.
    trust: Trust,
}

impl Server {
    /// Opens the data directory and starts to listen. Connections are served from here on.
    ///
    /// # Errors
    /// 98 DBPathInUse; what binding and opening raise; 2, 72 for bad options.
    pub fn start(options: ServerOptions) -> Result<Server> {
        muniment_logger::install();
        let log = Arc::new(open_log(&options)?);
        let began = Instant::now();
        let started = Server::start_with(options, Arc::clone(&log), began, None);
        if let Err(e) = &started {
            cannot_start(&log, e);
        }
        started
    }

    /// Starts a server. `stays` has the parts that are kept of a server that begins anew.
    fn start_with(
        options: ServerOptions,
        log: Arc<Logger>,
        began: Instant,
        stays: Option<Stays>,
    ) -> Result<Server> {
        if options.handle_signals {
            signals::take(&log)?;
        }
        let parameters = parameters_of(&options)?;
        muniment_query::running::set_javascript(options.javascript);
        begin_log(&log, &options, &parameters)?;
        let begins = stays.is_none();
        let audit = Audit::open(options.audit.as_ref(), &log)?;
        let told = stays.as_ref().map(|s| s.told).unwrap_or_default();
        let kept = stays.as_ref().map(|stays| stays.trust.clone());
        let trust = kept.map_or_else(|| read_trust(&options), Ok)?;
        startup::warn_of_keys(&log, trust.keys.as_deref());
        startup::warn_of_certificates(&log, trust.tls.as_deref());
        let max_conns = startup::raise_file_limit(options.max_conns, &log);
        make_directory(&options, &log)?;
        let lock = match &stays {
            // A server that begins anew holds the lock on its directory, and has examined it before.
            Some(stays) => stays.lock.share(),
            None => examine_and_lock(&options, &log)?,
        };
        let opened = open_storage(&options, &parameters, &log, Some(lock.share()))?;
        let (listener, waker) = listener_of(stays, &options, &log)?;
        let state = open_state(
            options,
            Parts {
                engine: opened.engine,
                log,
                audit,
                parameters,
                port: listener.port(),
                socket: listener.socket().cloned(),
                max_conns,
                kept_for_set: opened.kept_for_set,
                oplog_window: opened.oplog_window,
                trust,
                ways: Box::new(Sockets),
                world: Box::new(Threads),
                told,
            },
        )?;
        if begins {
            audit::starts(&state)?;
        }
        signals::serve(&state);
        let mut server = Server {
            state: Arc::clone(&state),
            listener: Arc::clone(&listener),
            waker: Arc::clone(&waker),
            hangups: Arc::new(Hangups::new()?),
            pool: Pool::for_options(&state.options, &state.log)?,
            lock,
            threads: Vec::new(),
            ended: false,
        };
        server.listen()?;
        server.keep_house()?;
        write_file(state.options.pid_file.as_deref(), std::process::id())?;
        write_file(state.options.port_file.as_deref(), listener.port().into())?;
        server.log_waiting(began);
        Ok(server)
    }

    fn log_waiting(&self, began: Instant) {
        self.state.log.info(
            "NETWORK",
            23016,
            "listener",
            "Waiting for connections",
            &doc! {
                "port": i32::from(self.port()),
                "ssl": match self.state.trust.tls {
                    Some(_) => "on",
                    None => "off",
                },
                "startupMillis": began.elapsed().as_millis() as i64,
            },
        );
    }

    /// Starts the threads that accept connections and notice when clients go.
    fn listen(&mut self) -> Result<()> {
        let (state, waker) = (Arc::clone(&self.state), Arc::clone(&self.waker));
        let (listener, hangups) = (Arc::clone(&self.listener), Arc::clone(&self.hangups));
        let pool = self.pool.clone();
        self.spawn("listener", move || {
            listener.run(&state, &waker, &hangups, pool.as_deref());
        })?;
        let (state, hangups) = (Arc::clone(&self.state), Arc::clone(&self.hangups));
        self.spawn("hangups", move || {
            hangups.run(|number| state.connections.hangs_up(number))
        })
    }

    /// Starts the threads that do what is due from time to time.
    fn keep_house(&mut self) -> Result<()> {
        for (name, job) in crate::housekeeping::THREADS {
            let state = Arc::clone(&self.state);
            self.spawn(name, move || job(&state))?;
        }
        Ok(())
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
        self.state.address.port
    }

    /// The state that all connections share, for embedding and tests.
    pub fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    /// Waits until a signal or the `shutdown` command asks the server to end, then ends it.
    ///
    /// # Errors
    /// I/O errors of the last sync.
    pub fn wait(mut self) -> Result<()> {
        loop {
            let why = self.state.lifecycle.wait_for_stop();
            let Some(how) = why.restart else {
                return self.end(&why.reason);
            };
            match self.begin_anew(&why.reason, how)? {
                Some(server) => self = server,
                None => return Ok(()),
            }
        }
    }

    /// Ends everything except the sockets, and begins anew with what is on disk. Returns `None` if the server
    /// was asked to end meanwhile.
    fn begin_anew(mut self, reason: &str, how: Restart) -> Result<Option<Server>> {
        let (options, log) = (self.state.options.clone(), Arc::clone(&self.state.log));
        self.ended = true;
        let closed = self.stop(reason);
        if self.state.lifecycle.is_asked_to_end() {
            audit::ended(&self.state);
            leave(&self.listener, &options, &log, closed.is_err());
            return closed.map(|()| None);
        }
        // From here on an error of the last sync does not matter, since the log is read again.
        let stays = Stays {
            listener: Arc::clone(&self.listener),
            waker: Arc::clone(&self.waker),
            lock: self.lock.share(),
            told: (self.state.replica_set.as_ref()).map_or_else(Told::default, |s| s.member().told),
            trust: self.state.trust.clone(),
        };
        // The old server must release the storage before the new one opens it.
        drop(self);
        let listener = Arc::clone(&stays.listener);
        let begun = wait_for_last(&stays.lock)
            .and_then(|()| {
                let disk = &options.machine.disk;
                muniment_member::prepare_restart(&options.dbpath, disk, how)
            })
            .and_then(|()| {
                let log = Arc::clone(&log);
                Server::start_with(options.clone(), log, Instant::now(), Some(stays))
            });
        if let Err(e) = &begun {
            cannot_start(&log, e);
            leave(&listener, &options, &log, true);
        }
        begun.map(Some)
    }

    /// Ends the server: stops accepting, interrupts operations, syncs.
    ///
    /// # Errors
    /// I/O errors of the last sync.
    pub fn shutdown(mut self) -> Result<()> {
        self.state
            .lifecycle
            .request_stop("asked by the embedding process");
        self.end("asked by the embedding process")
    }

    fn end(&mut self, reason: &str) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let closed = self.stop(reason);
        let state = &self.state;
        audit::ended(state);
        leave(&self.listener, &state.options, &state.log, closed.is_err());
        closed
    }

    /// Ends all operations and threads, and closes the storage.
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
        self.hangups.stop();
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
        self.drain();
        if let Some(pool) = &self.pool {
            pool.end(Instant::now() + Duration::from_secs(1));
        }
        state.transactions.kill_all(state);
        state.engine.cursors.kill_all();
        state.end_member();
        state.engine.store.close()
    }

    /// Waits for the connections to end. Idle ones are closed at once; busy ones get the time to report that
    /// their operation was interrupted.
    fn drain(&self) {
        let end = Instant::now() + DRAIN;
        // Releases fsyncLock, because writers that wait for fsyncUnlock would otherwise wait forever.
        let store = &self.state.engine.store;
        while store.write_lock_depth() > 0 {
            if store.unlock_writes(&muniment_op::NeverInterrupted).is_err() {
                break;
            }
        }
        loop {
            self.state
                .engine
                .operations
                .kill_all(Code::InterruptedAtShutdown);
            let open = self.state.connections.list();
            if open.is_empty() {
                return;
            }
            let late = Instant::now() > end;
            for c in open {
                let busy = c.busy.load(Ordering::Relaxed) && !c.stuck.load(Ordering::Relaxed);
                if late || !busy {
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
        self.state.lifecycle.request_stop("dropped");
        let _ = self.end("dropped");
    }
}

/// Creates the data directory if it is missing and the options allow it.
fn make_directory(options: &ServerOptions, log: &Logger) -> Result<()> {
    let dir = &options.dbpath;
    if dir.exists() {
        return Ok(());
    }
    let made = match options.make_dbpath {
        MakeDbPath::Whole => fs::create_dir_all(dir),
        MakeDbPath::LastComponent => fs::create_dir(dir),
        MakeDbPath::Never => {
            return Err(Error::new(
                Code::NonExistentPath,
                format!(
                    "Data directory {} not found. Create the missing directory or specify another path \
                     using (1) the --dbpath command line option, or (2) by adding the 'storage.dbPath' \
                     option in the configuration file.",
                    dir.display()
                ),
            ));
        }
    };
    made.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::new(
            Code::NonExistentPath,
            format!(
                "the data directory {} cannot be made: the directory that it is to lie in is not there, \
                 either. Is the path right, and its disk mounted?",
                dir.display()
            ),
        ),
        _ => {
            let what = format!("cannot create the data directory {}: ", dir.display());
            Error::from(e).context(&what)
        }
    })?;
    log.info(
        "STORAGE",
        7_340_004,
        "initandlisten",
        "The data directory was not there and has been made",
        &doc! { "dbPath": dir.to_string_lossy().into_owned() },
    );
    Ok(())
}

/// A storage that was opened, and what was found in its directory.
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
    let in_set = options.replica_set.is_some();
    let opening = muniment_member::opening(&options.dbpath, &options.machine.disk, in_set)?;
    let storage = StoreOptions {
        cut_behind: opening.cut_behind,
        member: opening.member,
        path: options.dbpath.clone(),
        cache_bytes: options.cache(),
        journal_commit_interval: Duration::from_millis(
            parameters.journal_interval_ms.load(Ordering::Relaxed) as u64,
        ),
        accept_data_loss: options.accept_data_loss,
        key_limits: crate::memory::key_limits(parameters),
        engine: options.engine,
        machine: options.machine.clone(),
        ledger: Arc::default(),
    };
    let store = Store::open_locked(storage, lock)?;
    if let Some(committed) = opening.kept_for_set {
        store.keep(committed)?;
    }
    log_damages(&store, log, &mut Vec::new());
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

/// Logs the damages that were not logged before.
pub(crate) fn log_damages(store: &Store, log: &Logger, told: &mut Vec<Damage>) {
    let damages = store.damages();
    for damage in untold(told, &damages) {
        log.log(
            Severity::Error,
            "STORAGE",
            22205,
            "storage",
            "Something is damaged and closed; everything else serves",
            Some(&doc! {
                "namespace": damage.namespace.as_str(),
                "error": damage.to_error().message(),
            }),
        );
    }
    *told = damages;
}

/// The current damages that were not logged before.
fn untold<'d>(told: &'d [Damage], now: &'d [Damage]) -> impl Iterator<Item = &'d Damage> {
    now.iter().filter(|damage| !told.contains(damage))
}

/// Creates the state that all connections share, over an open storage. A member of a set continues from what
/// it remembers.
pub(crate) fn open_state(options: ServerOptions, parts: Parts) -> Result<Arc<ServerState>> {
    let told = parts.told;
    let state = Arc::new(ServerState::new(options, parts));
    let weak = Arc::downgrade(&state);
    state
        .engine
        .on_validation_failure(Box::new(move |ns, info| {
            if let Some(state) = weak.upgrade() {
                let mut attr = doc! { "namespace": ns };
                attr.append_all(state.log.document(info.to_buf()).as_doc());
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
        set.change(|m| m.told = told);
    }
    crate::replica_set::start(&state)?;
    Ok(state)
}

/// Waits until no thread uses the storage any more. Each such thread shares the lock on the directory.
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

fn cannot_start(log: &Logger, e: &Error) {
    log.log(
        Severity::Error,
        "CONTROL",
        20557,
        "initandlisten",
        "DBException in initAndListen, terminating",
        Some(&doc! { "error": e.to_string() }),
    );
}

/// The last step of a shutdown: removes the files by which others find the server.
fn leave(listener: &Listener, options: &ServerOptions, log: &Logger, failed: bool) {
    listener.cleanup();
    let files = [&options.pid_file, &options.port_file];
    for file in files.into_iter().flatten() {
        // Only a regular file is removed, since the option may name a device.
        if file.is_file() {
            let _ = fs::remove_file(file);
        }
    }
    log.info(
        "CONTROL",
        23138,
        "main",
        "Shutting down",
        &doc! { "exitCode": i32::from(failed) },
    );
}

/// The sockets to listen on. The directory is locked before they are bound: only the owner of the data may take
/// over the address.
fn listener_of(
    stays: Option<Stays>,
    options: &ServerOptions,
    log: &Logger,
) -> Result<(Arc<Listener>, Arc<Waker>)> {
    let (listener, waker) = match stays {
        Some(stays) => (stays.listener, stays.waker),
        None => (Arc::new(Listener::bind(options)?), Arc::new(Waker::new()?)),
    };
    warn_of_missed(&listener, log);
    Ok((listener, waker))
}

/// The keys by which the members of the set know each other, and the certificates of TLS, if the options name
/// files of them.
fn read_trust(options: &ServerOptions) -> Result<Trust> {
    let keys = options.key_file.as_deref().map(Keys::read).transpose()?;
    let tls = match options.tls_mode {
        Mode::Disabled => None,
        mode => Some(Arc::new(Endpoint::new(mode, options.tls.clone())?)),
    };
    if let Some(tls) = tls
        .as_ref()
        .filter(|_| options.cluster_auth.takes_certificate())
    {
        tls.check_of_member()?;
    }
    Ok(Trust {
        keys: keys.map(Arc::new),
        tls,
        by: options.cluster_auth,
    })
}

/// Takes the lock on the data directory. The directory is examined before, so that one that holds something
/// else is refused untouched.
///
/// # Errors
/// Those of a directory that cannot be the server's, or is another server's.
fn examine_and_lock(options: &ServerOptions, log: &Logger) -> Result<DirLock> {
    let (path, named) = (&options.dbpath, named_files(options));
    for name in muniment_storage::examine_directory(path, options.engine, &named)? {
        log.log(
            Severity::Warning,
            "STORAGE",
            7_340_003,
            "initandlisten",
            "The data directory holds something that is not the server's",
            Some(&doc! { "name": name }),
        );
    }
    DirLock::acquire(path, options.engine, &named)
}

fn warn_of_missed(listener: &Listener, log: &Logger) {
    for (host, e) in listener.missed() {
        log.log(
            Severity::Warning,
            "NETWORK",
            23_021,
            "listener",
            "Found no addresses for peer",
            Some(&doc! { "peer": host.as_str(), "error": e.to_string() }),
        );
    }
}

/// Sets how much is logged, and logs what a start says of itself.
fn begin_log(log: &Logger, options: &ServerOptions, parameters: &Parameters) -> Result<()> {
    log.set_level(parameters.log_level.load(Ordering::Relaxed) as i32);
    crate::parameters::verbosity_at_start(&options.parameters, log)?;
    log_start(log, options);
    startup::warn(log, options);
    Ok(())
}

/// The files that the options name, which may be in the data directory.
fn named_files(options: &ServerOptions) -> Vec<PathBuf> {
    let log = match &options.log {
        LogTarget::File { path, .. } => Some(path.clone()),
        _ => None,
    };
    let tls = &options.tls;
    let others = [
        &options.pid_file,
        &options.port_file,
        &options.key_file,
        &tls.certificate_key_file,
        &tls.cluster_file,
        &tls.ca_file,
        &tls.cluster_ca_file,
        &tls.crl_file,
    ];
    let audit = options.audit.as_ref().and_then(|a| a.path());
    log.into_iter()
        .chain(audit.map(Path::to_path_buf))
        .chain(others.into_iter().flatten().cloned())
        .collect()
}

/// # Errors
/// 2 BadValue for a file among those of the database.
fn open_log(options: &ServerOptions) -> Result<Logger> {
    let log = match &options.log {
        LogTarget::File { path, .. } => Some(path.as_path()),
        _ => None,
    };
    let audit = options.audit.as_ref().and_then(|a| a.path());
    let mut both = log.into_iter().chain(audit);
    if let Some(path) = both.find(|path| muniment_storage::is_of_data(&options.dbpath, path)) {
        return Err(Error::bad_value(format!(
            "the log {} would lie among the files of the database in {}: choose another name",
            path.display(),
            options.dbpath.display()
        )));
    }
    let log = Logger::open(&options.log, options.verbosity, options.quiet).map_err(|e| {
        let path = match &options.log {
            LogTarget::File { path, .. } => path.display().to_string(),
            _ => String::new(),
        };
        Error::from(e).context(&format!("cannot open the log {path}: "))
    })?;
    log.set_local_time(options.log_local_time);
    log.set_redacts(options.redacts_log);
    Ok(log)
}

pub(crate) fn parameters_of(options: &ServerOptions) -> Result<Parameters> {
    let p = Parameters::default();
    let set = |at: &std::sync::atomic::AtomicI64, n: i64| at.store(n, Ordering::Relaxed);
    set(&p.slow_ms, options.slow_ms);
    let rate = options.slow_sample_rate.to_bits();
    p.sample_rate.store(rate, Ordering::Relaxed);
    set(&p.log_level, i64::from(options.verbosity));
    p.quiet.store(options.quiet, Ordering::Relaxed);
    p.redacts.store(options.redacts_log, Ordering::Relaxed);
    set(
        &p.journal_interval_ms,
        options.journal_commit_interval.as_millis() as i64,
    );
    for (name, value) in &options.parameters {
        p.set_from_text(name, value)?;
    }
    if p.recovers_alone.load(Ordering::Relaxed) && options.replica_set.is_some() {
        return Err(Error::bad_value(
            "recoverFromOplogAsStandalone is for a start without --replSet: the data of a member can be \
             read then, with everything that its log has",
        ));
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
            "host": muniment_logger::hostname(),
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
    for note in &options.notes {
        log.info(
            "CONTROL",
            7_340_001,
            "initandlisten",
            "An option is taken that does not do here what it does in MongoDB",
            &doc! { "option": &*note.option, "value": &*note.value, "why": note.why },
        );
    }
}

fn write_file(path: Option<&Path>, n: u32) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let write = || -> io::Result<()> {
        // A device or a pipe is written to, not replaced.
        if path.exists() && !path.is_file() {
            return fs::write(path, format!("{n}\n"));
        }
        // Other programs wait for this file to appear, so it is renamed into place when it is complete.
        let tmp = path.with_extension("tmp");
        fs::write(&tmp, format!("{n}\n"))?;
        fs::rename(&tmp, path)
    };
    write().map_err(|e| Error::from(e).context(&format!("cannot write {}: ", path.display())))
}

/// The reply of `buildInfo`.
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
        "openssl": doc! { "running": "rustls (ring)", "compiled": "rustls (ring)" },
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

#[cfg(test)]
mod tests {
    use super::untold;
    use muniment_storage::{Damage, Damaged};

    #[test]
    fn a_damage_that_takes_another_ones_place_is_told_of() {
        let [a, b] = ["a", "b"].map(|name| Damage {
            namespace: format!("d.{name}"),
            what: Damaged::Collection,
            reason: "a test says so".to_string(),
        });
        let (told, now) = ([a.clone()], [a.clone(), b.clone()]);
        assert!(untold(&told, &now).eq([&b]));
        assert!(untold(&told, std::slice::from_ref(&b)).eq([&b]));
        assert_eq!(untold(&now, &told).count(), 0);
    }
}
