//! Turns a template into bytes. Each worker compiles it once into a list of steps that append BSON
//! to a message, so that no value is built in between. All constant parts are joined into runs of
//! bytes, and the length of a document whose parts all have fixed widths is among the constants.

use super::draw::{Shape, Shared};
use super::generate::Source;
use super::template::Node;
use crate::distributions::counter::Counter;
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;
use std::cell::Cell;
use std::sync::Arc;

/// The context that generators need in order to start.
pub(crate) struct Env<'a> {
    /// The sequences with their names, sorted by name.
    pub sequences: &'a [(String, Arc<Counter>)],
    /// The state that workers share.
    pub shared: &'a Shared,
    /// The distribution of keys that do not name one.
    pub shape: &'a Shape,
    /// The name of the template's owner, which is the same for all workers.
    pub name: &'a str,
    nth: Cell<usize>,
}

impl<'a> Env<'a> {
    /// Makes the context for the template of `name`.
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

    /// Makes a name for the next generator whose position workers share. All workers make the same
    /// names, because they start the same generators in the same order.
    pub(crate) fn place(&self) -> String {
        self.nth.set(self.nth.get() + 1);
        format!("{}#{}", self.name, self.nth.get())
    }

    /// The index of the sequence of this name.
    ///
    /// # Errors
    /// There is no such sequence.
    pub(crate) fn sequence(&self, name: &str) -> Result<usize> {
        let found = self.sequences.iter().position(|(n, _)| n == name);
        found.ok_or_else(|| Failure(format!("there is no sequence '{name}'")))
    }
}

/// A worker's view of a sequence.
struct Taken {
    counter: Arc<Counter>,
    /// The number that the current document has taken.
    current: Option<u64>,
}

/// A worker's random numbers, and the numbers that it has taken from sequences.
pub(crate) struct Hand {
    /// The random numbers.
    pub rng: Rng,
    sequences: Vec<Taken>,
    /// Numbers that were taken and not acknowledged yet, as (sequence, number).
    open: Vec<(usize, u64)>,
}

impl Hand {
    /// Makes a hand with all sequences of a workload, in the order of [`Env::sequences`].
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

    /// The number of the current document in sequence `of`; it is taken on first use.
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

    /// How many numbers of sequence `of` may be read.
    #[inline]
    pub(crate) fn count(&self, of: usize) -> u64 {
        let last = self.sequences.get(of).and_then(|s| s.counter.last());
        last.map_or(0, |n| n + 1)
    }

    /// Begins the next document, which takes new numbers.
    #[inline]
    pub(crate) fn next_document(&mut self) {
        for s in &mut self.sequences {
            s.current = None;
        }
    }

    /// Notes that the documents with the taken numbers are written, or never will be.
    pub(crate) fn acknowledge(&mut self) {
        for (of, n) in self.open.drain(..) {
            if let Some(s) = self.sequences.get(of) {
                s.counter.acknowledge(n);
            }
        }
    }
}

enum Step {
    /// Constant bytes.
    Bytes(Vec<u8>),
    /// The start of a document whose length is not known yet.
    Open,
    /// The end of that document.
    Close,
    /// A value whose type byte is among the constant bytes already.
    Value(Box<dyn Source>),
    /// A field whose type the source decides; the bytes are its name with the terminating zero.
    Field(Vec<u8>, Box<dyn Source>),
}

/// Makes the values of one template.
pub(crate) struct Encoder {
    /// The BSON type, if the template is a constant or one generator of a single type.
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

    /// Adds the steps of a value; returns its width if that is always the same.
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
    /// Compiles a template.
    ///
    /// # Errors
    /// A generator cannot start, for example keys of a sequence without numbers.
    pub(crate) fn new(node: &Node, env: &Env<'_>) -> Result<Encoder> {
        let mut build = Build::default();
        build.value(node, env)?;
        Ok(Encoder {
            kind: node.kind(),
            steps: build.steps,
            open: Vec::new(),
        })
    }

    /// Appends one value and returns its BSON type.
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

/// Writes the length of the document that begins at `start` and ends at the end of `out`.
#[inline]
pub(crate) fn patch_length(out: &mut [u8], start: usize) {
    let n = ((out.len() - start) as u32).to_le_bytes();
    if let Some(slot) = out.get_mut(start..start + 4) {
        slot.copy_from_slice(&n);
    }
}

/// Appends a field whose type is only known when its value is made; type 0 leaves the field out.
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
