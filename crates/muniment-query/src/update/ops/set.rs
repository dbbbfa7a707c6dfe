//! `$set`: gives a field a value.

use super::Raw;
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Elem, Result};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$set",
    doc: "Gives a field a value; makes the field when it is missing.",
    parse,
};

#[derive(Debug)]
pub(crate) struct Set(pub Raw);

fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    sink(e.name(), Arc::new(Set(Raw::new(e))))
}

impl LeafOp for Set {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        if t.old.is_some_and(|old| self.0.same(old)) {
            return Ok(Outcome::Unchanged);
        }
        self.0.put(t.name, out);
        Ok(Outcome::Changed)
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_set() {
        table(&[
            ("{a:1}", "{$set:{a:2}}", "{a:2}"),
            ("{a:1}", "{$set:{a:1}}", "="),
            ("{a:1}", "{$set:{b:2}}", "{a:1,b:2}"),
            ("{a:1}", "{$set:{c:1,b:2}}", "{a:1,b:2,c:1}"),
            ("{}", "{$set:{'10':1,'9':1}}", "{'9':1,'10':1}"),
            (
                "{}",
                "{$set:{'01':0,'0001':1,'001':2,'1':3,'02':4,'002':5,'2':6,'10':7,b:8,'1a':9}}",
                "{'0001':1,'001':2,'002':5,'01':0,'02':4,'1':3,'2':6,'10':7,'1a':9,b:8}",
            ),
            ("{a:[1,2]}", "{$set:{'a.01':9}}", "{a:[1,9]}"),
            ("{a:[1,2]}", "{$set:{'a.003':9}}", "{a:[1,2,null,9]}"),
            ("{a:[{b:1}]}", "{$set:{'a.00.b':9}}", "{a:[{b:9}]}"),
            ("{a:[{b:1}]}", "{$set:{'a.01.b':9}}", "{a:[{b:1},{b:9}]}"),
            ("{a:[0]}", "{$set:{'a.1':1,'a.01':2}}", "{a:[0,1]}"),
            ("{a:[0]}", "{$set:{'a.02':1,'a.1':2}}", "{a:[0,2,1]}"),
            ("{a:[0,0]}", "{$set:{'a.01':1},$inc:{'a.1':2}}", "{a:[0,3]}"),
            (
                "{a:{'01':1}}",
                "{$set:{'a.1':2,'a.01':3}}",
                "{a:{'01':3,'1':2}}",
            ),
            (
                "{a:[1]}",
                "{$set:{'a.01x':9}}",
                "28: Cannot create field '01x' in element {a: [ 1 ]}",
            ),
            ("{a:{b:1,c:2}}", "{$set:{'a.b':5}}", "{a:{b:5,c:2}}"),
            ("{a:{}}", "{$set:{'a.b.c':5}}", "{a:{b:{c:5}}}"),
            ("{a:[1]}", "{$set:{'a.3':5}}", "{a:[1,null,null,5]}"),
            ("{a:[1,2]}", "{$set:{'a.1':5}}", "{a:[1,5]}"),
            (
                "{a:[{b:1}]}",
                "{$set:{'a.0.b':5,'a.1.b':6}}",
                "{a:[{b:5},{b:6}]}",
            ),
            ("{}", "{$set:{'a.0':5}}", "{a:{'0':5}}"),
            (
                "{a:1}",
                "{$set:{'a.b':5}}",
                "28: Cannot create field 'b' in element {a: 1}",
            ),
            (
                "{a:[1]}",
                "{$set:{'a.b':5}}",
                "28: Cannot create field 'b' in element {a: [ 1 ]}",
            ),
            ("{_id:1}", "{$set:{_id:1}}", "="),
            (
                "{_id:1}",
                "{$set:{_id:2}}",
                "66: Performing an update on the path '_id' would modify the immutable field '_id'",
            ),
            (
                "{a:[1]}",
                "{$set:{'a.1500009':1}}",
                "34: can't backfill more than 1500000 elements",
            ),
        ]);
    }
}
