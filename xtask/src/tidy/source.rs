//! A Rust file in the form in which it is checked: its code without comments and literals, its comments
//! without code, and which of its lines are compiled only for tests.
//!
//! This is a lexer, not a parser: it knows where comments, literals and brackets begin and end, and from that
//! where an item ends. That is enough to cut out everything under `#[cfg(test)]`.

/// A file, split into its parts.
pub struct Source {
    /// The text with every byte of a comment or of a literal's content replaced by a space. Line ends stay,
    /// so offsets and lines are the same here and in the text.
    code: Vec<u8>,
    /// The comments in order.
    pub comments: Vec<Comment>,
    /// The byte ranges that are compiled only for tests, in order and without overlap.
    tests: Vec<(usize, usize)>,
    /// The offset of each line.
    lines: Vec<usize>,
    /// The files that `#[cfg(test)] mod NAME;` declares: `NAME`, and the file in a `#[path]`.
    pub test_modules: Vec<(String, Option<String>)>,
}

/// One line of a comment.
#[derive(Debug, PartialEq)]
pub struct Comment {
    /// Its line, from 0.
    pub line: usize,
    /// `//`, `///`, `//!` or `/*`.
    pub marker: &'static str,
    /// Whether there is only white space before it on its line.
    pub alone: bool,
    /// Its text, without the marker.
    pub text: String,
}

/// A function with a body.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`, from 0.
    pub line: usize,
    /// The number of lines from its `fn` to its closing brace, inclusive.
    pub length: usize,
}

impl Source {
    /// Splits a file into its parts.
    pub fn new(text: &str) -> Source {
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let mut source = Source {
            code: text.as_bytes().to_vec(),
            comments: Vec::new(),
            tests: Vec::new(),
            lines,
            test_modules: Vec::new(),
        };
        source.mask(text);
        source.find_tests(text);
        source
    }

    /// The number of lines of the file that are not compiled only for tests, including empty ones.
    pub fn production_lines(&self) -> usize {
        let all = self.lines.len() - usize::from(self.lines.last() == Some(&self.code.len()));
        (0..all).filter(|&n| !self.is_test(n)).count()
    }

    /// Whether a line (from 0) belongs to something that is compiled only for tests.
    pub fn is_test(&self, line: usize) -> bool {
        let at = self.lines.get(line).copied().unwrap_or(0);
        self.tests.iter().any(|&(from, to)| from <= at && at < to)
    }

    /// The code of the production part, without comments, contents of literals and tests.
    pub fn production_code(&self) -> String {
        let mut code = self.code.clone();
        for &(from, to) in &self.tests {
            blank(&mut code, from, to);
        }
        String::from_utf8_lossy(&code).into_owned()
    }

    /// The functions of the production part. A function in another one's body counts by itself and as part of
    /// the other.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some((from, to)) = self.word(at) {
            at = to;
            if &self.code[from..to] != b"fn" || self.is_test(self.line_of(from)) {
                continue;
            }
            // `fn(u8) -> u8` is a type, not a function.
            let Some((begin, end)) = self.word(to) else {
                break;
            };
            if !self.code[to..begin].iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let close = self.end_of_block(end);
            if self.code.get(close.saturating_sub(1)) == Some(&b'}') {
                let (line, last) = (self.line_of(from), self.line_of(close - 1));
                found.push(Function {
                    name: String::from_utf8_lossy(&self.code[begin..end]).into_owned(),
                    line,
                    length: last - line + 1,
                });
            }
        }
        found
    }

    /// The line (from 0) of a byte.
    fn line_of(&self, at: usize) -> usize {
        self.lines.partition_point(|&begin| begin <= at) - 1
    }

    /// The next identifier or keyword at or after `at`.
    fn word(&self, at: usize) -> Option<(usize, usize)> {
        let mut from = at;
        while from < self.code.len() && !is_word(self.code[from]) {
            from += 1;
        }
        let length = self.code[from..]
            .iter()
            .take_while(|&&b| is_word(b))
            .count();
        (length > 0).then_some((from, from + length))
    }

    /// Finds comments and literals, and blanks them in `code`.
    fn mask(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let end = match bytes[at] {
                b'/' if rest.starts_with(b"//") => {
                    let end = at + rest.iter().take_while(|&&b| b != b'\n').count();
                    self.comment(text, at, end);
                    blank(&mut self.code, at, end);
                    end
                }
                b'/' if rest.starts_with(b"/*") => {
                    let end = at + block_comment(rest);
                    self.comment(text, at, end);
                    blank(&mut self.code, at, end);
                    end
                }
                b'"' => {
                    let end = at + string(bytes, at);
                    blank(&mut self.code, at + 1, end - 1);
                    end
                }
                b'\'' => {
                    let end = at + character(&text[at..]);
                    if end > at + 1 {
                        blank(&mut self.code, at + 1, end - 1);
                    }
                    end
                }
                _ => at + 1,
            };
            at = end;
        }
    }

    /// Notes the lines of a comment.
    fn comment(&mut self, text: &str, from: usize, to: usize) {
        let marker = ["//!", "///", "//", "/*"]
            .into_iter()
            .find(|m| text[from..].starts_with(m))
            .unwrap_or("//");
        let first = self.line_of(from);
        let alone = text[self.lines[first]..from].trim().is_empty();
        let body = text[from + marker.len()..to].trim_end_matches("*/");
        for (n, line) in body.split('\n').enumerate() {
            self.comments.push(Comment {
                line: first + n,
                marker,
                alone: alone || n > 0,
                text: line.trim().to_owned(),
            });
        }
    }

    /// Finds everything under `#[cfg(test)]`, or under `all` with `test` in it.
    fn find_tests(&mut self, text: &str) {
        let mut at = 0;
        while let Some(found) = find(&self.code, at, b"#") {
            at = found + 1;
            let inner = self.code.get(at) == Some(&b'!');
            let open = at + usize::from(inner);
            if self.code.get(open) != Some(&b'[') {
                continue;
            }
            let close = self.matching(open);
            if !tests_alone(&text[open..close]) {
                continue;
            }
            if inner {
                // The attribute applies to the whole file, or (which does not occur here) to the rest of a
                // module.
                self.tests = vec![(0, self.code.len())];
                return;
            }
            let from = self.begin_of_item(text, found);
            let to = self.end_of_item(text, close);
            self.tests.push((from, to));
            at = to;
        }
    }

    /// The beginning of the item whose `#[cfg(test)]` is at `at`. Its doc comments and other attributes may
    /// come before that.
    fn begin_of_item(&self, text: &str, at: usize) -> usize {
        let mut line = self.line_of(at);
        if !text[self.lines[line]..at].trim().is_empty() {
            return at; // there is other code before it on its line
        }
        while line > 0 {
            let above = text[self.lines[line - 1]..self.lines[line]].trim();
            let belongs = above.starts_with("///")
                || (above.starts_with("#[") && above.ends_with(']'))
                || (above.starts_with("//") && !above.starts_with("//!"));
            if !belongs {
                break;
            }
            line -= 1;
        }
        self.lines[line]
    }

    /// The end of the item whose first attribute ends at `at`. The rest of the last line is included if
    /// nothing else is there.
    fn end_of_item(&mut self, text: &str, mut at: usize) -> usize {
        let mut path = None;
        // There may be further attributes.
        loop {
            at += self.white(at);
            if self.code.get(at) != Some(&b'#') || self.code.get(at + 1) != Some(&b'[') {
                break;
            }
            let close = self.matching(at + 1);
            if let Some(rest) = text[at..close].strip_prefix("#[path = \"") {
                path = rest.split('"').next().map(str::to_owned);
            }
            at = close;
        }
        let mut end = match self.kind_of_item(at) {
            Kind::Statement => self.end_of_statement(at),
            Kind::Block => {
                let end = self.end_of_block(at);
                self.note_module(at, end, path);
                end
            }
            Kind::Element => self.end_of_element(at),
        };
        let line_end = end + self.code[end..].iter().take_while(|&&b| b != b'\n').count();
        if self.code[end..line_end].iter().all(u8::is_ascii_whitespace) {
            end = (line_end + 1).min(self.code.len());
        }
        end
    }

    /// Notes the module if the item from `at` to `end` is `mod NAME;`.
    fn note_module(&mut self, at: usize, end: usize, path: Option<String>) {
        let item = String::from_utf8_lossy(&self.code[at..end]).into_owned();
        let name = item
            .strip_suffix(';')
            .and_then(|i| i.rsplit_once("mod "))
            .map(|(_, name)| name.trim().to_owned());
        self.test_modules.extend(name.map(|name| (name, path)));
    }

    /// The way in which an item that begins at `at` ends.
    fn kind_of_item(&self, mut at: usize) -> Kind {
        if self.code.get(at) == Some(&b'{') {
            return Kind::Block;
        }
        while let Some((from, to)) = self.word(at) {
            if !self.code[at..from].iter().all(u8::is_ascii_whitespace) {
                break;
            }
            at = to;
            match &self.code[from..to] {
                b"pub" => {
                    at += self.white(at);
                    if self.code.get(at) == Some(&b'(') {
                        at = self.matching(at);
                    }
                }
                b"unsafe" | b"async" | b"default" => {}
                b"extern" => {
                    // An ABI may follow, of which only the quotes are left.
                    at += self.white(at);
                    if self.code.get(at) == Some(&b'"') {
                        at += 1
                            + self.code[at + 1..]
                                .iter()
                                .take_while(|&&b| b != b'"')
                                .count()
                            + 1;
                    }
                }
                b"const" => match self.word(to) {
                    Some((f, t)) if matches!(&self.code[f..t], b"fn" | b"unsafe" | b"async") => {}
                    _ => return Kind::Statement,
                },
                b"let" | b"static" | b"use" | b"type" | b"crate" | b"return" => {
                    return Kind::Statement;
                }
                b"fn" | b"mod" | b"impl" | b"struct" | b"enum" | b"trait" | b"union" | b"if"
                | b"for" | b"while" | b"loop" | b"match" => return Kind::Block,
                _ => {
                    at += self.white(at);
                    return match self.code.get(at) {
                        Some(b'!') => Kind::Block, // a macro
                        _ => Kind::Element,
                    };
                }
            }
        }
        if self.code.get(at + self.white(at)) == Some(&b'{') {
            return Kind::Block;
        }
        Kind::Element
    }

    /// The position after the `;` that ends the statement at `at`.
    fn end_of_statement(&self, mut at: usize) -> usize {
        while at < self.code.len() {
            match self.code[at] {
                b';' => return at + 1,
                b'(' | b'[' | b'{' => at = self.matching(at),
                b')' | b']' | b'}' => return at,
                _ => at += 1,
            }
        }
        at
    }

    /// The position after the block that ends the item at `at`, or after the `;` in its place; for an `if`
    /// with `else`, after the last block.
    fn end_of_block(&self, mut at: usize) -> usize {
        while at < self.code.len() {
            match self.code[at] {
                b';' => return at + 1,
                b'(' | b'[' => at = self.matching(at),
                b')' | b']' | b'}' => return at,
                b'{' => {
                    at = self.matching(at);
                    let next = at + self.white(at);
                    if !self.code[next..].starts_with(b"else") {
                        return at;
                    }
                    at = next;
                }
                _ => at += 1,
            }
        }
        at
    }

    /// The position after the `,` or `;` that ends the field, variant, arm or statement at `at`, or before
    /// the closing bracket around it.
    fn end_of_element(&self, mut at: usize) -> usize {
        let mut angles = 0usize;
        let mut arm = false;
        // In `name: Type` angle brackets are brackets. Elsewhere they may be comparisons.
        let typed = {
            let mut colon = self.word(at).map_or(at, |(_, to)| to);
            if &self.code[at..colon.min(at + 3)] == b"pub" {
                colon += self.white(colon);
                if self.code.get(colon) == Some(&b'(') {
                    colon = self.matching(colon);
                }
                colon = self.word(colon).map_or(colon, |(_, to)| to);
            }
            self.code.get(colon) == Some(&b':') && self.code.get(colon + 1) != Some(&b':')
        };
        while at < self.code.len() {
            match self.code[at] {
                b'{' if arm => {
                    let end = self.matching(at);
                    let next = end + self.white(end);
                    return match self.code.get(next) {
                        Some(b',') => next + 1,
                        _ => end,
                    };
                }
                b'(' | b'[' | b'{' => {
                    at = self.matching(at);
                    continue;
                }
                b')' | b']' | b'}' => return at,
                b',' if angles == 0 => return at + 1,
                b';' => return at + 1,
                b'<' if typed => angles += 1,
                b'>' if typed && !matches!(self.code[at - 1], b'-' | b'=') => {
                    angles = angles.saturating_sub(1);
                }
                b'=' if self.code.get(at + 1) == Some(&b'>') => {
                    let body = at + 2 + self.white(at + 2);
                    arm = self.code.get(body) == Some(&b'{');
                    at = body;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        at
    }

    /// The position after the bracket that closes the one at `open`.
    fn matching(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (at, byte) in self.code.iter().enumerate().skip(open) {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        self.code.len()
    }

    /// The number of bytes of white space at `at`.
    fn white(&self, at: usize) -> usize {
        let rest = self.code.get(at..).unwrap_or_default();
        rest.iter().take_while(|b| b.is_ascii_whitespace()).count()
    }
}

/// The way in which an item ends.
enum Kind {
    /// With a `;`.
    Statement,
    /// With a block, or with a `;` in its place.
    Block,
    /// With a `,`, or with the closing bracket around it.
    Element,
}

/// Whether an attribute, from its `[`, makes the item after it compiled only for tests.
fn tests_alone(attribute: &str) -> bool {
    let bare: String = attribute.split_whitespace().collect();
    bare == "[cfg(test)]" || bare.starts_with("[cfg(all(test,")
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn find(code: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = code.get(from..)?;
    let at = rest.windows(what.len()).position(|w| w == what)?;
    Some(from + at)
}

fn blank(code: &mut [u8], from: usize, to: usize) {
    for byte in code.iter_mut().take(to).skip(from) {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// The length of the block comment at the beginning of `rest`. Such comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the string literal whose opening quote is at `at`, raw or not.
fn string(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[..at].iter().rev().take_while(|&&b| b == b'#').count();
    let before = &bytes[..at - hashes];
    let prefix = before.iter().rev().take_while(|&&b| is_word(b)).count();
    let raw = matches!(&before[before.len() - prefix..], b"r" | b"br" | b"cr");
    let rest = &bytes[at..];
    if raw {
        let mut end = vec![b'"'];
        end.resize(1 + hashes, b'#');
        return match find(rest, 1, &end) {
            Some(close) => close + end.len(),
            None => rest.len(),
        };
    }
    let mut n = 1;
    while n < rest.len() {
        match rest[n] {
            b'\\' => n += 2,
            b'"' => return n + 1,
            _ => n += 1,
        }
    }
    rest.len()
}

/// The length of the character literal at the beginning of `rest`, or 1 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The escaped character comes first, and may be a quote.
            let from = chars.nth(1).map_or(rest.len(), |(at, _)| at);
            from + rest[from..].find('\'').map_or(0, |at| at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
