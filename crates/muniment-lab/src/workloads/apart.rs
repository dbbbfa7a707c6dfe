//! W1 on a set whose members are far apart: starts the set that `--topology` names, computes the
//! best latency that the distances allow each write concern, and tests whether many clients can
//! wait for the network at the same time.

use crate::lab::{Lab, Target};
use crate::report::table::ms;
use crate::targets::Endpoint;
use crate::topology::cluster::Cluster;
use crate::topology::floors::{Floor, Layout, pipelined};
use crate::topology::option::{self, TOPOLOGY};
use crate::topology::shape::{Shape, round_trips};
use crate::topology::status;
use crate::workers::Inserts;
use muniment_load::conn::Conn;
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Limit, Load};
use muniment_options::{Opt, Takes};
use muniment_value::doc;
use std::time::Duration;

/// The options that start a set.
pub(crate) const OPTIONS: &[Opt] = &[
    TOPOLOGY,
    Opt::new(
        "round-trips",
        "MS,MS",
        Takes::Checked(|v| round_trips(v).map(drop).map_err(|e| e.0)),
        "with --topology: within a centre and between them (0.1,90; paper: the post's)",
    ),
];

/// The cache of each member, GiB; all members together need no more memory than one server does.
const CACHE_GB: f64 = 0.5;
/// The number of clients that write at once.
const CLIENTS: usize = 64;

/// Starts the set that was asked for, if one was; from then on it is what the lab measures.
///
/// # Errors
/// The set cannot be started; the error has the words of the member that refuses.
pub(crate) fn start(lab: &mut Lab) -> Result<Option<Cluster>> {
    let others = lab.options.text("round-trips");
    let (name, mut shape) = match lab.options.text(TOPOLOGY.name) {
        Some(name) if option::owner(name) == Some("w1") => (name, Shape::named(name, lab.preset)?),
        _ if others.is_some() => {
            return Err(Failure::new("--round-trips belongs to --topology two-dcs"));
        }
        _ => return Ok(None),
    };
    if let Some(text) = others {
        shape = shape.with_round_trips(text)?;
    }
    let program = option::program(&lab.endpoint)?;
    let what = format!("--topology {name}");
    lab.progress.step(format!("Starting {name}"));
    let cache = lab.cache(Some(CACHE_GB)).unwrap_or(CACHE_GB);
    let cluster = Cluster::start(shape, &program, &lab.data_parent, cache);
    let cluster = cluster.map_err(|e| e.while_doing(&what))?;
    lab.endpoint = Endpoint::Server(cluster.uri());
    Ok(Some(cluster))
}

/// The distances between the target's members, if it is a set of several. In the lab's own set they
/// are measured through the relays; another set reports them as `pingMs`, in whole milliseconds.
///
/// # Errors
/// A member of the lab's own set does not answer.
pub(crate) fn layout(
    admin: &mut Conn,
    target: &Target,
    cluster: Option<&Cluster>,
) -> Result<Option<Layout>> {
    let mut known: Vec<(String, f64)> = Vec::new();
    if let Some(c) = cluster {
        let all = c.addresses();
        let from = all.iter().position(|a| *a == target.peer.address());
        let from =
            from.ok_or_else(|| Failure(format!("{} is none of the set's members", target.peer)))?;
        known.extend(all.into_iter().zip(c.round_trips(from)?));
    } else if let Ok(r) = admin.command("admin", &doc! { "replSetGetStatus": 1 }) {
        known.extend(status::members(r.as_doc()).into_iter().map(|m| {
            let far = if m.state == "PRIMARY" {
                Some(0.0)
            } else {
                m.ping_ms
            };
            (m.name, far.unwrap_or(f64::NAN))
        }));
    }
    // Without a set, or without the privilege to read its configuration, there are no distances.
    let Ok(reply) = admin.command("admin", &doc! { "replSetGetConfig": 1 }) else {
        return Ok(None);
    };
    let layout = reply.as_doc().get_doc("config").map(|config| {
        Layout::of(config, |host| {
            let found = known.iter().find(|(name, _)| name == host);
            found.map(|f| f.1).filter(|far| far.is_finite())
        })
    });
    Ok(layout.filter(|l| l.places.len() > 1))
}

/// The sentence about the members' distances, in which this run differs from the post.
pub(crate) fn deviation(layout: &Layout, cluster: Option<&Cluster>) -> String {
    let mut far: Vec<f64> = layout.places.iter().map(|p| p.round_trip).collect();
    far.sort_by(f64::total_cmp);
    let far: Vec<String> = far.iter().skip(1).map(|f| ms(*f)).collect();
    let how = match cluster {
        Some(c) => format!(
            "asked for: {} ms within a centre, {} ms between them; measured by pings through the relays",
            ms(c.shape.near.as_secs_f64() * 1e3),
            ms(c.shape.far.as_secs_f64() * 1e3)
        ),
        None => "as the primary says it, in whole milliseconds".into(),
    };
    format!(
        "The other members' round trips from the primary are {} ms ({how}). The post's were 0.864, 71.187 and 71.187 ms.",
        far.join(", ")
    )
}

/// The result of many clients writing at once.
pub(crate) struct Together {
    /// Their load.
    pub load: Load,
    /// The inserts a second that clients reach which wait for nothing but the network.
    pub least: f64,
}

impl Together {
    /// Whether they reached that rate, so that they waited for nothing but the network.
    pub(crate) fn met(&self) -> bool {
        self.load.rate() >= self.least
    }
}

/// Runs many clients at once under majority, if that needs another centre. In a set that sends the
/// next write before the last one is acknowledged, each client waits no longer than one client
/// alone would.
///
/// # Errors
/// The load cannot be run.
pub(crate) fn together(
    lab: &mut Lab,
    target: &Target,
    layout: &Layout,
) -> Result<Option<Together>> {
    let concern = doc! { "w": "majority", "wtimeout": 60_000 };
    let sync = sync(lab);
    let Some(floor) = Floor::of(layout, concern.as_doc(), sync).filter(|f| f.is_far()) else {
        return Ok(None);
    };
    let name = format!("majority, {CLIENTS} clients");
    lab.progress.step(format!("W1 {name}"));
    let workers = target.connections(CLIENTS)?;
    let workers: Vec<Inserts> = workers
        .into_iter()
        .map(|c| Inserts::w1_document(c, "togetherTest", Some(&concern)))
        .collect();
    let limit = Limit::time(Duration::from_secs(lab.preset.pick(3, 10, 60)));
    let load = load::run(&name, workers, limit, target.pid, &mut lab.progress)?;
    let least = pipelined(CLIENTS, floor);
    Ok(Some(Together { load, least }))
}

/// The time of the disk's own sync, ms; 0 if it is not known.
pub(crate) fn sync(lab: &Lab) -> f64 {
    let l = lab.fdatasync.as_ref();
    l.map_or(0.0, |l| l.quantile_ms(0.5))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::concerns::Set;
    use super::super::w1::{Found, One};
    use super::*;
    use crate::lab::Preset;
    use crate::report::experiments;
    use muniment_load::fake;
    use muniment_load::placement::Placement;
    use muniment_value::{DocBuf, array};

    fn hello() -> DocBuf {
        let hosts = array!["h:1", "h:2", "h:3", "h:4"];
        doc! { "ok": 1.0, "isWritablePrimary": true, "setName": "lab", "hosts": hosts }
    }

    /// Starts a primary that takes `takes` for each insert, of a set with 90 ms between its
    /// centres.
    fn set(takes: Duration) -> String {
        let addresses: Vec<String> = (1..=4).map(|p| format!("h:{p}")).collect();
        let config = Shape::two_centres(Preset::Smoke).config(&addresses);
        fake::server(move |_, body| match body.first().map(|e| e.name()) {
            Some("hello") => hello(),
            Some("replSetGetConfig") => doc! { "config": &config, "ok": 1.0 },
            Some("replSetGetStatus") => {
                let member = |name: &str, state: &str, ping: i64| {
                    doc! { "name": name, "stateStr": state, "pingMs": ping }
                };
                let members = array![
                    member("h:1", "PRIMARY", 0),
                    member("h:2", "SECONDARY", 0),
                    member("h:3", "SECONDARY", 90),
                    member("h:4", "SECONDARY", 91)
                ];
                doc! { "members": members, "ok": 1.0 }
            }
            Some("insert") => {
                std::thread::sleep(takes);
                doc! { "n": 1, "ok": 1.0 }
            }
            _ => doc! { "ok": 1.0 },
        })
        .0
    }

    fn lab(address: &str) -> (Lab, Target) {
        let uri = crate::uri::parse(&format!("mongodb://{address}")).unwrap();
        let parent = std::env::temp_dir();
        let mut lab = Lab::new(Endpoint::Server(uri), Preset::Smoke, parent);
        let target = lab.target(None).unwrap();
        (lab, target)
    }

    #[test]
    fn a_set_of_somebody_elses_says_its_distances_and_floors_follow() {
        let (_, target) = lab(&set(Duration::ZERO));
        let mut admin = target.connect().unwrap();
        let l = layout(&mut admin, &target, None).unwrap().unwrap();
        let far: Vec<f64> = l.places.iter().map(|p| p.round_trip).collect();
        assert_eq!(far, [0.0, 0.0, 90.0, 91.0]);
        assert!(deviation(&l, None).contains("0.000, 90.0, 91.0 ms (as the primary says"));
        let concerns = Set::of(
            hello().as_doc(),
            admin
                .command("admin", &doc! { "replSetGetConfig": 1 })
                .ok()
                .as_ref()
                .map(DocBuf::as_doc),
        )
        .concerns();
        // The fake server also answers messages that want no answer, so w:0 cannot be tested with
        // it.
        let answered = concerns.iter().filter(|c| c.name != "w:0");
        let all = answered.map(|c| {
            let w = Inserts::w1_document(target.connect().unwrap(), "c", Some(&c.doc));
            let limit = Limit::operations(3, Duration::from_secs(5));
            One {
                concern: c.clone(),
                placement: Placement::Anywhere,
                load: load::run(&c.name, vec![w], limit, None, &mut ()).unwrap(),
                disk: None,
            }
        });
        let found = Found {
            all: all.collect(),
            concerns: concerns.clone(),
            placements: vec![Placement::Anywhere],
            sync: 0.5,
            ..Found::default()
        };
        let t = experiments::w1::floors(&found, &l);
        let row = |name: &str| {
            let found = t.rows.iter().find(|r| r[0] == name);
            found.unwrap().clone()
        };
        assert_eq!(&row("w:3")[1..4], ["90.0", "0.000", "90.0"]);
        assert_eq!(row("w:3")[6..], ["92.0", "met"]);
        assert_eq!(&row("majority")[1..4], ["90.0", "0.500", "90.5"]);
        assert_eq!(row("w:\"onePerCentre\"")[6], "92.0");
        assert_eq!(row("w:2")[3], "0.000");
        // On one server alone the disk is the only cost.
        assert_eq!(
            row("j:true")[3..],
            [
                "0.500".to_string(),
                row("j:true")[4].clone(),
                row("j:true")[5].clone(),
                String::new(),
                String::new()
            ]
        );
    }

    #[test]
    fn a_server_alone_has_no_distances() {
        let (address, _) = fake::server(|_, body| match body.first().map(|e| e.name()) {
            Some("replSetGetStatus" | "replSetGetConfig") => {
                doc! { "ok": 0.0, "code": 76, "codeName": "NoReplicationEnabled", "errmsg": "no" }
            }
            _ => doc! { "ok": 1.0, "isWritablePrimary": true },
        });
        let (_, target) = lab(&address);
        let mut admin = target.connect().unwrap();
        assert_eq!(layout(&mut admin, &target, None).unwrap(), None);
    }

    #[test]
    fn clients_that_wait_one_after_the_other_are_found_out() {
        // The fake serves one command at a time, like a set that does not pipeline writes.
        let (mut lab, target) = lab(&set(Duration::from_millis(20)));
        let mut admin = target.connect().unwrap();
        let l = layout(&mut admin, &target, None).unwrap().unwrap();
        let found = together(&mut lab, &target, &l).unwrap().unwrap();
        assert!(!found.met(), "{} of {}", found.load.rate(), found.least);
    }

    #[test]
    fn what_is_refused_and_why() {
        let parent = std::env::temp_dir;
        let given = |all: &[(&str, &str)]| {
            let mut lab = Lab::new(Endpoint::Embedded, Preset::Smoke, parent());
            for (name, value) in all {
                let option = OPTIONS.iter().find(|o| o.name == *name).unwrap();
                lab.options.add(option, value.into()).unwrap();
            }
            lab
        };
        let mut lab = given(&[("round-trips", "1,2")]);
        let e = start(&mut lab).err().unwrap().0;
        assert_eq!(e, "--round-trips belongs to --topology two-dcs");
        let mut lab = given(&[("topology", "two-dcs")]);
        lab.endpoint = Endpoint::Server(crate::uri::parse("mongodb://h").unwrap());
        let e = start(&mut lab).err().unwrap().0;
        assert!(e.contains("measured by --uri alone"), "{e}");
        let e = OPTIONS[0].check("ring").unwrap_err();
        assert!(e.contains("two-dcs"), "{e}");
        // Shards are another experiment's.
        assert!(
            start(&mut given(&[("topology", "shards=2")]))
                .unwrap()
                .is_none()
        );
        assert!(start(&mut given(&[])).unwrap().is_none());
    }
}
