# For scripts that see to something around a command, to be read by them.
# shellcheck shell=sh

# forwarding COMMAND [ARGUMENT ...]: runs it, and passes on what is to end this shell to all that it started:
# cargo and make do not. A session of its own, as the group may be that of whoever called.
forwarding() {
	child=
	for signal in HUP INT TERM; do
		# shellcheck disable=SC2064 # which one is known now
		trap "[ -z \"\$child\" ] || kill -s $signal -- -\$child 2>/dev/null || :" "$signal"
	done
	# A shell has what it runs beside it ignore INT and QUIT, and read nothing.
	exec 3<&0
	setsid env --default-signal=INT,QUIT "$@" <&3 3<&- &
	child=$!
	exec 3<&-
	wait "$child"
	status=$?
	# A signal ends the waiting alone.
	while kill -0 "$child" 2>/dev/null; do
		wait "$child"
		status=$?
	done
	return "$status"
}
