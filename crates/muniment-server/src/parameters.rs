//! Server parameters: one line each, for getParameter, setParameter and `--setParameter`.
//!
//! Invariant: a parameter that is not listed here is an error, at start and at run time.

use crate::replica_set::Routes;
use crate::state::ServerState;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, number};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// cursorTimeoutMillis when nobody sets it.
pub const CURSOR_TIMEOUT: i64 = 600_000;

/// internalQueryMaxBlockingSortMemoryUsageBytes when nobody sets it.
pub const MEMORY_LIMIT: i64 = 100 << 20;

/// The values of the parameters that are not kept elsewhere.
pub struct Parameters {
    /// enableTestCommands.
    pub test_commands: AtomicBool,
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
    /// Bytes that all such stages together may hold.
    pub memory_budget: AtomicI64,
    /// Bytes that messages may take while they are received.
    pub message_memory: AtomicI64,
    /// Reads that execute at once.
    pub read_tickets: AtomicI64,
    /// Writes that execute at once.
    pub write_tickets: AtomicI64,
    /// requireApiVersion.
    pub require_api_version: AtomicBool,
    /// quiet.
    pub quiet: AtomicBool,
    /// How fast connections are taken.
    pub ingress: crate::ingress::Settings,
    /// notablescan.
    pub no_table_scan: AtomicBool,
    /// syncdelay: seconds; 0 leaves it to the sizes of memory and log.
    pub sync_delay: AtomicI64,
    /// replMemberRoutes.
    pub routes: RwLock<Routes>,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            test_commands: AtomicBool::new(false),
            ttl_enabled: AtomicBool::new(true),
            flow_control: AtomicBool::new(true),
            most_lag_secs: AtomicI64::new(10),
            ttl_sleep_secs: AtomicI64::new(60),
            transaction_lifetime_secs: AtomicI64::new(60),
            snapshot_window_secs: AtomicI64::new(300),
            history_secs: AtomicI64::new(10),
            transaction_patience_ms: AtomicI64::new(5),
            cursor_timeout_ms: AtomicI64::new(CURSOR_TIMEOUT),
            slow_ms: AtomicI64::new(100),
            sample_rate: AtomicU64::new(1.0_f64.to_bits()),
            journal_interval_ms: AtomicI64::new(100),
            log_level: AtomicI64::new(0),
            memory_limit: AtomicI64::new(MEMORY_LIMIT),
            memory_budget: AtomicI64::new(memory_budget()),
            message_memory: AtomicI64::new(message_memory()),
            read_tickets: AtomicI64::new(muniment_exec::TICKETS),
            write_tickets: AtomicI64::new(muniment_exec::TICKETS),
            require_api_version: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            ingress: crate::ingress::Settings::default(),
            no_table_scan: AtomicBool::new(false),
            sync_delay: AtomicI64::new(0),
            routes: RwLock::default(),
        }
    }
}

/// The first value of the budget: an eighth of the memory there is, and room for two stages.
fn memory_budget() -> i64 {
    let eighth = i64::try_from(crate::options::memory_limit() / 8).unwrap_or(i64::MAX);
    eighth.max(2 * MEMORY_LIMIT)
}

/// The first value of the memory for messages: the same, and room for some of the largest.
fn message_memory() -> i64 {
    let eighth = i64::try_from(crate::options::memory_limit() / 8).unwrap_or(i64::MAX);
    eighth.max(256 << 20)
}

/// How a parameter takes its value.
enum Set {
    /// Never.
    Fixed,
    /// A boolean, at start.
    StartBool(fn(&Parameters) -> &AtomicBool),
    /// A boolean, at start and at run time.
    Bool(fn(&Parameters) -> &AtomicBool),
    /// A text, at start.
    StartText(fn(&Parameters, &str) -> Result<()>),
    /// A document that changes what it names, at run time.
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
    /// Hands a changed value to what works with it.
    apply: fn(&ServerState),
}

fn v(value: impl muniment_value::Put) -> ValueBuf {
    ValueBuf::new(value)
}

fn nothing(_: &ServerState) {}

fn millis(at: &AtomicI64) -> Duration {
    Duration::from_millis(at.load(Relaxed) as u64)
}

fn bytes(at: &AtomicI64) -> usize {
    usize::try_from(at.load(Relaxed)).unwrap_or(usize::MAX)
}

/// All parameters, sorted by name.
pub const ALL: &[Parameter] = &[
    Parameter {
        name: "authenticationMechanisms",
        doc: "Mechanisms that clients may authenticate with (none yet)",
        get: |_| v(muniment_value::ArrayBuf::new()),
        set: Set::Fixed,
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
        doc: "Whether a primary holds writers back while its majority is behind",
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
        doc: "How many seconds the majority may be behind",
        get: |s| v(s.parameters.most_lag_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.most_lag_secs, 1, i32::MAX as i64),
        apply: Parameters::set_flow_control,
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
        name: "logComponentVerbosity",
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
        name: "maxSessions",
        doc: "Most session records",
        get: |_| v(crate::sessions::MAX_SESSIONS as i32),
        set: Set::Fixed,
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
        name: "munimentMessageMemoryBytes",
        doc: "Bytes that messages may take altogether while they are received",
        get: |s| v(s.parameters.message_memory.load(Relaxed)),
        set: Set::Int(|p| &p.message_memory, 1 << 20, 1 << 50),
        apply: |s| {
            s.message_memory
                .set_limit(bytes(&s.parameters.message_memory))
        },
    },
    Parameter {
        name: "munimentQueryMemoryBudgetBytes",
        doc: "Bytes that all stages which sort, group or remember hold together before they spill",
        get: |s| v(s.parameters.memory_budget.load(Relaxed)),
        set: Set::Int(|p| &p.memory_budget, 1 << 20, 1 << 50),
        apply: |s| {
            s.engine
                .memory
                .set_limit(bytes(&s.parameters.memory_budget))
        },
    },
    Parameter {
        name: "munimentVersionHistorySeconds",
        doc: "Seconds for which a member of a set with others can be read at a time that nobody has read at here before",
        get: |s| v(s.parameters.history_secs.load(Relaxed) as i32),
        set: Set::Int(|p| &p.history_secs, 0, 86_400),
        apply: |s| {
            let secs = s.parameters.history_secs.load(Relaxed);
            let secs = u32::try_from(secs).unwrap_or(0);
            s.engine.store.keep_history(secs);
        },
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
        name: "quiet",
        doc: "Leaves connections out of the log",
        get: |s| v(s.parameters.quiet.load(Relaxed)),
        set: Set::Bool(|p| &p.quiet),
        apply: |s| s.log.set_quiet(s.parameters.quiet.load(Relaxed)),
    },
    Parameter {
        name: "replMemberRoutes",
        doc: "What a member of a replica set dials for others, where that is not what the configuration says: HOST:PORT=HOST:PORT,…",
        get: |s| v(s.parameters.routes.read().to_text().as_str()),
        set: Set::StartText(|p, text| {
            *p.routes.write() = Routes::parse(text)?;
            Ok(())
        }),
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
        get: |s| v(s.host.rsplit_once(':').map_or(&*s.host, |(name, _)| name)),
        set: Set::Fixed,
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

    /// Hands its value to what works with it.
    pub fn apply(&self, server: &ServerState) {
        (self.apply)(server);
    }

    /// True if `--setParameter` takes it.
    pub fn settable_at_startup(&self) -> bool {
        !matches!(self.set, Set::Fixed | Set::Document(_))
    }

    /// True if setParameter takes it.
    pub fn settable_at_runtime(&self) -> bool {
        matches!(self.set, Set::Bool(_) | Set::Int(..) | Set::Document(_))
    }

    fn set(&self, p: &Parameters, value: Value<'_>) -> Result<()> {
        match self.set {
            Set::Fixed | Set::Document(_) => Err(Error::new(
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
            Set::Int(at, min, max) => {
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
    /// Tells the storage of the server how far its majority may be behind.
    pub fn set_flow_control(server: &ServerState) {
        let p = &server.parameters;
        let secs = u64::try_from(p.most_lag_secs.load(Relaxed)).unwrap_or(1);
        let target = p
            .flow_control
            .load(Relaxed)
            .then_some(Duration::from_secs(secs));
        server.engine.store.set_flow_control(target);
    }

    /// Sets one from the command line.
    ///
    /// # Errors
    /// 72 for an unknown one, 2 for a bad value.
    pub fn set_from_text(&self, name: &str, text: &str) -> Result<()> {
        // Test harnesses give it to every server; ours collects no such data.
        if name == "diagnosticDataCollectionEnabled" && text == "false" {
            return Ok(());
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

/// setParameter at run time; returns the value before.
///
/// # Errors
/// 72 for an unknown one, 20 for one that only the start sets, 2 for a bad value.
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
        (Set::Document(change), Value::Document(d)) => change(server, d)?,
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

/// All of them as `getParameter: "*"` shows them; `details` gives `{value, settableAtRuntime,
/// settableAtStartup}` each.
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
