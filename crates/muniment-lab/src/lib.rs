//! The benchmark lab: experiments, workloads and reports. The lab treats a server as a black box:
//! it starts the server as a process and talks to it over the wire, as any client does.
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
//! The lab must not link the server's internals: only [`raw_engine`] knows the engine, and it runs
//! in a process of its own.

#![warn(unreachable_pub)]

mod audit;
mod batches;
pub mod cli;
pub mod commands;
mod compare;
mod custom;
mod disk;
mod distributions;
mod docs;
mod doubts;
mod environment;
mod hlog;
mod lab;
mod linkbench;
pub mod mix;
mod null;
mod placement;
mod process;
mod progress;
mod raw_engine;
mod relay;
mod report;
mod session;
mod shelf;
mod sizes;
pub mod stdout;
mod summary;
mod targets;
pub mod topology;
mod tui;
mod uri;
mod vary;
mod versus;
mod workers;
mod workloads;
mod yardsticks;
mod ycsb;
