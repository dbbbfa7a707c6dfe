//! `muniment docs PAGE`: pages that are printed from the registries, so that they cannot differ from the
//! code: the commands, operators and stages with their state (`compatibility`), the server's options
//! (`options`) and its parameters (`parameters`).

use crate::command::{Spec, print, printed};
use crate::effects::Does;
use crate::flags;
use muniment_auth::builtin;
use muniment_options::Page;
use muniment_query::{expr, filter, stage, update};
use std::collections::BTreeMap;

/// The features of a MongoDB community server, by kind. Those that are in no registry are "not yet".
/// Source: the manual's reference pages (names only): those of 8.0, and of expressions those of 8.3.
const SURFACE: &[(&str, &str)] = &[
    (
        "Built-in roles",
        "__queryableBackup __system backup clusterAdmin clusterManager clusterMonitor dbAdmin \
         dbAdminAnyDatabase dbOwner directShardOperations enableSharding hostManager read readAnyDatabase \
         readWrite readWriteAnyDatabase restore root searchCoordinator userAdmin userAdminAnyDatabase",
    ),
    (
        "Commands",
        "abortTransaction addShard aggregate appendOplogNote applyOps balancerStart balancerStatus balancerStop \
         buildInfo bulkWrite collMod collStats commitTransaction compact configureFailPoint connPoolStats \
         connectionStatus convertToCapped count create createIndexes createRole createUser currentOp dataSize dbHash \
         dbStats delete distinct drop dropAllUsersFromDatabase dropConnections dropDatabase dropIndexes dropRole \
         dropUser enableSharding endSessions explain filemd5 find findAndModify flushRouterConfig fsync fsyncUnlock \
         getClusterParameter getCmdLineOpts getDefaultRWConcern getLog getMore getParameter grantRolesToUser hello \
         hostInfo insert isMaster killAllSessions killAllSessionsByPattern killCursors killOp killSessions \
         listCollections listCommands listDatabases listIndexes listShards lockInfo logRotate logout mapReduce \
         mergeChunks moveChunk movePrimary ping planCacheClear profile reIndex refineCollectionShardKey \
         refreshSessions removeShard renameCollection replSetFreeze replSetGetConfig replSetGetStatus \
         replSetInitiate replSetMaintenance replSetReconfig replSetResizeOplog replSetStepDown replSetSyncFrom \
         reshardCollection revokeRolesFromUser rolesInfo rotateCertificates saslContinue saslStart serverStatus \
         setClusterParameter setDefaultRWConcern setFeatureCompatibilityVersion setParameter setUserWriteBlockMode \
         shardCollection shutdown split startSession top update updateRole updateUser usersInfo validate whatsmyuri",
    ),
    (
        "Query operators",
        "$all $and $bitsAllClear $bitsAllSet $bitsAnyClear $bitsAnySet $comment $elemMatch $eq $exists $expr \
         $geoIntersects $geoWithin $gt $gte $in $jsonSchema $lt $lte $mod $ne $near $nearSphere $nin $nor $not $or \
         $regex $sampleRate $size $text $type $where",
    ),
    (
        "JSON Schema keywords",
        "additionalItems additionalProperties allOf anyOf bsonType dependencies description encrypt encryptMetadata \
         enum exclusiveMaximum exclusiveMinimum items maxItems maxLength maxProperties maximum minItems minLength \
         minProperties minimum multipleOf not oneOf pattern patternProperties properties required title type \
         uniqueItems",
    ),
    (
        "Update operators",
        "$addToSet $bit $currentDate $inc $max $min $mul $pop $pull $pullAll $push $rename $set $setOnInsert $unset",
    ),
    (
        "Aggregation stages",
        "$addFields $bucket $bucketAuto $changeStream $collStats $count $currentOp $densify $documents $facet $fill \
         $geoNear $graphLookup $group $indexStats $limit $listLocalSessions $listSessions $lookup $match $merge $out \
         $planCacheStats $project $redact $replaceRoot $replaceWith $sample $set $setWindowFields $skip $sort \
         $sortByCount $unionWith $unset $unwind",
    ),
    ("Index kinds", "2d 2dsphere hashed text"),
    (
        "Accumulators",
        "$addToSet $avg $bottom $bottomN $count $first $firstN $last $lastN $max $maxN $median $mergeObjects $min \
         $minN $percentile $push $stdDevPop $stdDevSamp $sum $top $topN",
    ),
    (
        "Window functions that are no accumulators",
        "$covariancePop $covarianceSamp $denseRank $derivative $documentNumber $expMovingAvg $integral $linearFill \
         $locf $minMaxScaler $rank $shift",
    ),
    (
        "Expressions",
        "$abs $acos $acosh $add $allElementsTrue $and $anyElementTrue $arrayElemAt $arrayToObject $asin $asinh $atan \
         $atan2 $atanh $avg $binarySize $bitAnd $bitNot $bitOr $bitXor $bsonSize $ceil $cmp $concat $concatArrays \
         $cond $convert $cos $cosh $createObjectId $dateAdd $dateDiff $dateFromParts $dateFromString $dateSubtract \
         $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $degreesToRadians $deserializeEJSON \
         $divide $eq $exp $filter $first $firstN $floor $getField $gt $gte $hash $hexHash $hour $ifNull $in \
         $indexOfArray $indexOfBytes $indexOfCP $isArray $isNumber $isoDayOfWeek $isoWeek $isoWeekYear $last $lastN \
         $let $literal $ln $log $log10 $lt $lte $ltrim $map $max $maxN $median $mergeObjects $meta $millisecond $min \
         $minN $minute $mod $month $multiply $ne $not $objectToArray $or $percentile $pow $radiansToDegrees $rand \
         $range $reduce $regexFind $regexFindAll $regexMatch $replaceAll $replaceOne $reverseArray $round $rtrim \
         $second $serializeEJSON $setDifference $setEquals $setField $setIntersection $setIsSubset $setUnion $sigmoid \
         $similarityCosine $similarityDotProduct $similarityEuclidean $sin $sinh $size $slice $sortArray $split $sqrt \
         $stdDevPop $stdDevSamp $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP $subtract $subtype \
         $sum $switch $tan $tanh $toArray $toBool $toDate $toDecimal $toDouble $toHashedIndexKey $toInt $toLong \
         $toLower $toObject $toObjectId $toString $toUUID $toUpper $trim $trunc $tsIncrement $tsSecond $type \
         $unsetField $week $year $zip",
    ),
];

/// `muniment docs`.
pub const COMMAND: Spec = Spec {
    name: "docs",
    arguments: "PAGE",
    about: "a generated page as Markdown: compatibility, options or parameters",
    page: || Page {
        head: "\
Prints a generated page as Markdown.

Usage: muniment docs compatibility|options|parameters

"
        .into(),
        offers: vec!["compatibility", "options", "parameters"],
        ..printed()
    },
    below: Vec::new,
    run: |args| {
        print(&COMMAND, &args, |words| match words {
            ["compatibility"] => Ok(compatibility()),
            ["options"] => Ok(options()),
            ["parameters"] => Ok(parameters()),
            _ => Err("the pages are: compatibility, options, parameters".to_string()),
        })
    },
};

/// The page of the server's options.
fn options() -> String {
    let mut page = "\
# Options of the server

Written by `cargo xtask docs` from the table of options: do not edit. Flags are the same for `muniment serve` and \
for the binary under the name `mongod`, which also takes `-dbpath` for `--dbpath`. Keys are those of the \
configuration file (`--config FILE`, YAML), and are what `getCmdLineOpts` shows. An option that is in none of these \
tables is an error that names it, with line and column if it is in a file. There are also the keys \
`setParameter.NAME` ([parameters.md](parameters.md)) and `systemLog.component.NAME.verbosity`.
"
    .to_string();
    type Belongs = fn(&Does) -> bool;
    let parts: [(&str, &str, Belongs); 3] = [
        ("Options that do what they say", "", |does| {
            matches!(does, Does::Sets(_))
        }),
        (
            "Options that are accepted and change nothing",
            "They are accepted so that MongoDB's configuration files and tools start the server unchanged. One line of \
             the log says that such an option was given.",
            |does| matches!(does, Does::Nothing(..)),
        ),
        (
            "Options that accept only some values",
            "Any other value is an error.",
            |does| matches!(does, Does::Only(..)),
        ),
    ];
    for (title, about, belongs) in parts {
        page += &format!("\n## {title}\n\n");
        if !about.is_empty() {
            page += &format!("{about}\n\n");
        }
        page += "| flag | key | |\n|---|---|---|\n";
        for o in flags::all().filter(|o| belongs(&o.does)) {
            let code = |text: String| match text.trim_matches('-') {
                "" => String::new(),
                _ => format!("`{text}`"),
            };
            let (flag, key) = (code(format!("--{}", o.flag.name)), code(o.path.to_string()));
            let doc = o
                .flag
                .about
                .trim_start_matches("no effect: ")
                .replace('|', "\\|");
            let values = match o.does {
                Does::Only(values, _) if !values.is_empty() => {
                    format!("only {}: ", values.join(", "))
                }
                _ => String::new(),
            };
            let doc = match doc.starts_with("only ") {
                true => doc,
                false => format!("{values}{doc}"),
            };
            page += &format!("| {flag} | {key} | {doc} |\n");
        }
    }
    page
}

/// The page of the server's parameters.
fn parameters() -> String {
    let mut page = "\
# Parameters of the server

Written by `cargo xtask docs` from the table of parameters: do not edit. A parameter is set at the start with \
`--setParameter NAME=VALUE` or the key `setParameter.NAME` of the configuration file, and at run time with \
`db.adminCommand({setParameter: 1, NAME: VALUE})`, as far as the second column says so. \
`db.adminCommand({getParameter: 1, NAME: 1})` shows its value, and `{getParameter: '*'}` those of all. A parameter \
that is not listed here is an error.

The third column is what a parameter may be, with the default in brackets. A default that follows from the size of \
the cache stands in the text, or is what `getParameter` shows.

| parameter | set | values | |
|---|---|---|---|
"
    .to_string();
    for p in muniment_server::parameters::ALL {
        let set = match (p.settable_at_startup(), p.settable_at_runtime()) {
            (true, true) => "at any time",
            (true, false) => "at the start",
            (false, true) => "at run time",
            (false, false) => "never",
        };
        let doc = p.doc.replace('|', "\\|");
        page += &format!("| `{}` | {set} | {} | {doc} |\n", p.name, p.values());
    }
    page
}

/// The entries of the registries for one kind: name → documentation; `None` means "known and refused".
fn known(kind: &str) -> BTreeMap<String, Option<String>> {
    let row = |name: &str, doc: &str| (name.to_string(), Some(doc.to_string()));
    match kind {
        "Commands" => muniment_server::registry()
            .iter()
            .map(|c| {
                let aliases = if c.aliases.is_empty() {
                    String::new()
                } else {
                    format!(" (also {})", c.aliases.join(", "))
                };
                row(c.name, &format!("{}{aliases}", c.doc))
            })
            .collect(),
        "Query operators" => filter::registry()
            .iter()
            .map(|o| (o.name.to_string(), o.supported.then(|| o.doc.to_string())))
            .collect(),
        "JSON Schema keywords" => filter::schema::registry()
            .iter()
            .map(|o| row(o.name, o.doc))
            .collect(),
        "Update operators" => update::registry()
            .iter()
            .map(|o| row(o.name, o.doc))
            .collect(),
        "Aggregation stages" => stage::registry()
            .iter()
            .map(|o| row(o.name, o.doc))
            .collect(),
        "Built-in roles" => builtin::all().map(|(role, doc)| row(role, doc)).collect(),
        "Index kinds" => muniment_storage::kinds::registry()
            .iter()
            .map(|o| row(o.name, o.doc))
            .collect(),
        "Accumulators" => stage::accumulators::registry()
            .iter()
            .map(|o| row(o.name, o.doc))
            .collect(),
        "Window functions that are no accumulators" => stage::window::registry()
            .iter()
            .map(|o| row(o.name, o.doc))
            .collect(),
        _ => expr::registry()
            .iter()
            .map(|o| row(o.name, o.doc))
            .collect(),
    }
}

fn compatibility() -> String {
    let mut page = String::from(
        "# What of MongoDB's surface works\n\n\
         Printed by `muniment docs compatibility` from the code's registries; do not edit. \
         Anything that is not listed is refused with an error that names it, never silently \
         ignored. \"Not yet\" are names of MongoDB's manual that no registry has: of MongoDB 8.0, \
         and of expressions up to 8.3.\n",
    );
    for (kind, names) in SURFACE {
        let mut rows = known(kind);
        let missing: Vec<&str> = names
            .split_whitespace()
            .filter(|n| !rows.get(*n).is_some_and(Option::is_some))
            .collect();
        rows.retain(|_, doc| doc.is_some());
        page += &format!("\n## {kind}\n\n| name | what it does |\n|---|---|\n");
        for (name, doc) in &rows {
            let doc = doc.as_deref().unwrap_or_default().replace('|', "\\|");
            page += &format!("| `{name}` | {doc} |\n");
        }
        if !missing.is_empty() {
            page += &format!("\nNot yet: {}.\n", quoted(&missing));
        }
    }
    page
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_is_on_the_page_once() {
        let page = super::options();
        for o in crate::flags::all() {
            let key = format!("| `{}` |", o.path);
            let name = o.flag.name;
            let flag = format!("| `--{name}` |");
            let lines = page.lines().filter(|l| {
                (name.is_empty() || l.starts_with(&flag)) && (o.path.is_empty() || l.contains(&key))
            });
            assert_eq!(lines.count(), 1, "{name} {}", o.path);
        }
    }

    #[test]
    fn every_parameter_is_on_the_page_once() {
        let page = super::parameters();
        for p in muniment_server::parameters::ALL {
            let begins = format!("| `{}` | ", p.name);
            let lines = page.lines().filter(|l| l.starts_with(&begins));
            assert_eq!(lines.count(), 1, "{}", p.name);
        }
        let kept = "| `ttlMonitorSleepSecs` | at any time | 1 or more (60) |";
        assert!(page.contains(kept), "{page}");
    }

    #[test]
    fn every_registered_name_is_on_the_page_and_nothing_is_both() {
        let page = super::compatibility();
        for (kind, names) in super::SURFACE {
            let known = super::known(kind);
            for name in names.split_whitespace() {
                let works = page.contains(&format!("| `{name}` |"));
                assert!(
                    works || page.contains(&format!("`{name}`")),
                    "{kind} {name}"
                );
                assert!(
                    !known.get(name).is_some_and(Option::is_some) || works,
                    "{kind} {name}"
                );
            }
        }
    }
}
