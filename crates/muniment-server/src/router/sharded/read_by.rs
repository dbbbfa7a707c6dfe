//! Which collections stages read.

use muniment_value::Doc;

/// The names of the other collections that stages read.
pub fn read_by(pipeline: Doc<'_>, names: &mut Vec<String>) {
    for stage in pipeline.values().filter_map(|v| v.as_doc()?.first()) {
        let operand = stage.value().as_doc().unwrap_or(Doc::EMPTY);
        let inner = operand.get_array("pipeline").unwrap_or(Doc::EMPTY);
        let from = match stage.name() {
            "$lookup" | "$graphLookup" => operand.get_str("from"),
            "$unionWith" => stage.value().as_str().or(operand.get_str("coll")),
            "$facet" => {
                for part in operand.iter().filter_map(|e| e.value().as_array()) {
                    read_by(part, names);
                }
                continue;
            }
            _ => continue,
        };
        names.extend(from.map(str::to_string));
        read_by(inner, names);
    }
}
