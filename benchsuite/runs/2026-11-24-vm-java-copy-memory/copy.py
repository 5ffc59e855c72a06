"""cp of 1.1 GB on StackFS `opt` and on JavaFuse1 with it, with and without a memory limit, in turn.

Run as root in the root of the project, once the command and the Java binding are built (release). In the third
configuration another process holds 52 MiB in the same cgroup (version 1).
"""
import os, subprocess, sys, time, statistics

ROUNDS = int(sys.argv[1])
HERE = os.getcwd()
IMAGE, LOWER, MOUNT = '/dev/shm/copy.img', '/var/tmp/copy/low', '/var/tmp/copy/mnt'
LIMIT = 2 << 30
for line in open('/proc/self/mounts'):
    fields = line.split()
    if fields[2] == 'cgroup' and 'memory' in fields[3].split(','):
        GROUP = fields[1] + '/copy-test'
HOLD = """x = bytearray(52 << 20)
for i in range(0, len(x), 4096): x[i] = 1
print(1, flush=True)
import time
time.sleep(100)"""
CONFIGURATIONS = {
    'opt': [HERE + '/target/release/bickford', 'mount', '-f', '--preset', 'opt', LOWER, MOUNT],
    'JavaFuse1': [HERE + '/bindings/java/bin/javafuse', '--class', 'io.github.bickfordfs.examples.NullFs',
                  '--classpath', HERE + '/bindings/java/target/test-classes', '--data', 'none',
                  '-o', 'preset=opt', LOWER, MOUNT],
    'opt, 52 MiB held': None,
}


def sh(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def join(limited):
    def enter():
        if limited:
            open(GROUP + '/cgroup.procs', 'w').write(str(os.getpid()))
    return enter


def run(configuration, limited):
    """Seconds of the copy, and MiB of the daemon's resident memory before it."""
    sh('mount', loop, LOWER)
    open('/proc/sys/vm/drop_caches', 'w').write('3')
    holder, command = None, CONFIGURATIONS[configuration]
    if command is None:
        command = CONFIGURATIONS['opt']
        holder = subprocess.Popen([sys.executable, '-c', HOLD], stdout=subprocess.PIPE, preexec_fn=join(limited))
        holder.stdout.readline()
    daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=join(limited))
    for _ in range(1000):
        if os.path.ismount(MOUNT):
            break
        time.sleep(.01)
    time.sleep(.5)
    status = open(f'/proc/{daemon.pid}/status').read().splitlines()
    resident = next(int(line.split()[1]) // 1024 for line in status if line.startswith('VmRSS'))
    begun = time.monotonic()
    subprocess.run(['cp', MOUNT + '/big', MOUNT + '/copy'], check=True, preexec_fn=join(limited))
    took = time.monotonic() - begun
    sh('umount', MOUNT)
    daemon.wait()
    if holder:
        holder.kill()
        holder.wait()
    os.remove(LOWER + '/copy')
    sh('umount', LOWER)
    return took, resident


for directory in (LOWER, MOUNT, GROUP):
    os.makedirs(directory, exist_ok=True)
open(GROUP + '/memory.limit_in_bytes', 'w').write(str(LIMIT))
block = os.urandom(1 << 20)
with open(IMAGE, 'wb') as file:
    for _ in range(4096):
        file.write(block)
sh('mkfs.ext4', '-q', '-F', '-E', 'lazy_itable_init=0,lazy_journal_init=0', IMAGE)
loop = subprocess.check_output(['losetup', '-f', '--show', '--direct-io=on', IMAGE], text=True).strip()
sh('mount', loop, LOWER)
with open(LOWER + '/big', 'wb') as file:
    for _ in range(1126):
        file.write(block)
sh('umount', LOWER)
results = {}
try:
    for number in range(ROUNDS + 1):
        order = [(c, limited) for limited in (0, 1) for c in CONFIGURATIONS]
        order = order[number % len(order):] + order[:number % len(order)]
        for configuration, limited in order:
            took, resident = run(configuration, limited)
            if number:
                results.setdefault((configuration, limited), []).append(took)
            print(number, configuration, '2 GiB' if limited else 'no limit', round(took, 4), resident, flush=True)
    for limited in (0, 1):
        for configuration in CONFIGURATIONS:
            times = results[configuration, limited]
            ratios = [a / b for a, b in zip(results['opt', limited], times)]
            print('limit' if limited else 'none ', configuration,
                  'median %.3f s (%.3f-%.3f)' % (statistics.median(times), min(times), max(times)),
                  'of opt %.3f (%.2f-%.2f)' % (statistics.median(ratios), min(ratios), max(ratios)))
finally:
    for point in (MOUNT, LOWER):
        subprocess.run(['umount', '-l', point], stderr=subprocess.DEVNULL)
    sh('losetup', '-d', loop)
    os.remove(IMAGE)
    os.rmdir(GROUP)
