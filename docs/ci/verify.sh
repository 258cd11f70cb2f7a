#!/bin/sh
# A nightly check without a CI. In crontab:  17 3 * * *  /path/to/verify.sh /path/to/artifacts/smollm2_cpu/latest
# Leaves verify.log (a line a night), verify.xml and verify.md in OUT; exits as `vibeserve verify` does, 75 when an
# earlier one still runs. cron mails what it prints, which is nothing while the claim holds.
set -u
artifact=$1
level=${LEVEL:-performance}
out=${OUT:-.}

exec 9>"$out/verify.lock"
flock -n 9 || exit 75

status=0
verdict=$(vibeserve verify "$artifact" --level "$level" --max-regression "${MAX_REGRESSION:-0.10}" \
    --junit "$out/verify.xml" --summary "$out/verify.md" 2>"$out/verify.stderr") || status=$?
printf '%s exit %s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$status" "$verdict" >>"$out/verify.log"
if [ "$status" -ne 0 ]; then
    printf '%s\n' "$verdict"
    cat "$out/verify.stderr"
fi
exit "$status"
