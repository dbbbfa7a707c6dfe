//! Random documents and queries, made from so few values that queries find something.

use muniment_value::DocBuf;

/// A random number generator (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose numbers depend on nothing but `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }

    /// One of these texts.
    pub fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }

    fn scalar(&mut self) -> String {
        match self.below(12) {
            0 => "null".into(),
            1..=5 => self.below(6).to_string(),
            6 => format!("{}.5", self.below(4)),
            7 | 8 => format!("\"{}\"", self.pick(&["a", "ab", "abc", "b", ""])),
            9 => self.pick(&["true", "false"]).into(),
            10 => format!(r#"{{"$date": {{"$numberLong": "{}"}}}}"#, self.below(4)),
            _ => self
                .pick(&[
                    r#"{"$numberDouble": "NaN"}"#,
                    r#"{"$numberLong": "3"}"#,
                    r#"{"$numberDecimal": "2.50"}"#,
                    r#"{"$minKey": 1}"#,
                    r#"{"$maxKey": 1}"#,
                    r#"{"$oid": "000000000000000000000001"}"#,
                    r#"{"$minKey": 1}"#,
                    r#"{"$maxKey": 1}"#,
                    r#"{"$code": "f"}"#,
                    r#"{"$code": ""}"#,
                    r#"{"$code": "f", "$scope": {}}"#,
                    r#"{"$code": "g", "$scope": {"x": 1}}"#,
                    r#"{"$timestamp": {"t": 1, "i": 2}}"#,
                    r#"{"$binary": {"base64": "AA==", "subType": "00"}}"#,
                    r#"{"$symbol": "ab"}"#,
                    r#"{"$dbPointer": {"$ref": "c", "$id": {"$oid": "000000000000000000000001"}}}"#,
                ])
                .into(),
        }
    }

    fn object(&mut self) -> String {
        match self.below(5) {
            0 => "{}".into(),
            1 => format!(r#"{{"x": {}}}"#, self.scalar()),
            2 => format!(r#"{{"y": {}, "x": {}}}"#, self.scalar(), self.scalar()),
            3 => format!(r#"{{"x": [{}, {}]}}"#, self.scalar(), self.scalar()),
            _ => format!(r#"{{"x": {}, "y": {}}}"#, self.scalar(), self.scalar()),
        }
    }

    /// A value. It contains arrays only if they are wanted.
    pub fn value(&mut self, arrays: bool) -> String {
        match self.below(10) {
            0 | 1 => self.object(),
            2 | 3 if arrays => {
                let n = self.below(4);
                let items: Vec<String> = (0..n)
                    .map(|_| match self.below(6) {
                        0 => self.object(),
                        1 => format!("[{}]", self.scalar()),
                        _ => self.scalar(),
                    })
                    .collect();
                format!("[{}]", items.join(", "))
            }
            4 if arrays => {
                let n = 1 + self.below(3);
                let items: Vec<String> = (0..n).map(|_| self.object()).collect();
                format!("[{}]", items.join(", "))
            }
            _ => self.scalar(),
        }
    }

    /// A document `{_id, a?, b?, c?}`. At most one field has an array, because a compound index
    /// refuses more.
    pub fn document(&mut self, id: usize, arrays: bool) -> DocBuf {
        let mut fields = vec![format!(r#""_id": {id}"#)];
        let array_at = self.below(4);
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            if self.below(6) > 0 {
                fields.push(format!(
                    r#""{name}": {}"#,
                    self.value(arrays && i == array_at)
                ));
            }
        }
        let text = format!("{{{}}}", fields.join(", "));
        DocBuf::from_json(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn path(&mut self) -> &'static str {
        self.pick(&[
            "a", "a", "a", "b", "b", "c", "a.x", "a.y", "b.x", "a.0", "_id",
        ])
    }

    fn predicate(&mut self, depth: usize) -> String {
        let s = self.scalar();
        match self.below(20) {
            0..=3 => format!(r#"{{"$eq": {}}}"#, self.value(true)),
            4 => format!(r#"{{"$gt": {s}}}"#),
            5 => format!(r#"{{"$gte": {s}}}"#),
            6 => format!(r#"{{"$lt": {s}}}"#),
            7 => format!(r#"{{"$lte": {s}}}"#),
            8 => format!(r#"{{"$gt": {s}, "$lt": {}}}"#, self.scalar()),
            9 => format!(
                r#"{{"$in": [{s}, {}, {}]}}"#,
                self.value(true),
                self.scalar()
            ),
            10 => format!(r#"{{"$ne": {s}}}"#),
            11 => format!(r#"{{"$nin": [{s}, {}]}}"#, self.scalar()),
            12 => format!(r#"{{"$exists": {}}}"#, self.pick(&["true", "false"])),
            13 => format!(
                r#"{{"$regex": "{}"}}"#,
                self.pick(&["^a", "^ab", "b", "^a*", "^(a|b)"])
            ),
            14 if self.below(2) == 0 => format!(
                r#"{{"$type": {}}}"#,
                self.pick(&[
                    r#""number""#,
                    r#""int""#,
                    r#"["string", "bool"]"#,
                    r#""null""#,
                    r#""object""#,
                    r#""array""#,
                    r#"["undefined", "date"]"#,
                    r#"["minKey", "objectId"]"#,
                    r#"["maxKey", "javascript"]"#,
                    r#"["javascriptWithScope", "dbPointer"]"#,
                    r#"["symbol", "regex"]"#,
                    r#"["binData", "timestamp"]"#,
                ])
            ),
            14 => format!(r#"{{"$size": {}}}"#, self.below(3)),
            15 if depth > 0 => self.element(&s),
            16 => format!(r#"{{"$all": [{s}, {}]}}"#, self.scalar()),
            18 => format!(r#"{{"$mod": [{}, {}]}}"#, 1 + self.below(3), self.below(2)),
            19 => self
                .pick(&[
                    r#"{"$gt": {"$minKey": 1}}"#,
                    r#"{"$gte": {"$minKey": 1}}"#,
                    r#"{"$lte": {"$minKey": 1}}"#,
                    r#"{"$lt": {"$maxKey": 1}}"#,
                    r#"{"$lte": {"$maxKey": 1}}"#,
                    r#"{"$gte": {"$maxKey": 1}}"#,
                    r#"{"$exists": true}"#,
                    r#"{"$gt": {"$code": ""}}"#,
                    r#"{"$lt": {"$code": "g", "$scope": {}}}"#,
                ])
                .into(),
            17 if depth > 0 => format!(r#"{{"$not": {}}}"#, self.predicate(0)),
            _ => format!(r#"{{"$eq": {s}}}"#),
        }
    }

    /// A predicate for an element of an array.
    fn element(&mut self, s: &str) -> String {
        match self.below(5) {
            3 => format!(r#"{{"$elemMatch": {{"$elemMatch": {{"$gte": {s}}}}}}}"#),
            4 => format!(r#"{{"$elemMatch": {{"$not": {{"$elemMatch": {{"$lt": {s}}}}}}}}}"#),
            0 => format!(
                r#"{{"$elemMatch": {{"$gte": {s}, "$lt": {}}}}}"#,
                self.scalar()
            ),
            1 => format!(
                r#"{{"$elemMatch": {{"x": {}, "y": {}}}}}"#,
                self.predicate(0),
                self.predicate(0)
            ),
            _ => format!(r#"{{"$elemMatch": {{"x": {}}}}}"#, self.predicate(0)),
        }
    }

    /// A random filter.
    pub fn filter(&mut self, depth: usize) -> String {
        let n = 1 + self.below(3);
        let mut parts: Vec<String> = (0..n)
            .map(|_| format!(r#"{{"{}": {}}}"#, self.path(), self.predicate(depth)))
            .collect();
        if depth > 0 && self.below(3) == 0 {
            let op = self.pick(&["$or", "$or", "$and", "$nor"]);
            let inner: Vec<String> = (0..1 + self.below(3))
                .map(|_| self.filter(depth - 1))
                .collect();
            parts.push(format!(r#"{{"{op}": [{}]}}"#, inner.join(", ")));
        }
        if parts.len() == 1 {
            parts.remove(0)
        } else {
            format!(r#"{{"$and": [{}]}}"#, parts.join(", "))
        }
    }

    /// A sort without ties.
    pub fn sort(&mut self) -> String {
        let mut keys: Vec<String> = Vec::new();
        for _ in 0..1 + self.below(2) {
            let path = self.pick(&["a", "b", "c", "a.x", "b.x"]);
            if !keys.iter().any(|k| k.starts_with(&format!("\"{path}\""))) {
                keys.push(format!(r#""{path}": {}"#, self.pick(&["1", "-1"])));
            }
        }
        keys.push(format!(r#""_id": {}"#, self.pick(&["1", "-1"])));
        format!("{{{}}}", keys.join(", "))
    }

    /// The specification of a wildcard index.
    pub fn wildcard(&mut self) -> &'static str {
        self.pick(&[
            r#"{"key": {"$**": 1}, "name": "w"}"#,
            r#"{"key": {"$**": -1}, "name": "w-"}"#,
            r#"{"key": {"a.$**": 1}, "name": "wa"}"#,
            r#"{"key": {"a.x.$**": -1}, "name": "wax"}"#,
            r#"{"key": {"$**": 1}, "name": "w_in", "wildcardProjection": {"a": 1, "b.x": 1}}"#,
            r#"{"key": {"$**": 1}, "name": "w_out", "wildcardProjection": {"a.x": 0, "c": 0}}"#,
            r#"{"key": {"$**": 1}, "name": "w_id", "wildcardProjection": {"_id": 1, "b": 0}}"#,
            r#"{"key": {"c": 1, "a.$**": 1}, "name": "c_wa"}"#,
            r#"{"key": {"c": -1, "$**": -1, "b": 1}, "name": "c_w_b", "wildcardProjection": {"c": 0, "b": 0}}"#,
            r#"{"key": {"$**": 1, "b": 1}, "name": "w_b", "wildcardProjection": {"a": 1, "c": 1}}"#,
            r#"{"key": {"$**": 1}, "name": "w_text", "collation": {"locale": "en", "strength": 1}}"#,
            r#"{"key": {"$**": 1}, "name": "w_part", "partialFilterExpression": {"c": {"$gt": 1}}}"#,
        ])
    }

    /// The specification of an index, sometimes of a wildcard one.
    pub fn index(&mut self) -> &'static str {
        if self.below(5) == 0 {
            return self.wildcard();
        }
        self.pick(&[
            r#"{"key": {"a": 1}, "name": "a"}"#,
            r#"{"key": {"a": -1}, "name": "a-"}"#,
            r#"{"key": {"a": 1, "b": 1}, "name": "ab"}"#,
            r#"{"key": {"a": 1, "b": -1, "_id": 1}, "name": "ab-id"}"#,
            r#"{"key": {"b": -1, "a": 1, "c": 1}, "name": "b-ac"}"#,
            r#"{"key": {"a.x": 1}, "name": "ax"}"#,
            r#"{"key": {"a.x": 1, "a.y": -1}, "name": "axy"}"#,
            r#"{"key": {"c": 1, "_id": -1}, "name": "cid"}"#,
            r#"{"key": {"b": 1}, "name": "b_sparse", "sparse": true}"#,
            r#"{"key": {"a": 1, "c": 1}, "name": "ac_sparse", "sparse": true}"#,
            r#"{"key": {"c": 1}, "name": "c_part", "partialFilterExpression": {"c": {"$gt": 1}}}"#,
            r#"{"key": {"a": 1}, "name": "a_part", "partialFilterExpression": {"b": {"$exists": true}}}"#,
            r#"{"key": {"b.x": 1, "c": 1}, "name": "bxc"}"#,
            r#"{"key": {"a.0": 1}, "name": "a0"}"#,
        ])
    }

    /// A pipeline whose result does not depend on the order of its input, and whether its result has a
    /// defined order.
    pub fn pipeline(&mut self) -> (Vec<String>, bool) {
        let mut stages = Vec::new();
        let mut sorted = false;
        for _ in 0..1 + self.below(5) {
            let stage = match self.below(12) {
                0..=3 => format!(r#"{{"$match": {}}}"#, self.filter(2)),
                4 => {
                    sorted = true;
                    format!(r#"{{"$sort": {}}}"#, self.sort())
                }
                5 if sorted => format!(r#"{{"$limit": {}}}"#, 1 + self.below(20)),
                6 if sorted => format!(r#"{{"$skip": {}}}"#, self.below(10)),
                7 => self
                    .pick(&[
                        r#"{"$project": {"a": 1, "b": 1}}"#,
                        r#"{"$project": {"c": 0}}"#,
                        r#"{"$project": {"a": 1, "n": {"$type": "$b"}}}"#,
                        r#"{"$project": {"a.x": 1, "b": 1}}"#,
                        r#"{"$unset": "b"}"#,
                    ])
                    .to_string(),
                8 => self
                    .pick(&[
                        r#"{"$addFields": {"n": {"$ifNull": ["$a", "none"]}}}"#,
                        r#"{"$addFields": {"b": "$a"}}"#,
                        r#"{"$set": {"a.x": 1}}"#,
                    ])
                    .to_string(),
                9 => {
                    // The elements of one document stay in their order, but elements of two documents
                    // that are equal in the sort need not.
                    r#"{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": true}}"#.to_string()
                }
                10 => {
                    let group = self.pick(&[
                        r#"{"$group": {"_id": "$a", "n": {"$sum": 1}, "m": {"$max": "$_id"}}}"#,
                        r#"{"$group": {"_id": {"x": "$a.x", "b": "$b"}, "m": {"$min": "$_id"}}}"#,
                        r#"{"$group": {"_id": null, "n": {"$sum": 1}}}"#,
                        r#"{"$sortByCount": {"$type": "$b"}}"#,
                        r#"{"$count": "n"}"#,
                    ]);
                    stages.push(group.to_string());
                    // Later stages would work on the groups, so the pipeline ends here.
                    return (stages, false);
                }
                _ => continue,
            };
            stages.push(stage);
        }
        (stages, sorted)
    }
}
