//! What a member dials for another one, where that is not what the configuration says: for networks
//! in which members reach each other by other ways than clients reach them, and for tests that put a
//! network of their own between them.

use super::host_port::HostPort;
use muniment_value::{Error, Result};
use std::collections::BTreeMap;

/// Addresses by those of the configuration.
#[derive(Debug, Default)]
pub struct Routes(BTreeMap<String, String>);

impl Routes {
    /// Parses `HOST:PORT=HOST:PORT,…`.
    ///
    /// # Errors
    /// 2 BadValue, 9 FailedToParse.
    pub fn parse(text: &str) -> Result<Routes> {
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
        Ok(Routes(routes))
    }

    /// What to dial for a member.
    pub fn to<'r>(&'r self, member: &'r str) -> &'r str {
        self.0.get(member).map_or(member, String::as_str)
    }

    /// As it is parsed.
    pub fn to_text(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(m, d)| format!("{m}={d}")).collect();
        pairs.join(",")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn members_are_dialled_where_the_routes_say() {
        let routes = Routes::parse("a:1=b:2,c:3=d").unwrap();
        assert_eq!(routes.to("a:1"), "b:2");
        assert_eq!(routes.to("c:3"), "d:27017");
        assert_eq!(routes.to("a:2"), "a:2");
        assert_eq!(routes.to_text(), "a:1=b:2,c:3=d:27017");
        assert_eq!(Routes::parse("").unwrap().to_text(), "");
        for text in ["a:1", "a:1=", "=b:1", "a:x=b:1"] {
            assert!(Routes::parse(text).is_err(), "{text}");
        }
    }
}
