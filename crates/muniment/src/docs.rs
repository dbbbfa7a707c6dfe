//! `muniment docs compatibility`: the page of commands, operators and stages with their state,
//! printed from the registries, so that it cannot say what the code does not do.

use muniment_query::{expr, filter, stage, update};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What a MongoDB 8 community server has, by kind: whatever no registry knows is "not yet".
/// Source: the manual's reference pages (names only).
const SURFACE: &[(&str, &str)] = &[
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
         $rand $regex $sampleRate $size $text $type $where",
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
         $cond $convert $cos $cosh $dateAdd $dateDiff $dateFromParts $dateFromString $dateSubtract $dateToParts \
         $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $degreesToRadians $divide $eq $exp $filter $first \
         $firstN $floor $getField $gt $gte $hour $ifNull $in $indexOfArray $indexOfBytes $indexOfCP $isArray \
         $isNumber $isoDayOfWeek $isoWeek $isoWeekYear $last $lastN $let $literal $ln $log $log10 $lt $lte $ltrim \
         $map $max $maxN $median $mergeObjects $meta $millisecond $min $minN $minute $mod $month $multiply $ne $not \
         $objectToArray $or $percentile $pow $radiansToDegrees $rand $range $reduce $regexFind $regexFindAll \
         $regexMatch $replaceAll $replaceOne $reverseArray $round $rtrim $second $setDifference $setEquals $setField \
         $setIntersection $setIsSubset $setUnion $sin $sinh $size $slice $sortArray $split $sqrt $stdDevPop \
         $stdDevSamp $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP $subtract $sum $switch $tan \
         $tanh $toBool $toDate $toDecimal $toDouble $toHashedIndexKey $toInt $toLong $toLower $toObjectId $toString \
         $toUUID $toUpper $trim $trunc $tsIncrement $tsSecond $type $unsetField $week $year $zip",
    ),
];

/// Runs `muniment docs ARGS…`.
pub fn main(page: Option<&str>) -> ExitCode {
    match page {
        Some("compatibility") => {
            print!("{}", compatibility());
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("muniment docs: the pages are: compatibility");
            ExitCode::from(super::BAD_OPTIONS)
        }
    }
}

/// What the registries hold of one kind: name → documentation; `None` is "known and refused".
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
         What is not here is an error that names it, never silence.\n",
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
