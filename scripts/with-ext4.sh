#!/bin/sh
# Runs a command whose temporary files lie on a fresh ext4 of its own, where this user may mount one: what the
# tests do then depends neither on the file system of the machine (a tmpfs, quotas, how full it is) nor on its
# past: ext4 without a journal searches long for an inode after many were deleted.
#
#   scripts/with-ext4.sh COMMAND [ARGUMENT ...]
#
# BICKFORD_SCRATCH or TMPDIR say where else they are to lie; then nothing is mounted.
set -u
. "$(dirname "$0")/forwarding.sh"

[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }

if [ -n "${BICKFORD_SCRATCH:-}${TMPDIR:-}" ] || [ "$(id -u)" != 0 ]; then
	exec "$@"
fi

# Sparse. The million files of the full length need more inodes than there are by default.
advice="set TMPDIR to a directory for the temporary files of the tests"
image=$(mktemp -p /var/tmp --suffix .bickford-ext4) || { echo "with-ext4: no image in /var/tmp; $advice" >&2; exit 1; }
# Short: names of sockets below have 107 characters at most.
point=$(mktemp -d /tmp/bXXX) || { rm -f "$image"; echo "with-ext4: no mount point; $advice" >&2; exit 1; }
discard() {
	# What a failed test has left busy goes away with its last user.
	umount "$point" 2>/dev/null || umount -l "$point" 2>/dev/null
	rmdir "$point"
	rm -f "$image"
}
trap discard EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

PATH="$PATH:/usr/sbin:/sbin"
if said=$({ truncate -s 24G "$image" && mkfs.ext4 -q -F -m 0 -i 8192 "$image" &&
	mount -o loop,noinit_itable "$image" "$point"; } 2>&1); then
	rmdir "$point/lost+found"
	chmod 1777 "$point"
	TMPDIR=$point
	export TMPDIR
else
	echo "with-ext4: temporary files lie in /tmp: $said" >&2
fi
forwarding "$@"
