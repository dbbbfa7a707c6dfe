//! What a stage needs its user to be allowed, as its operand says before it is parsed. The server judges it.

use muniment_value::{Doc, Value};

/// The rights that a stage needs, beside that of reading the collection whose documents come into its pipeline.
#[derive(Clone, Copy)]
pub enum Rights {
    /// None: it only works on the documents of its input.
    Input,
    /// It also touches what its operand names.
    Also(Of),
    /// It stands first and does not read the documents of the collection, so these rights are all it needs.
    Instead(Of),
}

/// Tells a function of each right that an operand asks for. What is not as the stage takes it is left out,
/// since the stage's parser then refuses the operand.
pub type Of = for<'a> fn(Value<'a>, &mut dyn FnMut(Right<'a>));

/// One right.
#[derive(Clone, Copy, Debug)]
pub enum Right<'a> {
    /// This action on the pipeline's own collection, or on its database or all databases where it has none.
    Collection(&'static str),
    /// This action on the server.
    Cluster(&'static str),
    /// What these stages need, as a part of the same pipeline.
    Stages(Doc<'a>),
    /// To read a collection through these stages; `None` reads none.
    Pipeline(Option<Named<'a>>, Doc<'a>),
    /// To write into a collection, by these actions.
    Output(Named<'a>, &'static [&'static str]),
}

/// A collection that an operand names.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its database; `None` for the pipeline's.
    pub db: Option<&'a str>,
    /// Its name.
    pub collection: &'a str,
}

impl<'a> Named<'a> {
    /// The collection that a string, or a document `{db, coll}`, names.
    pub fn of(v: Option<Value<'a>>) -> Option<Named<'a>> {
        match v? {
            Value::String(collection) => Some(Named {
                db: None,
                collection,
            }),
            Value::Document(d) => Some(Named {
                db: d.get_str("db"),
                collection: d.get_str("coll")?,
            }),
            _ => None,
        }
    }
}
