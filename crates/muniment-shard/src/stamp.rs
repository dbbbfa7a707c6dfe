//! Versions of chunks, and the timestamps that stand beside them.

use muniment_value::Value;
use std::fmt;

/// The version of a chunk. Each change of a collection's chunks gives the changed ones a higher version than
/// any that existed: a move a new major number, a split or merge a new minor one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The number that moves count up.
    pub major: u32,
    /// The number that splits and merges count up; a move resets it.
    pub minor: u32,
}

impl Version {
    /// A version from its two numbers.
    pub fn new(major: u32, minor: u32) -> Version {
        Version { major, minor }
    }

    /// The value in which `config.chunks` has the version: a timestamp of (major, minor).
    pub fn to_value(self) -> Value<'static> {
        Value::Timestamp {
            t: self.major,
            i: self.minor,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.major, self.minor)
    }
}

/// A point in the cluster's time, as BSON has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub t: u32,
    /// The ordinal within the second.
    pub i: u32,
}

impl Timestamp {
    /// A timestamp from its two numbers.
    pub fn new(t: u32, i: u32) -> Timestamp {
        Timestamp { t, i }
    }

    /// The BSON value.
    pub fn to_value(self) -> Value<'static> {
        Value::Timestamp {
            t: self.t,
            i: self.i,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_number_decides_first() {
        assert!(Version::new(1, 9) < Version::new(2, 0));
        assert!(Version::new(2, 0) < Version::new(2, 1));
        assert_eq!(Version::new(3, 4).to_string(), "3|4");
    }
}
