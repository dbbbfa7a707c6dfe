//! The manual page of a program, made from the tree of its commands, in the macros of man(7).

use crate::command::Command;
use crate::page::Group;
use crate::table::Opt;
use std::fmt::Write;

/// The page as a whole, in section 1, with `version` in its footer.
pub fn man(program: &Command, version: &str) -> String {
    let name = program.name;
    let mut out = format!(
        ".\\\" Written by '{name} man'.\n.TH {} 1 \"\" {} \"User Commands\"\n",
        name.to_uppercase(),
        quoted(&format!("{name} {version}"))
    );
    let _ = writeln!(out, ".SH NAME\n{} \\- {}", text(name), text(program.about));
    for (words, command) in program.all() {
        let heading = match command.name == name {
            true => "SYNOPSIS".to_string(),
            false => words.to_uppercase(),
        };
        let _ = writeln!(out, ".SH {}", quoted(&heading));
        if command.page.head.is_empty() {
            let _ = writeln!(out, "{}.", line(&text(&capitalized(command.about))));
        }
        verbatim(&mut out, &command.page.head);
        for group in &command.page.groups {
            options(&mut out, group);
        }
        verbatim(&mut out, &command.page.foot);
    }
    out
}

fn options(out: &mut String, group: &Group) {
    if !group.title.is_empty() {
        let _ = writeln!(out, ".SS {}", quoted(group.title));
    }
    for o in group.options.iter().filter(|o| !o.name.is_empty()) {
        let _ = writeln!(out, ".TP\n{}\n{}", tag(o), line(&text(o.about)));
    }
    verbatim(out, group.note);
}

/// `-h, --help`, with the name of the value in italics.
fn tag(o: &Opt) -> String {
    let letter = o.letter.map(|c| format!("-{c}"));
    let forms = letter.into_iter().chain([o.shown()]);
    let forms: Vec<String> = forms.map(|f| format!("\\fB{}\\fR", text(&f))).collect();
    let value = match o.value {
        "" => String::new(),
        value => format!(" \\fI{}\\fR", text(value)),
    };
    forms.join(", ") + &value
}

/// Appends text whose line breaks and spaces stay as they are.
fn verbatim(out: &mut String, lines: &str) {
    let lines = lines.trim_matches('\n');
    if lines.is_empty() {
        return;
    }
    out.push_str(".PP\n.nf\n");
    for l in lines.lines() {
        let _ = writeln!(out, "{}", line(&text(l)));
    }
    out.push_str(".fi\n");
}

fn capitalized(about: &str) -> String {
    let mut letters = about.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// Keeps the formatter from taking the line for a request: a full stop or an apostrophe at its start
/// would make it one, and the line would vanish from the page.
fn line(text: &str) -> String {
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text.to_string(),
    }
}

/// An argument of a macro.
fn quoted(words: &str) -> String {
    format!("\"{}\"", text(words).replace('"', "\\(dq"))
}

/// The text in ASCII, with every letter escaped that means something to the formatter.
fn text(words: &str) -> String {
    let mut out = String::new();
    for c in words.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            // A plain `-` may be set as a typographic hyphen, and a command line copied from the page
            // would then not work.
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            c if c.is_ascii() => out.push(c),
            c => {
                let _ = write!(out, "\\[u{:04X}]", u32::from(c));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Page;
    use crate::table::HELP;

    #[test]
    fn a_command_is_a_section() {
        const OPTIONS: &[Opt] = &[Opt::path("out", "DIR", "'where' it goes: a\\b"), HELP];
        let run = Command {
            name: "run",
            about: "runs it",
            page: Page {
                head: "Runs … twice.\n\n.dots\n\n".into(),
                groups: vec![Group::new("Options", OPTIONS).note("A note.\n")],
                ..Page::default()
            },
            below: Vec::new(),
        };
        let list = Command {
            name: "list",
            about: "lists what's there",
            ..Command::default()
        };
        let tool = Command {
            name: "tool",
            about: "a well-made \"tool\"",
            page: Page {
                head: "  tool run\n".into(),
                ..Page::default()
            },
            below: vec![run, list],
        };
        let wanted = r#".\" Written by 'tool man'.
.TH TOOL 1 "" "tool 1.0" "User Commands"
.SH NAME
tool \- a well\-made "tool"
.SH "SYNOPSIS"
.PP
.nf
  tool run
.fi
.SH "TOOL RUN"
.PP
.nf
Runs \[u2026] twice.

\&.dots
.fi
.SS "Options"
.TP
\fB\-\-out\fR \fIDIR\fR
\(aqwhere\(aq it goes: a\eb
.TP
\fB\-h\fR, \fB\-\-help\fR
this text
.PP
.nf
A note.
.fi
.SH "TOOL LIST"
Lists what\(aqs there.
"#;
        assert_eq!(man(&tool, "1.0"), wanted);
    }
}
