//! Describes a difference in the form of a change stream's event.

use super::{Change, Sections, array_change, is_array};
use crate::bytes::{MAX_DOCUMENT, array_index};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Elem, Error, Result, doc};

/// The parts of a change event's `updateDescription`.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// The new values, by their paths.
    pub updated_fields: DocBuf,
    /// The paths of removed fields.
    pub removed_fields: ArrayBuf,
    /// `{field, newSize}` for arrays that have become shorter.
    pub truncated_arrays: ArrayBuf,
    /// The components (text for names, int for array indexes) of those of these paths whose text is
    /// ambiguous. Events have it if `showExpandedEvents` is set.
    pub disambiguated_paths: DocBuf,
}

impl Description {
    /// The `updateDescription` of an event. `expanded` is `showExpandedEvents`.
    pub fn to_doc(&self, expanded: bool) -> DocBuf {
        let mut d = doc! {
            "updatedFields": &self.updated_fields,
            "removedFields": &self.removed_fields,
            "truncatedArrays": &self.truncated_arrays,
        };
        d.append_some(
            "disambiguatedPaths",
            expanded.then_some(&self.disambiguated_paths),
        );
        d
    }
}

/// Describes the changes of `diff`, a difference of documents, as change events do. At each level, updated
/// fields come first, then inserted ones, removed ones, and at last the changes below the level.
///
/// # Errors
/// 9 FailedToParse for a malformed difference; 10334 BSONObjectTooLarge if the description is larger than a
/// document may be. That is possible because it repeats a path for every field below, while the difference
/// has the path only once.
pub fn describe(diff: Doc<'_>) -> Result<Description> {
    let mut walk = Walk::default();
    walk.document(diff)?;
    Ok(walk.to)
}

#[derive(Default)]
struct Walk<'d> {
    to: Description,
    /// The path with dots.
    path: String,
    parts: Vec<Part<'d>>,
}

#[derive(Clone, Copy)]
struct Part<'d> {
    step: Step<'d>,
    /// The length of the path before it.
    before: usize,
    /// Whether the path up to here can be read in more than one way.
    ambiguous: bool,
}

#[derive(Clone, Copy)]
enum Step<'d> {
    Name(&'d str),
    Index(usize),
}

impl<'d> Walk<'d> {
    fn document(&mut self, diff: Doc<'d>) -> Result<()> {
        let sections = Sections::of(diff)?;
        for e in sections.updates.iter().chain(sections.inserts) {
            self.updated(Step::Name(e.name()), e)?;
        }
        for e in sections.gone {
            self.push(Step::Name(e.name()));
            self.to.removed_fields.push(self.path.as_str());
            self.disambiguate();
            self.check()?;
            self.pop();
        }
        for (name, diff) in sections.below() {
            self.below(Step::Name(name), diff)?;
        }
        Ok(())
    }

    fn array(&mut self, diff: Doc<'d>) -> Result<()> {
        for e in diff.iter().skip(1) {
            match array_change(e)? {
                Change::Length(n) => {
                    self.to
                        .truncated_arrays
                        .push(doc! { "field": self.path.as_str(), "newSize": int(n) });
                    self.disambiguate();
                    self.check()?;
                }
                Change::Update(i, e) => self.updated(Step::Index(i), e)?,
                Change::Below(i, diff) => self.below(Step::Index(i), diff)?,
            }
        }
        Ok(())
    }

    fn below(&mut self, step: Step<'d>, diff: Doc<'d>) -> Result<()> {
        self.push(step);
        match is_array(diff) {
            true => self.array(diff)?,
            false => self.document(diff)?,
        }
        self.pop();
        Ok(())
    }

    fn updated(&mut self, step: Step<'d>, e: Elem<'_>) -> Result<()> {
        self.push(step);
        self.to.updated_fields.append(&self.path, e);
        self.disambiguate();
        self.check()?;
        self.pop();
        Ok(())
    }

    /// Stops if the description has become too large to be sent.
    fn check(&self) -> Result<()> {
        let to = &self.to;
        let docs = [to.updated_fields.as_doc(), to.disambiguated_paths.as_doc()];
        let arrays = [to.removed_fields.as_doc(), to.truncated_arrays.as_doc()];
        let bytes: usize = docs.iter().chain(&arrays).map(|d| d.byte_len()).sum();
        match bytes <= MAX_DOCUMENT {
            true => Ok(()),
            false => Err(Error::new(
                Code::BSONObjectTooLarge,
                "The description of an update is larger than a document may be",
            )),
        }
    }

    fn push(&mut self, step: Step<'d>) {
        let before = self.path.len();
        let first = self.parts.is_empty();
        let ambiguous = self.parts.last().is_some_and(|p| p.ambiguous)
            || match step {
                // There is no array at the top level that a number could index.
                Step::Name(n) => n.contains('.') || (!first && numeric(n)),
                Step::Index(_) => false,
            };
        if !first {
            self.path.push('.');
        }
        match step {
            Step::Name(n) => self.path.push_str(n),
            Step::Index(i) => self.path.push_str(&i.to_string()),
        }
        self.parts.push(Part {
            step,
            before,
            ambiguous,
        });
    }

    fn pop(&mut self) {
        if let Some(part) = self.parts.pop() {
            self.path.truncate(part.before);
        }
    }

    fn disambiguate(&mut self) {
        if !self.parts.last().is_some_and(|p| p.ambiguous) {
            return;
        }
        let mut parts = ArrayBuf::new();
        for p in &self.parts {
            match p.step {
                Step::Name(n) => parts.push(n),
                Step::Index(i) => parts.push(int(i)),
            };
        }
        self.to.disambiguated_paths.append(&self.path, parts);
    }
}

/// True for a name that could be an index of any size: digits without leading zeros.
fn numeric(name: &str) -> bool {
    let digits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    digits && (array_index(name).is_some() || !name.starts_with('0'))
}

/// Converts an index or a length, which is below [`super::MAX_LENGTH`].
fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
