# Sourced by what keeps an array mounted on a node of a cluster (containers/serve-array, slurm/prolog, slurm/epilog):
# one way to look at a mount, to clear away a dead one, and to end it. The script sets `program` first.

say() { printf '%s: %s\n' "$program" "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# Whether a fastpersistfs shows at $1. The table is read, the mount not touched: one that hangs would hang this, too.
mounted() {
  escaped=$(printf '%s' "$1" | sed 's/\\/\\134/g; s/ /\\040/g; s/\t/\\011/g') awk '
    $5 == ENVIRON["escaped"] { for (i = 7; i < NF; i++) if ($i == "-") { type = $(i + 1); break } }
    END { exit type != "fuse.fastpersistfs" }' /proc/self/mountinfo
}

# Detaches what a daemon that died left at $1 ("Transport endpoint is not connected"); a live mount stays. Of several
# such on top of each other, all.
detach_dead() {
  while mounted "$1" && LC_ALL=C stat -f -- "$1" 2>&1 | grep -q 'endpoint is not connected'; do
    say "the daemon of $1 died; detaching what it left"
    umount -i -l -- "$1" || return 1
  done
}

# `ok`, or what is wrong, as `fpfs status --json` has it (failed, degraded, stalled, failing). Nothing, and a failure,
# when no daemon answers within 30 s.
state_of() {
  timeout -k 5 30 fpfs status --json -- "$1" 2>/dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])' 2>/dev/null
}

# unmount_within SECONDS MOUNTPOINT: unmounts, and returns when all is committed and the daemon has ended. While
# somebody has files open it is tried again. A failure: it is in use still, or something was lost; fpfs says which.
unmount_within() {
  end=$(($(date +%s) + $1))
  while :; do
    said=$(fpfs umount -- "$2" 2>&1) && return 0
    if ! mounted "$2" || [ "$(date +%s)" -ge "$end" ]; then
      printf '%s\n' "$said" >&2
      return 1
    fi
    sleep 0.5
  done
}
