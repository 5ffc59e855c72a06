#!/bin/sh
# Runs a command with FUSE over io_uring switched on, where the kernel has it and this user may, and puts the
# setting back afterwards.
#
#   scripts/with-io-uring.sh COMMAND [ARGUMENT ...]
set -u
. "$(dirname "$0")/forwarding.sh"

parameter=/sys/module/fuse/parameters/enable_uring
[ $# -gt 0 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

before=
if [ -w "$parameter" ]; then
	before=$(cat "$parameter")
	put_back() { echo "$before" >"$parameter"; }
	trap put_back EXIT
	[ "$before" = Y ] || echo Y >"$parameter" ||
		echo "with-io-uring: $parameter stays $before: what needs io_uring is left out" >&2
fi
forwarding "$@"
