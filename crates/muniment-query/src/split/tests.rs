//! Where pipelines are cut, and that their answers are those of one server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::stage::testing::{Docs, show};
use crate::update::testing::json_array;
use muniment_value::{Code, Collation, JsonMode, Value, doc, keyenc};

fn divide(pipeline: &str, ctx: &QueryContext) -> Result<Split> {
    match split(json_array(pipeline).as_doc(), ctx)? {
        Division::Split(s) => Ok(*s),
        Division::Alone(name) => panic!("{pipeline} begins with {name}"),
        Division::Router(_) => panic!("{pipeline} is the router's"),
    }
}

#[test]
fn table_of_cuts() {
    const SORTED: &str = "{$_internalToRouter:{sortKey:true,metadata:[]}}";
    for (pipeline, shards, router) in [
        ("[]", "[]", "[]"),
        (
            "[{$match:{a:1}},{$set:{b:2}},{$unwind:'$c'}]",
            "[{$match:{a:1}},{$set:{b:2}},{$unwind:'$c'}]",
            "[]",
        ),
        (
            "[{$sort:{a:1}},{$project:{b:1}},{$limit:5}]",
            "[{$sort:{a:1}},{$project:{b:1}},{$limit:{$numberLong:'5'}},ROUTER]",
            "[{$limit:5}]",
        ),
        (
            "[{$sort:{a:1}},{$skip:2},{$set:{b:1}},{$limit:5},{$limit:4},{$unwind:'$x'},{$limit:1}]",
            "[{$sort:{a:1}},{$limit:{$numberLong:'6'}},ROUTER]",
            "[{$skip:2},{$set:{b:1}},{$limit:5},{$limit:4},{$unwind:'$x'},{$limit:1}]",
        ),
        (
            "[{$skip:2},{$count:'n'}]",
            "[{$project:{_id:1}}]",
            "[{$skip:2},{$count:'n'}]",
        ),
        (
            "[{$skip:{$numberLong:'9223372036854775807'}},{$limit:5}]",
            "[]",
            "[{$skip:{$numberLong:'9223372036854775807'}},{$limit:5}]",
        ),
        (
            "[{$group:{_id:'$a',n:{$sum:'$b'}}},{$match:{n:1}}]",
            "[{$group:{_id:'$a',n:{$sum:'$b'},$willBeMerged:true}}]",
            "[{$group:{_id:'$a',n:{$sum:'$b'},$doingMerge:true}},{$match:{n:1}}]",
        ),
        // What only counts is counted by the shards.
        (
            "[{$group:{_id:1,n:{$sum:1}}}]",
            "[{$group:{_id:1,n:{$sum:1}}}]",
            "[{$group:{_id:{$literal:1},n:{$sum:'$n'}}}]",
        ),
        (
            "[{$count:'n'}]",
            "[{$count:'n'}]",
            "[{$group:{_id:null,n:{$sum:'$n'}}},{$project:{_id:0}}]",
        ),
        (
            "[{$sortByCount:'$a'}]",
            "[{$group:{_id:'$a',count:{$sum:1},$willBeMerged:true}}]",
            "[{$group:{_id:'$a',count:{$sum:1},$doingMerge:true}},{$sort:{count:-1}}]",
        ),
        (
            "[{$bucket:{groupBy:'$a',boundaries:[0,5]}}]",
            "[{$bucket:{groupBy:'$a',boundaries:[0,5],$willBeMerged:true}}]",
            "[{$bucket:{groupBy:'$a',boundaries:[0,5],$doingMerge:true}}]",
        ),
        // After a sort, an accumulator that reads the order needs all documents in order.
        (
            "[{$sort:{a:1}},{$group:{_id:'$b.c',n:{$sum:1},f:{$first:'$a'}}}]",
            "[{$sort:{a:1}},{$project:{_id:0,a:1,b:1}},ROUTER]",
            "[{$group:{_id:'$b.c',n:{$sum:1},f:{$first:'$a'}}}]",
        ),
        (
            "[{$sort:{a:1}},{$group:{_id:'$b',n:{$sum:'$c'}}}]",
            "[{$sort:{a:1}},{$group:{_id:'$b',n:{$sum:'$c'},$willBeMerged:true}}]",
            "[{$group:{_id:'$b',n:{$sum:'$c'},$doingMerge:true}}]",
        ),
        (
            "[{$sample:{size:3}},{$project:{a:1}}]",
            "[{$sample:{size:3}},{$project:{_id:1,a:1}},ROUTER]",
            "[{$limit:{$numberLong:'3'}},{$project:{a:1}}]",
        ),
        // A condition moves before what does not touch it.
        (
            "[{$lookup:{from:'f',localField:'a',foreignField:'b',as:'j'}},{$match:{c:1}},{$match:{'j.x':1}}]",
            "[{$match:{c:1}}]",
            "[{$lookup:{from:'f',localField:'a',foreignField:'b',as:'j'}},{$match:{'j.x':1}}]",
        ),
        (
            "[{$facet:{x:[{$sort:{a:1}}]}}]",
            "[]",
            "[{$facet:{x:[{$sort:{a:1}}]}}]",
        ),
        (
            "[{$sort:{a:1}},{$out:'o'}]",
            "[{$sort:{a:1}},ROUTER]",
            "[{$out:'o'}]",
        ),
        // The router reads metadata that only a shard knows.
        (
            "[{$sort:{a:1}},{$limit:1},{$set:{k:{$meta:'sortKey'}}}]",
            "[{$sort:{a:1}},{$limit:{$numberLong:'1'}},\
             {$_internalToRouter:{sortKey:true,metadata:['sortKey']}}]",
            "[{$limit:1},{$set:{k:{$meta:'sortKey'}}}]",
        ),
        (
            "[{$match:{$text:{$search:'x'}}},{$limit:1},{$set:{k:{$meta:'textScore'}}}]",
            "[{$match:{$text:{$search:'x'}}},{$limit:{$numberLong:'1'}},\
             {$_internalToRouter:{sortKey:false,metadata:['textScore']}}]",
            "[{$limit:1},{$set:{k:{$meta:'textScore'}}}]",
        ),
        (
            "[{$lookup:{from:'f',as:'x',pipeline:[{$geoNear:{near:[0,0],distanceField:'d'}},\
             {$set:{m:{$meta:'geoNearDistance'}}}]}}]",
            "[]",
            "[{$lookup:{from:'f',as:'x',pipeline:[{$geoNear:{near:[0,0],distanceField:'d'}},\
             {$set:{m:{$meta:'geoNearDistance'}}}]}}]",
        ),
        (
            "[{$geoNear:{near:[0,0],distanceField:'d'}},{$match:{a:1}}]",
            "[{$geoNear:{near:[0,0],distanceField:'d'}},{$match:{a:1}},ROUTER]",
            "[]",
        ),
        (
            "[{$collStats:{count:{}}},{$set:{a:1}}]",
            "[{$collStats:{count:{}}},{$set:{a:1}}]",
            "[]",
        ),
    ] {
        let mut ctx = QueryContext::new();
        ctx.db = "d".to_string();
        let s = divide(pipeline, &ctx).unwrap();
        let text = |d: Doc<'_>| d.to_json(JsonMode::Relaxed);
        let want = json_array(&shards.replace("ROUTER", SORTED));
        assert_eq!(text(s.shards.as_doc()), text(want.as_doc()), "{pipeline}");
        let want = json_array(router);
        assert_eq!(text(s.router.as_doc()), text(want.as_doc()), "{pipeline}");
        let sorted = s.shards.as_doc().values().any(|v| {
            let to_router = v.as_doc().and_then(|d| d.get_doc("$_internalToRouter"));
            to_router.is_some_and(|d| d.get("sortKey").and_then(|v| v.as_bool()) == Some(true))
        });
        assert_eq!(s.merge == Merge::Sorted, sorted, "{pipeline}");
        // A shard understands its part.
        Pipeline::parse(s.shards.as_doc(), &QueryContext::new().of_member()).unwrap();
    }
}

#[test]
fn some_pipelines_are_not_split() {
    for (pipeline, db, name) in [
        ("[{$currentOp:{}},{$match:{a:1}}]", "admin", "$currentOp"),
        ("[{$documents:[]}]", "x", "$documents"),
        ("[{$changeStream:{}}]", "x", "$changeStream"),
        ("[{$listLocalSessions:{}}]", "x", "$listLocalSessions"),
    ] {
        let mut ctx = QueryContext::new();
        ctx.db = db.to_string();
        match split(json_array(pipeline).as_doc(), &ctx).unwrap() {
            Division::Alone(first) => assert_eq!(first, name),
            Division::Split(_) | Division::Router(_) => panic!("{pipeline}"),
        }
    }
    let fusion = "[{$rankFusion:{input:{pipelines:{a:[{$sort:{x:1}}]}}}},{$limit:1}]";
    let division = split(json_array(fusion).as_doc(), &QueryContext::new());
    assert!(matches!(division, Ok(Division::Router(_))));
}

#[test]
fn errors_are_those_of_one_server() {
    for pipeline in [
        "[{$nope:1}]",
        "[{$group:{_id:1,n:{$sum:1},$willBeMerged:true}}]",
        "[{$group:{_id:1,n:{$sum:1},$doingMerge:true}}]",
        "[{$bucket:{groupBy:'$a',boundaries:[0,5],$doingMerge:true}}]",
        "[{$_internalToRouter:{sortKey:true,metadata:[]}}]",
        "[{$facet:{x:[{$_internalToRouter:{sortKey:true,metadata:[]}}]}}]",
        "[{$set:{k:{$meta:'mergeKey'}}}]",
        "[{$set:{k:{$meta:'textScore'}}}]",
        "[{$group:{_id:1}},{$match:{$text:{$search:'x'}}}]",
        "[{$out:'x'},{$match:{}}]",
    ] {
        let stages = json_array(pipeline);
        // A member's context does not help a client.
        for ctx in [QueryContext::new(), QueryContext::new().of_member()] {
            let alone = Pipeline::check(stages.as_doc(), &QueryContext::new())
                .and_then(|()| Pipeline::parse(stages.as_doc(), &QueryContext::new()).map(|_| ()));
            let got = split(stages.as_doc(), &ctx).unwrap_err();
            let want = alone.unwrap_err();
            assert_eq!((got.code(), got.message()), (want.code(), want.message()));
        }
    }
    // Inside a stage nothing comes from a member.
    let nested = json_array("[{$facet:{x:[{$group:{_id:1,$doingMerge:true}}]}}]");
    let e = Pipeline::parse(nested.as_doc(), &QueryContext::new().of_member()).unwrap_err();
    assert_eq!(e.code(), Code(40236));
    for operand in [
        "1",
        "{sortKey:1,metadata:[]}",
        "{sortKey:true}",
        "{sortKey:true,metadata:['x']}",
    ] {
        let p = json_array(&format!("[{{$_internalToRouter:{operand}}}]"));
        assert!(Pipeline::parse(p.as_doc(), &QueryContext::new().of_member()).is_err());
    }
}

/// A random number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n
    }
}

/// Documents with few different values, whose doubles have exact sums.
fn documents(random: &mut Random, n: i32) -> Vec<DocBuf> {
    let mut all = Vec::new();
    for i in 0..n {
        let mut d = doc! { "_id": i };
        if random.below(6) > 0 {
            d.append("k", random.below(5) as i32);
        }
        match random.below(8) {
            0 => d.append("v", random.below(40) as f64 / 4.0),
            1 => d.append("v", i64::MAX - random.below(3) as i64),
            2 => d.append("v", "text"),
            3 => d.append("v", Value::Null),
            4 => &mut d,
            _ => d.append("v", random.below(100) as i32),
        };
        d.append("u", (i * 7919) % 1009);
        d.append("f", f64::from((i * 7919) % 1009) / 7.0);
        let list: ArrayBuf = (0..random.below(4))
            .map(|_| random.below(9) as i32)
            .collect();
        d.append("l", list);
        d.append("o", doc! { "x": random.below(3) as i32, "y": i });
        all.push(d);
    }
    all
}

/// What the stages make of the documents.
fn run_all(
    stages: Doc<'_>,
    docs: &[DocBuf],
    ctx: &QueryContext,
    rt: &Runtime,
) -> Result<Vec<DocBuf>> {
    let docs = docs.to_vec();
    let top = Pipeline::parse(stages, ctx)?.open(Box::new(Docs(docs.into_iter())), rt)?;
    drain_plain(top)
}

/// The documents of a stream without their metadata.
fn drain_plain(mut s: Box<dyn DocStream>) -> Result<Vec<DocBuf>> {
    let mut all = Vec::new();
    while let Some(d) = s.next()? {
        all.push(Doc::new(&d).to_buf());
    }
    Ok(all)
}

/// The same on several shards, each of which has a part of the documents.
fn run_split(
    s: Split,
    parts: &[Vec<DocBuf>],
    ctx: &QueryContext,
    rt: &Runtime,
) -> Result<Vec<DocBuf>> {
    let mut streams: Vec<Box<dyn DocStream>> = Vec::new();
    for part in parts {
        let docs = run_all(s.shards.as_doc(), part, &ctx.clone().of_member(), rt)?;
        docs.iter().for_each(|d| {
            muniment_value::validate(d.as_bytes()).unwrap();
        });
        streams.push(Box::new(Docs(docs.into_iter())));
    }
    drain_plain(s.open(streams, rt)?)
}

/// The documents by value, because it depends on the order of the input which one of equal numbers is shown;
/// sorted, unless the order counts.
fn by_value(docs: &[DocBuf], ordered: bool) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = docs
        .iter()
        .map(|d| keyenc::encoded(Value::Document(d.as_doc())))
        .collect();
    if !ordered {
        all.sort();
    }
    all
}

/// Compares a split pipeline with the same pipeline on one server, for random divisions of the documents.
fn agrees(pipeline: &str, ordered: bool, ctx: &QueryContext) {
    agrees_for(pipeline, ordered, ctx, 4);
}

/// The same for so many divisions.
fn agrees_for(pipeline: &str, ordered: bool, ctx: &QueryContext, rounds: usize) {
    let mut random = Random(0x5EED + pipeline.len() as u64);
    let dir = tempfile::tempdir().unwrap();
    let spilling = Runtime {
        memory_limit: 2_000,
        scratch: Some(crate::Scratch::unlimited(dir.path())),
        ..Runtime::for_tests()
    };
    let stages = json_array(pipeline);
    for round in 0..rounds {
        let docs = documents(&mut random, 60);
        let want = run_all(stages.as_doc(), &docs, ctx, &Runtime::for_tests()).unwrap();
        let mut parts = vec![Vec::new(); [1, 3][round % 2]];
        for d in &docs {
            let at = random.below(parts.len());
            parts[at].push(d.clone());
        }
        for rt in [&Runtime::for_tests(), &spilling] {
            let s = divide(pipeline, ctx).unwrap();
            let got = run_split(s, &parts, ctx, rt).unwrap();
            assert!(
                by_value(&got, ordered) == by_value(&want, ordered),
                "{pipeline}\nwant {}\ngot  {}",
                show(&want),
                show(&got)
            );
        }
    }
}

#[test]
fn stages_agree() {
    let ctx = QueryContext::new();
    for (pipeline, ordered) in [
        ("[]", false),
        (
            "[{$match:{k:{$gt:1}}},{$addFields:{w:'$v'}},{$unset:'l'}]",
            false,
        ),
        (
            "[{$set:{w:{$add:['$k',1]}}},{$replaceRoot:{newRoot:'$o'}}]",
            false,
        ),
        ("[{$unwind:'$l'},{$replaceWith:{a:'$l',b:'$u'}}]", false),
        (
            "[{$redact:{$cond:[{$gt:['$x',1]},'$$PRUNE','$$DESCEND']}}]",
            false,
        ),
        ("[{$sort:{u:1}}]", true),
        ("[{$sort:{v:-1,u:1}},{$project:{k:1}}]", true),
        (
            "[{$sort:{l:1,u:-1}},{$project:{_id:0,o:1}},{$unwind:'$o'}]",
            true,
        ),
        ("[{$sort:{u:1}},{$unwind:'$l'},{$project:{l:1}}]", true),
        ("[{$sort:{u:1}},{$limit:7}]", true),
        ("[{$sort:{u:1}},{$skip:7}]", true),
        (
            "[{$sort:{u:1}},{$skip:7},{$limit:9},{$skip:2},{$project:{u:1}}]",
            true,
        ),
        (
            "[{$sort:{u:1}},{$limit:30},{$sort:{_id:-1}},{$limit:3}]",
            true,
        ),
        (
            "[{$sort:{u:1}},{$limit:3},{$set:{k:{$meta:'sortKey'}}}]",
            true,
        ),
        (
            "[{$sort:{u:1}},{$limit:20},{$group:{_id:'$k',n:{$sum:'$u'}}}]",
            false,
        ),
        ("[{$sort:{u:-1}},{$skip:20},{$count:'n'}]", false),
        ("[{$sort:{k:1}},{$sort:{u:1}}]", true),
        ("[{$count:'n'}]", false),
        ("[{$match:{k:77}},{$count:'n'}]", false),
        (
            "[{$group:{_id:{$literal:'$x'},n:{$sum:1},m:{$count:{}}}}]",
            false,
        ),
        ("[{$match:{k:77}},{$group:{_id:null,n:{$sum:1}}}]", false),
        (
            "[{$sortByCount:'$k'},{$group:{_id:'$count',k:{$addToSet:'$_id'}}},{$unwind:'$k'}]",
            false,
        ),
        ("[{$sortByCount:{$type:'$k'}},{$limit:1}]", true),
        (
            "[{$bucket:{groupBy:'$u',boundaries:[0,200,500],default:'x'}}]",
            true,
        ),
        (
            "[{$sort:{u:1}},{$bucket:{groupBy:'$u',boundaries:[0,200,500],default:'x',\
             output:{f:{$first:'$_id'},all:{$push:'$_id'}}}}]",
            true,
        ),
        ("[{$bucketAuto:{groupBy:'$u',buckets:4}}]", true),
        (
            "[{$setWindowFields:{partitionBy:'$k',sortBy:{u:1},output:{r:{$rank:{}},\
             s:{$sum:'$u',window:{documents:[-1,1]}}}}}]",
            false,
        ),
        (
            "[{$facet:{a:[{$count:'n'}],b:[{$sort:{u:1}},{$limit:2}]}}]",
            false,
        ),
        (
            "[{$densify:{field:'u',range:{step:50,bounds:[0,500]}}},{$match:{_id:null}}]",
            false,
        ),
        ("[{$fill:{sortBy:{u:1},output:{k:{method:'locf'}}}}]", false),
        ("[{$fill:{output:{k:{value:7}}}}]", false),
        ("[{$sample:{size:100}}]", false),
        ("[{$sample:{size:5}},{$count:'n'}]", false),
        (
            "[{$sample:{size:100}},{$sort:{u:1}},{$limit:4},{$set:{r:{$type:{$meta:'randVal'}}}}]",
            true,
        ),
    ] {
        agrees(pipeline, ordered, &ctx);
    }
}

/// A random pipeline whose result is defined, and whether its order is. The field `key` is different in every
/// document, or the same in neighbours that come from one document.
fn random_pipeline(random: &mut Random) -> (String, bool) {
    let mut stages: Vec<String> = Vec::new();
    let (mut ordered, mut key) = (false, "u");
    for _ in 0..1 + random.below(7) {
        let n = 1 + random.below(30);
        let stage = match random.below(16) {
            0 => format!("{{$match:{{{key}:{{$gt:{n}}}}}}}"),
            1 => "{$set:{w:{$ifNull:['$v','$k']}}}".to_string(),
            2 => "{$unset:'o'}".to_string(),
            3 => format!("{{$project:{{{key}:1,l:1,v:1,k:1,total:1}}}}"),
            4 => "{$unwind:{path:'$l',preserveNullAndEmptyArrays:true}}".to_string(),
            5..=7 => {
                ordered = true;
                let first = ["", "k:1,", "v:-1,"][random.below(3)];
                format!("{{$sort:{{{first}{key}:{}}}}}", [1, -1][random.below(2)])
            }
            8 | 9 if ordered => format!("{{$limit:{n}}}"),
            10 if ordered => format!("{{$skip:{}}}", random.below(8)),
            11 if key == "u" => {
                let group = [
                    "{$group:{_id:'$k',total:{$sum:'$u'},least:{$min:'$f'}}}",
                    "{$bucket:{groupBy:'$u',boundaries:[0,400],default:-1,output:{total:{$avg:'$u'}}}}",
                    "{$group:{_id:'$k',total:{$sum:1},f:{$first:'$v'},all:{$push:'$u'}}}",
                    "{$sortByCount:'$k'}",
                ][random.below(if ordered { 4 } else { 2 })];
                (ordered, key) = (false, "_id");
                group.to_string()
            }
            12 if ordered => "{$facet:{a:[{$limit:3}],n:[{$count:'n'}]}}".to_string(),
            13 => {
                format!("{{$setWindowFields:{{sortBy:{{{key}:1}},output:{{c:{{$count:{{}}}}}}}}}}")
            }
            14 => {
                stages.push("{$count:'n'}".to_string());
                return (stages.join(","), true);
            }
            _ => continue,
        };
        let ends = stage.starts_with("{$facet");
        ordered &= !stage.starts_with("{$setWindowFields");
        stages.push(stage);
        if ends {
            break;
        }
    }
    (stages.join(","), ordered)
}

#[test]
fn random_pipelines_agree() {
    let mut random = Random(4242);
    let ctx = QueryContext::new();
    for _ in 0..100 {
        let (stages, ordered) = random_pipeline(&mut random);
        agrees_for(&format!("[{stages}]"), ordered, &ctx, 2);
    }
}

#[test]
fn accumulators_agree() {
    let ctx = QueryContext::new();
    // The order of documents that are not sorted is not defined, so these show what does not depend on it.
    let any = [
        "{$sum:'$v'}",
        "{$sum:'$u'}",
        "{$sum:'$f'}",
        "{$avg:'$u'}",
        "{$avg:'$f'}",
        "{$min:'$v'}",
        "{$max:'$v'}",
        "{$count:{}}",
        "{$minN:{n:3,input:'$v'}}",
        "{$maxN:{n:{$cond:[{$eq:['$k',1]},1,2]},input:'$u'}}",
        "{$top:{sortBy:{u:1},output:'$v'}}",
        "{$topN:{n:3,sortBy:{v:1,u:1},output:'$_id'}}",
        "{$bottom:{sortBy:{u:1},output:'$v'}}",
        "{$bottomN:{n:2,sortBy:{l:1,u:1},output:'$_id'}}",
        "{$median:{input:'$u',method:'approximate'}}",
        "{$percentile:{input:'$u',p:[0.1,0.9],method:'approximate'}}",
    ];
    for acc in any {
        agrees(
            &format!("[{{$group:{{_id:{{k:'$k'}},r:{acc}}}}}]"),
            false,
            &ctx,
        );
        agrees(
            &format!("[{{$sort:{{u:1}}}},{{$group:{{_id:null,r:{acc}}}}}]"),
            false,
            &ctx,
        );
    }
    // Arrays are compared without their order.
    for acc in [
        "{$push:'$v'}",
        "{$addToSet:'$v'}",
        "{$concatArrays:'$l'}",
        "{$setUnion:'$l'}",
    ] {
        let pipeline = format!(
            "[{{$group:{{_id:'$k',r:{acc}}}}},{{$set:{{r:{{$sortArray:{{input:'$r',sortBy:1}}}}}}}}]"
        );
        agrees(&pipeline, false, &ctx);
    }
    let sorted = [
        "{$first:'$v'}",
        "{$last:'$v'}",
        "{$push:'$v'}",
        "{$firstN:{n:3,input:'$v'}}",
        "{$lastN:{n:3,input:'$v'}}",
        "{$mergeObjects:'$o'}",
        "{$concatArrays:'$l'}",
        "{$stdDevPop:'$u'}",
        "{$stdDevSamp:'$u'}",
        "{$top:{sortBy:{k:1},output:'$_id'}}",
        "{$topN:{n:4,sortBy:{k:1},output:'$_id'}}",
        "{$bottom:{sortBy:{k:1},output:'$_id'}}",
        "{$bottomN:{n:4,sortBy:{k:1},output:'$_id'}}",
        "{$accumulator:{init:'function() { return []; }',accumulateArgs:['$_id'],\
         accumulate:'function(s, x) { return s.concat([x]); }',\
         merge:'function(s, t) { return s.concat(t); }',lang:'js'}}",
    ];
    for acc in sorted {
        agrees(
            &format!("[{{$sort:{{u:1}}}},{{$group:{{_id:'$k',r:{acc}}}}}]"),
            false,
            &ctx,
        );
    }
    let covered = |name: &str| {
        let begins = format!("{{{name}:");
        any.iter().chain(&sorted).any(|a| a.starts_with(&begins))
            || ["$addToSet", "$setUnion"].contains(&name)
    };
    for spec in crate::stage::accumulators::registry() {
        assert!(covered(spec.name), "{} has no pipeline here", spec.name);
    }
}

/// What has no defined order is still one of the answers that one server may give.
#[test]
fn accumulators_without_an_order_give_possible_answers() {
    let mut random = Random(77);
    let docs = documents(&mut random, 50);
    let parts: Vec<Vec<DocBuf>> = docs.chunks(20).map(<[DocBuf]>::to_vec).collect();
    let (ctx, rt) = (QueryContext::new(), Runtime::for_tests());
    let group = "[{$group:{_id:null,f:{$first:'$_id'},l:{$last:'$_id'},fn:{$firstN:{n:3,\
                 input:'$_id'}},ln:{$lastN:{n:3,input:'$_id'}},o:{$mergeObjects:{$cond:[{$lt:\
                 ['$_id',10]},{a:'$_id'},{b:'$_id'}]}},p:{$stdDevPop:'$u'},s:{$stdDevSamp:'$u'},\
                 j:{$accumulator:{init:'function(n) { return {n: n}; }',initArgs:[0],accumulateArgs:\
                 ['$u'],accumulate:'function(s, x) { s.n += x; return s; }',merge:'function(s, t) \
                 { s.n += t.n; return s; }',finalize:'function(s) { return s.n; }',lang:'js'}}}}]";
    let one = run_all(json_array(group).as_doc(), &docs, &ctx, &rt).unwrap();
    let got = run_split(divide(group, &ctx).unwrap(), &parts, &ctx, &rt).unwrap();
    let number = |d: &DocBuf, name: &str| {
        d.as_doc()
            .get(name)
            .and_then(muniment_value::number::to_f64)
    };
    for name in ["p", "s", "j"] {
        let (a, b) = (
            number(&one[0], name).unwrap(),
            number(&got[0], name).unwrap(),
        );
        assert!((a - b).abs() < 1e-9 * a.abs(), "{name}: {a} {b}");
    }
    // The parts hold the documents in their order, so the answers that depend on it are those of one server.
    for name in ["f", "l", "fn", "ln", "o"] {
        let show = |d: &DocBuf| d.as_doc().get(name).unwrap().to_display();
        assert_eq!(show(&got[0]), show(&one[0]), "{name}");
    }
}

/// Every set of documents can be a sample, wherever its documents are.
#[test]
fn a_sample_is_fair() {
    let mut parts = vec![Vec::new(), Vec::new()];
    for i in 0..20 {
        parts[usize::from(i > 1)].push(doc! { "_id": i });
    }
    let (ctx, rt) = (QueryContext::new(), Runtime::for_tests());
    let mut small = 0;
    for _ in 0..1000 {
        let s = divide("[{$sample:{size:1}}]", &ctx).unwrap();
        let got = run_split(s, &parts, &ctx, &rt).unwrap();
        let id = got[0].as_doc().get("_id").and_then(|v| v.as_i64_exact());
        small += u32::from(id.unwrap() < 2);
    }
    // 100 are expected; if each shard counted the same, it would be 500.
    assert!((40..200).contains(&small), "{small}");
}

#[test]
fn texts_are_merged_by_the_collation() {
    let collation = Collation::parse(doc! { "locale": "en", "strength": 2 }.as_doc()).unwrap();
    let ctx = QueryContext::new().with_collation(collation);
    let parts: Vec<Vec<DocBuf>> = [["b", "D"], ["A", "c"], ["B", "a"]]
        .iter()
        .map(|names| names.iter().map(|n| doc! { "n": *n }).collect())
        .collect();
    let rt = Runtime::for_tests();
    let run = |p: &str| show(&run_split(divide(p, &ctx).unwrap(), &parts, &ctx, &rt).unwrap());
    let sorted = run("[{$sort:{n:1}},{$group:{_id:null,all:{$push:'$n'}}}]");
    let want = "[{ _id: null, all: [ \"A\", \"a\", \"b\", \"B\", \"c\", \"D\" ] }]";
    assert_eq!(sorted, want);
    let grouped =
        run("[{$group:{_id:'$n',n:{$sum:1}}},{$group:{_id:null,n:{$sum:1},m:{$max:'$n'}}}]");
    assert_eq!(grouped, "[{ _id: null, n: 4, m: 2 }]");
}

#[test]
fn codes_of_divisions_are_those_of_one_server() {
    let (ctx, rt) = (QueryContext::new(), Runtime::for_tests());
    let docs = vec![doc! { "a": 0, "l": 1 }];
    for pipeline in [
        "[{$group:{_id:null,r:{$sum:{$divide:[1,'$a']}}}}]",
        "[{$unwind:'$l'},{$group:{_id:null,r:{$sum:{$divide:[1,'$a']}}}}]",
        "[{$sort:{a:1}},{$group:{_id:null,r:{$first:{$divide:[1,'$a']}}}}]",
        "[{$sort:{a:1}},{$unwind:'$l'},{$group:{_id:null,r:{$first:{$divide:[1,'$a']}}}}]",
    ] {
        let want = run_all(json_array(pipeline).as_doc(), &docs, &ctx, &rt).unwrap_err();
        let s = divide(pipeline, &ctx).unwrap();
        let got = run_split(s, std::slice::from_ref(&docs), &ctx, &rt).unwrap_err();
        assert_eq!(got.code(), want.code(), "{pipeline}");
    }
    // What one server hands on in another form, the router hands on in that form, too.
    let docs = vec![doc! { "a": Value::MinKey, "l": 1 }];
    for pipeline in [
        "[{$group:{_id:'$a',f:{$first:'$a'}}},{$set:{x:1}}]",
        "[{$group:{_id:'$a',f:{$first:'$a'}}}]",
        "[{$sort:{a:1}},{$group:{_id:'$a',f:{$first:'$a'}}},{$set:{x:1}}]",
        "[{$sample:{size:9}},{$group:{_id:'$a',f:{$first:'$a'}}},{$set:{x:1}}]",
        "[{$unwind:'$l'},{$group:{_id:'$a',f:{$first:'$a'}}},{$set:{x:1}}]",
    ] {
        let want = run_all(json_array(pipeline).as_doc(), &docs, &ctx, &rt).unwrap();
        let s = divide(pipeline, &ctx).unwrap();
        let got = run_split(s, std::slice::from_ref(&docs), &ctx, &rt).unwrap();
        assert_eq!(show(&got), show(&want), "{pipeline}");
    }
}

/// The states of a group that is too large for one message come in several.
#[test]
fn large_groups_come_in_parts() {
    let text = "x".repeat(100_000);
    let docs: Vec<DocBuf> = (0..200)
        .map(|i| doc! { "i": i, "k": i % 2, "t": format!("{i}{text}") })
        .collect();
    let parts = [docs.clone()];
    let (ctx, rt) = (QueryContext::new(), Runtime::for_tests());
    let dir = tempfile::tempdir().unwrap();
    let spilling = Runtime {
        memory_limit: 3 << 20,
        scratch: Some(crate::Scratch::unlimited(dir.path())),
        ..Runtime::for_tests()
    };
    let pipeline = "[{$group:{_id:{$cond:[{$lt:['$i',2]},'$k',0]},n:{$sum:'$i'},all:{$push:'$t'},\
                    m:{$median:{input:'$i',method:'approximate'}}}},{$set:{all:{$size:'$all'}}}]";
    let want = run_all(json_array(pipeline).as_doc(), &docs, &ctx, &rt).unwrap();
    for rt in [&rt, &spilling] {
        let s = divide(pipeline, &ctx).unwrap();
        let member = ctx.clone().of_member();
        let sent = run_all(s.shards.as_doc(), &docs, &member, rt).unwrap();
        assert!(sent.len() > 3 && sent.iter().all(|d| d.len() < 8 << 20));
        let got = run_split(s, &parts, &ctx, rt).unwrap();
        assert_eq!(by_value(&got, false), by_value(&want, false));
    }
}

/// A state that does not have the form of its accumulator's states is refused.
#[test]
fn states_of_shards_are_checked() {
    let (ctx, rt) = (QueryContext::new().of_member(), Runtime::for_tests());
    for acc in [
        "{$sum:'$v'}",
        "{$avg:'$v'}",
        "{$count:{}}",
        "{$push:'$v'}",
        "{$addToSet:'$v'}",
        "{$setUnion:'$v'}",
        "{$stdDevPop:'$v'}",
        "{$firstN:{n:1,input:'$v'}}",
        "{$topN:{n:1,sortBy:{v:1},output:'$v'}}",
        "{$median:{input:'$v',method:'approximate'}}",
    ] {
        let merge = json_array(&format!("[{{$group:{{_id:1,r:{acc},$doingMerge:true}}}}]"));
        for bad in [
            doc! { "_id": 1 },
            doc! { "r": 1 },
            doc! { "_id": 1, "s": 1 },
            doc! { "_id": 1, "r": "x" },
            doc! { "_id": 1, "r": doc! { "w": 1, "n": 1 } },
        ] {
            let e = run_all(merge.as_doc(), std::slice::from_ref(&bad), &ctx, &rt).unwrap_err();
            assert_eq!(e.code(), Code::InternalError, "{acc} {bad:?}");
        }
    }
    // A newer shard may say more.
    let first = json_array("[{$group:{_id:1,r:{$sum:'$v'},$willBeMerged:true}}]");
    let part = run_all(first.as_doc(), &[doc! { "v": 5 }], &ctx, &rt).unwrap();
    let mut state = part[0].as_doc().get_doc("r").unwrap().to_buf();
    state.append("new", 1);
    let merge = json_array("[{$group:{_id:1,r:{$sum:'$v'},$doingMerge:true}}]");
    let sent = doc! { "_id": 1, "r": state };
    let got = run_all(merge.as_doc(), &[sent], &ctx, &rt).unwrap();
    assert_eq!(show(&got), "[{ _id: 1, r: 5 }]");
}

#[test]
fn table_of_finds() {
    let ctx = QueryContext::new();
    for (filter, sort, skip, limit, want) in [
        ("{}", "{}", 0, 0, (0, false)),
        ("{}", "{}", 5, 7, (12, false)),
        ("{}", "{a:1}", 5, 0, (0, true)),
        ("{}", "{$natural:1}", 0, 2, (2, false)),
        ("{p:{$near:[0,0]}}", "{}", 0, 3, (3, true)),
        ("{}", "{}", u64::MAX, 3, (0, false)),
    ] {
        let (f, s) = (
            crate::update::testing::json(filter),
            crate::update::testing::json(sort),
        );
        let find = FindParts {
            filter: f.as_doc(),
            sort: s.as_doc(),
            skip,
            limit,
        };
        let got = split_find(&find, &ctx).unwrap();
        assert_eq!((got.limit, got.sort_key), want, "{filter} {sort}");
        assert_eq!(got.merge() == Merge::Sorted, want.1);
    }
}
