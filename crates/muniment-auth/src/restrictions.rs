//! The addresses from which and at which a user or a role may be used.

use muniment_value::{Doc, Error, Result, Value};
use std::net::IpAddr;

/// One list of `authenticationRestrictions`: a connection has to meet one of them, if there is any.
#[derive(Clone, Debug, Default)]
pub struct Restrictions(Vec<Restriction>);

#[derive(Clone, Debug)]
struct Restriction {
    client: Option<Vec<Range>>,
    server: Option<Vec<Range>>,
}

/// Addresses with the same first bits.
#[derive(Clone, Copy, Debug)]
struct Range {
    address: IpAddr,
    bits: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Range { address, bits })
    }

    fn has(self, other: IpAddr) -> bool {
        let shift = |most: u32| most - self.bits;
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits())
                    .checked_shr(shift(32))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits())
                    .checked_shr(shift(128))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

impl Restrictions {
    /// Reads `authenticationRestrictions`.
    ///
    /// # Errors
    /// 2 BadValue for an unknown field or a malformed address; 14 TypeMismatch.
    pub fn parse(list: Doc<'_>) -> Result<Restrictions> {
        let mut all = Vec::new();
        for v in list.values() {
            let d = v.as_doc().ok_or_else(|| {
                Error::type_mismatch("'authenticationRestrictions' has to be an array of documents")
            })?;
            let mut one = Restriction {
                client: None,
                server: None,
            };
            for e in d {
                let ranges = Some(ranges(e.name(), e.value())?);
                match e.name() {
                    "clientSource" => one.client = ranges,
                    "serverAddress" => one.server = ranges,
                    other => {
                        return Err(Error::bad_value(format!(
                            "Unrecognized authentication restriction type: {other}"
                        )));
                    }
                }
            }
            all.push(one);
        }
        Ok(Restrictions(all))
    }

    /// Whether a connection from the one address at the other meets them. An address that is not known
    /// meets nothing.
    pub fn allow(&self, client: Option<IpAddr>, server: Option<IpAddr>) -> bool {
        let meets = |ranges: &Option<Vec<Range>>, address: Option<IpAddr>| match ranges {
            None => true,
            Some(ranges) => address.is_some_and(|a| ranges.iter().any(|r| r.has(a))),
        };
        self.0.is_empty()
            || self
                .0
                .iter()
                .any(|one| meets(&one.client, client) && meets(&one.server, server))
    }
}

fn ranges(field: &str, v: Value<'_>) -> Result<Vec<Range>> {
    let Value::Array(list) = v else {
        return Err(Error::type_mismatch(format!(
            "'{field}' has to be an array of addresses, not {}",
            v.type_name()
        )));
    };
    let range = |v: Value<'_>| {
        v.as_str().and_then(Range::parse).ok_or_else(|| {
            Error::bad_value(format!(
                "'{field}' has {}, which is neither an address nor a range of them",
                v.to_display()
            ))
        })
    };
    list.values().map(range).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn one_of_the_restrictions_has_to_be_met() {
        let list = array![
            doc! { "clientSource": array!["10.1.0.0/16", "::1"], "serverAddress": array!["10.1.0.1"] },
            doc! { "clientSource": array!["127.0.0.1"] },
        ];
        let r = Restrictions::parse(list.as_doc()).unwrap();
        let ip = |text: &str| Some(text.parse().unwrap());
        for (client, server, allowed) in [
            ("10.1.2.3", "10.1.0.1", true),
            ("::1", "10.1.0.1", true),
            ("10.2.2.3", "10.1.0.1", false),
            ("10.1.2.3", "10.1.0.2", false),
            ("127.0.0.1", "10.1.0.2", true),
            ("::ffff:127.0.0.1", "::1", true),
        ] {
            assert_eq!(
                r.allow(ip(client), ip(server)),
                allowed,
                "{client} {server}"
            );
        }
        assert!(!r.allow(None, None));
        assert!(Restrictions::default().allow(None, None));
        for bad in ["10.0.0.0/33", "x", "10.0.0.0/", "::/129"] {
            let list = array![doc! { "clientSource": array![bad] }];
            assert!(Restrictions::parse(list.as_doc()).is_err(), "{bad}");
        }
        let all = array![doc! { "clientSource": array!["0.0.0.0/0"] }];
        assert!(
            Restrictions::parse(all.as_doc())
                .unwrap()
                .allow(ip("9.9.9.9"), None)
        );
    }
}
