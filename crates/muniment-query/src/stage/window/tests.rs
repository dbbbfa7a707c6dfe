//! Table tests of the stage and its functions; a comparison of windows with a model that processes all
//! documents again for each one; and a comparison of windows that spill with windows in memory.
#![allow(clippy::unwrap_used)]

use crate::context::Runtime;
use crate::stage::testing::{run, show, table};
use muniment_value::{DocBuf, Value, doc};

fn stage(sort: &str, output: &str) -> String {
    format!("[{{$setWindowFields:{{sortBy:{sort},output:{{r:{output}}}}}}},{{$project:{{r:1}}}}]")
}

#[test]
fn table_of_functions() {
    let docs = "[{_id:1,a:10},{_id:2,a:20},{_id:3},{_id:4,a:40}]";
    for (output, want) in [
        ("{$sum:'$a',window:{documents:[-1,0]}}", "10,30,20,40"),
        ("{$sum:'$a',window:{range:[-1,0]}}", "10,30,20,40"),
        ("{$sum:'$a'}", "70,70,70,70"),
        (
            "{$avg:'$a',window:{documents:['unbounded','current']}}",
            "10.0,15.0,15.0,23.333333333333332",
        ),
        (
            "{$min:'$a',window:{documents:['current',1]}}",
            "10,20,40,40",
        ),
        ("{$max:'$a',window:{documents:[-1,1]}}", "20,20,40,40"),
        ("{$count:{},window:{documents:[-2,-1]}}", "0,1,2,2"),
        (
            "{$push:'$a',window:{documents:[-1,1]}}",
            "[10,20],[10,20],[20,40],[40]",
        ),
        (
            "{$addToSet:'$a',window:{documents:[-1,0]}}",
            "[10],[10,20],[20],[40]",
        ),
        ("{$first:'$a',window:{documents:[1,2]}}", "20,null,40,null"),
        ("{$last:'$a',window:{documents:[-2,-1]}}", "null,10,20,null"),
        (
            "{$firstN:{n:2,input:'$a'},window:{documents:[-1,0]}}",
            "[10],[10,20],[20,null],[null,40]",
        ),
        (
            "{$lastN:{n:1,input:'$a'},window:{documents:[-1,0]}}",
            "[10],[20],[null],[40]",
        ),
        (
            "{$minN:{n:2,input:'$a'},window:{documents:[-1,1]}}",
            "[10,20],[10,20],[20,40],[40]",
        ),
        (
            "{$maxN:{n:1,input:'$a'},window:{documents:[-1,1]}}",
            "[20],[20],[40],[40]",
        ),
        (
            "{$top:{sortBy:{a:-1},output:'$_id'},window:{documents:[-1,1]}}",
            "2,2,4,4",
        ),
        (
            "{$bottomN:{n:2,sortBy:{a:1},output:'$_id'},window:{documents:[-2,0]}}",
            "[1],[1,2],[1,2],[2,4]",
        ),
        (
            "{$median:{input:'$a',method:'approximate'},window:{documents:[-1,1]}}",
            "10.0,10.0,20.0,40.0",
        ),
        (
            "{$percentile:{input:'$a',p:[1.0],method:'approximate'},window:{documents:[-1,1]}}",
            "[20.0],[20.0],[40.0],[40.0]",
        ),
        ("{$stdDevPop:'$a',window:{documents:[-1,0]}}", "0,5.0,0,0"),
        (
            "{$stdDevSamp:'$a',window:{documents:[-1,0]}}",
            "null,7.0710678118654755,null,null",
        ),
        (
            "{$covariancePop:['$_id','$a'],window:{documents:[-1,0]}}",
            "0.0,2.5,0.0,0.0",
        ),
        (
            "{$covarianceSamp:['$_id',{$multiply:['$_id',3]}]}",
            "5.0,5.0,5.0,5.0",
        ),
        ("{$rank:{}}", "1,2,3,4"),
        ("{$documentNumber:{}}", "1,2,3,4"),
        ("{$denseRank:{}}", "1,2,3,4"),
        (
            "{$shift:{output:'$a',by:-1,default:'none'}}",
            "'none',10,20,null",
        ),
        ("{$shift:{output:'$a',by:2}}", "null,40,null,null"),
        ("{$expMovingAvg:{input:'$a',N:3}}", "10.0,15.0,15.0,27.5"),
        (
            "{$expMovingAvg:{input:'$a',alpha:0.5}}",
            "10.0,15.0,15.0,27.5",
        ),
        ("{$locf:'$a'}", "10,20,20,40"),
        ("{$linearFill:'$a'}", "10,20,30.0,40"),
        (
            "{$derivative:{input:'$a'},window:{documents:[-1,0]}}",
            "null,10.0,null,null",
        ),
        (
            "{$integral:{input:'$a'},window:{documents:[-1,0]}}",
            "0.0,15.0,0.0,0.0",
        ),
        ("{$integral:{input:'$a'}}", "75.0,75.0,75.0,75.0"),
        (
            "{$concatArrays:['$a'],window:{documents:[-1,0]}}",
            "[10],[10,20],[20,null],[null,40]",
        ),
        (
            "{$setUnion:['$a'],window:{documents:[-1,0]}}",
            "[10],[10,20],[null,20],[null,40]",
        ),
    ] {
        let mut rows = Vec::new();
        let mut depth = 0;
        let mut at = String::new();
        for c in want.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                ',' if depth == 0 => {
                    rows.push(std::mem::take(&mut at));
                    continue;
                }
                _ => {}
            }
            at.push(c);
        }
        rows.push(at);
        let want: Vec<String> = rows
            .iter()
            .enumerate()
            .map(|(i, r)| format!("{{_id:{},r:{r}}}", i + 1))
            .collect();
        table(&[(
            docs,
            &stage("{_id:1}", output),
            &format!("[{}]", want.join(",")),
        )]);
    }
}

#[test]
fn table_of_the_stage() {
    table(&[
        (
            "[{_id:1,p:'b',v:1},{_id:2,p:'a',v:2},{_id:3,p:'b',v:3},{_id:4,v:4},{_id:5,p:null,v:5}]",
            "[{$setWindowFields:{partitionBy:'$p',sortBy:{v:-1},output:{s:{$sum:'$v',window:{documents:['unbounded','current']}}}}}]",
            "[{_id:5,p:null,v:5,s:5},{_id:4,v:4,s:9},{_id:2,p:'a',v:2,s:2},{_id:3,p:'b',v:3,s:3},{_id:1,p:'b',v:1,s:4}]",
        ),
        (
            "[{_id:1,a:{b:1}},{_id:2,a:5}]",
            "[{$setWindowFields:{output:{'a.n':{$count:{}}}}}]",
            "[{_id:1,a:{b:1,n:2}},{_id:2,a:{n:2}}]",
        ),
        (
            "[{_id:1,s:5},{_id:2,s:5},{_id:3,s:7}]",
            "[{$setWindowFields:{sortBy:{s:1},output:{r:{$rank:{}},d:{$denseRank:{}}}}}]",
            "[{_id:1,s:5,r:1,d:1},{_id:2,s:5,r:1,d:1},{_id:3,s:7,r:3,d:2}]",
        ),
        (
            "[{_id:1,s:null},{_id:2},{_id:3,s:[2,9]},{_id:4,s:[5,2]},{_id:5,s:[3]}]",
            "[{$setWindowFields:{sortBy:{s:1},output:{r:{$rank:{}},d:{$denseRank:{}}}}},{$project:{s:0}}]",
            "[{_id:1,r:1,d:1},{_id:2,r:1,d:1},{_id:3,r:3,d:2},{_id:4,r:3,d:2},{_id:5,r:5,d:3}]",
        ),
        (
            "[{_id:1,v:82},{_id:2,v:94},{_id:3,v:112}]",
            "[{$setWindowFields:{sortBy:{_id:1},output:{v:{$expMovingAvg:{input:'$v',N:2}}}}}]",
            "[{_id:1,v:82.0},{_id:2,v:90.0},{_id:3,v:104.66666666666667}]",
        ),
        (
            "[{_id:1,t:{$date:'2024-01-31T00:00:00Z'},v:1},{_id:2,t:{$date:'2024-02-29T00:00:00Z'},v:2}]",
            "[{$setWindowFields:{sortBy:{t:1},output:{s:{$sum:'$v',window:{range:[0,1],unit:'month'}}}}},{$project:{s:1}}]",
            "[{_id:1,s:3},{_id:2,s:2}]",
        ),
        (
            "[]",
            "[{$setWindowFields:{sortBy:{a:1},output:{r:{$foo:1}}}}]",
            "9: Unrecognized window function, $foo",
        ),
        (
            "[]",
            "[{$setWindowFields:{output:{r:{$sum:1,window:{documents:[-1,0]}}}}}]",
            "5339901: Document-based bounds require a sortBy",
        ),
        (
            "[]",
            "[{$setWindowFields:{sortBy:{a:-1},output:{r:{$sum:1,window:{range:[-1,0]}}}}}]",
            "8947401: Range-based bounds require an ascending sortBy",
        ),
        (
            "[{a:'x'}]",
            "[{$setWindowFields:{sortBy:{a:1},output:{r:{$sum:1,window:{range:[-1,0]}}}}}]",
            "5429414: Invalid range: Expected the sortBy field to be a number, but it was string",
        ),
        (
            "[]",
            "[{$setWindowFields:{sortBy:{a:1},output:{r:{$rank:{},window:{}}}}}]",
            "5371601: Rank style window functions take no other arguments: $rank",
        ),
    ]);
}

/// Documents with equal sort values, gaps, and values of several types.
fn input(n: i32) -> Vec<DocBuf> {
    let mut x = 99_u32;
    (0..n)
        .map(|i| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let v = ((x >> 16) % 41) as i32 - 20;
            let mut d = doc! { "_id": i, "p": (x >> 9).is_multiple_of(3), "t": (i * 37 % n) / 3 };
            match x % 7 {
                0 => {}
                1 => {
                    d.append("v", Value::Null);
                }
                2 => {
                    d.append("v", f64::from(v) / 4.0);
                }
                3 => {
                    d.append("v", i64::from(v));
                }
                _ => {
                    d.append("v", v);
                }
            }
            d
        })
        .collect()
}

const FUNCTIONS: &[&str] = &[
    "{$sum:'$v'}",
    "{$avg:'$v'}",
    "{$min:'$v'}",
    "{$max:'$v'}",
    "{$count:{}}",
    "{$push:'$v'}",
    "{$first:'$v'}",
    "{$last:'$v'}",
    "{$firstN:{n:3,input:'$v'}}",
    "{$lastN:{n:3,input:'$v'}}",
    "{$minN:{n:3,input:'$v'}}",
    "{$maxN:{n:3,input:'$v'}}",
    "{$topN:{n:2,sortBy:{v:1,_id:1},output:'$_id'}}",
    "{$bottomN:{n:2,sortBy:{v:1,_id:1},output:'$_id'}}",
    "{$top:{sortBy:{v:-1,_id:1},output:'$_id'}}",
    "{$bottom:{sortBy:{v:-1,_id:1},output:'$_id'}}",
    "{$median:{input:'$v',method:'approximate'}}",
    "{$percentile:{input:'$v',p:[0.1,0.9],method:'approximate'}}",
];

/// Computes the same window for every document separately, as a `$group` over the documents in it.
fn model(docs: &[DocBuf], function: &str, of: impl Fn(&DocBuf, &DocBuf) -> bool) -> Vec<String> {
    let pipeline = format!("[{{$group:{{_id:null,r:{function}}}}},{{$project:{{_id:0}}}}]");
    docs.iter()
        .map(|d| {
            let inside: Vec<DocBuf> = docs.iter().filter(|x| of(d, x)).cloned().collect();
            show(&run(inside, &pipeline, &Runtime::for_tests()).unwrap())
        })
        .collect()
}

fn int(d: &DocBuf, name: &str) -> i64 {
    d.as_doc().get(name).unwrap().as_i64_exact().unwrap()
}

#[test]
fn windows_agree_with_groups_of_their_documents() {
    let mut docs = input(90);
    docs.sort_by_key(|d| (int(d, "t"), int(d, "_id")));
    let places: std::collections::HashMap<i64, i64> = docs
        .iter()
        .enumerate()
        .map(|(i, d)| (int(d, "_id"), i as i64))
        .collect();
    for function in FUNCTIONS {
        for (low, high) in [(-3_i64, 2_i64), (0, 4), (-5, -1)] {
            let within = |d: &DocBuf, x: &DocBuf| {
                let by = places[&int(x, "_id")] - places[&int(d, "_id")];
                low <= by && by <= high
            };
            check(
                &docs,
                function,
                "{t:1,_id:1}",
                &format!("documents:[{low},{high}]"),
                within,
            );
            let within = |d: &DocBuf, x: &DocBuf| {
                let by = int(x, "t") - int(d, "t");
                low <= by && by <= high
            };
            check(
                &docs,
                function,
                "{t:1}",
                &format!("range:[{low},{high}]"),
                within,
            );
        }
        check(
            &docs,
            function,
            "{t:1}",
            "range:['unbounded','current']",
            |d, x| int(x, "t") <= int(d, "t"),
        );
    }
}

fn check(
    docs: &[DocBuf],
    function: &str,
    sort: &str,
    window: &str,
    within: impl Fn(&DocBuf, &DocBuf) -> bool,
) {
    let (head, _) = function.rsplit_once('}').unwrap();
    let pipeline = format!(
        "[{{$setWindowFields:{{sortBy:{sort},output:{{r:{head},window:{{{window}}}}}}}}}}},\
         {{$project:{{_id:0,r:1}}}}]"
    );
    let got = run(docs.to_vec(), &pipeline, &Runtime::for_tests()).unwrap();
    let want = model(docs, function, within);
    for ((g, w), d) in got.iter().zip(&want).zip(docs) {
        // A group without documents gives no result.
        if w != "[]" {
            assert_eq!(
                &show(std::slice::from_ref(g)),
                w,
                "{function} {window} {d:?}"
            );
        }
    }
}

#[test]
fn spilled_windows_agree_with_those_in_memory() {
    let outputs: Vec<String> = FUNCTIONS
        .iter()
        .chain(&[
            "{$covariancePop:['$t','$v']}",
            "{$stdDevPop:'$v'}",
            "{$addToSet:'$v'}",
        ])
        .enumerate()
        .map(|(i, f)| {
            let (head, _) = f.rsplit_once('}').unwrap();
            format!("f{i}:{head},window:{{documents:[-7,5]}}}}")
        })
        .collect();
    let pipeline = format!(
        "[{{$setWindowFields:{{partitionBy:'$p',sortBy:{{t:1,_id:1}},output:{{{},l:{{$locf:'$v'}}}}}}}}]",
        outputs.join(",")
    );
    let dir = tempfile::tempdir().unwrap();
    let rt = Runtime {
        memory_limit: 10_000,
        scratch: Some(crate::Scratch::unlimited(dir.path())),
        ..Runtime::for_tests()
    };
    let kept = run(input(600), &pipeline, &Runtime::for_tests()).unwrap();
    let spilled = run(input(600), &pipeline, &rt).unwrap();
    assert_eq!(kept.len(), 600);
    assert!(kept == spilled);
}
