//! Commands that clients, tools and setup scripts send, and that this server does not have yet. Each gets an
//! answer that says what is missing and what can be done instead, in place of "no such command".
//!
//! Only commands that need a whole part of MongoDB belong here. Any other unknown command is 59
//! CommandNotFound.

use muniment_value::{Code, Error};

/// A part of MongoDB that is missing, and the commands that need it.
struct Part {
    commands: &'static [&'static str],
    code: Code,
    /// The text after the name of the command.
    says: &'static str,
}

const PARTS: [Part; 2] = [
    Part {
        commands: &["authenticate"],
        code: Code::AuthenticationFailed,
        says: "this version of Muniment knows users by SCRAM only, and not by their certificates",
    },
    Part {
        commands: &["rotateCertificates"],
        code: Code::NotImplemented,
        says: "this version of Muniment has no TLS",
    },
];

/// The answer to a command that the registry does not have.
pub fn answer(name: &str) -> Error {
    match PARTS.iter().find(|p| p.commands.contains(&name)) {
        Some(part) => Error::new(part.code, format!("{name}: {}", part.says)),
        None => Error::new(Code::CommandNotFound, format!("no such command: '{name}'")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn commands_that_exist_get_no_excuse() {
        for name in PARTS.iter().flat_map(|p| p.commands) {
            assert!(crate::registry::find(name).is_none(), "{name} is there");
            let e = answer(name);
            assert!(e.message().starts_with(name) && e.code() != Code::CommandNotFound);
        }
        assert_eq!(answer("nope").code(), Code::CommandNotFound);
        assert_eq!(answer("nope").message(), "no such command: 'nope'");
    }
}
