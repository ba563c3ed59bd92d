//! The filter for system calls that the daemon gives itself (`seccomp(2)`).

#![expect(unsafe_code, reason = "no library of these does MIPS")]

mod rules;

use core::mem::size_of;
use core::ptr::null;
use std::os::fd::RawFd;

use heapless::Vec;
use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_int, c_long, c_void, siginfo_t, sock_filter, sock_fprog};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::bpf::{jeq, jne, stmt};
use super::constants::Addresses;
use super::sigsys;
use crate::errno::Errno;
pub use rules::{ALLOWED, Call, Descriptor, Is, Way};

/// `AUDIT_ARCH_*` (`include/uapi/linux/audit.h`): the ELF machine, and bits for 64 and little-endian.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "arm") {
    Some(0x4000_0028)
} else if cfg!(all(target_arch = "mips", target_endian = "big")) {
    Some(0x0000_0008)
} else if cfg!(all(target_arch = "mips", target_endian = "little")) {
    Some(0x4000_0008)
} else {
    None
};

/// Offsets in `struct seccomp_data` (`include/uapi/linux/seccomp.h`): words in the host's byte order, but
/// for the arguments, which have 64 bits each.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Of the two halves of an argument.
const LOW: u32 = if cfg!(target_endian = "big") { 4 } else { 0 };
const HIGH: u32 = 4 - LOW;

/// Room for all rules, with some to spare.
type Program = Vec<sock_filter, 320>;

/// What the rules mean in this process.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// Of the constants, which are read-only by now.
    pub addresses: Addresses,
    /// As [`Descriptor::Route`].
    pub route: RawFd,
    /// As [`Descriptor::Packets`].
    pub packets: Option<RawFd>,
    /// As [`Descriptor::PidFile`].
    pub pid_file: Option<RawFd>,
}

/// Installs the filter for good. A call that is not allowed ends the daemon, with a line in the log.
/// Tells whether there is a filter for this architecture and kernel.
///
/// # Errors
/// The errno of installing it, for other reasons than that the kernel has no such thing.
pub fn install(values: &Values) -> Result<bool, Errno> {
    let Some(architecture) = ARCHITECTURE else { return Ok(false) };
    let mut program = Program::new();
    fill(&mut program, architecture, values).ok_or(NixErrno::E2BIG)?;
    report_violations()?;
    Ok(install_program(&mut program)?)
}

/// Tells whether the kernel has such a thing.
fn install_program(program: &mut [sock_filter]) -> nix::Result<bool> {
    let len = u16::try_from(program.len()).map_err(|_| NixErrno::E2BIG)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the program tells the truth about its length.
    match unsafe { set_filter(&raw const program) } {
        Ok(()) => Ok(true),
        // That is said of a program that is wrong and by a kernel without CONFIG_SECCOMP_FILTER. The latter
        // says it before it looks where the program is.
        // SAFETY: there is no program.
        Err(errno @ NixErrno::EINVAL) => match unsafe { set_filter(null()) } {
            Err(NixErrno::EFAULT) => Err(errno),
            _ => Ok(false),
        },
        Err(errno) => Err(errno),
    }
}

/// For a client of conntrackd, whose configuration may be hostile: it can connect to Unix sockets only, be
/// handed no descriptor over them, make no namespaces, and look into nobody.
pub(super) fn limit_client() -> nix::Result<()> {
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // Reckoned from the instruction behind each jump.
    let mut program = [
        instruction(LOAD, 0, 0, ARCH),
        instruction(EQUAL, 0, 10, ARCHITECTURE.unwrap_or_default()),
        instruction(LOAD, 0, 0, NUMBER),
        instruction(EQUAL, 0, 2, number(libc::SYS_socket)),
        instruction(LOAD, 0, 0, ARGUMENTS + LOW),
        instruction(EQUAL, 5, 6, libc::AF_UNIX.cast_unsigned()),
        instruction(EQUAL, 5, 0, number(libc::SYS_recvmsg)),
        instruction(EQUAL, 4, 0, number(libc::SYS_recvmmsg)),
        instruction(EQUAL, 3, 0, number(libc::SYS_io_uring_setup)),
        instruction(EQUAL, 2, 0, number(libc::SYS_unshare)),
        instruction(EQUAL, 1, 0, number(libc::SYS_ptrace)),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
    ];
    if ARCHITECTURE.is_some() {
        install_program(&mut program)?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "BPF codes have 16 bits")]
const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// # Safety
/// The kernel reads the program, and copies it, unless it is null.
unsafe fn set_filter(program: *const sock_fprog) -> nix::Result<()> {
    // SAFETY: the caller has seen to the program.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program, 0, 0) };
    NixErrno::result(set).map(|_| ())
}

/// None if there is not enough room, in the program or in a jump.
fn fill(program: &mut Program, architecture: u32, values: &Values) -> Option<()> {
    let trap = stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP);
    // Numbers mean other calls on other architectures.
    push(program, load(ARCH))?;
    push(program, jeq(architecture, 1))?;
    push(program, trap)?;
    push(program, load(NUMBER))?;
    for call in ALLOWED {
        add_call(program, call, values)?;
    }
    push(program, trap)
}

fn push(program: &mut Program, instruction: sock_filter) -> Option<()> {
    program.push(instruction).ok()
}

/// Adds what allows a call. For another one it leads behind all of that, with the number still loaded.
fn add_call(program: &mut Program, call: &Call, values: &Values) -> Option<()> {
    let begin = program.len();
    push(program, jne(number(call.number), 0))?;
    for way in call.ways {
        add_way(program, way, values)?;
    }
    push(program, stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP))?;
    let over = u8::try_from(program.len() - begin - 1).ok()?;
    program.get_mut(begin)?.jf = over;
    Some(())
}

/// Adds what allows a call if its arguments are so. If they are not, it leads behind all of that.
fn add_way(program: &mut Program, way: Way, values: &Values) -> Option<()> {
    let begin = program.len();
    for (place, is) in way {
        // What is about something that this daemon does not have is left out.
        let Some(value) = values.of(*is) else {
            program.truncate(begin);
            return Some(());
        };
        let argument = ARGUMENTS + 8 * place;
        push(program, load(argument + LOW))?;
        if let Is::Flags(_) = is {
            let others = !libc::O_LARGEFILE.cast_unsigned();
            push(program, stmt(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, others))?;
        }
        let (low, high) = halves(value);
        push(program, jne(low, 0))?;
        // Of an int only the low half counts, whatever is in the other one.
        if is.is_address() && cfg!(target_pointer_width = "64") {
            push(program, load(argument + HIGH))?;
            push(program, jne(high, 0))?;
        }
    }
    push(program, stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW))?;
    let end = program.len();
    for (place, instruction) in program.iter_mut().enumerate().skip(begin) {
        if u32::from(instruction.code) & 0x07 == libc::BPF_JMP {
            instruction.jf = u8::try_from(end - place - 1).ok()?;
        }
    }
    Some(())
}

fn load(offset: u32) -> sock_filter {
    stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they are small")]
const fn number(call: c_long) -> u32 {
    call as u32
}

/// The low and the high one.
#[expect(clippy::cast_possible_truncation, reason = "that is the low half")]
fn halves(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

impl Is {
    fn is_address(self) -> bool {
        matches!(self, Self::Null | Self::Constant(_))
    }
}

impl Values {
    /// None if there is no such thing here.
    fn of(&self, is: Is) -> Option<u64> {
        let int = |int: c_int| u64::from(int.cast_unsigned());
        match is {
            Is::Int(value) => Some(int(value)),
            Is::Flags(flags) => Some(int(flags.bits() & !libc::O_LARGEFILE)),
            Is::Null => Some(0),
            Is::Constant(constant) => {
                let address =
                    self.addresses.get(constant as usize).filter(|address| **address != 0);
                address.map(|address| *address as u64)
            }
            Is::Descriptor(Descriptor::Route) => Some(int(self.route)),
            Is::Descriptor(Descriptor::Packets) => self.packets.map(int),
            Is::Descriptor(Descriptor::PidFile) => self.pid_file.map(int),
        }
    }
}

/// Has the kernel call [`on_violation`] instead of killing without a word.
fn report_violations() -> Result<(), Errno> {
    let handler = SigHandler::SigAction(on_violation);
    let action = SigAction::new(handler, SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler makes system calls and nothing else, and never returns.
    unsafe { sigaction(Signal::SIGSYS, &action) }?;
    Ok(())
}

extern "C" fn on_violation(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    /// Of the number in `siginfo_t`: behind three ints, padding, and a pointer to the instruction.
    const NUMBER: usize =
        (3 * size_of::<c_int>()).next_multiple_of(align_of::<usize>()) + size_of::<usize>();
    // SAFETY: the kernel passes a valid `siginfo_t`, in which SIGSYS has the number there.
    let number = unsafe { info.cast::<u8>().add(NUMBER).cast::<u32>().read_unaligned() };
    sigsys::report_violation(number);
    // SAFETY: ends the process, whatever state it is in.
    unsafe { libc::_exit(1) }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::prctl::set_no_new_privs;
    use nix::sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, recvmsg, socket, socketpair,
    };
    use std::os::fd::AsRawFd;

    use super::super::constants::Constant;
    use super::*;

    #[test]
    fn there_is_room_for_all_rules() {
        let addresses = [usize::MAX / 3; Constant::NoPath as usize + 1];
        let all = Values { addresses, route: 5, packets: Some(6), pid_file: Some(7) };
        let nothing =
            Values { addresses: Addresses::default(), route: 5, packets: None, pid_file: None };
        let length = |values| {
            let mut program = Program::new();
            fill(&mut program, 1, values).unwrap();
            program.len()
        };
        assert!(length(&nothing) < length(&all));
    }

    /// Whether this kernel has it, which an emulated one has not.
    fn has_seccomp() -> bool {
        // SAFETY: a system call without pointers.
        unsafe { libc::prctl(libc::PR_GET_SECCOMP) >= 0 }
    }

    /// In a thread, whose filter it would be alone.
    #[test]
    fn wrong_program_is_an_error() {
        let install = || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            install_program(&mut [load(1)])
        };
        let expected = if has_seccomp() { Err(NixErrno::EINVAL) } else { Ok(false) };
        assert_eq!(std::thread::spawn(install).join().unwrap(), expected);
    }

    /// A filter is its thread's own. Where the kernel has none, the client runs without.
    #[test]
    fn client_reaches_unix_sockets_only() {
        let client = std::thread::spawn(|| {
            let (ours, theirs) =
                socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_NONBLOCK)
                    .unwrap();
            set_no_new_privs().unwrap();
            limit_client().unwrap();
            if !has_seccomp() {
                return;
            }
            let open = |family| socket(family, SockType::Datagram, SockFlag::empty(), None);
            assert!(open(AddressFamily::Unix).is_ok());
            for family in [AddressFamily::Inet, AddressFamily::Inet6, AddressFamily::Netlink] {
                assert_eq!(open(family).unwrap_err(), NixErrno::EPERM);
            }
            let received = recvmsg::<()>(theirs.as_raw_fd(), &mut [], None, MsgFlags::empty());
            assert_eq!(received.unwrap_err(), NixErrno::EPERM);
            assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(NixErrno::EPERM));
            drop(ours);
        });
        client.join().unwrap();
    }
}
