//! Fields that not every document has.

use super::{Generator, Source, Spec};
use crate::custom::encode::{Encoder, Env, Hand};
use crate::custom::source::{Item, Parsed};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::Result;
use std::sync::Arc;

/// The generator `optional`.
pub(super) const SPEC: Spec = Spec {
    name: "optional",
    form: "{ chance, of = VALUE }",
    about: "the value with this chance (0 to 1), else no such field",
    read,
};

#[derive(Debug)]
struct Optional {
    chance: f64,
    of: Node,
}

fn read(item: &Item, seen: &mut Seen) -> Parsed<Node> {
    let mut f = item.fields("optional")?;
    let chance = f.need("chance")?.share("chance")?;
    let of = Node::element(f.need("of")?, seen)?;
    f.end()?;
    Ok(Node::Made(Arc::new(Optional { chance, of })))
}

impl Generator for Optional {
    fn kind(&self) -> Option<u8> {
        None
    }

    fn optional(&self) -> bool {
        true
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(Sometimes(
            self.chance,
            Encoder::new(&self.of, env)?,
        )))
    }
}

struct Sometimes(f64, Encoder);

impl Source for Sometimes {
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        if hand.rng.unit() < self.0 {
            return self.1.write(hand, out);
        }
        0
    }
}
