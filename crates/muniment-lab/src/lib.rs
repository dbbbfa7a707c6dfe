//! The benchmark lab: experiments, workloads and reports. A black box over the
//! wire: it starts a server as a process and talks to it as any client does.
//!
//! | module | what |
//! |---|---|
//! | [`cli`], [`session`], [`commands`] | `muniment bench …` |
//! | [`workloads`], [`yardsticks`] | the experiments, one file each |
//! | [`linkbench`] | a social graph's nodes, links and operations |
//! | [`audit`] | what is lost when the server is crashed |
//! | [`custom`] | workloads from TOML files, and those that come with the lab |
//! | [`ycsb`] | YCSB as it is released: property files, choices, output |
//! | [`lab`], [`targets`], [`process`], [`uri`] | the target: embedded or external, and its surroundings |
//! | [`vary`], [`versus`] | several variants in turns; rising rates |
//! | [`relay`], [`topology`] | a network between processes: delay, loss, partitions; sets that stand in it |
//! | [`workers`], [`batches`], [`mix`] | what loads of `muniment_load` do |
//! | `placement` | on which cores a single connection's client and server run |
//! | [`docs`], [`distributions`] | the documents, and which of them |
//! | [`hlog`], [`sizes`], [`doubts`] | what is kept of measurements, and what they show |
//! | [`shelf`], [`report`], [`compare`] | where runs are kept; text, JSON and HTML; two runs that were kept |
//! | [`progress`], [`tui`], [`summary`], [`stdout`] | what is seen while it runs, and then |
//! | [`environment`], [`disk`] | the host |
//! | [`raw_engine`], [`null`] | the two things the server is compared with |
//!
//! Must not link the server's internals: only [`raw_engine`] knows the engine, in a process of
//! its own.

pub mod audit;
pub mod batches;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod custom;
pub mod disk;
pub mod distributions;
pub mod docs;
pub mod doubts;
pub mod environment;
pub mod hlog;
pub mod lab;
pub mod linkbench;
pub mod mix;
pub mod null;
mod placement;
pub mod process;
pub mod progress;
pub mod raw_engine;
pub mod relay;
pub mod report;
pub mod session;
pub mod shelf;
pub mod sizes;
pub mod stdout;
pub mod summary;
pub mod targets;
pub mod topology;
pub mod tui;
pub mod uri;
pub mod vary;
pub mod versus;
pub mod workers;
pub mod workloads;
pub mod yardsticks;
pub mod ycsb;
