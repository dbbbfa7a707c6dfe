#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::samples::SampleSet;
use std::process::{Child, Command};

/// A process that does nothing. It is ended when the value is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(Command::new("sleep").arg("60").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A place with both sides on the process's last core.
fn together(cpus: &[usize]) -> Place {
    Place {
        server: *cpus.last().unwrap(),
        together: true,
        apart: None,
        siblings: false,
    }
}

#[test]
fn a_process_is_pinned_and_freed() {
    let child = Sleeper::new();
    let pid = child.0.id();
    let before = system::cpus(Some(pid)).unwrap();
    let place = together(&before);
    let pin = Pin::new(pid, &place, Placement::OneCore).unwrap();
    assert_eq!(system::cpus(Some(pid)).unwrap(), [place.server]);
    let worker = for_worker().unwrap();
    assert_eq!(worker.placement(), Placement::OneCore);
    std::thread::spawn(move || {
        worker.take();
        assert_eq!(worker.check(), None);
    })
    .join()
    .unwrap();
    assert_eq!(pin.end(), Vec::<String>::new());
    assert_eq!(system::cpus(Some(pid)).unwrap(), before);
    assert_eq!(for_worker(), None);
}

#[test]
fn threads_that_are_born_meanwhile_are_freed_too() {
    let child = Sleeper::new();
    let pid = child.0.id();
    let before = system::cpus(Some(pid)).unwrap();
    let mut pin = Pin::new(pid, &together(&before), Placement::OneCore).unwrap();
    // This simulates a thread that the pin has not seen and that inherited the pinning: the process's own
    // thread is in that state now.
    let own = pin.before.remove(&pid).unwrap();
    assert!(!pin.thread(pid, false).unwrap(), "it needed nothing");
    assert!(
        !pin.before.contains_key(&pid),
        "an inherited pin is nobody's own cores"
    );
    pin.before.insert(pid, own);
    drop(pin);
    assert_eq!(system::cpus(Some(pid)).unwrap(), before);
}

#[test]
fn a_pin_that_did_not_hold_is_told() {
    let child = Sleeper::new();
    let pid = child.0.id();
    let before = system::cpus(Some(pid)).unwrap();
    if before.len() < 2 {
        // With a single core, no thread can be on another one.
        return;
    }
    let place = together(&before);
    let pin = Pin::new(pid, &place, Placement::OneCore).unwrap();
    // Another program frees the thread.
    system::set_cpus(Some(pid), &before).unwrap();
    lost("the client was elsewhere".into());
    let wrong = pin.end();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].contains("the client was elsewhere"));
    assert!(wrong[1].contains("1 of the server's threads may run elsewhere"));
    let elsewhere = Worker {
        placement: Placement::TwoCores,
        cpu: place.server,
    };
    // This thread was never pinned.
    let why = elsewhere.check().unwrap();
    assert!(why.contains("the client may run on cores"), "{why}");
}

#[test]
fn names_tell_the_placement() {
    for p in [Placement::Anywhere, Placement::OneCore, Placement::TwoCores] {
        assert_eq!(Placement::without(&p.called("w:1")), "w:1");
    }
    assert_eq!(Placement::TwoCores.called("w:1"), "w:1, two cores");
    assert_eq!(Placement::without("one core"), "one core");
    let both = [Placement::OneCore, Placement::TwoCores];
    assert_eq!(representative(&both), Placement::TwoCores);
    assert_eq!(representative(&both[..1]), Placement::OneCore);
    assert_eq!(representative(&[]), Placement::Anywhere);
}

#[test]
fn loads_that_nobody_pinned_are_named() {
    let load = |name: &str, workers, placement: &str| SampleSet {
        name: name.into(),
        workers,
        placement: placement.into(),
        ..SampleSet::default()
    };
    let set = [
        load("a", 1, ""),
        load("a", 1, ""),
        load("b", 1, "one core"),
        load("c", 2, ""),
    ];
    let told = unpinned(&set, &[]).unwrap();
    assert!(told.starts_with("One connection: a ran wherever"), "{told}");
    assert_eq!(unpinned(&set[2..], &[]), None);
    assert_eq!(unpinned(&set, &["One connection: not pinned".into()]), None);
    let many: Vec<SampleSet> = (0..9).map(|i| load(&i.to_string(), 1, "")).collect();
    assert!(
        unpinned(&many, &[])
            .unwrap()
            .contains("0; 1; 2; 3 and 5 more")
    );
}
