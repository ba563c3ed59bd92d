# shellcheck shell=bash disable=SC2154 # What is not set here is set by targets.bash.
# Calls cargo for a target. Sourced by the scripts here, after targets.bash.

# Waits until no other script builds, as their programs are in the same directory. `exec {turn}>&-` ends the turn.
take_turn() {
    mkdir -p "$cache"
    exec {turn}>"$cache/turn"
    flock "$turn"
}

# Runs cargo with a standard library built for a target described before, in one of these ways:
#   release   small: a panic is a trap without a message, as a daemon has no place to print it
#   guest     as release, but a panic prints its message
#   test      a panic unwinds, as tests require
# No standard library for MIPS comes with rustc; RUSTC_BOOTSTRAP lets a stable rustc build it.
cross_cargo() { # WAY COMMAND [ARGUMENT...]
    local way=$1 command=$2 zig_path
    shift 2
    zig_path=$(printf '%s\n' "$cache"/venv/lib/python3*/site-packages/ziglang/zig)
    [ -x "$zig_path" ] || die "zig is not installed; run cross/install"
    local flags="-Ctarget-feature=+crt-static$features -Clink-self-contained=no"
    flags+=" -Crelocation-model=$relocation$codegen"
    if [ "$relocation" = static ]; then
        # LLVM reads a thread-local variable of another crate from a table. On 64-bit MIPS it finds that table by the
        # function's address in $t9, which no caller sets in code for a fixed address.
        flags+=" -Ztls-model=local-exec"
    else
        # rustc links static-pie only for x86_64.
        flags+=" -Clink-arg=-pie"
    fi
    # Without debugging information cargo strips, and zig then also strips the symbols.
    local std=std,panic_abort unstable=(--config profile.release.strip=false)
    # A relocation takes 24 bytes for each word, or almost none if packed.
    local linker_flags="--pack-dyn-relocs=relr --icf=all"
    case $way in
    release)
        flags+=" -Cforce-unwind-tables=no -Zlocation-detail=none"
        unstable+=(-Zpanic-immediate-abort --config 'profile.release.panic="immediate-abort"')
        # For ARM's unwind tables, which are not used.
        linker_flags+=' --defsym=__aeabi_unwind_cpp_pr0=abort --defsym=__aeabi_unwind_cpp_pr1=abort'
        ;;
    guest) flags+=" -Cforce-unwind-tables=no" ;;
    test)
        std=std,panic_unwind,test
        unstable=(--config profile.dev.opt-level=1 --config profile.dev.debug=false)
        ;;
    esac
    # The list of crates, in a section that takes 600 bytes of the file and no memory. Called by its name: `cargo
    # auditable` would put the path of its installation into the names of all symbols.
    local auditable=()
    [ "$way" != release ] || auditable=(RUSTC_WORKSPACE_WRAPPER=cargo-auditable
        'CARGO_AUDITABLE_ORIG_ARGS={"offline":false,"locked":true,"frozen":false,"config":[]}')
    local linker=${triple//-/_}
    # zig's musl has 64-bit times on 32-bit machines, which the crate libc has to be told until its next version.
    env RUST_LIBC_UNSTABLE_MUSL_V1_2_3=1 "CARGO_TARGET_${linker^^}_LINKER=$PWD/cross/cc" \
        "CARGO_TARGET_${linker^^}_RUNNER=$user" \
        ZIG="$zig_path" ZIG_TARGET="$zig" ZIG_CPU="$cpu" PAGE_SIZE="$page_size" LINKER_FLAGS="$linker_flags" \
        ZIG_GLOBAL_CACHE_DIR="$cache/zig" ZIG_LOCAL_CACHE_DIR="$cache/zig" \
        PATH="/usr/bin:$cache/tools/bin:$PATH" RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" \
        CARGO_TARGET_DIR="$cache/$way" "${auditable[@]}" \
        /usr/bin/cargo "$command" --quiet --locked --target "$triple" \
        -Zbuild-std="$std" -Zbuild-std-features=optimize_for_size "${unstable[@]}" "$@"
}

# On MIPS lld would leave `.pdr` in the file, a third of it.
strip() { # FROM TO
    "$binutils-objcopy" --strip-all -R .pdr -R .mdebug.abi32 -R .comment "$1" "$2"
}

# Strips the newest test program of a name.
strip_test() { # DIRECTORY NAME TO
    local programs
    mapfile -t programs < <(find "$cache/$1/deps" -name "$2-*" -type f -perm -u+x -printf '%T@ %p\n' | sort -rn)
    [ ${#programs[@]} -gt 0 ] || die "no test $2 was built"
    strip "${programs[0]#* }" "$3"
}
