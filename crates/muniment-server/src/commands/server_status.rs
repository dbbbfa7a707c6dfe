//! `serverStatus`: every figure is measured, none is made up.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::metrics::{Counted, LATENCY_NAMES, OP_NAMES, Totals};
use crate::options::ClusterRole;
use crate::registry::{CommandSpec, Routed};
use crate::server::{MONGODB_VERSION, VERSION};
use muniment_auth::action::Action;
use muniment_exec::TicketPool;
use muniment_logger::now_ms;
use muniment_member::{describe, oplog};
use muniment_storage::{Damage, Damaged};
use muniment_tls::{Endpoint, Version};
use muniment_value::{ArrayBuf, DocBuf, Result, Value, doc};
use std::sync::atomic::Ordering::Relaxed;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "serverStatus",
    doc: "Figures of the running server; a section's name with 0 leaves it out",
    open_fields: true,
    run,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::ServerStatus]))
};

type Section = fn(&CommandContext<'_>, &Totals) -> DocBuf;

/// The sections in the order in which they are written.
const SECTIONS: &[(&str, Section)] = &[
    ("asserts", asserts),
    ("catalogStats", catalog_stats),
    ("connections", connections),
    ("extra_info", extra_info),
    ("flowControl", flow_control),
    ("globalLock", global_lock),
    ("locks", locks),
    ("logicalSessionRecordCache", sessions),
    ("mem", |_, _| mem()),
    ("metrics", metrics),
    ("mirroredReads", |_, _| mirrored_reads()),
    ("muniment", muniment),
    ("network", network),
    ("opLatencies", latencies),
    ("opcounters", |_, t| counters(&t.ops)),
    ("opcountersRepl", |cx, _| {
        let [inserts, updates, deletes, commands] = cx.engine().store.follow_stats().ops;
        counters(&[inserts, 0, updates, deletes, 0, commands])
    }),
    // The section is empty while there is no log.
    ("oplog", |cx, _| {
        oplog(&cx.engine().store).unwrap_or_default()
    }),
    ("queues", queues),
    ("repl", replication),
    ("security", |cx, _| {
        let mechanisms = cx.server.auth.figures.to_doc();
        let mut d = doc! { "authentication": doc! { "mechanisms": mechanisms } };
        if let Some(tls) = &cx.server.trust.tls {
            certificates(&mut d, tls);
        }
        d
    }),
    ("storageEngine", storage_engine),
    ("transactions", transactions),
    ("transportSecurity", transport_security),
    ("wiredTiger", cache_as_wired_tiger),
];

/// The part of `security` that is about TLS.
fn certificates(d: &mut DocBuf, tls: &Endpoint) {
    let settings = tls.settings();
    let authorities = settings.ca_file.is_some() || settings.cluster_ca_file.is_some();
    d.append_some("SSLServerSubjectName", tls.own().map(|c| c.subject));
    d.append("SSLServerHasCertificateAuthority", authorities);
    let at = tls.expires_ms().map(Value::DateTime);
    d.append_some("SSLServerCertificateExpirationDate", at);
}

/// How many connections were accepted in each version of TLS, and how many have failed in their handshake.
fn transport_security(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let tls = cx.server.trust.tls.as_ref();
    let accepted = |version| tls.map_or(0, |tls| tls.accepted(version)) as i64;
    doc! {
        "1.0": 0_i64,
        "1.1": 0_i64,
        "1.2": accepted(Version::Tls12),
        "1.3": accepted(Version::Tls13),
        "unknown": 0_i64,
        "failed": tls.map_or(0, |tls| tls.failed()) as i64,
    }
}

/// Writes the figures into the reply.
pub(super) fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = |name: &str| match cx.request.body.get(name) {
        Some(v) => v.truthy(),
        None => !ASKED_FOR.contains(&name),
    };
    let totals = cx.server.metrics.totals();
    let up = cx.server.lifecycle.started.elapsed();
    let sections: Vec<(&str, DocBuf)> = SECTIONS
        .iter()
        .filter(|(name, _)| wanted(name))
        .filter(|(name, _)| !OF_SETS.contains(name) || cx.server.replica_set.is_some())
        .map(|(name, f)| (*name, f(cx, &totals)))
        .collect();
    let w = &mut cx.reply;
    w.field("host", cx.server.address.host.as_str());
    w.field("version", MONGODB_VERSION);
    let (process, service) = match &cx.server.options.role {
        ClusterRole::Router(_) => ("mongos", "router"),
        _ => ("mongod", "shard"),
    };
    w.field("process", process);
    w.field("service", [service].iter().collect::<ArrayBuf>());
    w.field("pid", i64::from(std::process::id()));
    w.field("uptime", up.as_secs() as f64);
    w.field("uptimeMillis", up.as_millis() as i64);
    w.field("uptimeEstimate", up.as_secs() as i64);
    w.field("localTime", Value::DateTime(now_ms()));
    for (name, d) in sections {
        w.field(name, d);
    }
    if let Some(router) = &cx.server.router {
        let config = router.config.text();
        let open = router.open_cursors() as i64;
        w.field("sharding", doc! { "configsvrConnectionString": config });
        w.field("shardingStatistics", doc! { "openCursors": open });
    }
    if cx.server.options.role.may_be_shard() {
        let moved = cx.server.engine.store.with_foreign_rows();
        let waste = moved.iter().filter_map(|c| c.placement());
        let waste = waste.map(|p| p.waste().len()).sum();
        w.field("shardingStatistics", cx.server.moving.figures.to_doc(waste));
    }
    Ok(())
}

/// Sections that only members of sets have.
const OF_SETS: &[&str] = &["flowControl", "oplog", "repl"];

/// Sections that are written only when they are asked for.
const ASKED_FOR: &[&str] = &["mirroredReads", "oplog"];

/// The section of mirrored reads, all zeros: this server mirrors no reads to other members.
fn mirrored_reads() -> DocBuf {
    doc! {
        "seen": 0_i64, "sent": 0_i64, "erroredDuringSend": 0_i64, "resolved": 0_i64,
        "resolvedBreakdown": doc! {}, "succeeded": 0_i64, "pending": 0_i64, "scheduled": 0_i64,
        "processedAsSecondary": 0_i64,
    }
}

fn asserts(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let m = &cx.server.metrics;
    doc! {
        "regular": 0, "warning": 0,
        "msg": m.asserts_msg.load(Relaxed) as i32,
        "user": m.asserts_user.load(Relaxed) as i32,
        "tripwire": 0, "rollovers": 0,
    }
}

fn catalog_stats(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let store = &cx.engine().store;
    let (mut all, mut capped, mut internal) = (0, 0, 0);
    let (mut clustered, mut series) = (0, 0);
    let (mut views, mut internal_views) = (0, 0);
    for db in store.databases() {
        let own = matches!(db.as_str(), "admin" | "config" | "local");
        let kinds = store.kinds(&db);
        all += kinds.all;
        capped += kinds.capped;
        clustered += kinds.clustered;
        series += kinds.series;
        internal += if own { kinds.all } else { 0 };
        // Views that cannot be read now are not counted.
        let stored = cx
            .engine()
            .views(&db, &**cx.op)
            .map_or(0, |v| v.len() as i32);
        match own {
            true => internal_views += stored,
            false => views += stored,
        }
    }
    doc! {
        "collections": (all - internal) as i32, "capped": capped as i32,
        "clustered": clustered as i32, "timeseries": series as i32, "views": views,
        "internalCollections": internal as i32, "internalViews": internal_views,
    }
}

fn connections(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let s = cx.server;
    let open = s.connections.open.load(Relaxed) as i64;
    let active = s.engine.operations.len() as i64;
    doc! {
        "current": open as i32,
        "available": (s.connections.most as i64 - open).max(0) as i32,
        "totalCreated": s.connections.created.load(Relaxed) as i64,
        "rejected": s.connections.rejected.load(Relaxed) as i64,
        "closedAsTooSlow": s.connections.slow.load(Relaxed) as i64,
        "active": active as i32,
        "threaded": open as i32,
        "exhaustHello": s.topology.waiting.load(Relaxed) as i32,
        "awaitingTopologyChanges": s.topology.waiting.load(Relaxed) as i32,
    }
}

/// User and system time, page faults, resident peak: getrusage(2).
fn extra_info(_: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let mut u = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is owned by this function.
    let u = unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, u.as_mut_ptr()) != 0 {
            return DocBuf::new();
        }
        u.assume_init()
    };
    let micros = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    doc! {
        "note": "fields vary by platform",
        "user_time_us": micros(u.ru_utime),
        "system_time_us": micros(u.ru_stime),
        "maximum_resident_set_kb": u.ru_maxrss,
        "input_blocks": u.ru_inblock,
        "output_blocks": u.ru_oublock,
        "page_reclaims": u.ru_minflt,
        "page_faults": u.ru_majflt as i32,
        "voluntary_context_switches": u.ru_nvcsw,
        "involuntary_context_switches": u.ru_nivcsw,
        "threads": threads(),
    }
}

fn threads() -> i64 {
    std::fs::read_dir("/proc/self/task").map_or(0, |d| d.count() as i64)
}

fn global_lock(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let s = cx.server;
    let (mut readers, mut writers) = (0, 0);
    for op in s.engine.operations.list() {
        match crate::registry::find(op.command()).map(|c| c.kind) {
            Some(crate::registry::Kind::Read) => readers += 1,
            Some(crate::registry::Kind::Write) => writers += 1,
            _ => {}
        }
    }
    let tickets = &s.engine.tickets;
    let queued = |p: &TicketPool| i32::try_from(p.figures().queued).unwrap_or(i32::MAX);
    let waiting = (queued(&tickets.reads), queued(&tickets.writes));
    // An operation that waits for a ticket does not count as one of an active client.
    readers = (readers - waiting.0).max(0);
    writers = (writers - waiting.1).max(0);
    doc! {
        "totalTime": s.lifecycle.started.elapsed().as_micros() as i64,
        "currentQueue": doc! {
            "total": waiting.0 + waiting.1, "readers": waiting.0, "writers": waiting.1,
        },
        "activeClients": doc! {
            "total": readers + writers, "readers": readers, "writers": writers,
        },
    }
}

fn sessions(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let job = *cx.server.sessions.job.lock();
    doc! {
        "activeSessionsCount": cx.server.sessions.len() as i32,
        "sessionsCollectionJobCount": job.count,
        "lastSessionsCollectionJobDurationMillis": job.took_ms,
        "lastSessionsCollectionJobTimestamp": Value::DateTime(job.began_ms),
        "lastSessionsCollectionJobEntriesRefreshed": job.refreshed,
        "lastSessionsCollectionJobEntriesEnded": job.ended,
    }
}

/// Memory in MiB.
fn mem() -> DocBuf {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split(' ').map(|n| n.parse::<i64>().unwrap_or(0));
    // SAFETY: `sysconf` takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let mut mib = || ((pages.next().unwrap_or(0) * page) >> 20) as i32;
    let virtual_ = mib();
    doc! { "bits": 64, "resident": mib(), "virtual": virtual_, "supported": true }
}

fn metrics(cx: &CommandContext<'_>, t: &Totals) -> DocBuf {
    let m = &cx.server.metrics;
    let c = cx.engine().cursors.metrics();
    doc! {
        "cursor": doc! {
            "timedOut": c.timed_out as i64,
            "totalOpened": c.total_opened as i64,
            "open": doc! {
                "noTimeout": c.open_no_timeout as i64,
                "pinned": c.pinned as i64,
                "total": c.open as i64,
            },
        },
        "document": doc! {
            "deleted": t.docs_deleted as i64,
            "inserted": t.docs_inserted as i64,
            "returned": t.docs_returned as i64,
            "updated": t.docs_updated as i64,
        },
        "operation": doc! { "slow": t.slow as i64, "failed": t.errors as i64 },
        "repl": muniment_member::metrics(&cx.engine().store, cx.server.replica_set.as_deref()),
        "ttl": doc! {
            "deletedDocuments": m.ttl_deleted.load(Relaxed) as i64,
            "passes": m.ttl_passes.load(Relaxed) as i64,
        },
    }
}

/// How the primary slows writers down while the majority lags behind.
fn flow_control(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let (count, micros, lags) = cx.engine().store.flow_control();
    doc! {
        "enabled": cx.server.parameters.flow_control.load(Relaxed),
        "isLagged": lags,
        "isLaggedCount": count as i64,
        "isLaggedTimeMicros": micros as i64,
    }
}

fn muniment(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let s = cx.engine().store.stats();
    doc! {
        "version": VERSION,
        "engine": cx.engine().store.engine_name(),
        "journal": doc! {
            "commits": s.journal.commits as i64,
            "syncs": s.journal.syncs as i64,
            "syncMicros": s.journal.sync_micros as i64,
            "waits": s.journal.waits as i64,
            "bytes": s.journal.bytes as i64,
            "fileBytes": s.journal.file_bytes as i64,
        },
        "cache": doc! {
            "usedBytes": s.cache_used as i64,
            "capacityBytes": s.cache_capacity as i64,
            "memtableBytes": s.memtable_bytes as i64,
        },
        "diskBytes": s.disk_bytes as i64,
        "damaged": cx.engine().store.damages().iter().map(damage).collect::<ArrayBuf>(),
        "background": doc! {
            "failures": s.failures as i64,
            "troubles": cx.engine().store.troubles().into_iter().collect::<ArrayBuf>(),
        },
        "memory": crate::memory::figures(&cx.engine().memory),
    }
}

/// Describes a damage as `{ns, index?, validator?, reason}`.
fn damage(damage: &Damage) -> DocBuf {
    let mut d = doc! { "ns": damage.namespace.as_str() };
    match &damage.what {
        Damaged::Collection => {}
        Damaged::Index(name) => {
            d.append("index", name.as_str());
        }
        Damaged::Validator => {
            d.append("validator", true);
        }
    }
    d.append("reason", damage.reason.as_str());
    d
}

/// The operations that execute and those that wait for a ticket, under MongoDB's names.
fn queues(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let tickets = &cx.engine().tickets;
    let of = |p: &TicketPool| {
        let f = p.figures();
        doc! {
            "out": f.out as i32,
            "available": (f.total - f.out).max(0) as i32,
            "totalTickets": f.total as i32,
            "normalPriority": doc! {
                "queueLength": f.queued,
                "addedToQueue": f.waited as i64,
                "removedFromQueue": (f.waited as i64 - f.queued).max(0),
                "canceled": f.given_up as i64,
                "totalTimeQueuedMicros": f.waited_micros as i64,
            },
        }
    };
    doc! { "execution": doc! { "write": of(&tickets.writes), "read": of(&tickets.reads) } }
}

fn network(_: &CommandContext<'_>, t: &Totals) -> DocBuf {
    doc! {
        "bytesIn": t.bytes_in as i64,
        "bytesOut": t.bytes_out as i64,
        "physicalBytesIn": t.bytes_in as i64,
        "physicalBytesOut": t.bytes_out as i64,
        "numRequests": t.requests as i64,
    }
}

fn latencies(_: &CommandContext<'_>, t: &Totals) -> DocBuf {
    let mut d = DocBuf::new();
    let figures = t.latency_micros.iter().zip(&t.latency_count);
    for ((name, (sum, n)), times) in LATENCY_NAMES.iter().zip(figures).zip(&t.histograms) {
        d.append(
            name,
            doc! {
                "latency": *sum as i64, "ops": *n as i64, "histogram": histogram(times),
            },
        );
    }
    d
}

/// `[{micros, count}]`.
pub(super) fn histogram(times: &Counted) -> ArrayBuf {
    let entry = |(micros, n)| doc! { "micros": micros as i64, "count": n as i64 };
    times.iter().map(entry).collect()
}

fn counters(ops: &[u64; 6]) -> DocBuf {
    let mut d = DocBuf::new();
    for (name, n) in OP_NAMES.iter().zip(ops) {
        d.append(name, *n as i64);
    }
    d
}

/// The member's role, in the fields that `hello` has.
fn replication(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let Some(set) = &cx.server.replica_set else {
        return DocBuf::new();
    };
    let counter = cx.server.topology.counter();
    let mut d = describe(set, "isWritablePrimary", counter);
    // MongoDB's own reply no longer has this field, but its mongostat still reads it: it shows a primary
    // without the field as "SLV".
    d.append("ismaster", set.is_primary());
    d.append("rbid", set.member().rollback_id as i32);
    let full = set.node().is_some_and(|node| node.is_full());
    d.append("outOfDiskSpace", full);
    d
}

/// The storage engine under the name of one of MongoDB's, by which its tools know which figures there are:
/// for any other name, mongostat shows the columns of MMAPv1. The engine's own name is `muniment.engine`.
fn storage_engine(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let store = &cx.engine().store;
    doc! {
        "name": cx.server.options.engine.mongodb_name(),
        "supportsCommittedReads": true,
        "supportsPendingDrops": true,
        "supportsSnapshotReadConcern": false,
        "readOnly": cx.server.kept_for_set,
        "persistent": store.is_durable(),
    }
}

/// The numbers of operations that read and that wrote: each counts as having taken the global lock once,
/// shared.
fn locks(_: &CommandContext<'_>, t: &Totals) -> DocBuf {
    let [reads, writes, _] = t.latency_count;
    let taken = doc! { "acquireCount": doc! { "r": reads as i64, "w": writes as i64 } };
    doc! { "Global": &taken, "Database": &taken, "Collection": &taken }
}

fn transactions(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let prepared = cx.engine().store.prepared().len();
    cx.server.transactions.to_doc(prepared)
}

/// The cache's figures and the running operations, under the names by which mongostat reads them.
fn cache_as_wired_tiger(cx: &CommandContext<'_>, _: &Totals) -> DocBuf {
    let s = cx.engine().store.stats();
    let tickets = &cx.engine().tickets;
    let used = |p: &TicketPool| {
        let f = p.figures();
        doc! {
            "out": f.out as i32, "available": (f.total - f.out).max(0) as i32,
            "totalTickets": f.total as i32,
        }
    };
    doc! {
        "cache": doc! {
            "bytes currently in the cache": (s.cache_used + s.memtable_bytes) as i64,
            "maximum bytes configured": s.cache_capacity as i64,
            "tracked dirty bytes in the cache": s.memtable_bytes as i64,
        },
        "concurrentTransactions": doc! {
            "read": used(&tickets.reads),
            "write": used(&tickets.writes),
        },
        "transaction": doc! { "transaction checkpoints": s.journal.syncs as i64 },
    }
}
