//! The benchmark lab: experiments, workloads and reports. The lab treats a server as a black box:
//! it starts the server as a process and talks to it over the wire, as any client does.
//!
//! | module | contents |
//! |---|---|
//! | [`cli`], [`session`], [`commands`], [`arguments`] | `muniment bench …` |
//! | [`workloads`], [`yardsticks`] | the experiments, one file each |
//! | [`linkbench`] | a social graph's nodes, links and operations |
//! | [`audit`] | the durability audit, which crashes servers and looks for lost writes |
//! | [`custom`] | workloads from TOML files, and those that come with the lab |
//! | [`ycsb`] | YCSB as it is released: property files, choices, output |
//! | [`lab`], [`targets`], [`process`], [`uri`] | the target: embedded or external, and its surroundings |
//! | [`vary`], [`versus`] | several variants in turns; rising rates |
//! | [`relay`], [`topology`] | a network between processes: delay, loss, partitions; replica sets whose members are connected by it |
//! | [`workers`], [`batches`], [`mix`] | the workers of the loads that `muniment_load` runs |
//! | `placement` | pins the client and the server of a single connection to cores |
//! | [`docs`], [`distributions`] | the documents, and the choice of keys and sizes |
//! | [`hlog`], [`sizes`], [`doubts`] | histograms of loads, sizes of databases, reasons to distrust a load |
//! | [`shelf`], [`report`], [`compare`] | the directories of runs; their reports as text, JSON and HTML; the comparison of two runs |
//! | [`progress`], [`tui`], [`summary`], [`stdout`] | the terminal during a run and at its end |
//! | [`environment`], [`disk`] | facts about the host and its disk |
//! | [`raw_engine`], [`null`] | the engine without a server and a server that does nothing, with which the server is compared |
//!
//! The lab must not link the server's internals: only [`raw_engine`] knows the engine, and it runs
//! in a process of its own.

#![warn(unreachable_pub)]

mod arguments;
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
mod null_router;
mod placement;
mod process;
mod progress;
mod raw_engine;
mod relay;
mod report;
mod responder;
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
