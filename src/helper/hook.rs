//! The hook: its command lines, environment and user.

use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use nix::unistd::geteuid;

use super::{FailedStep, Runnable, in_step};
use crate::errno::Errno;
use crate::options::Config;
use crate::start::privileges::RunAs;
use crate::start::program::{check_interpreter, may_execute, read_head};
use crate::start::{passwd, privileges, trust};
use crate::wire::helper::{CommandResult, HOOK_PERIOD, HookRun, HookState};

/// A command line, which no shell interprets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommand {
    /// The absolute path.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// It also gets the arguments of keepalived's `notify`.
    pub is_notify: bool,
}

#[derive(Debug)]
pub struct Hook<'a> {
    config: &'a Config,
    /// The states of the last run and of the one before, repeated runs aside.
    states: [Option<HookState>; 2],
    /// The commands that have yet to succeed for the state.
    rest: Vec<&'a HookCommand>,
    /// The position of the next of them in this run.
    position: usize,
}

/// Checks that a hook is a file, and to run it as root, that only root can replace it.
fn check(program: &Path) -> Result<(), Errno> {
    if !fs::metadata(program)?.is_file() {
        return Err(NixErrno::EACCES.into());
    }
    let is_safe = !geteuid().is_root() || trust::is_safe(program);
    if is_safe { Ok(()) } else { Err(NixErrno::EPERM.into()) }
}

/// Returns the first bytes of a script, which its interpreter reads, not the kernel. An empty file is a script, too.
fn head_of_script(program: &Path) -> Option<[u8; 4]> {
    let mut head = [0; 4];
    read_head(program, &mut head).ok()?;
    Some(head).filter(|head| head != b"\x7fELF")
}

/// Returns whether this is a text without `#!`, which shells run themselves, and so does keepalived.
fn lacks_interpreter(program: &Path) -> bool {
    head_of_script(program).is_some_and(|head| !head.starts_with(b"#!"))
}

impl<'a> Hook<'a> {
    pub fn new(config: &'a Config) -> Self {
        Self { config, states: [None; 2], rest: Vec::new(), position: 0 }
    }

    /// Returns the commands of a state, in keepalived's order.
    fn commands(&self, state: HookState) -> impl Iterator<Item = &'a HookCommand> + use<'a> {
        let [master, backup, fault] = self.config.hooks_of_states();
        let own = match state {
            HookState::Master => master,
            HookState::Backup => backup,
            HookState::Fault => fault,
        };
        [own, self.config.hook.as_ref()].into_iter().flatten()
    }

    /// Builds a command. keepalived's priority is unknown, and so 0.
    fn command(&self, command: &HookCommand, state: HookState) -> Result<Command, CommandResult> {
        let Config { router_id, interface, vip, hook_env, .. } = self.config;
        check(&command.program).map_err(CommandResult::NotStarted)?;
        let mut run = if lacks_interpreter(&command.program) {
            let mut shell = Command::new("/bin/sh");
            shell.arg(&command.program);
            shell
        } else {
            Command::new(&command.program)
        };
        run.args(&command.arguments);
        if command.is_notify {
            run.args(["INSTANCE", router_id.as_str(), state.word(), "0"]);
        }
        run.env_clear().env("PATH", self.config.hook_path());
        run.envs(hook_env.iter().filter_map(|name| Some((name, env::var_os(name)?))));
        run.env("KEEPWATCH_ROUTER_ID", router_id.as_str());
        run.env("KEEPWATCH_INTERFACE", OsStr::from_bytes(interface.as_bytes()));
        run.env("KEEPWATCH_VIP", vip.to_string());
        run.env("KEEPWATCH_STATE", state.word());
        if let [_, Some(previous)] = self.states {
            run.env("KEEPWATCH_PREVIOUS", previous.word());
        }
        run.stdin(Stdio::null());
        Ok(run)
    }
}

impl Runnable for Hook<'_> {
    type Request = HookRun;

    const PROCESS: &'static CStr = c"keepwatch-hook";
    const PERIOD: Duration = Duration::from_secs(HOOK_PERIOD);

    /// Becomes the hook's user for good, and checks that the hook can be run.
    fn prepare(&self) -> Result<(), FailedStep<'static>> {
        let identity @ RunAs { user, group } = self.config.run_hook_as();
        let groups = group.map(|group| passwd::groups(user.unwrap_or(geteuid()), group));
        let groups = groups.transpose().map_err(in_step("groups of its user"))?.unwrap_or_default();
        let programs = self.config.hooks().map(|command| &*command.program);
        let scripts: Vec<_> = programs.filter(|path| head_of_script(path).is_some()).collect();
        privileges::become_hook_user(identity, &groups).map_err(in_step("becoming its user"))?;
        // Its standard input.
        fs::metadata("/dev/null").map_err(in_step("/dev/null"))?;
        let path = self.config.hook_path();
        let check = |HookCommand { program, .. }: &HookCommand| {
            check(program).map_err(in_step(""))?;
            may_execute(program).map_err(in_step(""))?;
            check_interpreter(program, &path).map_err(|(_, errno)| ("interpreter", errno))
        };
        self.config.hooks().try_for_each(check)?;
        let read = |script: &&Path| read_head(script, &mut [0]).map(drop);
        scripts.iter().try_for_each(read).map_err(in_step(""))
    }

    fn limit(run: &HookRun) -> Duration {
        Duration::from_millis(run.limit.into())
    }

    /// Builds the next command. A run that repeats a failed one has the same arguments, and omits commands that have
    /// succeeded.
    fn next(
        &mut self,
        run: &HookRun,
        last: Option<CommandResult>,
    ) -> Option<Result<Command, CommandResult>> {
        let [state, _] = self.states;
        match last {
            Some(CommandResult::Exited(0)) => drop(self.rest.remove(self.position)),
            Some(_) => self.position += 1,
            None => {
                self.position = 0;
                if state != Some(run.state) {
                    self.states = [Some(run.state), state];
                    self.rest.clear();
                }
                if run.anew || self.rest.is_empty() {
                    self.rest = self.commands(run.state).collect();
                }
            }
        }
        let command = *self.rest.get(self.position)?;
        Some(self.command(command, run.state))
    }
}
