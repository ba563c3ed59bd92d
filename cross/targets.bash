# shellcheck shell=bash
# shellcheck disable=SC2034 # What is set here is used by the scripts that source this.
#
# The targets and directories. Sourced by the scripts here, from the repository's root.

# All that is installed, fetched or built. KEEPWATCH_CROSS may name a directory that survives `cargo clean`.
cache=$(realpath -m "${KEEPWATCH_CROSS:-target/cross}")

all=(x86_64 aarch64 armv7 arm mips mipsel mips64 riscv64 i386)
# Those with a kernel for an emulated machine.
bootable=(aarch64 armv7 arm mips mipsel mips64 riscv64 i386)

# Prints an error and exits.
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Sets `targets` to those requested.
choose() { # TARGET... | all
    [ $# -gt 0 ] || die "which target? One or more of: ${all[*]}, or all"
    if [ "$*" = all ]; then
        set -- "${all[@]}"
    fi
    local target
    for target; do
        describe "$target"
    done
    targets=("$@")
}

# Describes a target:
#   triple     rustc's name
#   features   of the CPU, for rustc
#   codegen    more options of rustc
#   zig, cpu   zig's name; without the CPU zig assumes a newer one than rustc
#   binutils   Debian's name of its binutils
#   user       runs its programs on this machine, with a typical CPU
#   relocation pie if position-independent, static if at a fixed address
#   expected   what keepwatch logs under that emulator only, a line each, for the tests
#   page_size  alignment of sections: the linker's default wastes 64 kB of file
describe() { # TARGET
    page_size=4096 cpu='' features='' codegen='' relocation=pie
    expected=$'no seccomp filter: \nthis kernel has no Landlock: \nnetlink events lost; resynchronising'
    case $1 in
    x86_64)
        # Needs no emulator, but cargo needs a runner.
        triple=x86_64-unknown-linux-musl zig=x86_64-linux-musl binutils=x86_64-linux-gnu user=env expected=
        ;;
    aarch64)
        # Some kernels have pages of 64 kB.
        triple=aarch64-unknown-linux-musl zig=aarch64-linux-musl page_size=65536
        binutils=aarch64-linux-gnu user='qemu-aarch64-static -cpu cortex-a53'
        ;;
    armv7)
        # All of them have Thumb-2, which is a fifth smaller.
        triple=armv7-unknown-linux-musleabihf zig=arm-linux-musleabihf features=,+thumb-mode
        binutils=arm-linux-gnueabi user='qemu-arm-static -cpu cortex-a7'
        ;;
    arm)
        # ARMv5 and later, in Thumb, a fifth smaller here, too. Atomics use the kernel's helpers (CONFIG_KUSER_HELPERS, which
        # a kernel for ARMv5 always has).
        triple=armv5te-unknown-linux-musleabi zig=arm-linux-musleabi cpu=arm926ej_s features=,+thumb-mode
        binutils=arm-linux-gnueabi user='qemu-arm-static -cpu arm926'
        ;;
    # Position-independent code takes every address from a table: a sixth more in size.
    mips)
        relocation=static
        triple=mips-unknown-linux-musl zig=mips-linux-musleabi cpu=mips32r2+soft_float
        binutils=mips-linux-gnu user='qemu-mips-static -cpu 24Kc'
        ;;
    mipsel)
        relocation=static
        triple=mipsel-unknown-linux-musl zig=mipsel-linux-musleabi cpu=mips32r2+soft_float
        binutils=mips-linux-gnu user='qemu-mipsel-static -cpu 24Kc'
        ;;
    mips64)
        # Big-endian, as the EdgeRouter. zig has no musl without floating point for it; of the program only musl's printf and
        # what that calls have such instructions.
        relocation=static
        triple=mips64-unknown-linux-muslabi64 zig=mips64-linux-muslabi64 cpu=mips64r2
        binutils=mips-linux-gnu user='qemu-mips64-static -cpu MIPS64R2-generic'
        ;;
    riscv64)
        # LLVM 22 moves code that is alike into functions of its own, by tail calls that overwrite t1, which may hold an
        # argument: with --debug, keepwatch crashed at its first announcement.
        triple=riscv64gc-unknown-linux-musl zig=riscv64-linux-musl codegen=' -Cllvm-args=-enable-machine-outliner=never'
        binutils=riscv64-linux-gnu user='qemu-riscv64-static -cpu rv64'
        ;;
    i386)
        # Without SSE, as a Geode, an Alix or a Soekris.
        triple=i586-unknown-linux-musl zig=x86-linux-musl cpu=pentium_mmx
        binutils=x86_64-linux-gnu user='qemu-i386-static -cpu pentium'
        ;;
    *) die "no target $1; there are: ${all[*]}" ;;
    esac
}
