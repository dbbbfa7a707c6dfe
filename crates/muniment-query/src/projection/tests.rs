//! Table tests of projections.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::Projection;
use crate::context::{MatchInfo, QueryContext};
use crate::filter::Filter;
use crate::update::testing::json;
use muniment_value::Result;

fn run(p: Result<Projection>, d: &str, index: Option<usize>) -> String {
    let go = || {
        let mut out = Vec::new();
        let info = MatchInfo { array_index: index };
        p?.apply(
            json(d).as_doc(),
            info,
            &mut out,
            crate::running::Work::unasked(),
        )?;
        muniment_value::validate(&out)?;
        Ok(muniment_value::Value::Document(muniment_value::Doc::new(&out)).to_display())
    };
    go().unwrap_or_else(|e: muniment_value::Error| format!("{}: {}", e.code().0, e.message()))
}

fn check(what: &str, got: String, want: &str) {
    let want = if want.starts_with('{') {
        muniment_value::Value::Document(json(want).as_doc()).to_display()
    } else {
        want.to_string()
    };
    assert_eq!(got, want, "{what}");
}

fn find(rows: &[(&str, &str, &str)]) {
    for (p, d, want) in rows {
        let parsed = Projection::parse(json(p).as_doc(), None, &QueryContext::new());
        check(&format!("{p} {d}"), run(parsed, d, None), want);
    }
}

#[test]
fn table_of_inclusion() {
    find(&[
        ("{}", "{_id:1,a:2}", "{_id:1,a:2}"),
        ("{a:1}", "{_id:1,a:2,b:3}", "{_id:1,a:2}"),
        ("{b:1,a:1}", "{_id:1,a:2,c:0,b:3}", "{_id:1,a:2,b:3}"),
        ("{a:1,_id:0}", "{_id:1,a:2,b:3}", "{a:2}"),
        ("{_id:1}", "{_id:1,a:2,b:3}", "{_id:1}"),
        ("{x:1}", "{_id:1,a:2}", "{_id:1}"),
        ("{a:true}", "{_id:1,a:2,b:3}", "{_id:1,a:2}"),
        ("{'a.b':1}", "{_id:1,a:{b:1,c:2},d:3}", "{_id:1,a:{b:1}}"),
        ("{a:{b:1}}", "{_id:1,a:{b:1,c:2},d:3}", "{_id:1,a:{b:1}}"),
        ("{'a.b':1}", "{_id:1,a:5}", "{_id:1}"),
        ("{'a.b':1}", "{_id:1,a:{}}", "{_id:1,a:{}}"),
        (
            "{'a.b':1}",
            "{_id:1,a:[{b:1,c:2},5,{c:1},[{b:3,c:3},6]]}",
            "{_id:1,a:[{b:1},{},[{b:3}]]}",
        ),
        (
            "{'a.b':1,'a.c':1}",
            "{_id:1,a:{b:1,c:2,d:3}}",
            "{_id:1,a:{b:1,c:2}}",
        ),
        ("{'_id.x':1}", "{_id:{x:1,y:2},a:1}", "{_id:{x:1}}"),
    ]);
}

#[test]
fn table_of_exclusion() {
    find(&[
        ("{a:0}", "{_id:1,a:2,b:3}", "{_id:1,b:3}"),
        ("{_id:0}", "{_id:1,a:2,b:3}", "{a:2,b:3}"),
        ("{a:0,_id:0}", "{_id:1,a:2,b:3}", "{b:3}"),
        ("{a:0,_id:1}", "{_id:1,a:2,b:3}", "{_id:1,b:3}"),
        ("{'a.b':0}", "{_id:1,a:{b:1,c:2}}", "{_id:1,a:{c:2}}"),
        (
            "{'a.b':0}",
            "{_id:1,a:[{b:1,c:2},5]}",
            "{_id:1,a:[{c:2},5]}",
        ),
        ("{'a.b':0}", "{_id:1,a:5}", "{_id:1,a:5}"),
    ]);
}

#[test]
fn table_of_computed_fields() {
    find(&[
        ("{x:'$b'}", "{_id:1,a:2,b:3}", "{_id:1,x:3}"),
        (
            "{b:1,x:'$b',a:'$b'}",
            "{_id:1,a:2,b:3}",
            "{_id:1,b:3,x:3,a:3}",
        ),
        ("{x:'$nope'}", "{_id:1}", "{_id:1}"),
        ("{x:'text'}", "{_id:1}", "{_id:1,x:'text'}"),
        ("{x:{$literal:1}}", "{_id:1}", "{_id:1,x:1}"),
        ("{'a.x':'$b'}", "{_id:1,a:{y:1},b:3}", "{_id:1,a:{x:3}}"),
        (
            "{'a.y':1,'a.x':'$b'}",
            "{_id:1,a:{y:1,z:1},b:3}",
            "{_id:1,a:{y:1,x:3}}",
        ),
        ("{'a.x':'$b',b:1}", "{_id:1,a:5,b:3}", "{_id:1,b:3,a:{x:3}}"),
        (
            "{'a.x':'$b'}",
            "{_id:1,a:[{y:1},5],b:3}",
            "{_id:1,a:[{x:3},{x:3}]}",
        ),
        ("{x:['$a','$b']}", "{_id:1,a:2,b:3}", "{_id:1,x:[2,3]}"),
    ]);
}

#[test]
fn table_of_slice_and_elem_match() {
    find(&[
        (
            "{a:{$slice:2}}",
            "{_id:1,a:[1,2,3],b:1}",
            "{_id:1,a:[1,2],b:1}",
        ),
        (
            "{a:{$slice:-2}}",
            "{_id:1,a:[1,2,3],b:1}",
            "{_id:1,a:[2,3],b:1}",
        ),
        (
            "{a:{$slice:[1,1]}}",
            "{_id:1,a:[1,2,3],b:1}",
            "{_id:1,a:[2],b:1}",
        ),
        (
            "{a:{$slice:[-2,1]}}",
            "{_id:1,a:[1,2,3],b:1}",
            "{_id:1,a:[2],b:1}",
        ),
        ("{a:{$slice:[9,1]}}", "{_id:1,a:[1,2,3]}", "{_id:1,a:[]}"),
        (
            "{a:{$slice:1},b:1}",
            "{_id:1,a:[1,2,3],b:1,c:1}",
            "{_id:1,a:[1],b:1}",
        ),
        (
            "{a:{$slice:1},b:0}",
            "{_id:1,a:[1,2,3],b:1,c:1}",
            "{_id:1,a:[1],c:1}",
        ),
        ("{a:{$slice:1}}", "{_id:1,a:7}", "{_id:1,a:7}"),
        (
            "{'a.b':{$slice:1}}",
            "{_id:1,a:[{b:[1,2]},{b:[3,4]}]}",
            "{_id:1,a:[{b:[1]},{b:[3]}]}",
        ),
        (
            "{a:{$slice:[1,0]}}",
            "{}",
            "28724: First argument to $slice must be an array, but is of type: int; as a find \
          projection, its limit must be positive",
        ),
        (
            "{a:{$elemMatch:{x:2}}}",
            "{_id:1,b:1,a:[{x:1},{x:2,y:1},{x:2}]}",
            "{_id:1,a:[{x:2,y:1}]}",
        ),
        (
            "{a:{$elemMatch:{$gte:2}}}",
            "{_id:1,a:[1,2,3]}",
            "{_id:1,a:[2]}",
        ),
        ("{a:{$elemMatch:{x:9}}}", "{_id:1,a:[{x:1}]}", "{_id:1}"),
        ("{a:{$elemMatch:{x:9}}}", "{_id:1,a:5}", "{_id:1}"),
        (
            "{a:{$elemMatch:{x:1}},b:1}",
            "{_id:1,a:[{x:1}],b:2}",
            "{_id:1,b:2,a:[{x:1}]}",
        ),
    ]);
}

#[test]
fn table_of_errors() {
    find(&[
        (
            "{a:0,b:'$c'}",
            "{}",
            "31310: Cannot use an expression b: \"$c\" in an exclusion projection",
        ),
        ("{a:{$foo:1}}", "{}", "31325: Unknown expression $foo"),
        (
            "{a:{$elemMatch:{x:1},y:1}}",
            "{}",
            "16410: FieldPath field names may not start with '$'. Consider using $getField or \
             $setField. Found '$elemMatch'",
        ),
        (
            "{a:1,b:0}",
            "{}",
            "31254: Cannot do exclusion on field b in inclusion projection",
        ),
        (
            "{a:0,b:1}",
            "{}",
            "31253: Cannot do inclusion on field b in exclusion projection",
        ),
        (
            "{a:0,b:{$abs:1}}",
            "{}",
            "31252: Cannot use expression other than $meta in exclusion projection",
        ),
        (
            "{a:1,'a.b':1}",
            "{}",
            "31249: Path collision at a.b remaining portion b",
        ),
        ("{'a.b':1,a:1}", "{}", "31250: Path collision at a"),
        (
            "{a:{}}",
            "{}",
            "51270: An empty sub-projection is not a valid value. Found empty object at path a",
        ),
        (
            "{a:{$elemMatch:1}}",
            "{}",
            "31274: elemMatch: Invalid argument, object required, but got int",
        ),
        (
            "{'a.b':{$elemMatch:{x:1}}}",
            "{}",
            "31275: Cannot use $elemMatch projection on a nested field",
        ),
        (
            "{a:{$meta:'textScore'}}",
            "{}",
            "40218: query requires text score metadata, but it is not available",
        ),
        (
            "{'':1}",
            "{}",
            "40352: FieldPath cannot be constructed with empty string",
        ),
        (
            "{'a..b':1}",
            "{}",
            "15998: FieldPath field names may not be empty strings.",
        ),
    ]);
}

#[test]
fn table_of_positional() {
    let ctx = QueryContext::new();
    let filter = Filter::parse(json("{a:{$gte:2},'b.c':1}").as_doc(), &ctx).unwrap();
    for (p, d, index, want) in [
        (
            "{'a.$':1}",
            "{_id:1,a:[1,2,3],b:1}",
            Some(1),
            "{_id:1,a:[2]}",
        ),
        (
            "{'a.$':1,b:1}",
            "{_id:1,a:[1,2,3],b:1}",
            Some(1),
            "{_id:1,a:[2],b:1}",
        ),
        ("{'a.$':1}", "{_id:1,a:7}", None, "{_id:1,a:7}"),
        (
            "{'b.c.$':1}",
            "{_id:1,b:[{c:[1,2],d:1},{c:[3]}]}",
            Some(1),
            "{_id:1,b:[{c:[3]}]}",
        ),
        (
            "{'a.$':1}",
            "{_id:1,a:[1]}",
            None,
            "51246: positional operator '.$' couldn't find a matching element in the array",
        ),
        (
            "{'b.c.$':1}",
            "{_id:1,b:[5,{c:7}]}",
            Some(0),
            "{_id:1,b:[{c:7}]}",
        ),
        (
            "{'b.c.$':1}",
            "{_id:1,b:[5,{c:7}]}",
            Some(1),
            "51247: positional operator '.$' element mismatch",
        ),
        (
            "{'a.$':1}",
            "{_id:1,a:[1]}",
            Some(1),
            "51247: positional operator '.$' element mismatch",
        ),
    ] {
        let parsed = Projection::parse(json(p).as_doc(), Some(&filter), &ctx);
        assert!(parsed.as_ref().unwrap().needs_match_info());
        check(&format!("{p} {d}"), run(parsed, d, index), want);
    }
    for (p, code) in [
        ("{'a.$':1,'b.$':1}", 31276),
        ("{z:0,'a.$':1}", 31395),
        ("{'a.$':0}", 31395),
    ] {
        let e = Projection::parse(json(p).as_doc(), Some(&filter), &ctx).unwrap_err();
        assert_eq!(e.code().0, code, "{p}");
    }
}

#[test]
fn table_of_add_fields() {
    for (p, d, want) in [
        ("{x:'$a'}", "{_id:1,a:2}", "{_id:1,a:2,x:2}"),
        ("{a:5,y:'$a'}", "{_id:1,a:2,b:1}", "{_id:1,a:5,b:1,y:2}"),
        ("{'a.x':7}", "{_id:1,a:{y:1}}", "{_id:1,a:{y:1,x:7}}"),
        ("{'a.x':7}", "{_id:1,a:3,b:1}", "{_id:1,a:{x:7},b:1}"),
        (
            "{'a.x':7}",
            "{_id:1,a:[{y:1},3]}",
            "{_id:1,a:[{y:1,x:7},{x:7}]}",
        ),
        ("{'a.x':7}", "{_id:1}", "{_id:1,a:{x:7}}"),
        ("{a:'$$REMOVE'}", "{_id:1,a:3,b:1}", "{_id:1,b:1}"),
        ("{a:{b:1,c:'$d'}}", "{_id:1,d:3}", "{_id:1,d:3,a:{b:1,c:3}}"),
    ] {
        let parsed = Projection::parse_add_fields(json(p).as_doc(), &QueryContext::new());
        check(&format!("{p} {d}"), run(parsed, d, None), want);
    }
}

#[test]
fn included_paths_for_covered_queries() {
    let ctx = QueryContext::new();
    for (p, want) in [
        ("{a:1}", Some(vec!["_id", "a"])),
        ("{a:1,_id:0}", Some(vec!["a"])),
        ("{'a.b':1,_id:0,c:1}", Some(vec!["a.b", "c"])),
        ("{a:0}", None),
        ("{a:'$b'}", None),
        ("{a:{$slice:1},b:1}", None),
        ("{}", None),
    ] {
        let p = Projection::parse(json(p).as_doc(), None, &ctx).unwrap();
        let want: Option<Vec<String>> = want.map(|w| w.into_iter().map(String::from).collect());
        assert_eq!(p.included_paths(), want);
    }
}
