//! From a template to bytes: it is compiled once a worker into a list of steps that append BSON
//! to a message. Everything constant is one run of bytes, and a document whose parts all have
//! fixed widths has its length among them; nothing is built in between.

use super::draw::{Shape, Shared};
use super::generate::Source;
use super::template::Node;
use crate::distributions::counter::Counter;
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;
use std::cell::Cell;
use std::sync::Arc;

/// What generators need to begin their work.
pub(crate) struct Env<'a> {
    /// The sequences by name, sorted.
    pub sequences: &'a [(String, Arc<Counter>)],
    /// What workers share.
    pub shared: &'a Shared,
    /// How keys are drawn where nothing else is said.
    pub shape: &'a Shape,
    /// Whose template it is: the same for all workers.
    pub name: &'a str,
    nth: Cell<usize>,
}

impl<'a> Env<'a> {
    /// For the template of `name`.
    pub(crate) fn new(
        sequences: &'a [(String, Arc<Counter>)],
        shared: &'a Shared,
        shape: &'a Shape,
        name: &'a str,
    ) -> Env<'a> {
        Env {
            sequences,
            shared,
            shape,
            name,
            nth: Cell::new(0),
        }
    }

    /// A name for the next generator with a place that workers share.
    pub(crate) fn place(&self) -> String {
        self.nth.set(self.nth.get() + 1);
        format!("{}#{}", self.name, self.nth.get())
    }

    /// The number of the sequence of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn sequence(&self, name: &str) -> Result<usize> {
        let found = self.sequences.iter().position(|(n, _)| n == name);
        found.ok_or_else(|| Failure(format!("there is no sequence '{name}'")))
    }
}

/// A sequence in a worker's hand.
struct Taken {
    counter: Arc<Counter>,
    /// Of the document that is being made.
    current: Option<u64>,
}

/// A worker's random numbers and the numbers it took of sequences.
pub(crate) struct Hand {
    /// Its random numbers.
    pub rng: Rng,
    sequences: Vec<Taken>,
    /// Taken and not yet given back: (sequence, number).
    open: Vec<(usize, u64)>,
}

impl Hand {
    /// With all sequences of a workload, in [`Env::sequences`]'s order.
    pub(crate) fn new(seed: u64, sequences: &[(String, Arc<Counter>)]) -> Hand {
        Hand {
            rng: Rng::new(seed),
            sequences: sequences
                .iter()
                .map(|(_, counter)| Taken {
                    counter: counter.clone(),
                    current: None,
                })
                .collect(),
            open: Vec::new(),
        }
    }

    /// The number of the document that is being made in sequence `of`.
    #[inline]
    pub(crate) fn number(&mut self, of: usize) -> u64 {
        let Some(s) = self.sequences.get_mut(of) else {
            return 0;
        };
        *s.current.get_or_insert_with(|| {
            let n = s.counter.take();
            self.open.push((of, n));
            n
        })
    }

    /// How many numbers of sequence `of` are there.
    #[inline]
    pub(crate) fn count(&self, of: usize) -> u64 {
        let last = self.sequences.get(of).and_then(|s| s.counter.last());
        last.map_or(0, |n| n + 1)
    }

    /// The next document takes new numbers.
    #[inline]
    pub(crate) fn next_document(&mut self) {
        for s in &mut self.sequences {
            s.current = None;
        }
    }

    /// What was taken is written, or never will be.
    pub(crate) fn acknowledge(&mut self) {
        for (of, n) in self.open.drain(..) {
            if let Some(s) = self.sequences.get(of) {
                s.counter.acknowledge(n);
            }
        }
    }
}

enum Step {
    /// As they are.
    Bytes(Vec<u8>),
    /// A document whose length is not known yet.
    Open,
    /// Its end.
    Close,
    /// A value whose type stands in front already.
    Value(Box<dyn Source>),
    /// A field whose type is the source's: the name with its zero.
    Field(Vec<u8>, Box<dyn Source>),
}

/// Makes values of one template.
pub(crate) struct Encoder {
    /// Of a constant or a single generator of one type: that type.
    kind: Option<u8>,
    steps: Vec<Step>,
    open: Vec<usize>,
}

#[derive(Default)]
struct Build {
    steps: Vec<Step>,
}

impl Build {
    fn bytes(&mut self, more: &[u8]) {
        match self.steps.last_mut() {
            Some(Step::Bytes(b)) => b.extend_from_slice(more),
            _ => self.steps.push(Step::Bytes(more.to_vec())),
        }
    }

    fn all(&mut self, other: Build) {
        for step in other.steps {
            match step {
                Step::Bytes(b) => self.bytes(&b),
                step => self.steps.push(step),
            }
        }
    }

    /// Gives the width, if it is always the same.
    fn value(&mut self, node: &Node, env: &Env<'_>) -> Result<Option<usize>> {
        match node {
            Node::Constant(_, bytes) => {
                self.bytes(bytes);
                Ok(Some(bytes.len()))
            }
            Node::Document(fields) => {
                self.document(fields.iter().map(|(name, node)| (name.clone(), node)), env)
            }
            Node::Array(nodes) => {
                let named = nodes.iter().enumerate();
                self.document(named.map(|(i, node)| (i.to_string(), node)), env)
            }
            Node::Made(g) => {
                self.steps.push(Step::Value(g.start(env)?));
                Ok(g.width())
            }
        }
    }

    fn document<'n>(
        &mut self,
        fields: impl Iterator<Item = (String, &'n Node)>,
        env: &Env<'_>,
    ) -> Result<Option<usize>> {
        let mut inner = Build::default();
        let mut width = Some(5);
        for (name, node) in fields {
            let mut name = name.into_bytes();
            name.push(0);
            match (node.kind(), node) {
                (None, Node::Made(g)) => {
                    inner.steps.push(Step::Field(name, g.start(env)?));
                    width = None;
                }
                (kind, _) => {
                    inner.bytes(&[kind.unwrap_or(10)]);
                    inner.bytes(&name);
                    let value = inner.value(node, env)?;
                    width = width.zip(value).map(|(w, v)| w + 1 + name.len() + v);
                }
            }
        }
        match width {
            Some(n) => {
                self.bytes(&(n as u32).to_le_bytes());
                self.all(inner);
                self.bytes(&[0]);
            }
            None => {
                self.steps.push(Step::Open);
                self.all(inner);
                self.steps.push(Step::Close);
            }
        }
        Ok(width)
    }
}

impl Encoder {
    /// Compiles.
    ///
    /// # Errors
    /// A generator that cannot begin: keys of a sequence that has none.
    pub(crate) fn new(node: &Node, env: &Env<'_>) -> Result<Encoder> {
        let mut build = Build::default();
        build.value(node, env)?;
        Ok(Encoder {
            kind: node.kind(),
            steps: build.steps,
            open: Vec::new(),
        })
    }

    /// Appends one value; gives its BSON type.
    #[inline]
    pub(crate) fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let mut kind = self.kind.unwrap_or(10);
        for step in &mut self.steps {
            match step {
                Step::Bytes(b) => out.extend_from_slice(b),
                Step::Open => {
                    self.open.push(out.len());
                    out.extend_from_slice(&[0; 4]);
                }
                Step::Close => {
                    out.push(0);
                    patch_length(out, self.open.pop().unwrap_or(0));
                }
                Step::Value(source) => {
                    let made = source.write(hand, out);
                    if self.kind.is_none() {
                        kind = made;
                    }
                }
                Step::Field(name, source) => field(name, source.as_mut(), hand, out),
            }
        }
        kind
    }
}

/// Fills in the length of the document that begins at `start` and ends here.
#[inline]
pub(crate) fn patch_length(out: &mut [u8], start: usize) {
    let n = ((out.len() - start) as u32).to_le_bytes();
    if let Some(slot) = out.get_mut(start..start + 4) {
        slot.copy_from_slice(&n);
    }
}

/// A field whose type is known when its value is made; type 0 leaves it out.
#[inline]
fn field(name: &[u8], source: &mut dyn Source, hand: &mut Hand, out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    out.extend_from_slice(name);
    match source.write(hand, out) {
        0 => out.truncate(at),
        kind => {
            if let Some(slot) = out.get_mut(at) {
                *slot = kind;
            }
        }
    }
}
