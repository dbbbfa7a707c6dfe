//! The fields of a document that a pipeline reads, which determine whether an index alone can provide them.
//!
//! Too many fields are safe, too few are not. A stage that does not know its fields asks for the whole
//! document.

use crate::expr::Expr;
use crate::filter::Node;
use std::collections::BTreeSet;

/// The fields that are needed.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    whole: bool,
    metadata: bool,
    paths: BTreeSet<String>,
}

impl Needs {
    /// Adds the value at `path`, with everything below it.
    pub fn path(&mut self, path: &str) {
        if !self.whole {
            self.paths.insert(path.to_string());
        }
    }

    /// Adds the whole document.
    pub fn whole(&mut self) {
        self.whole = true;
        self.paths.clear();
    }

    /// Adds the document's metadata.
    pub fn metadata(&mut self) {
        self.metadata = true;
    }

    /// Whether metadata are read. If so, a stage must stay after the stage that provides them.
    pub fn has_metadata(&self) -> bool {
        self.metadata
    }

    /// Adds the fields that the expression reads.
    pub fn expr(&mut self, e: &Expr) {
        e.needs(self);
    }

    /// Adds the fields that the filter reads.
    pub fn filter(&mut self, node: &Node) {
        match node {
            Node::True | Node::False => {}
            Node::And(list) | Node::Or(list) | Node::Nor(list) => {
                list.iter().for_each(|n| self.filter(n));
            }
            Node::Field { path, .. } => self.path(path.as_str()),
            Node::Expr { expr, .. } => self.expr(expr),
            #[allow(unreachable_patterns)] // what is not known may read anything
            _ => self.whole(),
        }
    }

    /// The paths, without those that are below another one; `None` stands for the whole document.
    pub fn into_paths(self) -> Option<Vec<String>> {
        if self.whole {
            return None;
        }
        let mut out: Vec<String> = Vec::new();
        // Comparing neighbours in the set's order would not do, because "a-b" stands between "a" and "a.b".
        for p in &self.paths {
            let covered = p
                .match_indices('.')
                .any(|(at, _)| p.get(..at).is_some_and(|head| self.paths.contains(head)));
            if !covered {
                out.push(p.clone());
            }
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::{Pipeline, QueryContext};
    use muniment_value::DocBuf;

    #[test]
    fn needs_of_pipelines() {
        for (stages, want) in [
            ("[{$group:{_id:'$a.b',n:{$sum:'$c'}}}]", Some("a.b c")),
            ("[{$group:{_id:{x:'$a',y:'$a.b'}}}]", Some("a")),
            ("[{$group:{_id:null,n:{$push:'$$ROOT'}}}]", None),
            (
                "[{$match:{x:1,$or:[{'y.z':2}]}},{$sort:{s:1}},{$count:'n'}]",
                Some("s x y.z"),
            ),
            (
                "[{$project:{a:1,b:{$add:['$c','$d.e']}}}]",
                Some("_id a c d.e"),
            ),
            ("[{$project:{_id:0,'a.b':{$add:['$c',1]}}}]", Some("a c")),
            ("[{$project:{a:0}}]", None),
            ("[{$addFields:{x:'$y'}},{$group:{_id:'$z'}}]", Some("y z")),
            ("[{$unwind:'$i'},{$group:{_id:'$i.k'}}]", Some("i")),
            ("[{$match:{a:1}}]", None),
            (
                "[{$group:{_id:{$let:{vars:{v:'$a'},in:'$$v.b'}}}}]",
                Some("a"),
            ),
            (
                "[{$match:{$expr:{$eq:['$a','$b']}}},{$count:'n'}]",
                Some("a b"),
            ),
        ] {
            let d = DocBuf::from_json(&format!("{{\"p\": {}}}", quote(stages))).unwrap();
            let stages = d.as_doc().get_array("p").unwrap();
            let p = Pipeline::parse(stages, &QueryContext::new()).unwrap();
            let got = p.needs().map(|n| n.join(" "));
            assert_eq!(got.as_deref(), want, "{stages:?}");
        }
    }

    /// Converts the short form in the table to JSON.
    fn quote(text: &str) -> String {
        let mut out = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '\'' {
                out.push('"');
                for c in chars.by_ref().take_while(|c| *c != '\'') {
                    out.push(c);
                }
                out.push('"');
            } else if c.is_ascii_alphabetic() || c == '$' || c == '_' {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    word.push(c);
                }
                match word.as_str() {
                    "null" => out.push_str(&word),
                    _ => out.push_str(&format!("\"{word}\"")),
                }
            } else {
                out.push(c);
            }
        }
        out
    }
}
