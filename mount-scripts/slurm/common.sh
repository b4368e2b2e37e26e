# Sourced by prolog, epilog and task-prolog, behind node.sh: their configuration, and who is on this node.

# What Slurm's own log does not have.
loudly() {
  say "job ${SLURM_JOB_ID:-unknown}: $*"
  logger -t "fastpersistfs-$program" -p daemon.err -- "job ${SLURM_JOB_ID:-unknown}: $*" 2>/dev/null || true
}
fail() {
  loudly "$*"
  exit 1
}

configuration=${FPFS_SLURM_CONFIGURATION:-/etc/fastpersistfs/slurm}
MOUNT_POINT='' MOUNTED_BY=node DIRS='' OPTIONS=allow_other FORMAT=no
DIRECTORY=user VARIABLE=FPFS_CHECKPOINTS WAIT=60
[ -r "$configuration" ] || fail "$configuration cannot be read"
# A misspelt name. Nothing to drain a node for: whoever computes something there has names of his own.
for name in $(sed -n 's/^\([A-Z][A-Z_]*\)=.*/\1/p' "$configuration"); do
  case $name in
    MOUNT_POINT | MOUNTED_BY | DIRS | OPTIONS | FORMAT | DIRECTORY | VARIABLE | WAIT) ;;
    *) loudly "$configuration: $name is not known, and does nothing; slurm.example has all names" ;;
  esac
done
. "$configuration"

[ -n "$MOUNT_POINT" ] || fail "$configuration has no MOUNT_POINT"
case $MOUNTED_BY in
  node | jobs) ;;
  *) fail "$configuration: MOUNTED_BY is '$MOUNTED_BY'; it must be node or jobs" ;;
esac
case $FORMAT in
  yes | no) ;;
  *) fail "$configuration: FORMAT is '$FORMAT'; it must be yes or no" ;;
esac
case $DIRECTORY in
  user | job) ;;
  *) fail "$configuration: DIRECTORY is '$DIRECTORY'; it must be user or job" ;;
esac
case ${SLURM_JOB_ID:-} in
  '' | *[!0-9]*) fail "SLURM_JOB_ID is '${SLURM_JOB_ID:-}': not called by Slurm" ;;
esac

# directory_of USER: where this job saves.
directory_of() {
  case $DIRECTORY in
    user) printf '%s/%s\n' "$MOUNT_POINT" "$1" ;;
    job) printf '%s/job-%s\n' "$MOUNT_POINT" "$SLURM_JOB_ID" ;;
  esac
}

# A file for each job on this node, with its user's number. Gone after a boot, as the jobs are.
jobs=${FPFS_SLURM_STATE:-/run/fastpersistfs/slurm}/jobs

# Slurm runs these at any time for several jobs: what they do to the mount is done by one after the other. The daemon
# must not inherit the lock (9>&-).
lock() {
  mkdir -p "$jobs"
  exec 9>"${jobs%/jobs}/lock"
  flock -w 900 9 || fail "another prolog or epilog has held ${jobs%/jobs}/lock for 15 minutes"
}
