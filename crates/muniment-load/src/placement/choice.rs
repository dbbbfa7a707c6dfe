//! The choice of cores for client and server.

use super::Placement;

/// The chosen cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The server's core.
    pub server: usize,
    /// Whether the client may run on the server's core too.
    pub together: bool,
    /// Another core, for the client, if there is one.
    pub apart: Option<usize>,
    /// Whether that core is a second hardware thread of the same physical core.
    pub siblings: bool,
}

impl Place {
    /// The possible placements, in the order in which they are measured.
    pub fn placements(&self) -> Vec<Placement> {
        let together = self.together.then_some(Placement::OneCore);
        let apart = self.apart.map(|_| Placement::TwoCores);
        [together, apart].into_iter().flatten().collect()
    }

    /// The text for the description of the environment.
    pub fn text(&self) -> String {
        let mut o = format!("the server pinned to CPU {}", self.server);
        if self.together {
            o += "; the client to the same (one core)";
        }
        if let Some(cpu) = self.apart {
            o += &format!("; the client to CPU {cpu} (two cores)");
        }
        if self.siblings {
            o += "; these two are hardware threads of one core";
        }
        o
    }
}

/// Chooses the best place for a client and a server that may run on these cores: preferably a core that both
/// may use, and another one of the same package. `core` returns (package, core) for a CPU. The first core,
/// which gets most interrupts, is avoided if there are others. `None` if there is neither a common core nor a
/// pair of cores.
pub(super) fn choose(
    client: &[usize],
    server: &[usize],
    core: impl Fn(usize) -> (usize, usize),
) -> Option<Place> {
    let pairs = server
        .iter()
        .flat_map(|s| client.iter().map(move |c| (*s, *c)))
        .filter(|(s, c)| s != c);
    let best = pairs.max_by_key(|(s, c)| {
        let (a, b) = (core(*s), core(*c));
        let quiet = a != core(0) && b != core(0);
        let rank = [client.contains(s), a != b, a.0 == b.0, quiet];
        (rank, std::cmp::Reverse((*s, *c)))
    });
    if let Some((s, c)) = best {
        return Some(Place {
            server: s,
            together: client.contains(&s),
            apart: Some(c),
            siblings: core(s) == core(c),
        });
    }
    let both = server.iter().find(|s| client.contains(s))?;
    Some(Place {
        server: *both,
        together: true,
        apart: None,
        siblings: false,
    })
}

/// CPUs in the notation of Linux: `0-3,6`.
pub(super) fn list(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let text: Vec<String> = runs
        .iter()
        .map(|(a, b)| match a == b {
            true => a.to_string(),
            false => format!("{a}-{b}"),
        })
        .collect();
    text.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Two packages with two cores of two hardware threads each: CPUs 0 to 3 are the first threads of the
    /// cores, 4 to 7 the second ones.
    fn big(cpu: usize) -> (usize, usize) {
        (cpu % 4 / 2, cpu % 4)
    }

    #[test]
    fn two_cores_are_two_cores_near_each_other() {
        let all: Vec<usize> = (0..8).collect();
        let p = choose(&all, &all, big).unwrap();
        assert_eq!((p.server, p.apart), (2, Some(3)));
        assert!(p.together && !p.siblings);
        assert_eq!(p.placements(), [Placement::OneCore, Placement::TwoCores]);
        // If only one core is allowed, its two hardware threads are used, and the text says so.
        let p = choose(&[1, 5], &[1, 5], big).unwrap();
        assert!(p.siblings && p.text().contains("hardware threads of one core"));
        // If there are only two CPUs, the first one is used too.
        let p = choose(&[0, 1], &[0, 1], |c| (0, c)).unwrap();
        assert_eq!((p.server, p.apart), (0, Some(1)));
        // If there is nothing nearer, the pair is across packages.
        let p = choose(&[1, 2], &[1, 2], big).unwrap();
        assert_eq!((p.server, p.apart, p.siblings), (1, Some(2), false));
    }

    #[test]
    fn each_stays_where_it_may_be() {
        let flat = |c| (0, c);
        let p = choose(&[0, 1, 2, 3], &[3], flat).unwrap();
        assert_eq!((p.server, p.together, p.apart), (3, true, Some(1)));
        let p = choose(&[0, 1], &[2, 3], flat).unwrap();
        assert_eq!(p.placements(), [Placement::TwoCores]);
        let p = choose(&[1], &[1], flat).unwrap();
        assert_eq!(p.placements(), [Placement::OneCore]);
        assert_eq!(choose(&[], &[1], flat), None);
    }

    #[test]
    fn lists_are_short() {
        assert_eq!(list(&[0, 1, 2, 3, 6]), "0-3,6");
        assert_eq!((list(&[]), list(&[5])), (String::new(), "5".into()));
    }
}
