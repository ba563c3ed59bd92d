//! The filter for its own system calls that the daemon installs (`seccomp(2)`).

#![expect(unsafe_code, reason = "no seccomp library supports MIPS")]

mod rules;

use core::mem::size_of;
use core::ptr::null;
use std::os::fd::RawFd;

use heapless::Vec;
use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_int, c_long, c_void, siginfo_t, sock_filter, sock_fprog};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::bpf::{jeq, load, ret, stmt};
use super::constants::Addresses;
use super::sigsys;
use crate::errno::Errno;
pub use rules::{ALLOWED, Call, Descriptor, Is, Way};

/// `AUDIT_ARCH_*` (`include/uapi/linux/audit.h`): the ELF machine, with a bit each for 64-bit and little-endian.
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

/// Offsets in `struct seccomp_data` (`include/uapi/linux/seccomp.h`). Number and architecture are words,
/// arguments have 64 bits, all in the host's byte order.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Offsets of the two halves of an argument.
const LOW: u32 = if cfg!(target_endian = "big") { 4 } else { 0 };
const HIGH: u32 = 4 - LOW;

/// Room for all rules, with some to spare.
type Program = Vec<sock_filter, 320>;

/// The values that the rules stand for in this process.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// Addresses of the sealed constants.
    pub addresses: Addresses,
    /// The route socket.
    pub route: RawFd,
    /// The packet socket.
    pub packets: Option<RawFd>,
    /// The pid file.
    pub pid_file: Option<RawFd>,
}

/// Installs the filter for good. From then on a call that it does not allow ends the daemon, with a line in
/// the log. Returns `false` if the architecture is not supported or the kernel has no seccomp filters.
///
/// # Errors
/// The errno of installing it.
pub fn install(values: &Values) -> Result<bool, Errno> {
    let Some(architecture) = ARCHITECTURE else { return Ok(false) };
    let mut program = Program::new();
    fill(&mut program, architecture, values).ok_or(NixErrno::E2BIG)?;
    report_violations()?;
    Ok(install_program(&mut program)?)
}

/// Returns `false` if the kernel has no seccomp filters.
fn install_program(program: &mut [sock_filter]) -> nix::Result<bool> {
    let len = u16::try_from(program.len()).map_err(|_| NixErrno::E2BIG)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the pointer and length are those of one program.
    match unsafe { set_filter(&raw const program) } {
        Ok(()) => Ok(true),
        // Either the program is wrong, or the kernel lacks CONFIG_SECCOMP_FILTER. Such a kernel says so even
        // if there is no program.
        // SAFETY: there is no program.
        Err(errno @ NixErrno::EINVAL) => match unsafe { set_filter(null()) } {
            Err(NixErrno::EFAULT) => Err(errno),
            _ => Ok(false),
        },
        Err(errno) => Err(errno),
    }
}

/// Restricts a client of conntrackd, whose configuration may be hostile: it can open Unix sockets only, receive
/// no descriptors over them, make no namespaces and trace no process.
pub(super) fn limit_client() -> nix::Result<()> {
    // Jumps are counted from the next instruction.
    let mut program = [
        load(libc::BPF_W, ARCH),
        jeq(ARCHITECTURE.unwrap_or_default(), 0, 10),
        load(libc::BPF_W, NUMBER),
        jeq(number(libc::SYS_socket), 0, 2),
        load(libc::BPF_W, ARGUMENTS + LOW),
        jeq(libc::AF_UNIX.cast_unsigned(), 5, 6),
        jeq(number(libc::SYS_recvmsg), 5, 0),
        jeq(number(libc::SYS_recvmmsg), 4, 0),
        jeq(number(libc::SYS_io_uring_setup), 3, 0),
        jeq(number(libc::SYS_unshare), 2, 0),
        jeq(number(libc::SYS_ptrace), 1, 0),
        ret(libc::SECCOMP_RET_ALLOW),
        ret(libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
    ];
    if ARCHITECTURE.is_some() {
        install_program(&mut program)?;
    }
    Ok(())
}

/// # Safety
/// The program is valid or null. The kernel copies it.
unsafe fn set_filter(program: *const sock_fprog) -> nix::Result<()> {
    // SAFETY: the caller vouches for the program.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program, 0, 0) };
    NixErrno::result(set).map(|_| ())
}

/// Returns `None` if the program or a jump becomes too long.
fn fill(program: &mut Program, architecture: u32, values: &Values) -> Option<()> {
    let trap = ret(libc::SECCOMP_RET_TRAP);
    // The same number is another call on another architecture.
    push(program, load(libc::BPF_W, ARCH))?;
    push(program, jeq(architecture, 1, 0))?;
    push(program, trap)?;
    push(program, load(libc::BPF_W, NUMBER))?;
    for call in ALLOWED {
        add_call(program, call, values)?;
    }
    push(program, trap)
}

fn push(program: &mut Program, instruction: sock_filter) -> Option<()> {
    program.push(instruction).ok()
}

/// Appends the rules for a call. Any other call skips them, with its number still loaded.
fn add_call(program: &mut Program, call: &Call, values: &Values) -> Option<()> {
    let begin = program.len();
    push(program, jeq(number(call.number), 0, 0))?;
    for way in call.ways {
        add_way(program, way, values)?;
    }
    push(program, ret(libc::SECCOMP_RET_TRAP))?;
    let over = u8::try_from(program.len() - begin - 1).ok()?;
    program.get_mut(begin)?.jf = over;
    Some(())
}

/// Appends instructions that allow the call if its arguments match. Else they are skipped.
fn add_way(program: &mut Program, way: Way, values: &Values) -> Option<()> {
    let begin = program.len();
    for (place, is) in way {
        // A rule for something that this daemon does not have is left out.
        let Some(value) = values.of(*is) else {
            program.truncate(begin);
            return Some(());
        };
        let argument = ARGUMENTS + 8 * place;
        push(program, load(libc::BPF_W, argument + LOW))?;
        if let Is::Flags(_) = is {
            let others = !libc::O_LARGEFILE.cast_unsigned();
            push(program, stmt(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, others))?;
        }
        let (low, high) = halves(value);
        push(program, jeq(low, 0, 0))?;
        // The kernel ignores the high half of an int.
        if is.is_address() && cfg!(target_pointer_width = "64") {
            push(program, load(libc::BPF_W, argument + HIGH))?;
            push(program, jeq(high, 0, 0))?;
        }
    }
    push(program, ret(libc::SECCOMP_RET_ALLOW))?;
    let end = program.len();
    for (place, instruction) in program.iter_mut().enumerate().skip(begin) {
        if u32::from(instruction.code) & 0x07 == libc::BPF_JMP {
            instruction.jf = u8::try_from(end - place - 1).ok()?;
        }
    }
    Some(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they are small")]
const fn number(call: c_long) -> u32 {
    call as u32
}

/// The low and the high half.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn halves(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

impl Is {
    fn is_address(self) -> bool {
        matches!(self, Self::Null | Self::Constant(_))
    }
}

impl Values {
    /// Returns `None` for what this daemon does not have.
    fn of(&self, is: Is) -> Option<u64> {
        let int = |int: c_int| u64::from(int.cast_unsigned());
        match is {
            Is::Int(value) => Some(int(value)),
            Is::Flags(flags) => Some(int(flags.bits() & !libc::O_LARGEFILE)),
            Is::Null => Some(0),
            Is::Constant(constant) => {
                let address = *self.addresses.get(constant as usize)?;
                (address != 0).then_some(address as u64)
            }
            Is::Descriptor(Descriptor::Route) => Some(int(self.route)),
            Is::Descriptor(Descriptor::Packets) => self.packets.map(int),
            Is::Descriptor(Descriptor::PidFile) => self.pid_file.map(int),
        }
    }
}

/// Installs [`on_violation`], so that a violation is logged before the process ends.
fn report_violations() -> Result<(), Errno> {
    let handler = SigHandler::SigAction(on_violation);
    let action = SigAction::new(handler, SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler makes system calls and nothing else, and never returns.
    unsafe { sigaction(Signal::SIGSYS, &action) }?;
    Ok(())
}

extern "C" fn on_violation(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    /// Offset of the number in `siginfo_t`: behind three ints, padding and the address of the instruction.
    const NUMBER: usize =
        (3 * size_of::<c_int>()).next_multiple_of(align_of::<usize>()) + size_of::<usize>();
    // SAFETY: the kernel passes a valid `siginfo_t`, in which SIGSYS has the number at this offset.
    let number = unsafe { info.cast::<u8>().add(NUMBER).cast::<u32>().read_unaligned() };
    sigsys::report_violation(number);
    // SAFETY: ends the process at once.
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

    /// Whether this kernel has seccomp; qemu-user has not.
    fn has_seccomp() -> bool {
        // SAFETY: a system call without pointers.
        unsafe { libc::prctl(libc::PR_GET_SECCOMP) >= 0 }
    }

    /// In a thread, as a filter is a thread's own.
    #[test]
    fn wrong_program_is_an_error() {
        let install = || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            install_program(&mut [load(libc::BPF_W, 1)])
        };
        let expected = if has_seccomp() { Err(NixErrno::EINVAL) } else { Ok(false) };
        assert_eq!(std::thread::spawn(install).join().unwrap(), expected);
    }

    /// Without seccomp in the kernel the client runs unrestricted.
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
