# Stages of first_contact.sh and second_contact.sh, which source this file: each has a limit, a log and a line in status.tsv.
# After it: OUT, PYTHON, DOUBLE (--double or nothing), the current directory is the project's root.
DOUBLE=()
if [ "${1:-}" = --double ]; then
    DOUBLE=(--double)
    shift
fi
mkdir -p "${1:-$(dirname "${BASH_SOURCE[0]}")/../../gpu_logs}"
OUT=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../../gpu_logs}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-590} # seconds of the whole: commands on lent machines end after 600
FAILED=0
SHOWN=6 # lines of each log
export PYTHONUNBUFFERED=1 PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
printf 'stage\tstate\texit\tseconds\tnote\n' >"$OUT/status.tsv"
: >"$OUT/missing.tsv"

record() { # NAME STATE EXIT SECONDS NOTE
    printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$OUT/status.tsv"
    echo "STAGE $1: $2, exit status $3, $4 s, at $SECONDS s${5:+: $5}"
}

missing() { # NAME: the reason why it cannot be used; nothing if it can
    sed -n "s/^$1\t//p" "$OUT/missing.tsv"
}

stage() { # NAME SECONDS NEEDS COMMAND...   NEEDS: words of which none may be missing
    local name=$1 limit=$2 needs=$3 begin=$SECONDS reason="" need code state=ok
    shift 3
    for need in $needs; do
        reason=${reason:-$(missing "$need")}
    done
    [ $((LIMIT - SECONDS)) -lt 5 ] && reason="the $LIMIT s of the whole are over"
    if [ -n "$reason" ]; then
        record "$name" skipped - 0 "$reason"
        return 0
    fi
    [ $((LIMIT - SECONDS)) -lt "$limit" ] && limit=$((LIMIT - SECONDS))
    timeout -k 5 "$limit" "$@" >"$OUT/$name.log" 2>&1
    code=$?
    [ $code -ne 0 ] && state=failed FAILED=1
    { [ $code -eq 124 ] || [ $code -eq 137 ]; } && state=timeout
    record "$name" $state $code $((SECONDS - begin)) ""
    tail -n "$SHOWN" "$OUT/$name.log"
    return $code
}

finish() {
    echo "TOTAL $SECONDS s, $(cut -f2 "$OUT/status.tsv" | grep -c '^ok$') stages ok; see $OUT/status.tsv"
    exit $FAILED
}
