//! Constants that TOML cannot write.

use super::Spec;
use crate::custom::source::{Item, Parsed};
use crate::custom::template::{self, Node, Seen};

/// The generator `document`.
pub(super) const DOCUMENT: Spec = Spec {
    name: "document",
    form: "{ … }",
    about: "a nested document, whatever its keys are: for one whose only field is called as a generator is",
    read: |item, seen| Node::document(item, "document", seen),
};

/// The generator `json`.
pub(super) const JSON: Spec = Spec {
    name: "json",
    form: "'TEXT'",
    about: "the constant of this Extended JSON",
    read: |item: &Item, _: &mut Seen| -> Parsed<Node> {
        template::json(item.text("json")?).map_err(|e| item.bad(format!("json: {e}")))
    },
};

/// The generator `null`.
pub(super) const NULL: Spec = Spec {
    name: "null",
    form: "true",
    about: "null",
    read: |item: &Item, _: &mut Seen| -> Parsed<Node> {
        match item.flag("null")? {
            true => Ok(Node::Constant(10, Vec::new())),
            false => Err(item.bad("null must be true")),
        }
    },
};

/// The generator `repeat`.
pub(super) const REPEAT: Spec = Spec {
    name: "repeat",
    form: "{ text = \"…\", times }",
    about: "a constant text so many times over",
    read: |item: &Item, _: &mut Seen| -> Parsed<Node> {
        let mut f = item.fields("repeat")?;
        let text = f.need("text")?.text("text")?;
        let times = f.need("times")?.count("times")?;
        f.end()?;
        if times.saturating_mul(text.len() as u64) > 16 * 1024 * 1024 {
            return Err(item.bad("repeat: the text would be longer than a document may be (16 MB)"));
        }
        Ok(Node::text(&text.repeat(times as usize)))
    },
};
