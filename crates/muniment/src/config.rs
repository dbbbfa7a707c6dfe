//! The configuration file: the part of YAML that mongod's files use. Maps by indentation,
//! scalars with or without quotes, comments.
//!
//! Invariant: what is not understood is an error with its line, never skipped.

/// The file's scalars as (dotted key, value), in order.
///
/// # Errors
/// A message that names the line.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut out: Vec<(String, String)> = Vec::new();
    // Open maps: indentation and dotted key.
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut map_without_children: Option<(usize, usize)> = None;
    for (i, raw) in text.lines().enumerate() {
        let n = i + 1;
        let line = strip_comment(raw);
        let body = line.trim_start_matches(' ');
        let body = body.trim_end();
        if body.is_empty() || body == "---" || body == "..." {
            continue;
        }
        if body.starts_with('\t') {
            return Err(format!("line {n}: tabs may not indent"));
        }
        if body.starts_with("- ") || body.starts_with(['[', '{', '&', '*', '|', '>']) {
            return Err(format!("line {n}: only maps and scalars are supported"));
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        if let Some((at, parent)) = map_without_children.take()
            && indent <= parent
        {
            return Err(format!("line {at}: a key without a value"));
        }
        while open.last().is_some_and(|(deep, _)| *deep >= indent) {
            open.pop();
        }
        let (key, value) =
            split_key(body).ok_or_else(|| format!("line {n}: expected 'key: value'"))?;
        let dotted = match open.last() {
            Some((_, parent)) => format!("{parent}.{key}"),
            None if indent == 0 => key.to_string(),
            None => return Err(format!("line {n}: unexpected indentation")),
        };
        if value.is_empty() {
            open.push((indent, dotted));
            map_without_children = Some((n, indent));
            continue;
        }
        if value.starts_with(['[', '{', '&', '*', '|', '>']) {
            return Err(format!("line {n}: only maps and scalars are supported"));
        }
        if out.iter().any(|(k, _)| *k == dotted) {
            return Err(format!("line {n}: {dotted} is given twice"));
        }
        out.push((dotted, scalar(value, n)?));
    }
    match map_without_children {
        Some((at, _)) => Err(format!("line {at}: a key without a value")),
        None => Ok(out),
    }
}

/// `key: value`; a key may be quoted.
fn split_key(body: &str) -> Option<(&str, &str)> {
    let (key, value) = match body.split_once(": ") {
        Some(kv) => kv,
        None => (body.strip_suffix(':')?, ""),
    };
    let key = key.trim().trim_matches(['"', '\'']);
    (!key.is_empty()).then_some((key, value.trim()))
}

/// Cuts a comment off: `#` at the start or after a space, outside quotes.
fn strip_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') if before == ' ' => return line.get(..at).unwrap_or(line),
            _ => {}
        }
        before = c;
    }
    line
}

fn scalar(value: &str, line: usize) -> Result<String, String> {
    for q in ['"', '\''] {
        if let Some(rest) = value.strip_prefix(q) {
            return rest
                .strip_suffix(q)
                .map(str::to_string)
                .ok_or_else(|| format!("line {line}: a quote does not end"));
        }
    }
    Ok(match value {
        "yes" | "on" | "True" | "TRUE" => "true".to_string(),
        "no" | "off" | "False" | "FALSE" => "false".to_string(),
        v => v.to_string(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::parse;

    #[test]
    fn mongods_files() {
        let text = "\
# comment
storage:
  dbPath: \"/a b\"   # where
  journal:
      commitIntervalMs: 20
net:
    port: 1
    bindIp: 127.0.0.1,::1
    unixDomainSocket:
        enabled: no
setParameter:
  enableTestCommands: 1
";
        let got = parse(text).unwrap();
        let got: Vec<_> = got.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            got,
            [
                ("storage.dbPath", "/a b"),
                ("storage.journal.commitIntervalMs", "20"),
                ("net.port", "1"),
                ("net.bindIp", "127.0.0.1,::1"),
                ("net.unixDomainSocket.enabled", "false"),
                ("setParameter.enableTestCommands", "1"),
            ]
        );
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for bad in [
            "a",
            "a:\n",
            "a: [1]",
            "- a",
            "\ta: 1",
            "a: 1\na: 2",
            "  a: 1",
            "a: \"x",
            "a:\nb: 1",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse("").unwrap().is_empty());
    }
}
