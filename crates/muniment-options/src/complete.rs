//! Completions for shells, made from the tree of commands.
//!
//! Each script finds the command that the words before the cursor lead to. If an option before the
//! cursor needs a value, it offers the values. Otherwise it offers the command's options, if the word
//! begins with a hyphen or nothing else could follow; or else commands, words and files.

use crate::command::Command;
use crate::page::fold;
use crate::table::{Offers, Opt, Takes};
use std::fmt::Write;

/// Letters of a line in which names are listed.
const LINE: usize = 96;

/// The script for bash.
pub fn bash(program: &Command) -> String {
    let name = program.name;
    let (paths, cases) = (paths(program, " | "), cases(program, bash_case));
    format!(
        r#"# Completions of {name} for bash, written by '{name} completions bash'.
_{name}() {{
    local IFS=$' \t\n' at={name} cur=${{COMP_WORDS[COMP_CWORD]}} i
    local option=${{COMP_WORDS[COMP_CWORD - 1]}} options= words= files= value=
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${{COMP_WORDS[i]}}" in
            {paths}) at+=" ${{COMP_WORDS[i]}}" ;;
            *) break ;;
        esac
    done
    # The shell takes --name=value apart.
    if [[ $cur == '=' ]]; then
        cur=
    elif [[ $option == '=' ]]; then
        option=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    [[ $option == -[!-]?* ]] && option=-$option
    case $at in
{cases}    esac
    case $value in
        nothing) return ;;
        files) files=1 words= options= ;;
        ?*) words=$value files= options= ;;
    esac
    if [[ -z $value && ($cur == -* || -z $words$files) ]]; then
        words=$options files=
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    if [[ -n $files ]]; then
        IFS=$'\n'
        COMPREPLY+=($(compgen -f -- "$cur"))
        compopt -o filenames 2>/dev/null
    fi
}}
complete -F _{name} {name}
"#
    )
}

/// The script for zsh.
pub fn zsh(program: &Command) -> String {
    let name = program.name;
    let (paths, cases) = (paths(program, "|"), cases(program, zsh_case));
    format!(
        r#"#compdef {name}
# Completions of {name} for zsh, written by '{name} completions zsh'.
_{name}() {{
    local at={name} option=$words[CURRENT-1] files= value= i
    local -a options offered
    for ((i = 2; i < CURRENT; i++)); do
        case "$at $words[i]" in
            ({paths}) at+=" $words[i]" ;;
            (*) break ;;
        esac
    done
    if [[ $PREFIX == -*=* ]]; then
        option=${{PREFIX%%=*}}
        compset -P '*='
    fi
    [[ $option == -[^-]?* ]] && option=-$option
    case $at in
{cases}    esac
    case $value in
        (nothing) _message value ;;
        (files) _files ;;
        (?*) compadd -- ${{=value}} ;;
        (*)
            if [[ $PREFIX == -* || -z $offered$files ]]; then
                _describe -o option options
            else
                _describe word offered
                [[ -n $files ]] && _files
            fi ;;
    esac
}}
if [[ $funcstack[1] == _{name} ]]; then
    _{name} "$@"
else
    compdef _{name} {name}
fi
"#
    )
}

/// The script for fish.
pub fn fish(program: &Command) -> String {
    let name = program.name;
    let paths = paths(program, " ");
    let mut out = format!(
        r#"# Completions of {name} for fish, written by '{name} completions fish'.
function __{name}_at
    set -l at {name}
    for word in (commandline -opc)[2..]
        switch "$at $word"
            case {paths}
                set at "$at $word"
            case '*'
                break
        end
    end
    test "$at" = "$argv"
end
complete -c {name} -f
"#
    );
    for (at, command) in program.all() {
        let start = format!("complete -c {name} -n '__{name}_at {at}'");
        for (word, about) in command.words() {
            let _ = writeln!(out, "{start} -a {word}{}", described(about));
        }
        if command.page.files {
            let _ = writeln!(out, "{start} -F");
        }
        for o in command.page.options() {
            let _ = writeln!(out, "{start}{}{}", fish_option(o), described(o.about));
        }
    }
    out
}

fn fish_option(o: &Opt) -> String {
    let mut out = match (o.name.chars().count(), o.one_hyphen) {
        (1, _) => format!(" -s {}", o.name),
        (_, true) => format!(" -o {}", o.name),
        (_, false) => format!(" -l {}", o.name),
    };
    if let Some(c) = o.letter {
        let _ = write!(out, " -s {c}");
    }
    match o.offers {
        _ if !o.needs_value() => {}
        Offers::Nothing | Offers::Words([]) => out.push_str(" -x"),
        Offers::Files => out.push_str(" -r -F"),
        Offers::Words(words) => {
            let _ = write!(out, " -x -a {}", quoted(&words.join(" ")));
        }
    }
    out
}

fn described(about: &str) -> String {
    match about {
        "" => String::new(),
        about => format!(" -d '{}'", about.replace('\\', r"\\").replace('\'', r"\'")),
    }
}

/// The words that lead to each command below the program, as patterns of a `case`.
fn paths(program: &Command, between: &str) -> String {
    let all = program.all();
    let below = all.iter().skip(1).map(|(at, _)| quoted(at));
    below.collect::<Vec<_>>().join(between)
}

/// A branch for each command.
fn cases(program: &Command, case: fn(&str, &Command) -> String) -> String {
    let all = program.all().into_iter();
    all.map(|(at, command)| case(&at, command)).collect()
}

fn bash_case(at: &str, command: &Command) -> String {
    let words: Vec<&str> = command.words().into_iter().map(|(w, _)| w).collect();
    let forms = command.page.options().flat_map(Opt::forms);
    let options: Vec<String> = forms.collect();
    let mut out = format!("        {})\n", quoted(at));
    let mut set = |name: &str, value: String| {
        if !value.is_empty() {
            let lines = fold(&value, LINE).join("\n                ");
            let _ = writeln!(out, "            {name}={}", quoted(&lines));
        }
    };
    set("words", words.join(" "));
    set("options", options.join(" "));
    set("files", if command.page.files { "1" } else { "" }.into());
    out + &values(command, "") + "            ;;\n"
}

fn zsh_case(at: &str, command: &Command) -> String {
    let mut out = format!("        ({})\n", quoted(at));
    let mut set = |name: &str, all: Vec<(String, &str)>| {
        if all.is_empty() {
            return;
        }
        let _ = writeln!(out, "            {name}=(");
        for (word, about) in all {
            let word = word.replace(':', "\\:");
            let line = format!("{word}:{about}");
            let line = line.trim_end_matches(':');
            let _ = writeln!(out, "                {}", quoted(line));
        }
        let _ = writeln!(out, "            )");
    };
    let words = command.words().into_iter();
    set(
        "offered",
        words.map(|(w, about)| (w.to_string(), about)).collect(),
    );
    let options = command.page.options();
    let forms = options.flat_map(|o| o.forms().into_iter().map(|form| (form, o.about)));
    set("options", forms.collect());
    if command.page.files {
        out.push_str("            files=1\n");
    }
    out + &values(command, "(") + "            ;;\n"
}

/// A `case` on the option before the cursor that says what its value may be. `open` begins each pattern,
/// because zsh wants a parenthesis there. The scripts give every name of several letters two hyphens
/// before they come here, so the patterns have two as well, however the option was written.
fn values(command: &Command, open: &str) -> String {
    let mut branches: Vec<(String, Vec<String>)> = Vec::new();
    for o in command.page.options().filter(|o| o.needs_value()) {
        let value = match o.offers {
            Offers::Nothing | Offers::Words([]) => "nothing".to_string(),
            Offers::Files => "files".to_string(),
            Offers::Words(words) => words.join(" "),
        };
        let long = |form: String| match form.len() > 2 && !form.starts_with("--") {
            true => format!("-{form}"),
            false => form,
        };
        let forms = o.forms().into_iter().map(long);
        match branches.iter_mut().find(|(v, _)| *v == value) {
            Some((_, all)) => all.extend(forms),
            None => branches.push((value, forms.collect())),
        }
    }
    if branches.is_empty() {
        return String::new();
    }
    let mut out = "            case $option in\n".to_string();
    for (value, forms) in branches {
        let lines = fold(&forms.join("| "), LINE).join("\\\n                ");
        let forms = lines.replace("| ", "|");
        let _ = writeln!(
            out,
            "                {open}{forms}) value={} ;;",
            quoted(&value)
        );
    }
    out + "            esac\n"
}

/// The text in single quotes, so that a shell takes it as one word and expands nothing in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Opt {
    /// Whether a value has to follow.
    fn needs_value(&self) -> bool {
        !matches!(self.takes, Takes::Nothing | Takes::Page | Takes::Repeats(_))
    }

    /// Every form of it: its name with its hyphens, and its letter.
    fn forms(&self) -> Vec<String> {
        let letter = self.letter.map(|c| format!("-{c}"));
        std::iter::once(self.shown()).chain(letter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Group, Page};
    use crate::table::HELP;

    fn tool() -> Command {
        const OPTIONS: &[Opt] = &[
            Opt::path("out", "DIR", "where it's put"),
            Opt::new(
                "preset",
                "NAME",
                Takes::OneOf(&["small", "large"]),
                "how much",
            ),
            Opt::text("threads", "N", "how many").one_hyphen(),
            Opt::text("p", "NAME=VALUE", "a property"),
            HELP,
        ];
        let run = Command {
            name: "run",
            about: "runs a file",
            page: Page {
                groups: vec![Group::untitled(OPTIONS)],
                offers: vec!["first"],
                files: true,
                ..Page::default()
            },
            below: Vec::new(),
        };
        Command {
            name: "tool",
            below: vec![run],
            ..Command::default()
        }
    }

    #[test]
    fn fish_has_a_line_for_each_word_and_option() {
        let script = fish(&tool());
        let lines: Vec<&str> = script
            .lines()
            .filter_map(|l| l.strip_prefix("complete -c tool -n '__tool_at tool"))
            .collect();
        assert_eq!(
            lines,
            [
                "' -a run -d 'runs a file'",
                " run' -a first",
                " run' -F",
                r" run' -l out -r -F -d 'where it\'s put'",
                " run' -l preset -x -a 'small large' -d 'how much'",
                " run' -o threads -x -d 'how many'",
                " run' -s p -x -d 'a property'",
                " run' -l help -s h -d 'this text'",
            ]
        );
    }

    #[test]
    fn bash_and_zsh_have_a_branch_for_each_command() {
        let branch = bash_case("tool run", &tool().below[0]);
        let wanted = "        'tool run')
            words='first'
            options='--out --preset -threads -p --help -h'
            files='1'
            case $option in
                --out) value='files' ;;
                --preset) value='small large' ;;
                --threads|-p) value='nothing' ;;
            esac
            ;;
";
        assert_eq!(branch, wanted);
        let branch = zsh_case("tool run", &tool().below[0]);
        assert!(branch.contains("'first'\n"), "{branch}");
        assert!(branch.contains(r"'--out:where it'\''s put'"), "{branch}");
        assert!(
            branch.contains("(--threads|-p) value='nothing' ;;"),
            "{branch}"
        );
        assert!(branch.contains("files=1\n"), "{branch}");
    }
}
