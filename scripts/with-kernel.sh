#!/bin/sh
# Runs a command under another Linux kernel, in a virtual machine that sees the files of this machine. What it
# changes, it changes in memory. There is no network.
#
#   scripts/with-kernel.sh KERNEL [COMMAND [ARGUMENT ...]]
#   scripts/with-kernel.sh 6.12 make unit conformance-default
#   scripts/with-kernel.sh 6.1 sh
#
# KERNEL is the beginning of a version of which apt knows a package linux-image-VERSION-amd64, or a directory with
# the files of such a package (boot/vmlinuz-VERSION, lib/modules/VERSION), also of one for another Debian.
# Without a COMMAND it is a shell. What a COMMAND needs has to be there, and what it builds should be built.
#
#   WITH_KERNEL_ACCEL     kvm, or tcg, which takes some ten times as long and works everywhere; the first that is there
#   WITH_KERNEL_MEMORY    memory in MiB; half of this machine's
set -eu

fail() { echo "with-kernel: $*" >&2; exit 1; }

[ $# -gt 0 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
kernel=$1
shift
[ "$(id -u)" = 0 ] || fail "only root can read all files of this machine"
[ "$(uname -m)" = x86_64 ] || fail "only for x86-64"
PATH="$PATH:/usr/sbin:/sbin"
missing=
need() { command -v "$2" >/dev/null 2>&1 || missing="$missing $1"; }
need qemu-system-x86 qemu-system-x86_64
need kmod modprobe
need cpio cpio
need xz-utils xz
# Alone in the machine until its file systems are mounted.
{ [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1; } || missing="$missing busybox-static"
[ -z "$missing" ] || fail "missing:$missing; apt-get install --no-install-recommends$missing"

top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d /var/tmp/with-kernel-XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ -d "$kernel" ]; then
	files=$(cd "$kernel" && pwd)
else
	package=
	# The newest that is still offered.
	begins="^linux-image-$(printf %s "$kernel" | sed 's/\./\\./g')([.+-]|\$)"
	for name in $(apt-cache pkgnames "linux-image-$kernel" | grep -E "$begins" |
		grep -E '^linux-image-[0-9.]+(-[0-9]+|\+deb[0-9]+)?-amd64$' | sort -rV); do
		if apt-cache policy "$name" | grep -q 'Candidate: [0-9]'; then
			package=$name
			break
		fi
	done
	[ -n "$package" ] || fail "apt has no package linux-image-$kernel*-amd64; apt-get update, or name a directory"
	files=${CARGO_TARGET_DIR:-$top/target}/kernels/$package
	if [ ! -d "$files" ]; then
		(cd "$work" && apt-get download -q "$package") || fail "apt-get download $package has failed"
		dpkg-deb -x "$work"/*.deb "$work/files"
		rm "$work"/*.deb
		mkdir -p "$(dirname "$files")"
		mv "$work/files" "$files"
	fi
fi
first() { find "$files" -path "$1" | head -n 1; }
image=$(first '*/vmlinuz*')
modules=$(first '*/lib/modules')
[ -n "$image" ] && [ -n "$modules" ] || fail "$files: there is no vmlinuz, or there are no lib/modules"
version=$(ls "$modules")
mkdir -p "$work/modules/lib"
cp -a "$modules" "$work/modules/lib/"
depmod -b "$work/modules" "$version"

# What is needed to see this machine's files, in the order in which it is loaded.
root=$work/root
mkdir -p "$root/bin" "$root/modules" "$root/command"
cp /bin/busybox "$root/bin/"
for module in virtio_pci 9pnet_virtio 9p overlay; do
	modprobe -d "$work/modules" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' >"$work/order"
while read -r file; do
	name=$(basename "$file" .xz)
	case $file in
	*.xz) xz -dc "$file" >"$root/modules/$name" ;;
	*) cp "$file" "$root/modules/$name" ;;
	esac
	echo "$name"
done <"$work/order" >"$root/modules/order"

# The words of the command, each in a file.
[ $# -gt 0 ] || set -- sh
number=100
for word; do
	printf %s "$word" >"$root/command/$number"
	number=$((number + 1))
done
pwd >"$root/command/directory"
printf '%s\n' "$PATH" >"$root/command/path"
printf '%s\n' "$HOME" >"$root/command/home"
printf '%s\n' "$work/modules/lib/modules/$version" >"$root/command/modules"

cat >"$root/init" <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /files /changes /all
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
while read -r module; do
	$b insmod "/modules/$module" || echo "with-kernel: $module cannot be loaded"
done </modules/order
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro files /files
$b mount -t tmpfs -o size=90% tmpfs /changes
$b mkdir /changes/upper /changes/work
$b mount -t overlay -o lowerdir=/files,upperdir=/changes/upper,workdir=/changes/work overlay /all
for directory in proc sys dev; do
	$b mount --move "/$directory" "/all/$directory"
done
$b mkdir -p /all/dev/shm /all/dev/pts /all/run
for directory in tmp run dev/shm; do
	$b mount -t tmpfs -o mode=1777 tmpfs "/all/$directory"
done
$b mount -t devpts devpts /all/dev/pts
$b mkdir /all/run/with-kernel
$b cp -a /command/. /all/run/with-kernel/
$b cp /begin /all/run/with-kernel/begin
exec $b switch_root /all /bin/sh /run/with-kernel/begin
END
chmod +x "$root/init"

cat >"$root/begin" <<'END'
cd /run/with-kernel
export PATH="$(cat path)" HOME="$(cat home)"
ln -s /proc/self/fd /dev/fd
for stream in stdin:0 stdout:1 stderr:2; do
	ln -s "fd/${stream#*:}" "/dev/${stream%:*}"
done
mkdir -p /lib/modules
ln -sfn "$(cat modules)" "/lib/modules/$(uname -r)"
for module in fuse loop ext4; do
	modprobe "$module"
done
mount -t cgroup2 none /sys/fs/cgroup
mount -t tracefs none /sys/kernel/tracing
mount -t fusectl none /sys/fs/fuse/connections
ip link set lo up 2>/dev/null
# As a system has it that was started by systemd.
ulimit -Hn 1048576
hostname with-kernel 2>/dev/null
set --
for word in [0-9]*; do
	set -- "$@" "$(cat "$word")"
done
cd "$(cat directory)"
uname -sr
setsid -c "$@" </dev/ttyS0 >/dev/ttyS0 2>&1
echo $? >/dev/ttyS1
echo o >/proc/sysrq-trigger
# Another process would not be found any more.
while :; do :; done
END

(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initramfs"

total=$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)
memory=${WITH_KERNEL_MEMORY:-$((total / 2048))}
: >"$work/status"
# Its terminal is the machine's, if there is one.
qemu-system-x86_64 -machine "accel=${WITH_KERNEL_ACCEL:-kvm:tcg}" -cpu max -smp "$(nproc)" -m "$memory" \
	-display none -monitor none -serial stdio -serial "file:$work/status" -no-reboot -nic none \
	-kernel "$image" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" \
	-virtfs local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap
status=$(tr -d '\r\n' <"$work/status")
[ -n "$status" ] || fail "the machine ended before the command had"
exit "$status"
