//! Promises 3 and 6 at each system call of a whole life: one that fails has no consequence, or one that shows, and a kill
//! leaves nothing behind. `FAULTS=all` tries every place, and any other text those that contain it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};
use std::{env, mem};

use keepwatch::wire::arp::{self, Operation};
use lab::PATIENCE;
use lab::capture::Capture;
use lab::faults::{Fault, Traced, trace};
use lab::files::{Directory, content, write_program};
use lab::namespace::{Netns, mount_tmpfs, unbind};
use lab::users::{NOBODY, has_others};
#[expect(clippy::wildcard_imports, reason = "a table of errors and calls")]
use nix::libc::*;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;

use crate::privileges::setup_of_nobody;
use crate::state_file::hidden;
use crate::world::{World, add_interface, setup, word};

/// Errors that manual pages name, each with the calls that return them here. Those that say something of the world, such as
/// ENOENT, are no faults. The C libraries differ in what they call.
const ERRORS: &[(&[c_int], &[c_long])] = &[
    // Of the EIO of a directory, the standard library panics.
    (&[EINTR], &[SYS_close, SYS_wait4]),
    (&[EINTR, EIO], &[SYS_ftruncate, SYS_pread64, SYS_read]),
    (&[EINTR, EIO, ENOSPC], &[SYS_pwrite64, SYS_write]),
    (&[EINTR, EMFILE], &[SYS_dup2, SYS_fcntl, SYS_open, SYS_openat]),
    (&[EINTR, ENOMEM], &[SYS_poll, SYS_ppoll, SYS_recvfrom, SYS_recvmsg]),
    (&[EINTR, EAGAIN, EACCES], &[SYS_connect]),
    (&[EINTR, EINVAL], &[SYS_epoll_pwait, SYS_epoll_wait]),
    (&[EINTR, EMSGSIZE, ENOBUFS], &[SYS_sendto]),
    (&[EINTR, ENOLCK], &[SYS_flock]),
    (&[EINTR, ENOSYS], &[SYS_getrandom]),
    (&[EIO], &[SYS_fstatfs, SYS_getdents64, SYS_readlink]),
    (&[EIO, EACCES], &[SYS_chdir]),
    (&[EIO, ENOMEM], &[SYS_access, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_stat, SYS_statx]),
    (&[EIO, ENOSPC], &[SYS_renameat, SYS_renameat2]),
    (&[EIO, EROFS], &[SYS_unlinkat]),
    (&[EMFILE], &[SYS_pipe2, SYS_timerfd_create]),
    (&[EMFILE, ENOMEM], &[SYS_epoll_create1, SYS_socket, SYS_socketpair]),
    (&[EMFILE, ENOSYS], &[SYS_landlock_create_ruleset, SYS_pidfd_open, SYS_signalfd4]),
    (&[ENOMEM], &[SYS_getsockopt, SYS_landlock_add_rule, SYS_mmap, SYS_munmap]),
    (&[ENOMEM, EACCES], &[SYS_execve]),
    (&[ENOMEM, EADDRINUSE], &[SYS_bind]),
    (&[ENOMEM, EAGAIN], &[SYS_clone, SYS_clone3, SYS_fork, SYS_vfork]),
    (&[ENOMEM, EDQUOT], &[SYS_keyctl]),
    (&[ENOMEM, ENOSPC], &[SYS_epoll_ctl]),
    (&[ENOMEM, EPERM], &[SYS_faccessat2, SYS_mlockall, SYS_setns]),
    (&[ENOMEM, EPERM, ENOPROTOOPT], &[SYS_setsockopt]),
    (&[ENOBUFS], &[SYS_getsockname]),
    (&[EPERM], &[SYS_capget, SYS_capset, SYS_prlimit64, SYS_setgroups, SYS_setpgid]),
    (&[EPERM], &[SYS_setresgid, SYS_setsid]),
    (&[EPERM, EAGAIN], &[SYS_setresuid]),
    (&[EPERM, EINVAL], &[SYS_prctl]),
    (&[EPERM, EROFS], &[SYS_fchmod, SYS_utimensat]),
    (&[EINVAL], &[SYS_lseek, SYS_timerfd_settime]),
    (&[E2BIG], &[SYS_landlock_restrict_self]),
    // Calls that fail only if they are wrong.
    (&[], &[SYS_alarm, SYS_brk, SYS_exit_group, SYS_futex, SYS_getcwd, SYS_getegid, SYS_geteuid]),
    (&[], &[SYS_getgid, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_ioctl, SYS_kill]),
    (&[], &[SYS_mprotect, SYS_restart_syscall, SYS_rt_sigaction, SYS_rt_sigprocmask]),
    (&[], &[SYS_rt_sigreturn, SYS_set_robust_list, SYS_sigaltstack, SYS_umask, SYS_uname]),
    (&[], &[SYS_clock_nanosleep, SYS_rseq, SYS_set_tid_address, SYS_setitimer, SYS_waitid]),
];

/// Errors that end without an administrator's help.
const TEMPORARY: &[c_int] = &[EAGAIN, EINTR, EIO, EMFILE, ENOBUFS, ENOMEM, ENOSPC];

/// The name of the namespace.
const NAME: &str = "stage";

/// A world with a hook and a conntrackd, for one life after another.
struct Stage {
    world: World,
    programs: Directory,
    wire: Capture,
    has_vip: bool,
    /// The figures when the last state had arrived.
    before: [u64; 5],
    traced: Arc<Mutex<Traced>>,
    fault: Option<Fault>,
    /// The end has been requested.
    is_asked: bool,
}

/// Why a wait has ended early: all processes have, or it has lasted too long.
enum Stop {
    Over,
    Late(String),
}

impl Stage {
    fn new() -> Self {
        // A mount elsewhere would wake its daemon.
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount_tmpfs(Path::new("/run/netns")).unwrap();
        let (programs, users) = (Directory::new(), has_others());
        let (path, hooked) = (programs.path().display().to_string(), programs.sub("hooked"));
        chown(&hooked, users.then_some(NOBODY), None).unwrap();
        let hook = format!("#!/bin/sh\necho $3 >>{path}/hooked/record\n");
        write_program(&programs.path().join("hook"), &hook);
        write_program(&programs.path().join("conntrackd"), "#!/bin/sh\n");
        let mut setup = if users { setup_of_nobody().with("--hook-user=nobody") } else { setup() };
        let metrics = format!("--metrics-file={}/metrics", setup.conf_dir.display());
        setup = setup.with(format!("--hook={path}/hook")).with("--enable_conntrackd");
        setup = setup.with(format!("--namespace={NAME}")).with(metrics);
        let path = format!("{path}:{}", env::var("PATH").unwrap());
        setup.environment.push(("PATH".into(), path.into()));
        fs::write(setup.conf_dir.join("conntrackd.conf"), "").unwrap();
        let world = World::with(setup);
        add_interface(&world.rtnl, "lan0");
        world.rtnl.add_address("lan0", "192.0.2.1/24");
        let wire = Capture::new("ha0-peer");
        let (has_vip, is_asked, fault) = (false, false, None);
        Self {
            world,
            programs,
            wire,
            has_vip,
            before: [0; 5],
            traced: Arc::default(),
            fault,
            is_asked,
        }
    }

    fn set_vip(&mut self, present: bool) {
        if mem::replace(&mut self.has_vip, present) != present {
            self.world.set_vip(present);
        }
    }

    /// Gives the namespace its name anew.
    fn bind() {
        if Path::new("/run/netns").join(NAME).exists() {
            unbind(NAME);
        }
        Netns::current().bind(NAME);
    }

    fn metrics(&self) -> String {
        content(&self.world.setup.conf_dir.join("metrics"))
    }

    fn figure(&self, name: &str) -> u64 {
        let (metrics, name) = (self.metrics(), format!("keepwatch_{name}{{"));
        let line = metrics.lines().find(|line| line.starts_with(&name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(u64::MAX)
    }

    fn hooked(&self) -> Vec<String> {
        content(&self.programs.path().join("hooked/record")).lines().map(String::from).collect()
    }

    fn figures(&self) -> [u64; 5] {
        let known = |name| Some(self.figure(name)).filter(|n| *n < u64::MAX).unwrap_or(0);
        let [agent, hook] = [self.world.agent.arrivals().len(), self.hooked().len()];
        let [commands, frames, claims] =
            ["conntrackd_commands_total", "announcements_total", "claims_total"].map(known);
        [agent as u64, hook as u64, commands, frames, claims]
    }

    fn has_struck(&self) -> bool {
        self.traced.lock().unwrap().has_struck
    }

    fn signal(&self, signal: Signal) {
        let traced = self.traced.lock().unwrap();
        if let Some((pid, _)) = traced.alive.iter().find(|(_, name)| **name == "daemon") {
            let _ = kill(*pid, signal);
        }
    }

    /// Waits until nothing is missing any more. Calls `ask` five times a second.
    fn until(&self, missing: impl Fn() -> String, ask: impl Fn()) -> Result<(), Stop> {
        let (began, mut asked) = (Instant::now(), 0);
        loop {
            let is_over = self.traced.lock().unwrap().is_over;
            let missing = missing();
            if missing.is_empty() {
                return Ok(());
            } else if is_over {
                return Err(Stop::Over);
            } else if began.elapsed() > PATIENCE {
                return Err(Stop::Late(missing));
            }
            // The figures of commands and claims are written on request.
            if began.elapsed().as_millis() / 200 > asked {
                asked += 1;
                ask();
            }
            sleep(Duration::from_millis(3));
        }
    }

    /// Waits until every consumer has the state, without a trouble, after so many commands and frames.
    fn settle(&mut self, commands: u64, frames: u64) -> Result<(), Stop> {
        let (present, before, setup) = (self.has_vip, self.before, &self.world.setup);
        let hook = if present { "MASTER" } else { "BACKUP" };
        let marked = |path: &_| fs::metadata(path).is_ok_and(|found| found.mtime() == 0);
        let is_search = |((name, call, _), _): Fault| {
            name == "daemon" && [SYS_access, SYS_faccessat2, SYS_stat, SYS_statx].contains(&call)
        };
        let is_trouble = |line: &&str| {
            let is_any = line.starts_with("keepwatch_trouble{");
            // It lasts until the next reload. And if one conntrackd cannot be seen, another is found.
            let is_said = line.contains("log file not reopened")
                || line.contains("conntrackd fails") && self.fault.is_some_and(is_search);
            is_any && !is_said
        };
        let missing = || {
            let (now, metrics) = (self.figures(), self.metrics());
            let agent = self.world.agent.acknowledged();
            let troubles = metrics.lines().filter(is_trouble).collect::<String>();
            let facts = [
                ("state file", setup.state() == word(present)),
                ("agent", now[0] > before[0] && agent.as_deref() == Some(word(present))),
                ("hook", now[1] > before[1] && self.hooked().last().unwrap() == hook),
                ("spare", matches!(&hidden(setup)[..], [path] if marked(path))),
                ("gauge", self.figure("active") == u64::from(present)),
                ("undelivered", self.figure("undelivered") == 0),
                ("hook pending", self.figure("hook_pending") == 0),
                ("commands", now[2] >= before[2] + commands),
                ("announcements", now[3] >= before[3] + frames),
                (&troubles, troubles.is_empty()),
            ];
            facts
                .iter()
                .filter(|(_, is_so)| !is_so)
                .map(|(what, _)| *what)
                .collect::<Vec<_>>()
                .join(", ")
        };
        self.until(missing, || self.signal(Signal::SIGUSR1))?;
        self.before = self.figures();
        Ok(())
    }

    /// Drives a life: a start, transitions, a reload and an exit. After a fault another transition, and the exit is that of a
    /// deleted namespace.
    fn live(&mut self) -> Result<(), Stop> {
        self.settle(2, 0)?;
        self.set_vip(true);
        self.settle(4, 2)?;
        self.signal(Signal::SIGHUP);
        self.settle(0, 0)?;
        let claim =
            arp::announcement(Operation::Request, [2, 0, 0, 0, 0, 2], [169, 254, 0, 5].into());
        let deaf = || if self.figures()[4] > self.before[4] { "" } else { "claims" }.to_string();
        let claims = || {
            self.wire.send(&claim);
            self.signal(Signal::SIGUSR1);
        };
        claims();
        self.until(deaf, claims)?;
        let had_struck = self.has_struck();
        self.set_vip(false);
        self.settle(2, 0)?;
        if self.has_struck() && !had_struck {
            self.set_vip(true);
            self.settle(4, 2)?;
        }
        self.is_asked = true;
        if self.has_struck() {
            unbind(NAME);
        } else {
            self.signal(Signal::SIGTERM);
        }
        self.until(|| "the end".into(), || ())
    }

    /// Returns the files that an ended daemon has left.
    fn left(&self) -> Vec<PathBuf> {
        let setup = &self.world.setup;
        let others = [setup.pid_file(), setup.conf_dir.join("metrics")];
        hidden(setup).into_iter().chain(others.into_iter().filter(|path| path.exists())).collect()
    }

    /// Runs a life with a fault. Returns what is known of it, or what was wrong.
    fn run(&mut self, fault: Option<Fault>) -> Result<Traced, String> {
        self.set_vip(false);
        Self::bind();
        let errors = self.programs.path().join("errors");
        let log = self.world.setup.log_file();
        for path in
            [&log, &self.world.setup.state_file(), &self.programs.path().join("hooked/record")]
        {
            let _ = fs::remove_file(path);
        }
        let agent = self.world.agent.arrivals().len() as u64;
        (self.traced, self.fault, self.is_asked) = (Arc::default(), fault, false);
        self.before = [agent, 0, 0, 0, 0];
        let mut command = self.world.setup.command();
        command.stderr(File::create(&errors).unwrap());
        let traced = Arc::clone(&self.traced);
        let thread = spawn(move || trace(command, fault, &traced));
        let lived = self.live();
        if matches!(lived, Err(Stop::Late(_))) {
            for pid in self.traced.lock().unwrap().alive.keys() {
                let _ = kill(*pid, Signal::SIGKILL);
            }
        }
        thread.join().unwrap();
        let traced = mem::take(&mut *self.traced.lock().unwrap());
        let text = content(&errors) + &self.world.setup.log();
        let wrong = |what: &str| Err(format!("{what}\n{:?}\n{text}", traced.ended));
        if let Err(Stop::Late(what)) = lived {
            return wrong(&format!("waited in vain for {what}"));
        }
        let is_one = |(name, _): &&(&str, _)| ["starter", "daemon"].contains(name);
        let mut ends = traced.ended.iter().filter(is_one).map(|(_, status)| status);
        let has_failed = ends.clone().any(|end| matches!(end, WaitStatus::Exited(_, 1..)));
        // A panic ends with 101.
        let has_crashed =
            ends.any(|end| matches!(end, WaitStatus::Signaled(..) | WaitStatus::Exited(_, 101)));
        if has_crashed && fault.is_none_or(|(_, error)| error.is_some()) {
            return wrong("crashed");
        }
        if fault.is_none() && !self.is_asked {
            return wrong("ended early");
        }
        if let Some((_, Some(error))) = fault.filter(|_| !self.is_asked) {
            // After these no service manager starts it again.
            let is_final = |(name, status): &(&str, WaitStatus)| {
                ["starter", "daemon"].contains(name)
                    && matches!(status, WaitStatus::Exited(_, 2 | 78))
            };
            if TEMPORARY.contains(&(error as c_int)) && traced.ended.iter().any(is_final) {
                return wrong("ended for good");
            }
            // The panic of a helper in the standard library has no place in the log, nor has a report that cannot be sent.
            let named = format!("({error:?})");
            let reasons = [&named, " helper gone; exiting", ": channel: Broken pipe"];
            let is_line = |line: &&str| {
                let levels = ["keepwatch: ", " WARNING ", " ERROR "];
                levels.iter().any(|level| line.contains(level))
            };
            let mut lines = text.lines().filter(is_line);
            let is_said = lines.any(|line| reasons.iter().any(|reason| line.contains(*reason)));
            if !has_failed || !is_said {
                return wrong("ended without a reason");
            }
        }
        if self.is_asked && fault.is_none() && !self.left().is_empty() {
            return wrong(&format!("left {:?}", self.left()));
        }
        let is_kept =
            fault.is_some_and(|((_, call, _), error)| error.is_none() || call == SYS_unlinkat);
        let pid_file = self.world.setup.pid_file();
        if !is_kept && pid_file.exists() && content(&pid_file).is_empty() {
            return wrong("left an empty pid file");
        }
        if (!self.is_asked || !self.left().is_empty())
            && let Err(what) = self.succeed()
        {
            return wrong(&what);
        }
        Ok(traced)
    }

    /// Starts another daemon, which finds what the last one has left.
    fn succeed(&mut self) -> Result<(), String> {
        Self::bind();
        self.set_vip(true);
        let setup = &self.world.setup;
        let output = setup.run();
        if !output.status.success() || setup.state() != "master" {
            return Err(format!("the next one: {output:?}, {:?}", setup.state()));
        }
        self.world.agent.wait_acknowledged("master");
        setup.running().terminate();
        let left = self.left();
        if left.is_empty() { Ok(()) } else { Err(format!("both have left {left:?}")) }
    }
}

/// Tries faults at the places that lives without one have. Of a helper's many calls of a kind, some are tried.
fn faults(kills: bool) {
    let clean = || Stage::new().run(None).unwrap_or_else(|problem| panic!("{problem}")).counts;
    // Some calls are more in one life than in another, the more so on a busy machine: the fewest of three are reached.
    let lives = [clean(), clean(), clean()];
    let fewest = |call| lives.iter().map(|life| life.get(call).copied().unwrap_or(0)).min();
    let calls: BTreeSet<_> = lives.iter().flat_map(BTreeMap::keys).collect();
    let chosen = env::var("FAULTS").ok();
    let (mut cases, mut kinds) = (Vec::<Fault>::new(), HashSet::new());
    let mut counts: Vec<_> =
        calls.into_iter().map(|call| (*call, fewest(call).unwrap_or(0))).collect();
    // The daemon first, as by default a call is tried in one process.
    counts.sort_by_key(|((name, _), _)| *name != "daemon");
    for ((name, call), count) in counts {
        let mut rows = ERRORS.iter().filter(|(_, calls)| calls.contains(&call));
        let (errors, _) = rows.next().unwrap_or_else(|| panic!("call {call} has no row"));
        let errors = errors.iter().map(|number| Some(nix::Error::from_raw(*number)));
        let outcomes: Vec<_> = if kills { vec![None] } else { errors.collect() };
        let most = if ["starter", "daemon"].contains(&name) { 100 } else { 10 };
        let is_tried = |n: &u32| n * most / count.max(most) != (n + 1) * most / count.max(most);
        let places: Vec<_> = (0..count).filter(is_tried).map(|n| (name, call, n)).collect();
        let all =
            places.iter().flat_map(|place| outcomes.iter().map(move |error| (*place, *error)));
        match chosen.as_deref() {
            Some("all") => cases.extend(all),
            Some(text) => {
                cases.extend(all.filter(|case: &Fault| format!("{case:?}").contains(text)));
            }
            None if !places.is_empty() && kinds.insert(call) => {
                cases.extend(outcomes.first().map(|error| (places[places.len() / 2], *error)));
            }
            None => {}
        }
    }
    assert!(!cases.is_empty(), "FAULTS={chosen:?} selects no place");
    let (next, missed, wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut stage = Stage::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match stage.run(Some(*case)) {
                Ok(traced) => {
                    missed.fetch_add((!traced.has_struck).into(), Ordering::Relaxed);
                }
                Err(problem) => {
                    wrong.lock().unwrap().push(format!("{case:?}: {problem}\n"));
                    stage = Stage::new();
                }
            }
        }
    };
    // They mostly wait.
    scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
    let (wrong, missed) = (wrong.into_inner().unwrap(), missed.into_inner());
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), cases.len(), wrong.concat());
    // The number of some calls varies.
    assert!(missed <= cases.len() / 10, "{missed} of {} places were not reached", cases.len());
    println!("{} faults, {missed} not reached", cases.len());
}

#[apply(trial)]
fn each_call_fails() {
    faults(false);
}

#[apply(trial)]
fn killed_at_each_call() {
    faults(true);
}
