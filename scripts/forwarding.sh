# For scripts that see to something around a command, to be read by them.
# shellcheck shell=sh

# forwarding COMMAND [ARGUMENT ...]: runs it, and passes on what is to end this shell to all that it started:
# cargo and make do not. A session of its own, as the group may be that of whoever called; a terminal's Ctrl-Z
# does not reach it.
forwarding() {
	child=
	signal=
	for name in HUP INT QUIT TERM; do
		# shellcheck disable=SC2064 # which one is known now
		trap "signal=$name; pass_on" "$name"
	done
	# A shell has what it runs beside it ignore INT and QUIT, and read nothing.
	[ -e /proc/self/fd/0 ] || exec </dev/null
	exec 3<&0
	setsid env --default-signal=INT,QUIT "$@" <&3 3<&- &
	child=$!
	exec 3<&-
	[ -z "$signal" ] || pass_on
	wait "$child"
	status=$?
	# A signal ends the waiting alone.
	while kill -0 "$child" 2>/dev/null; do
		wait "$child"
		status=$?
	done
	return "$status"
}

# It has no group before setsid(1) has begun, and ignores INT until then.
pass_on() {
	[ -z "$child" ] || kill -s "$signal" -- "-$child" 2>/dev/null || kill "$child" 2>/dev/null || :
}
