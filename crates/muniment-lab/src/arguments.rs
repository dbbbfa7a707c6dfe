//! Hides the passwords on the lab's own command line from other users of the machine.

/// Overwrites the passwords among the arguments of this process, which `ps` and `/proc` show to
/// everybody. Only for a moment after the start can they be seen. Does nothing where the system does
/// not let a process change what is shown of it.
pub(crate) fn hide() {
    #[cfg(target_os = "linux")]
    // A failure leaves the command line as every program has it.
    let _ = linux::hide();
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::uri::secrets;
    use std::fs::File;
    use std::io::Result;
    use std::os::unix::fs::FileExt;

    /// The positions, in `/proc/self/stat`, of the addresses at which the arguments begin and end,
    /// counted from the field after the program's name.
    const BEGIN: usize = 45;
    const END: usize = 46;

    pub(super) fn hide() -> Result<()> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        // The name is in parentheses and may have spaces.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |s| s.1)
            .split_whitespace()
            .collect();
        let address = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok());
        let (Some(begin), Some(end)) = (address(BEGIN), address(END)) else {
            return Ok(());
        };
        let memory = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/mem")?;
        let mut all = vec![0; end.saturating_sub(begin) as usize];
        memory.read_exact_at(&mut all, begin)?;
        let mut at = begin;
        for argument in all.split(|b| *b == 0) {
            let text = std::str::from_utf8(argument).unwrap_or_default();
            for secret in secrets(text) {
                let stars = vec![b'*'; secret.len()];
                memory.write_all_at(&stars, at + secret.start as u64)?;
            }
            at += argument.len() as u64 + 1;
        }
        Ok(())
    }
}
