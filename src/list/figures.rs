//! The metrics file of an instance.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::fcntl::OFlag;

use super::process::{Process, inode, read};
use super::table::show_second;
use super::{Remarks, Verdict};
use crate::errno::Errno;
use crate::options::HOOKS;

/// A metrics file, and the labels of each sample in it.
pub(super) struct Figures {
    text: String,
    /// The Unix time of the last write.
    written: i64,
    labels: String,
}

impl Figures {
    pub(super) fn new(labels: String) -> Self {
        Self { text: String::new(), written: 0, labels }
    }

    pub(super) fn read(&mut self, process: &Process, path: &str) -> Result<(), Errno> {
        let file = process.open(path, OFlag::O_NOFOLLOW)?;
        (self.text, self.written) = (read(&file, process.user)?, file.metadata()?.mtime());
        Ok(())
    }

    /// Returns whether the file has no sample of this instance.
    pub(super) fn are_foreign(&self) -> bool {
        !self.text.contains(&format!("{{{}", self.labels))
    }

    /// Returns a remark if the state file has another state. Old figures cannot be told by their age alone, as only a
    /// change writes them.
    pub(super) fn contradict(&self, state: Option<&str>) -> Option<(Verdict, String)> {
        let is_active = self.value("active")? != 0;
        let written = show_second(&self.written.to_string());
        let remark = format!("the metrics have another state, of {written}");
        (is_active != (state? != "backup")).then_some((Verdict::Critical, remark))
    }

    /// Returns the cells of SINCE, VERSION, AGENT, HOOK and SPLIT BRAIN.
    pub(super) fn show(
        &self,
        process: &Process,
        counts: bool,
        remarks: &mut Remarks,
    ) -> [Option<String>; 5] {
        for labels in self.further_labels("trouble") {
            let Some((severity, text)) = labels.split_once(r#"",trouble=""#) else { continue };
            let is_critical = severity == r#"severity="critical"#;
            let text = text.strip_suffix('"').unwrap_or(text);
            let text = text.replace(r#"\""#, "\"").replace(r"\\", r"\");
            remarks.push((if is_critical { Verdict::Critical } else { Verdict::Warning }, text));
        }
        if process.is_replaced {
            remarks.push((Verdict::Warning, "program was replaced: restart the instance".into()));
        }
        let mut either = |name, [no, yes]: [&str; 2], verdict| {
            let is_yes = self.value(name)? != 0;
            remarks.push((if is_yes { verdict } else { Verdict::Ok }, String::new()));
            Some(String::from(if is_yes { yes } else { no }))
        };
        let mut delivered =
            |options: &[&str], name| match options.iter().find_map(|option| process.option(option))
            {
                Some(_) => either(name, ["delivered", "pending"], Verdict::Warning),
                None => Some("none".into()),
            };
        let (agent, hook) =
            (delivered(&["--state-path"], "undelivered"), delivered(&HOOKS, "hook_pending"));
        let split_brain = either("split_brain", ["no", "yes"], Verdict::Critical);
        let since = self.value("last_change_timestamp_seconds").filter(|time| *time > 0);
        let label = self.further_labels("build_info").next();
        let written = label.and_then(|label| label.strip_prefix("version=\"")?.strip_suffix('"'));
        let own = || {
            let program = |pid: &str| inode(fs::metadata(format!("/proc/{pid}/exe")));
            let is_own = program(&process.pid.to_string()) == program("self");
            is_own.then_some(env!("CARGO_PKG_VERSION"))
        };
        // A stranger's file system may never answer.
        let version = written.or_else(|| counts.then(own)?).map(String::from);
        [since.map(|since| since.to_string()), version, agent, hook, split_brain]
    }

    fn value(&self, name: &str) -> Option<i64> {
        let sample = format!("keepwatch_{name}{{{}}} ", self.labels);
        self.text.lines().find_map(|line| line.strip_prefix(&sample)?.parse().ok())
    }

    /// Returns the further labels of the samples of this name whose value is 1.
    fn further_labels(&self, name: &str) -> impl Iterator<Item = &str> {
        let begin = format!("keepwatch_{name}{{{},", self.labels);
        self.text.lines().filter_map(move |line| line.strip_prefix(&*begin)?.strip_suffix("} 1"))
    }
}
