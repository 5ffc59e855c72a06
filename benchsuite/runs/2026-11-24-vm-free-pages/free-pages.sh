#!/bin/sh
# The copy of SAC'10's figure 5, natively, in turn with freed memory kept for a minute and given back to the host
# at once. For a kernel whose page reporting has the parameter min_free_ms; as root.
set -eu
parameter=/sys/module/page_reporting/parameters/min_free_ms
before=$(cat $parameter)
trap 'echo "$before" > $parameter' EXIT
for round in 1 2; do
	for kept in 60000 0; do
		echo $kept > $parameter
		name=$([ $kept = 0 ] && echo given-back || echo kept)-$round
		target/release/bickford eval --suite sac10 --device ram --rows s5 --config native --rounds 5 --out "$1/$name"
	done
done
