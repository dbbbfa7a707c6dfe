//! What a server dials for a member of a set, where that is not what the configuration says: for networks in which
//! servers reach each other by other ways than clients reach them, and for tests that put a network of their own between
//! them.

use super::host_port::HostPort;
use muniment_value::{Error, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Addresses by those of the configuration. All clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Routes(Arc<RwLock<BTreeMap<String, String>>>);

impl Routes {
    /// Replaces them by those of a text, `HOST:PORT=HOST:PORT,…`.
    ///
    /// # Errors
    /// 2 BadValue, 9 FailedToParse.
    pub fn set(&self, text: &str) -> Result<()> {
        let mut routes = BTreeMap::new();
        for pair in text.split(',').filter(|p| !p.is_empty()) {
            let (member, dialled) = pair.split_once('=').ok_or_else(|| {
                Error::bad_value(format!(
                    "replMemberRoutes has to be HOST:PORT=HOST:PORT,…, and not '{text}'"
                ))
            })?;
            let (member, dialled) = (HostPort::parse(member)?, HostPort::parse(dialled)?);
            routes.insert(member.to_string(), dialled.to_string());
        }
        *self.0.write() = routes;
        Ok(())
    }

    /// What to dial for a member.
    pub fn to(&self, member: &str) -> String {
        let routes = self.0.read();
        routes.get(member).map_or(member, String::as_str).to_owned()
    }

    /// The text that sets them.
    pub fn to_text(&self) -> String {
        let routes = self.0.read();
        let pairs: Vec<String> = routes.iter().map(|(m, d)| format!("{m}={d}")).collect();
        pairs.join(",")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn members_are_dialled_where_the_routes_say() {
        let routes = Routes::default();
        routes.set("a:1=b:2,c:3=d").unwrap();
        assert_eq!(routes.to("a:1"), "b:2");
        assert_eq!(routes.to("c:3"), "d:27017");
        assert_eq!(routes.to("a:2"), "a:2");
        assert_eq!(routes.to_text(), "a:1=b:2,c:3=d:27017");
        routes.set("").unwrap();
        assert_eq!(routes.to_text(), "");
        for text in ["a:1", "a:1=", "=b:1", "a:x=b:1"] {
            assert!(routes.set(text).is_err(), "{text}");
        }
    }
}
