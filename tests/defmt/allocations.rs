//! Making frames allocates nothing.

#![expect(unsafe_code, reason = "an allocator is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use keepwatch::core::{Command, CommandEnd, DumpEnd, Failure, Note, Stage, State, Status};
use keepwatch::errno::Errno;
use keepwatch::log::{self, Labels, Level, Log};
use keepwatch::sys::log_file::LogFile;
use keepwatch::sys::privileges::Identity;
use lab::files::Directory;
use libtest_mimic::Trial;

pub fn trials() -> Vec<Trial> {
    lab::trials![nothing_is_allocated]
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn nothing_is_allocated() {
    let directory = Directory::new();
    let path = directory.path().join("log");
    let identity = Identity { user: None, group: None };
    let router: keepwatch::wire::http::RouterId = "myrouter".parse().unwrap();
    log::open(Log {
        router: router.clone(),
        level: Level::Debug,
        file: Some(LogFile::open(&path, identity).unwrap()),
        stderr: false,
        syslog: None,
    });
    let labels = Labels { router, active: keepwatch::core::ActiveWord::Master };
    let (errno, count) = (Errno(28), 7);
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        for note in [
            Note::Wrote(State::Active),
            Note::NotWritten { errno, count },
            Note::NotNotified { failure: Failure::Socket(errno), count },
            Note::DumpFailed { stage: Stage::Links, end: DumpEnd::Failed(errno), count },
            Note::CommandFailed { command: Command::Flush, end: CommandEnd::Signalled(9) },
            Note::SplitBrain { mac: [2; 6], ifindex: 3, count },
        ] {
            labels.note(&note);
        }
        labels.status(&Status::default());
    }
    log::reopen();
    log::flush();
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(std::fs::metadata(&path).unwrap().len() > 10_000);
}
