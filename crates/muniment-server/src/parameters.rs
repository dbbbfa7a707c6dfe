//! Server parameters: one line each, for getParameter, setParameter and `--setParameter`.
//! Invariant: a parameter that is not listed here is an error, at start and at run time.

use crate::state::ServerState;
use muniment_logger::Logger;
use muniment_member::{MemberParameters, Preference};
use muniment_op::Account;
use muniment_tls::Mode;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, number};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The default of cursorTimeoutMillis.
pub const CURSOR_TIMEOUT: i64 = 600_000;
/// The default of internalQueryMaxBlockingSortMemoryUsageBytes.
pub const MEMORY_LIMIT: i64 = 100 << 20;
/// How long a primary that shuts down waits for another one to take over, unless the command says otherwise.
pub const SHUTDOWN_PATIENCE_SECS: i64 = 15;

/// The values of the parameters that are not kept elsewhere.
pub struct Parameters {
    /// Those that the member of a replica set reads.
    pub member: Arc<MemberParameters>,
    /// authenticationMechanisms.
    pub mechanisms: crate::auth::Mechanisms,
    /// scramIterationCount and scramSHA256IterationCount.
    pub scram: crate::auth::Iterations,
    /// auditAuthorizationSuccess.
    pub audit_successes: AtomicBool,
    /// enableTestCommands.
    pub test_commands: AtomicBool,
    /// munimentSlowFailedLogins.
    pub slows_logins: AtomicBool,
    /// honorSystemUmask.
    pub honors_umask: AtomicBool,
    /// ttlMonitorEnabled.
    pub ttl_enabled: AtomicBool,
    /// enableFlowControl.
    pub flow_control: AtomicBool,
    /// flowControlTargetLagSeconds.
    pub most_lag_secs: AtomicI64,
    /// ttlMonitorSleepSecs.
    pub ttl_sleep_secs: AtomicI64,
    /// See its entry in the list.
    pub transaction_lifetime_secs: AtomicI64,
    /// See its entry in the list.
    pub snapshot_window_secs: AtomicI64,
    /// `orphanCleanupDelaySecs`.
    pub orphan_delay_secs: AtomicI64,
    /// munimentVersionHistorySeconds.
    pub history_secs: AtomicI64,
    /// See its entry in the list.
    pub transaction_patience_ms: AtomicI64,
    /// cursorTimeoutMillis.
    pub cursor_timeout_ms: AtomicI64,
    /// slowms (a flag and `profile`, not a parameter of MongoDB's).
    pub slow_ms: AtomicI64,
    /// sampleRate (`profile`, not a parameter of MongoDB's): the bits of a double between 0 and 1,
    /// the share of slow operations that are logged and recorded.
    pub sample_rate: AtomicU64,
    /// syncdelay's counterpart: journalCommitInterval.
    pub journal_interval_ms: AtomicI64,
    /// logLevel at start.
    pub log_level: AtomicI64,
    /// internalQueryMaxBlockingSortMemoryUsageBytes.
    pub memory_limit: AtomicI64,
    /// munimentMaxConnectionsPerAddress.
    pub most_of_address: AtomicI64,
    /// munimentGreetingTimeoutSeconds.
    pub greeting_secs: AtomicI64,
    /// maxSessions.
    pub max_sessions: AtomicI64,
    /// munimentReplyTimeoutSeconds.
    pub reply_timeout_secs: AtomicI64,
    /// The limits of the ledger.
    pub memory: crate::memory::MemoryLimits,
    /// How many reads may execute at once.
    pub read_tickets: AtomicI64,
    /// How many writes may execute at once.
    pub write_tickets: AtomicI64,
    /// requireApiVersion.
    pub require_api_version: AtomicBool,
    /// quiet.
    pub quiet: AtomicBool,
    /// redactClientLogData.
    pub redacts: AtomicBool,
    /// The limit of how fast connections are accepted.
    pub ingress: crate::ingress::Settings,
    /// notablescan.
    pub no_table_scan: AtomicBool,
    /// recoverFromOplogAsStandalone.
    pub recovers_alone: AtomicBool,
    /// shutdownTimeoutMillisForSignaledShutdown.
    pub shutdown_patience_ms: AtomicI64,
    /// syncdelay, in seconds; 0 leaves it to the sizes of memory and log.
    pub sync_delay: AtomicI64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            member: Arc::default(),
            mechanisms: crate::auth::Mechanisms::default(),
            scram: crate::auth::Iterations::default(),
            audit_successes: AtomicBool::new(false),
            test_commands: AtomicBool::new(false),
            slows_logins: AtomicBool::new(true),
            honors_umask: AtomicBool::new(false),
            ttl_enabled: AtomicBool::new(true),
            flow_control: AtomicBool::new(true),
            most_lag_secs: AtomicI64::new(10),
            ttl_sleep_secs: AtomicI64::new(60),
            transaction_lifetime_secs: AtomicI64::new(60),
            snapshot_window_secs: AtomicI64::new(300),
            orphan_delay_secs: AtomicI64::new(900),
            history_secs: AtomicI64::new(10),
            transaction_patience_ms: AtomicI64::new(5),
            cursor_timeout_ms: AtomicI64::new(CURSOR_TIMEOUT),
            slow_ms: AtomicI64::new(100),
            sample_rate: AtomicU64::new(1.0_f64.to_bits()),
            journal_interval_ms: AtomicI64::new(100),
            log_level: AtomicI64::new(0),
            memory_limit: AtomicI64::new(MEMORY_LIMIT),
            most_of_address: AtomicI64::new(0),
            greeting_secs: AtomicI64::new(60),
            max_sessions: AtomicI64::new(crate::sessions::MAX_SESSIONS),
            reply_timeout_secs: AtomicI64::new(60),
            memory: crate::memory::MemoryLimits::default(),
            read_tickets: AtomicI64::new(muniment_exec::TICKETS),
            write_tickets: AtomicI64::new(muniment_exec::TICKETS),
            require_api_version: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            redacts: AtomicBool::new(false),
            recovers_alone: AtomicBool::new(false),
            shutdown_patience_ms: AtomicI64::new(SHUTDOWN_PATIENCE_SECS * 1000),
            ingress: crate::ingress::Settings::default(),
            no_table_scan: AtomicBool::new(false),
            sync_delay: AtomicI64::new(0),
        }
    }
}

/// When a parameter may be set, and to what.
enum Set {
    /// A whole number in a range, at start.
    StartInt(fn(&Parameters) -> &AtomicI64, i64, i64),
    /// It can never be set.
    Fixed,
    /// A boolean, at start.
    StartBool(fn(&Parameters) -> &AtomicBool),
    /// A boolean, at start and at run time.
    Bool(fn(&Parameters) -> &AtomicBool),
    /// A text, at start.
    StartText(fn(&Parameters, &str) -> Result<()>),
    /// A text, at run time.
    Text(fn(&ServerState, &str) -> Result<()>),
    /// A document with the values to change, at run time.
    Document(fn(&ServerState, Doc<'_>) -> Result<()>),
    /// A whole number in a range, at start and at run time.
    Int(fn(&Parameters) -> &AtomicI64, i64, i64),
}

/// One parameter.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    get: fn(&ServerState) -> ValueBuf,
    set: Set,
    /// Passes a changed value on to the code that uses it.
    apply: fn(&ServerState),
}

fn v(value: impl muniment_value::Put) -> ValueBuf {
    ValueBuf::new(value)
}

fn int(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn nothing(_: &ServerState) {}

/// Sets `tlsMode` for connections from now on. As in MongoDB it can only become stricter, a step at a time.
fn set_tls_mode(s: &ServerState, text: &str) -> Result<()> {
    let wanted = Mode::from_name(text)
        .ok_or_else(|| Error::bad_value(format!("tlsMode: '{text}' is no mode of TLS")))?;
    let refused = |from: Mode| {
        Error::bad_value(format!(
            "Illegal state transition for tlsMode, attempt to change from {} to {text}",
            from.name()
        ))
    };
    let tls = s.trust.tls.as_ref();
    let tls = tls.ok_or_else(|| refused(Mode::Disabled))?;
    match (tls.mode(), wanted) {
        (Mode::Allow, Mode::Prefer) | (Mode::Prefer, Mode::Require) => {}
        (from, to) if from == to => {}
        (from, _) => return Err(refused(from)),
    }
    tls.set_mode(wanted);
    Ok(())
}

fn millis(at: &AtomicI64) -> Duration {
    Duration::from_millis(at.load(Relaxed) as u64)
}

fn bytes(at: &AtomicI64) -> usize {
    usize::try_from(at.load(Relaxed)).unwrap_or(usize::MAX)
}

/// All parameters, sorted by name.
pub const ALL: &[Parameter] = &[
    Parameter {
        name: "allowMultipleArbiters",
        doc: "A replica set may have more than one arbiter",
        get: |s| v(s.parameters.member.many_arbiters.load(Relaxed)),
        set: Set::StartBool(|p| &p.member.many_arbiters),
        apply: nothing,
    },
    Parameter {
        name: "auditAuthorizationSuccess",
        doc: "Whether the audit log also has the reads and writes that were allowed",
        get: |s| v(s.parameters.audit_successes.load(Relaxed)),
        set: Set::Bool(|p| &p.audit_successes),
        apply: nothing,
    },
    Parameter {
        name: "authSchemaVersion",
        doc: "The layout of the documents of users, which mongorestore asks for",
        // As in MongoDB since 2.8; there is no other layout.
        get: |_| v(5),
        set: Set::Fixed,
        apply: nothing,
    },
    Parameter {
        name: "authenticationMechanisms",
        doc: "Mechanisms that clients may log in with, with commas between them",
        get: |s| {
            let names = s.parameters.mechanisms.names();
            v(names.into_iter().collect::<muniment_value::ArrayBuf>())
        },
        set: Set::StartText(|p, text| p.mechanisms.set(text)),
        apply: nothing,
    },
    Parameter {
        name: "cursorTimeoutMillis",
        doc: "Idle time after which a cursor is closed",
        get: |s| v(s.parameters.cursor_timeout_ms.load(Relaxed)),
        set: Set::Int(|p| &p.cursor_timeout_ms, 1, i64::MAX / 2),
        apply: |s| {
            s.engine
                .cursors
                .set_timeout(millis(&s.parameters.cursor_timeout_ms))
        },
    },
    Parameter {
        name: "enableFlowControl",
        doc: "Whether a primary holds writers back while its majority lags",
        get: |s| v(s.parameters.flow_control.load(Relaxed)),
        set: Set::Bool(|p| &p.flow_control),
        apply: Parameters::set_flow_control,
    },
    Parameter {
        name: "enableTestCommands",
        doc: "Allows configureFailPoint",
        get: |s| v(s.parameters.test_commands.load(Relaxed)),
        set: Set::StartBool(|p| &p.test_commands),
        apply: nothing,
    },
    Parameter {
        name: "featureCompatibilityVersion",
        doc: "Always 8.0",
        get: |_| v(doc! { "version": "8.0" }),
        set: Set::Fixed,
        apply: nothing,
    },
    Parameter {
        name: "flowControlTargetLagSeconds",
        doc: "How many seconds the majority may lag",
        get: |s| v(s.parameters.most_lag_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.most_lag_secs, 1, i32::MAX as i64),
        apply: Parameters::set_flow_control,
    },
    Parameter {
        name: "honorSystemUmask",
        doc: "Leaves to the process's umask whether others may read the server's files",
        get: |s| v(s.parameters.honors_umask.load(Relaxed)),
        set: Set::StartBool(|p| &p.honors_umask),
        apply: nothing,
    },
    Parameter {
        name: "indexMaxNumGeneratedKeysPerDocument",
        doc: "Keys that a document which is written may have in one index",
        get: |s| v(int(s.engine.store.key_limits().keys)),
        set: Set::Int(|p| &p.memory.keys, 1, i32::MAX as i64),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "ingressConnectionEstablishmentBurstCapacitySecs",
        doc: "Seconds of the rate of connections that may come at once",
        get: |s| v(s.parameters.ingress.burst_secs.load(Relaxed)),
        set: Set::Int(|p| &p.ingress.burst_secs, 1, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "ingressConnectionEstablishmentMaxQueueDepth",
        doc: "Connections beyond the rate that wait; more are closed",
        get: |s| v(s.parameters.ingress.queue_depth.load(Relaxed)),
        set: Set::Int(|p| &p.ingress.queue_depth, 0, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "ingressConnectionEstablishmentRateLimiterEnabled",
        doc: "Whether new connections are taken no faster than the rate",
        get: |s| v(s.parameters.ingress.enabled.load(Relaxed)),
        set: Set::Bool(|p| &p.ingress.enabled),
        apply: nothing,
    },
    Parameter {
        name: "ingressConnectionEstablishmentRatePerSec",
        doc: "New connections a second",
        get: |s| v(s.parameters.ingress.rate.load(Relaxed) as i32),
        set: Set::Int(|p| &p.ingress.rate, 1, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "initialSyncSourceReadPreference",
        doc: "Which member an initial sync copies: primary, primaryPreferred, secondary, secondaryPreferred, nearest",
        get: |s| v(s.parameters.member.sync_source.read().name()),
        set: Set::StartText(|p, text| {
            *p.member.sync_source.write() = Preference::parse(text)?;
            Ok(())
        }),
        apply: nothing,
    },
    Parameter {
        name: "internalQueryMaxBlockingSortMemoryUsageBytes",
        doc: "Bytes that a stage which sorts, groups or remembers holds before it spills",
        get: |s| v(s.parameters.memory_limit.load(Relaxed)),
        set: Set::Int(|p| &p.memory_limit, 1 << 10, 1 << 40),
        apply: |s| s.engine.set_memory_limit(bytes(&s.parameters.memory_limit)),
    },
    Parameter {
        name: "journalCommitInterval",
        doc: "Milliseconds between two flushes of the journal (1-500)",
        get: |s| v(s.parameters.journal_interval_ms.load(Relaxed) as i32),
        set: Set::Int(|p| &p.journal_interval_ms, 1, 500),
        apply: |s| {
            s.engine
                .store
                .set_journal_commit_interval(millis(&s.parameters.journal_interval_ms))
        },
    },
    Parameter {
        name: "localLogicalSessionTimeoutMinutes",
        doc: "Idle time after which a session record goes",
        get: |_| v(crate::sessions::TIMEOUT_MINUTES),
        set: Set::Fixed,
        apply: nothing,
    },
    Parameter {
        name: VERBOSITY,
        doc: "Verbosity of the log by component (-1: as the one above)",
        get: |s| v(s.log.verbosity.to_doc()),
        set: Set::Document(|s, d| {
            s.log.verbosity.set(d)?;
            s.parameters
                .log_level
                .store(i64::from(s.log.level()), Relaxed);
            Ok(())
        }),
        apply: nothing,
    },
    Parameter {
        name: "logLevel",
        doc: "Verbosity of the log (0-5)",
        get: |s| v(s.parameters.log_level.load(Relaxed) as i32),
        set: Set::Int(|p| &p.log_level, 0, 5),
        apply: |s| s.log.set_level(s.parameters.log_level.load(Relaxed) as i32),
    },
    Parameter {
        name: "maxAcceptableLogicalClockDriftSecs",
        doc: "Seconds that a $clusterTime may be ahead of the wall clock",
        get: |s| v(s.parameters.member.clock_drift_secs.load(Relaxed)),
        set: Set::StartInt(|p| &p.member.clock_drift_secs, 1, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "maxSessions",
        doc: "Most session records",
        get: |s| v(s.parameters.max_sessions.load(Relaxed) as i32),
        set: Set::StartInt(|p| &p.max_sessions, 1, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "maxTransactionLockRequestTimeoutMillis",
        doc: "Milliseconds that a transaction waits for what another write or DDL holds",
        get: |s| v(s.parameters.transaction_patience_ms.load(Relaxed) as i32),
        set: Set::Int(|p| &p.transaction_patience_ms, 0, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "minSnapshotHistoryWindowInSeconds",
        doc: "Seconds for which the view of a read at a point in time is kept",
        get: |s| v(s.parameters.snapshot_window_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.snapshot_window_secs, 0, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "munimentElectWhenPrimaryIsGone",
        doc: "Whether members of a set elect another primary at once when the primary's process is gone: it has closed its connections, nobody listens where it was, and a majority has seen that. Without it they wait for the election timeout",
        get: |s| v(s.parameters.member.elects_when_gone.load(Relaxed)),
        set: Set::Bool(|p| &p.member.elects_when_gone),
        apply: nothing,
    },
    Parameter {
        name: "munimentGreetingTimeoutSeconds",
        doc: "Seconds within which a client has to send its first whole message after it has connected",
        get: |s| v(s.parameters.greeting_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.greeting_secs, 1, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "munimentIndexMaxKeyBytesPerDocument",
        doc: "Bytes that the keys may take which a document that is written has in one index",
        get: |s| v(int(s.engine.store.key_limits().bytes)),
        set: Set::Int(|p| &p.memory.key_bytes, 1 << 10, 1 << 30),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "munimentMaxConnectionsPerAddress",
        doc: "Most connections at a time from one address; 0 for no limit",
        get: |s| v(s.parameters.most_of_address.load(Relaxed) as i32),
        set: Set::Int(|p| &p.most_of_address, 0, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "munimentMemoryLimitBytes",
        doc: "Bytes that all accounts of memory together may hold beside the cache: an eighth of the cache and 48 MB, if nothing is said; less while more is resident than the cache and its surplus allow",
        get: |s| v(int(s.engine.memory.total().limit)),
        set: Set::Int(|p| &p.memory.total, 8 << 20, 1 << 50),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "munimentMessageMemoryBytes",
        doc: "Bytes that messages may take altogether while they are received, and replies while they are sent",
        get: |s| v(crate::memory::limit(s, Account::Messages)),
        set: Set::Int(|p| &p.memory.messages, 1 << 20, 1 << 50),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "munimentQueryMemoryBudgetBytes",
        doc: "Bytes that all stages which sort, group or remember hold together before they spill",
        get: |s| v(crate::memory::limit(s, Account::Stages)),
        set: Set::Int(|p| &p.memory.stages, 1 << 20, 1 << 50),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "munimentReplyTimeoutSeconds",
        doc: "Seconds after which a client that takes no byte of a reply is disconnected; sooner, if others need the memory",
        get: |s| v(s.parameters.reply_timeout_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.reply_timeout_secs, 1, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "munimentScriptMemoryBytes",
        doc: "Bytes that the heaps of all JavaScript functions may take together",
        get: |s| v(crate::memory::limit(s, Account::Scripts)),
        set: Set::Int(|p| &p.memory.scripts, 1 << 20, 1 << 50),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "munimentSlowFailedLogins",
        doc: "Whether logins wait whose name or address has failed repeatedly; without it passwords can be guessed as fast as the server answers",
        get: |s| v(s.parameters.slows_logins.load(Relaxed)),
        set: Set::Bool(|p| &p.slows_logins),
        apply: nothing,
    },
    Parameter {
        name: "munimentStreamMemoryBytes",
        doc: "Bytes that readers of the log and change streams may hold together",
        get: |s| v(crate::memory::limit(s, Account::Streams)),
        set: Set::Int(|p| &p.memory.streams, 1 << 20, 1 << 50),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "munimentTransactionMemoryBytes",
        doc: "Bytes that open transactions may hold together",
        get: |s| v(crate::memory::limit(s, Account::Transactions)),
        set: Set::Int(|p| &p.memory.transactions, 1 << 20, 1 << 50),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "munimentVersionHistorySeconds",
        doc: "Seconds for which a shard, or a member of a set with others, can be read at a time that nobody has read at here before",
        get: |s| v(s.parameters.history_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.history_secs, 0, 86_400),
        apply: |s| {
            let secs = s.parameters.history_secs.load(Relaxed);
            let secs = u32::try_from(secs).unwrap_or(0);
            let of_cluster = s.options.role.may_be_shard();
            s.engine.store.keep_history(secs, of_cluster);
        },
    },
    Parameter {
        name: "munimentWriteMemoryBytes",
        doc: "Bytes of documents and index keys that writes may hold together until they are committed",
        get: |s| v(crate::memory::limit(s, Account::Writes)),
        set: Set::Int(|p| &p.memory.writes, 1 << 20, 1 << 50),
        apply: crate::memory::apply,
    },
    Parameter {
        name: "notablescan",
        doc: "Refuses plans that read a whole collection",
        get: |s| v(s.parameters.no_table_scan.load(Relaxed)),
        set: Set::Bool(|p| &p.no_table_scan),
        apply: |s| {
            s.engine
                .refuse_scans(s.parameters.no_table_scan.load(Relaxed))
        },
    },
    Parameter {
        name: "orphanCleanupDelaySecs",
        doc: "Seconds after which rows of a range that was moved to another shard are deleted. The only member of a set deletes them as soon as no cursor may read them",
        get: |s| v(s.parameters.orphan_delay_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.orphan_delay_secs, 0, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "quiet",
        doc: "Leaves connections out of the log",
        get: |s| v(s.parameters.quiet.load(Relaxed)),
        set: Set::Bool(|p| &p.quiet),
        apply: |s| s.log.set_quiet(s.parameters.quiet.load(Relaxed)),
    },
    Parameter {
        name: "recoverFromOplogAsStandalone",
        doc: "Refuses to be started as a member of a set; the log is applied at every start anyway",
        get: |s| v(s.parameters.recovers_alone.load(Relaxed)),
        set: Set::StartBool(|p| &p.recovers_alone),
        apply: nothing,
    },
    Parameter {
        name: "redactClientLogData",
        doc: "The log shows no values of what clients send and store",
        get: |s| v(s.log.redacts()),
        set: Set::Bool(|p| &p.redacts),
        apply: |s| s.log.set_redacts(s.parameters.redacts.load(Relaxed)),
    },
    Parameter {
        name: "replMemberRoutes",
        doc: "What a server dials for members of replica sets, where that is not what the configuration says: HOST:PORT=HOST:PORT,…",
        get: |s| v(s.parameters.member.routes.to_text().as_str()),
        set: Set::StartText(|p, text| p.member.routes.set(text)),
        apply: nothing,
    },
    Parameter {
        name: "requireApiVersion",
        doc: "Refuses commands without apiVersion",
        get: |s| v(s.parameters.require_api_version.load(Relaxed)),
        set: Set::Bool(|p| &p.require_api_version),
        apply: nothing,
    },
    Parameter {
        name: "saslHostName",
        doc: "The name of this host, for authentication (there is none yet)",
        get: |s| {
            v(s.address
                .host
                .rsplit_once(':')
                .map_or(&*s.address.host, |(name, _)| name))
        },
        set: Set::Fixed,
        apply: nothing,
    },
    Parameter {
        name: "scramIterationCount",
        doc: "How often passwords for SCRAM-SHA-1 are stretched that are set from now on",
        get: |s| v(s.parameters.scram.sha1.load(Relaxed) as i32),
        set: Set::Int(|p| &p.scram.sha1, 5000, 1_000_000),
        apply: nothing,
    },
    Parameter {
        name: "scramSHA256IterationCount",
        doc: "The same for SCRAM-SHA-256",
        get: |s| v(s.parameters.scram.sha256.load(Relaxed) as i32),
        set: Set::Int(|p| &p.scram.sha256, 5000, 1_000_000),
        apply: nothing,
    },
    Parameter {
        name: "shutdownTimeoutMillisForSignaledShutdown",
        doc: "Milliseconds that a primary told to end by a signal waits for another one",
        get: |s| v(s.parameters.shutdown_patience_ms.load(Relaxed) as i32),
        set: Set::Int(|p| &p.shutdown_patience_ms, 0, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "slowms",
        doc: "Operations slower than so many milliseconds are logged",
        get: |s| v(s.parameters.slow_ms.load(Relaxed)),
        set: Set::Int(|p| &p.slow_ms, -1, i64::MAX / 2000),
        apply: nothing,
    },
    Parameter {
        name: "storageEngineConcurrentReadTransactions",
        doc: "Reads that execute at once; others wait",
        get: |s| v(s.parameters.read_tickets.load(Relaxed)),
        set: Set::Int(|p| &p.read_tickets, 1, 1 << 20),
        apply: |s| {
            s.engine
                .tickets
                .reads
                .set_total(s.parameters.read_tickets.load(Relaxed))
        },
    },
    Parameter {
        name: "storageEngineConcurrentWriteTransactions",
        doc: "Writes that execute at once; others wait",
        get: |s| v(s.parameters.write_tickets.load(Relaxed)),
        set: Set::Int(|p| &p.write_tickets, 1, 1 << 20),
        apply: |s| {
            s.engine
                .tickets
                .writes
                .set_total(s.parameters.write_tickets.load(Relaxed))
        },
    },
    Parameter {
        name: "syncdelay",
        doc: "Seconds after which what is in memory goes to tables at the latest; 0: when memory or log are full",
        get: |s| v(s.parameters.sync_delay.load(Relaxed) as f64),
        set: Set::Int(|p| &p.sync_delay, 0, 9_000_000),
        apply: |s| {
            let seconds = s.parameters.sync_delay.load(Relaxed) as u64;
            s.engine
                .store
                .set_checkpoint_interval(Duration::from_secs(seconds));
        },
    },
    Parameter {
        name: "tlsMode",
        doc: "Which connections use TLS: allowTLS, preferTLS, requireTLS; it can only become stricter",
        get: |s| {
            v(s.trust
                .tls
                .as_ref()
                .map_or("disabled", |tls| tls.mode().name()))
        },
        set: Set::Text(set_tls_mode),
        apply: nothing,
    },
    Parameter {
        name: "transactionLifetimeLimitSeconds",
        doc: "Seconds after which a transaction is aborted",
        get: |s| v(s.parameters.transaction_lifetime_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.transaction_lifetime_secs, 1, i32::MAX as i64),
        apply: nothing,
    },
    Parameter {
        name: "ttlMonitorEnabled",
        doc: "Whether expired documents are deleted",
        get: |s| v(s.parameters.ttl_enabled.load(Relaxed)),
        set: Set::Bool(|p| &p.ttl_enabled),
        apply: nothing,
    },
    Parameter {
        name: "ttlMonitorSleepSecs",
        doc: "Seconds between two passes of the TTL monitor",
        get: |s| v(s.parameters.ttl_sleep_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.ttl_sleep_secs, 1, i32::MAX as i64),
        apply: nothing,
    },
];

impl Parameter {
    /// Its value.
    pub fn get(&self, server: &ServerState) -> ValueBuf {
        (self.get)(server)
    }

    /// Passes the value on to the code that uses it.
    pub fn apply(&self, server: &ServerState) {
        (self.apply)(server);
    }

    /// True if `--setParameter` accepts it.
    pub fn settable_at_startup(&self) -> bool {
        !matches!(self.set, Set::Fixed | Set::Text(_) | Set::Document(_))
    }

    /// True if setParameter accepts it.
    pub fn settable_at_runtime(&self) -> bool {
        matches!(
            self.set,
            Set::Bool(_) | Set::Int(..) | Set::Text(_) | Set::Document(_)
        )
    }

    /// What it may be, for the page of the parameters, with its default in brackets. A default that
    /// follows from the size of the cache is not known without a server.
    pub fn values(&self) -> String {
        let defaults = Parameters::default();
        match self.set {
            Set::Fixed => String::new(),
            Set::StartText(_) | Set::Text(_) => "text".to_string(),
            Set::Document(_) => "a document".to_string(),
            Set::StartBool(at) | Set::Bool(at) => {
                format!("true or false ({})", at(&defaults).load(Relaxed))
            }
            Set::StartInt(at, min, max) | Set::Int(at, min, max) => {
                let range = match max >= i64::from(i32::MAX) {
                    true => format!("{min} or more"),
                    false => format!("{min} to {max}"),
                };
                match at(&defaults).load(Relaxed) {
                    default if default >= min => format!("{range} ({default})"),
                    _ => range,
                }
            }
        }
    }

    fn set(&self, p: &Parameters, value: Value<'_>) -> Result<()> {
        match self.set {
            Set::Fixed | Set::Text(_) | Set::Document(_) => Err(Error::new(
                Code::IllegalOperation,
                format!("not allowed to change [{}]", self.name),
            )),
            Set::StartText(take) => match value {
                Value::String(text) => take(p, text),
                v => Err(Error::bad_value(format!(
                    "parameter {} must be a string, not {}",
                    self.name,
                    v.type_name()
                ))),
            },
            Set::StartBool(at) | Set::Bool(at) => {
                if !value.is_number() && value.as_bool().is_none() {
                    return Err(Error::bad_value(format!(
                        "parameter {} must be a boolean, not {}",
                        self.name,
                        value.type_name()
                    )));
                }
                at(p).store(value.truthy(), Relaxed);
                Ok(())
            }
            Set::StartInt(at, min, max) | Set::Int(at, min, max) => {
                let n = number::to_i64_exact(value)
                    .filter(|n| (min..=max).contains(n))
                    .ok_or_else(|| {
                        Error::bad_value(format!(
                            "Invalid value for parameter {}: must be a whole number between \
                             {min} and {max}",
                            self.name
                        ))
                    })?;
                at(p).store(n, Relaxed);
                Ok(())
            }
        }
    }
}

/// The parameter with this name.
pub fn find(name: &str) -> Option<&'static Parameter> {
    ALL.iter().find(|p| p.name == name)
}

impl Parameters {
    /// The most records of sessions.
    pub fn most_sessions(&self) -> usize {
        usize::try_from(self.max_sessions.load(Relaxed)).unwrap_or(usize::MAX)
    }

    /// Tells the storage how far the majority may lag before writers are slowed down.
    pub fn set_flow_control(server: &ServerState) {
        let p = &server.parameters;
        let secs = u64::try_from(p.most_lag_secs.load(Relaxed)).unwrap_or(1);
        let target = p
            .flow_control
            .load(Relaxed)
            .then_some(Duration::from_secs(secs));
        server.engine.store.set_flow_control(target);
    }

    /// Sets a parameter from the command line.
    ///
    /// # Errors
    /// 72 for an unknown parameter, 2 for a bad value.
    pub fn set_from_text(&self, name: &str, text: &str) -> Result<()> {
        // Test harnesses pass it to every server; this one collects no such data, so there is nothing to turn
        // off.
        if name == "diagnosticDataCollectionEnabled" && text == "false" {
            return Ok(());
        }
        // The log is given this one later ([`verbosity_at_start`]).
        if name == VERBOSITY {
            return DocBuf::from_json(text).map(drop);
        }
        let p = find(name).ok_or_else(|| {
            Error::new(
                Code::InvalidOptions,
                format!("Unknown --setParameter '{name}'"),
            )
        })?;
        match (text, text.parse::<i64>()) {
            ("true", _) => p.set(self, Value::Bool(true)),
            ("false", _) => p.set(self, Value::Bool(false)),
            (_, Ok(n)) => p.set(self, Value::Int64(n)),
            (text, _) => p.set(self, Value::String(text)),
        }
    }
}

/// The parameter whose value the log keeps.
const VERBOSITY: &str = "logComponentVerbosity";

/// Sets the levels of the log's components that `--setParameter` gives.
///
/// # Errors
/// 9 for a text that is no document; those of the parameter.
pub fn verbosity_at_start(given: &[(String, String)], log: &Logger) -> Result<()> {
    for (_, text) in given.iter().filter(|(name, _)| name == VERBOSITY) {
        log.verbosity.set(DocBuf::from_json(text)?.as_doc())?;
    }
    Ok(())
}

/// Sets a parameter at run time. Returns its old value.
///
/// # Errors
/// 72 for an unknown parameter, 20 for one that can only be set at start, 2 for a bad value.
pub fn set(server: &ServerState, name: &str, value: Value<'_>) -> Result<ValueBuf> {
    let p = find(name).ok_or_else(|| {
        Error::new(
            Code::InvalidOptions,
            format!(
                "attempted to set unrecognized parameter [{name}], use help:true to see options "
            ),
        )
    })?;
    if !p.settable_at_runtime() {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("not allowed to change [{name}] at runtime"),
        ));
    }
    let before = p.get(server);
    match (&p.set, value) {
        (Set::Text(change), Value::String(text)) => change(server, text)?,
        (Set::Document(change), Value::Document(d)) => change(server, d)?,
        (Set::Text(_), v) => {
            return Err(Error::bad_value(format!(
                "parameter {name} must be a string, not {}",
                v.type_name()
            )));
        }
        (Set::Document(_), v) => {
            return Err(Error::type_mismatch(format!(
                "{name} is not a BSON object, but {}",
                v.type_name()
            )));
        }
        _ => p.set(&server.parameters, value)?,
    }
    p.apply(server);
    Ok(before)
}

/// All parameters as `getParameter: "*"` shows them. With `details`, each has its `value`, and whether it is
/// `settableAtRuntime` and `settableAtStartup`.
pub fn to_doc(server: &ServerState, wanted: impl Fn(&Parameter) -> bool, details: bool) -> DocBuf {
    let mut d = DocBuf::new();
    for p in ALL.iter().filter(|p| wanted(p)) {
        let value = p.get(server);
        if details {
            d.append(
                p.name,
                doc! {
                    "value": value,
                    "settableAtRuntime": p.settable_at_runtime(),
                    "settableAtStartup": p.settable_at_startup(),
                },
            );
        } else {
            d.append(p.name, value);
        }
    }
    d
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn sorted_and_checked() {
        assert!(ALL.windows(2).all(|w| w[0].name < w[1].name));
        let p = Parameters::default();
        p.set_from_text("enableTestCommands", "1").unwrap();
        assert!(p.test_commands.load(Relaxed));
        p.set_from_text("ttlMonitorSleepSecs", "2").unwrap();
        assert_eq!(p.ttl_sleep_secs.load(Relaxed), 2);
        assert!(p.set_from_text("ttlMonitorSleepSecs", "0").is_err());
        assert!(p.set_from_text("ttlMonitorSleepSecs", "x").is_err());
        assert!(p.set_from_text("nope", "1").is_err());
        assert!(p.set_from_text("featureCompatibilityVersion", "1").is_err());
        p.set_from_text("diagnosticDataCollectionEnabled", "false")
            .unwrap();
        assert!(
            p.set_from_text("diagnosticDataCollectionEnabled", "true")
                .is_err()
        );
    }
}
