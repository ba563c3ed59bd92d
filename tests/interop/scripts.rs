//! Promise 20 with keepalived's notify scripts: each script in `scripts` has the same effects with keepalived and with
//! keepwatch, which follow the same addresses side by side.
//!
//! Of a script's comments, those with `#:` are its lines in `keepalived.conf`, and those with `#=` are its effects: a file
//! and its lines. In both, and in the script, `EFFECTS` stands for the directory of the effects, and `SCRIPT` for the script.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lab::daemon::{Running, Setup, children};
use lab::files::{Directory, content, look, write_program};
use lab::rtnl::Rtnl;
use lab::users::NOBODY;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::{add_interface, setup};

/// A script, and both copies of it.
struct Script {
    name: String,
    text: String,
    vip: String,
    directory: PathBuf,
    setup: Setup,
}

impl Script {
    fn new(path: &Path, number: usize, directory: &Path) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let directory = directory.join(&name);
        let vip = format!("169.254.0.{number}");
        let setup = setup().with(format!("--router_id={name}"));
        let setup = setup.with(format!("--monitor_cidr={vip}/24")).with("--no-announce");
        setup.expect(&[""]);
        let mut script = Self { name, text: content(path), vip, directory, setup };
        for who in ["keepalived", "keepwatch"] {
            let effects = script.effects(who);
            fs::create_dir_all(&effects).unwrap();
            chown(&effects, Some(NOBODY), None).unwrap();
            fs::write(effects.with_extension("address"), &script.vip).unwrap();
            write_program(&script.program(who), &script.place(&script.text, who));
        }
        let options: Vec<_> = script.lines("#: ").flat_map(|line| script.options(line)).collect();
        script.setup.extra.extend(options.into_iter().map(Into::into));
        script
    }

    fn program(&self, who: &str) -> PathBuf {
        self.directory.join(format!("{who}.sh"))
    }

    fn effects(&self, who: &str) -> PathBuf {
        self.directory.join(who)
    }

    /// Returns a text with the paths of a copy.
    fn place(&self, text: &str, who: &str) -> String {
        let [program, effects] =
            [self.program(who), self.effects(who)].map(|path| path.display().to_string());
        text.replace("SCRIPT", &program).replace("EFFECTS", &effects)
    }

    fn lines(&self, mark: &'static str) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(mark))
    }

    /// Returns keepwatch's options for a line of `keepalived.conf`.
    fn options(&self, line: &str) -> Vec<String> {
        let (keyword, rest) = line.split_once(" \"").unwrap();
        let (command, users) = rest.rsplit_once('"').unwrap();
        let command = command.replace(r#"\""#, "\"").replace(r"\\", r"\");
        let mut options = vec![format!("--{keyword}={}", self.place(&command, "keepwatch"))];
        options.extend(users.split_whitespace().next().map(|user| format!("--hook-user={user}")));
        options
    }

    /// Returns the instance of `keepalived.conf`.
    fn instance(&self, number: usize) -> String {
        let notify: Vec<_> = self.lines("#: ").map(|line| self.place(line, "keepalived")).collect();
        format!(
            "vrrp_instance {} {{\n    state BACKUP\n    interface ha0\n    virtual_router_id {number}\n    \
             priority 100\n    advert_int 1\n    virtual_ipaddress {{\n        {}/24 dev ha0\n    }}\n    {}\n}}\n",
            self.name,
            self.vip,
            notify.join("\n    ")
        )
    }

    /// Returns what a copy has done so far: each file, and its lines.
    fn done(&self, who: &str) -> Vec<String> {
        let files = fs::read_dir(self.effects(who)).unwrap().map(|file| file.unwrap().path());
        let describe = |file: PathBuf| {
            let lines = content(&file).lines().collect::<Vec<_>>().join(" ");
            format!("{}: {lines}", file.file_name().unwrap().display())
        };
        let mut done: Vec<_> = files.map(describe).collect();
        done.sort();
        done
    }

    /// Waits until the hook has succeeded for a state. One that ends with a false test does not.
    fn wait_state(&self, keepwatch: &Running<'_>, state: &str) {
        look(format!("{} to be {state}", self.name), || {
            let status = keepwatch.status();
            let is_done = status.contains(" hook_pending=none ") || self.name == "false-test";
            status.contains(&format!("state={state} ")) && is_done
        });
    }

    /// Waits until both copies have done what they should.
    fn wait_done(&self) {
        let mut expected: Vec<_> = self.lines("#= ").map(String::from).collect();
        expected.sort();
        let what = format!("{} to have done {expected:#?}", self.name);
        look(what, || {
            let done = ["keepalived", "keepwatch"].map(|who| self.done(who));
            done.each_ref().map(|done| *done == expected) == [true; 2]
        });
    }
}

impl Drop for Script {
    /// Ends the process that a script has started.
    fn drop(&mut self) {
        for who in ["keepalived", "keepwatch"] {
            if let Ok(pid) = content(&self.effects(who).with_extension("pid")).trim().parse() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

/// keepalived, which ends on drop.
struct Keepalived(Child);

impl Keepalived {
    /// Returns whether no script runs. Its own children are the process for VRRP, whose children are the scripts, and what
    /// these leave behind.
    fn is_idle(&self) -> bool {
        let command = |pid: &u32| content(Path::new(&format!("/proc/{pid}/cmdline")));
        let own = children(self.0.id());
        let scripts = own.iter().flat_map(|pid| children(*pid));
        let mut all = own.iter().copied().chain(scripts);
        all.all(|pid| ["keepalived", "sleep"].iter().any(|name| command(&pid).starts_with(name)))
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

fn start_keepalived(directory: &Path, scripts: &[Script]) -> Keepalived {
    let conf = directory.join("keepalived.conf");
    let instances = (1..).zip(scripts).map(|(number, script)| script.instance(number));
    let global = "global_defs {\n    script_user root\n}\n";
    fs::write(&conf, global.to_owned() + &instances.collect::<String>()).unwrap();
    let mut command = Command::new("keepalived");
    command.args(["--dont-fork", "--vrrp", "--log-console", "--use-file"]).arg(conf);
    command.arg("--pid").arg(directory.join("pid")).arg("--vrrp_pid").arg(directory.join("vrrp"));
    let log = fs::File::create(directory.join("keepalived.log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Keepalived(command.spawn().expect("keepalived 2.2.7"))
}

#[apply(trial)]
fn notify_scripts_have_the_same_effects() {
    let directory = Directory::new();
    let rtnl = Rtnl::new();
    add_interface(&rtnl, "ha0");
    rtnl.add_address("ha0", "169.254.192.1/18");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/scripts");
    let mut files: Vec<_> = fs::read_dir(files).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20);
    let numbered = (1..).zip(&files);
    let scripts: Vec<_> =
        numbered.map(|(number, file)| Script::new(file, number, directory.path())).collect();
    let running: Vec<_> = scripts.iter().map(|script| script.setup.start()).collect();
    let keepalived = start_keepalived(directory.path(), &scripts);
    let settle = |state| {
        for (script, keepwatch) in scripts.iter().zip(&running) {
            script.wait_state(keepwatch, state);
        }
        look("keepalived's scripts to end", || keepalived.is_idle());
    };
    settle("master");
    rtnl.down("ha0");
    settle("backup");
    rtnl.up("ha0");
    settle("master");
    scripts.iter().for_each(Script::wait_done);
}
