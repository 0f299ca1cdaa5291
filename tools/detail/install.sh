# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034
# Shared by the scripts in tools/: talking to the user, and installing Debian packages.
# Source it; it sets nothing but the names below.
#
#   assume_yes=1      never ask                             (--yes)
#   no_install=1      never install                         (--no-install)
#   need_consent=1    without a terminal to ask on, install only with --yes

: "${assume_yes:=0}" "${no_install:=0}" "${need_consent:=0}"
program=${program:-${0##*/}}
apt_is_fresh=0

say()  { printf '%s\n' "$*"; }
note() { printf '%s: %s\n' "$program" "$*" >&2; }
step() { if [[ -t 1 ]]; then printf '\033[1m== %s\033[0m\n' "$*"; else printf '== %s\n' "$*"; fi; }
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [[ $(id -u) == 0 ]]; }

can_ask() { [[ -t 0 && -t 2 ]]; }

# ask QUESTION: true for yes. Asked only on a terminal.
ask() {
    local answer
    if ((assume_yes)) || ! can_ask; then return 0; fi
    printf '%s [Y/n] ' "$1" >&2
    read -r answer || return 1
    [[ -z $answer || $answer == [Yy]* ]]
}

# free_mib PATH: free space where PATH is, or will be.
free_mib() {
    local path=$1
    while [[ ! -e $path ]]; do path=$(dirname -- "$path"); done
    df -Pm -- "$path" | awk 'NR == 2 { print $4 }'
}

# require_space MIB PATH WHAT
require_space() {
    local free
    free=$(free_mib "$2")
    if [[ $free =~ ^[0-9]+$ ]] && ((free < $1)); then
        note "$3 needs about $1 MiB in $2, where $free MiB are free. Make room and start again."
        return 1
    fi
}

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

apt_knows() {
    [[ -n $(apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)"') ]]
}

apt_update() {
    ((apt_is_fresh)) && return 0
    say "Reading the package lists (apt-get update)"
    DEBIAN_FRONTEND=noninteractive apt-get -q update || return 1
    apt_is_fresh=1
}

# choose 'A|B': the first one that is installed, or that apt knows, else the first.
choose() {
    local name names
    IFS='|' read -ra names <<<"$1"
    for name in "${names[@]}"; do
        if is_installed "$name" || apt_knows "$name"; then say "$name"; return; fi
    done
    say "${names[0]}"
}

# install_packages PURPOSE PACKAGE...: installs what is missing; a PACKAGE may be 'this|or-that'.
# False when something is still missing; it has then said why and what to do.
install_packages() {
    local purpose=$1 spec name missing=() unknown=() plan size
    shift
    if ! have dpkg-query || ! have apt-get; then
        note "this is not Debian (no apt). For $purpose install by hand: ${*%%|*}"
        return 1
    fi
    for spec; do
        name=$(choose "$spec")
        is_installed "$name" || missing+=("$spec")
    done
    ((${#missing[@]})) || return 0

    if ((no_install)); then
        note "not installed, and --no-install was given; for $purpose do:"
        note "    sudo apt-get install --no-install-recommends ${missing[*]%%|*}"
        return 1
    fi
    if ! is_root; then
        note "packages are missing, and only root can install them; for $purpose do:"
        note "    sudo apt-get install --no-install-recommends ${missing[*]%%|*}"
        return 1
    fi

    if ((need_consent && !assume_yes)) && ! can_ask; then
        note "packages are missing. Give --yes, or for $purpose do:"
        note "    sudo apt-get install --no-install-recommends ${missing[*]%%|*}"
        return 1
    fi

    for spec in "${missing[@]}"; do
        apt_knows "$(choose "$spec")" || { apt_update || true; break; }
    done
    local wanted=()
    for spec; do # all of them: with new lists another one may be the choice
        name=$(choose "$spec")
        if is_installed "$name"; then continue; fi
        if apt_knows "$name"; then wanted+=("$name"); else unknown+=("$name"); fi
    done

    if ((${#wanted[@]})); then
        say "To install for $purpose: ${wanted[*]}"
        plan=$(apt-get -s install --no-install-recommends "${wanted[@]}" 2>&1) || {
            # Lists that are too old name packages that no longer fit together.
            apt_update || true
            plan=$(apt-get -s install --no-install-recommends "${wanted[@]}" 2>&1) || {
                printf '%s\n' "$plan" >&2
                note "apt cannot install them: see above"
                return 1
            }
        }
        if grep -q '^Inst linux-image' <<<"$plan"; then
            note "apt would install a kernel along with them, which this script never does. Stopped."
            return 1
        fi
        size=$(awk '/newly installed/ { print $3 }' <<<"$plan")
        ask "Install ${size:-the} packages with apt-get now?" || {
            note "not installed. To do it yourself:"
            note "    sudo apt-get install --no-install-recommends ${wanted[*]}"
            return 1
        }
        require_space 2000 /var "installing packages" || return 1
        apt_install "${wanted[@]}" || {
            { apt_update && apt_install "${wanted[@]}"; } || {
                note "apt-get could not install them: see above"
                return 1
            }
        }
    fi
    if ((${#unknown[@]})); then
        note "apt does not know ${unknown[*]}, wanted for $purpose. On Debian 12 all are there; or the lists are old: apt-get update"
        return 1
    fi
}

# need_to_build PURPOSE: false, with what to do, when something without which nothing builds is not there.
need_to_build() {
    local name missing=()
    for name in meson ninja pkg-config python3; do have "$name" || missing+=("$name"); done
    have "${CXX:-c++}" || have g++ || missing+=('a C++ compiler')
    if have pkg-config; then
        for name in librdmacm libibverbs zlib; do pkg-config --exists "$name" || missing+=("$name"); done
    fi
    ((${#missing[@]})) || return 0
    note "$1 cannot be built; missing: $(IFS=,; say "${missing[*]}")"
    note "On Debian: sudo apt-get update && sudo apt-get install --no-install-recommends ${fake_packages[*]} catch2"
    return 1
}

# The mirror that this machine's apt takes Debian from, if there is one; it needs no package lists. Others may have
# folders for Debian's releases, too: it is the one that also has their updates, or the first.
debian_mirror() {
    apt-get --print-uris update 2>/dev/null | sed -n "s,^'\(.*\)/dists/\([^/']*\)/InRelease'.*,\2 \1,p" | awk '
        $1 ~ /-updates$/ { print $2; found = 1; exit }
        first == "" && $1 ~ /^(bullseye|bookworm|trixie|forky|sid|(old)*stable|testing|unstable)$/ { first = $2 }
        END { if (!found) print first }'
}

apt_install() {
    local name
    for name; do
        [[ $name != linux-image* ]] || { note "refusing to install a kernel: $name"; return 1; }
    done
    local quiet=(-q)
    [[ -t 1 ]] || quiet=(-qq -o Dpkg::Use-Pty=0)
    DEBIAN_FRONTEND=noninteractive apt-get "${quiet[@]}" install -y --no-install-recommends "$@" </dev/null
}

# The packages that each part needs; one place for all scripts.
guest_packages=(qemu-system-x86 busybox-static cpio kmod iproute2 rdma-core ibverbs-providers xz-utils)
siw_packages=('gcc-12|gcc' make)
fake_packages=(g++ meson ninja-build pkg-config python3 librdmacm-dev libibverbs-dev zlib1g-dev)
test_packages=('g++-11|g++' 'clang-14|clang' 'libclang-rt-14-dev|libclang-rt-dev' valgrind
    'libc++-14-dev|libc++-dev' 'libc++abi-14-dev|libc++abi-dev'
    libasio-dev libboost-dev libuv1-dev
    librpma-dev python3-pyverbs gdb cmake build-essential debhelper doxygen doxygen-awesome-css)
guest_test_packages=(rdmacm-utils ibverbs-utils)

# Debian's releases whose rdma-core is compiled against, oldest first.
all_releases=(bullseye bookworm trixie sid)
