//! The memory of a running program, and what its headers promise of it.

use std::fs;
use std::ops::Range;
use std::path::Path;

use nix::libc::{ET_DYN, PT_GNU_RELRO, PT_GNU_STACK, PT_LOAD};

use crate::files::content;

/// Asserts that nothing in a program's memory can be both written and run, that what is constant after relocation
/// cannot be written, and that it is loaded anywhere, but for MIPS. The kernel is asked for all of that.
pub fn assert_hardened(pid: u32, program: &Path) {
    let maps = content(Path::new(&format!("/proc/{pid}/maps")));
    let mappings: Vec<Mapping> = maps.lines().map(Mapping::read).collect();
    for mapping in &mappings {
        let rights = mapping.rights;
        assert!(!(rights.contains('w') && rights.contains('x')), "writable code\n{maps}");
    }
    let stack = mappings.iter().find(|mapping| mapping.file == "[stack]").expect("a stack");
    assert_eq!(stack.rights, "rw-p", "{maps}");

    let elf = Elf(fs::read(program).expect("the program"));
    // For MIPS that takes a sixth more of a file.
    let anywhere = !cfg!(target_arch = "mips");
    assert_eq!(elf.kind() == u64::from(ET_DYN), anywhere, "loaded anywhere");
    let headers = elf.headers();
    let first = |kind| headers.iter().find(|header| header.kind == u64::from(kind));
    assert!(first(PT_GNU_STACK).is_some(), "without it the stack may be run");
    let program = program.to_str().expect("a path");
    let base = mappings.iter().find(|mapping| mapping.file == program).expect("the program");
    let base = base.range.start - first(PT_LOAD).expect("something to load").range.start;
    let constant = &first(PT_GNU_RELRO).expect("memory that is constant after relocation").range;
    // In front of it there is nothing that is written to.
    let constant = base + constant.start / PAGE * PAGE..base + constant.end / PAGE * PAGE;
    assert!(!constant.is_empty(), "no page is only constant: {headers:?}");
    for mapping in &mappings {
        let shared = mapping.range.start < constant.end && constant.start < mapping.range.end;
        assert!(!shared || mapping.rights == "r--p", "{constant:x?} can be written\n{maps}");
    }
}

/// Of the kernels that this is run on.
const PAGE: u64 = 4096;

/// A line of `/proc/PID/maps`.
struct Mapping<'a> {
    range: Range<u64>,
    rights: &'a str,
    file: &'a str,
}

impl<'a> Mapping<'a> {
    fn read(line: &'a str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |digits| u64::from_str_radix(digits, 16).expect("an address");
        let (start, end) = words[0].split_once('-').expect("a range");
        Self {
            range: number(start)..number(end),
            rights: words[1],
            file: words.get(5).copied().unwrap_or_default(),
        }
    }
}

/// A program for this machine.
struct Elf(Vec<u8>);

/// One of its program headers.
#[derive(Debug)]
struct Header {
    kind: u64,
    range: Range<u64>,
}

impl Elf {
    /// One of two numbers of so many bytes, in files of 64 and of 32 bits.
    fn number(&self, wide: (usize, usize), narrow: (usize, usize), start: usize) -> u64 {
        let (place, length) = if self.0[4] == 2 { wide } else { narrow };
        let bytes = &self.0[start + place..][..length];
        let mut number = [0; 8];
        if cfg!(target_endian = "big") {
            number[8 - length..].copy_from_slice(bytes);
        } else {
            number[..length].copy_from_slice(bytes);
        }
        u64::from_ne_bytes(number)
    }

    fn kind(&self) -> u64 {
        self.number((16, 2), (16, 2), 0)
    }

    fn headers(&self) -> Vec<Header> {
        let offset = |wide, narrow| {
            usize::try_from(self.number(wide, narrow, 0)).expect("a place in the file")
        };
        let (first, size) = (offset((32, 8), (28, 4)), offset((54, 2), (42, 2)));
        (0..offset((56, 2), (44, 2)))
            .map(|index| {
                let header = first + index * size;
                let address = self.number((16, 8), (8, 4), header);
                Header {
                    kind: self.number((0, 4), (0, 4), header),
                    range: address..address + self.number((40, 8), (20, 4), header),
                }
            })
            .collect()
    }
}
