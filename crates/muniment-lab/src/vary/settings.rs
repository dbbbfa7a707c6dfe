//! `--vary KEY=VALUES…`: the settings that a run tries, and every combination of them.

use muniment_load::fail::{Failure, Result};

/// A setting and its values, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dimension {
    /// The key that is set.
    pub key: String,
    /// The values that it is set to.
    pub values: Vec<String>,
}

/// More combinations than this are taken for a mistake.
const MOST: usize = 200;

impl Dimension {
    /// Parses `KEY=V,V,…`; a value `A..B` of whole numbers stands for A, its doublings, and B.
    ///
    /// # Errors
    /// There are no values, the same value twice, or a range that is none.
    pub(crate) fn parse(text: &str) -> Result<Dimension> {
        let fail = |why: String| Err(Failure(format!("--vary {text}: {why}")));
        let Some((key, list)) = text.split_once('=') else {
            return fail("it must be KEY=VALUE,VALUE,…".into());
        };
        if key.is_empty() {
            return fail("the setting's name is missing".into());
        }
        let mut values: Vec<String> = Vec::new();
        for v in list.split(',') {
            let more = match v.split_once("..") {
                Some((a, b)) => match range(a, b) {
                    Some(all) => all,
                    None => {
                        return fail(format!(
                            "{v} is no range of whole numbers from a smaller to a larger one"
                        ));
                    }
                },
                None => vec![v.to_string()],
            };
            for v in more {
                if v.is_empty() {
                    return fail("a value is missing".into());
                }
                if values.contains(&v) {
                    return fail(format!("{v} is there twice"));
                }
                values.push(v);
            }
        }
        Ok(Dimension {
            key: key.to_string(),
            values,
        })
    }

    /// Its values as numbers, if all of them are.
    pub(crate) fn numbers(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|v| v.parse().ok()).collect()
    }
}

fn range(a: &str, b: &str) -> Option<Vec<String>> {
    let (a, b): (u64, u64) = (a.parse().ok()?, b.parse().ok()?);
    if a == 0 || a >= b {
        return None;
    }
    let mut out = Vec::new();
    let mut x = a;
    while x < b {
        out.push(x.to_string());
        x *= 2;
    }
    out.push(b.to_string());
    Some(out)
}

/// A value for each dimension.
pub(crate) type Setting = Vec<(String, String)>;

/// Makes every combination; the last dimension changes fastest.
///
/// # Errors
/// A setting is varied twice, or there are more combinations than anybody can mean.
pub(crate) fn combinations(dimensions: &[Dimension]) -> Result<Vec<Setting>> {
    for (i, d) in dimensions.iter().enumerate() {
        if dimensions.iter().take(i).any(|e| e.key == d.key) {
            return Err(Failure(format!(
                "--vary {}: it is varied twice; give all its values at once",
                d.key
            )));
        }
    }
    let count: usize = dimensions.iter().map(|d| d.values.len()).product();
    if count > MOST {
        return Err(Failure(format!(
            "--vary: {count} combinations are more than {MOST}; vary less at once"
        )));
    }
    let mut all = vec![Vec::new()];
    for d in dimensions {
        all = all
            .into_iter()
            .flat_map(|s: Setting| {
                d.values.iter().map(move |v| {
                    let mut s = s.clone();
                    s.push((d.key.clone(), v.clone()));
                    s
                })
            })
            .collect();
    }
    Ok(all)
}

/// The name of a setting, as in `w=1 j=true`.
pub(crate) fn name(setting: &[(String, String)]) -> String {
    let words: Vec<String> = setting.iter().map(|(k, v)| format!("{k}={v}")).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let d = Dimension::parse("w=0,1,majority").unwrap();
        assert_eq!(d.values, ["0", "1", "majority"]);
        assert_eq!(d.numbers(), None);
        let d = Dimension::parse("threads=1..48").unwrap();
        assert_eq!(d.values, ["1", "2", "4", "8", "16", "32", "48"]);
        let d = Dimension::parse("batch=1,10..30").unwrap();
        assert_eq!(d.numbers(), Some(vec![1.0, 10.0, 20.0, 30.0]));
    }

    #[test]
    fn every_combination_once() {
        let d = ["w=0,1", "j=false,true"].map(|t| Dimension::parse(t).unwrap());
        let all: Vec<String> = combinations(&d).unwrap().iter().map(|s| name(s)).collect();
        assert_eq!(
            all,
            ["w=0 j=false", "w=0 j=true", "w=1 j=false", "w=1 j=true"]
        );
        assert_eq!(combinations(&[]).unwrap(), [Vec::new()]);
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("threads", "must be KEY=VALUE"),
            ("=1", "name is missing"),
            ("w=", "a value is missing"),
            ("w=1,,2", "a value is missing"),
            ("w=1,1", "1 is there twice"),
            ("threads=8..1", "8..1 is no range"),
            ("threads=0..4", "no range"),
            ("w=a..b", "no range"),
        ] {
            let e = Dimension::parse(text).unwrap_err().0;
            assert!(e.contains(why), "{text}: {e}");
        }
        let twice = ["w=0", "w=1"].map(|t| Dimension::parse(t).unwrap());
        assert!(combinations(&twice).unwrap_err().0.contains("varied twice"));
        let many = [Dimension::parse("a=1..100000").unwrap(), {
            let all: Vec<String> = (0..30).map(|i| i.to_string()).collect();
            Dimension::parse(&format!("b={}", all.join(","))).unwrap()
        }];
        assert!(combinations(&many).unwrap_err().0.contains("combinations"));
    }
}
