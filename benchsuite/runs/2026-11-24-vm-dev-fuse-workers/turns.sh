echo 11 > /sys/module/page_reporting/parameters/page_reporting_order; ./touch-memory
[ -f img ] || { truncate -s 4G img; mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 img; }
mkdir -p low mnt; mountpoint -q low || mount -o loop img low; mkdir -p low/d
for r in 0 1 2 3 4 5; do for w in old hyb; do
 setsid ./bickford-$w mount --preset opt low mnt >/dev/null 2>/dev/null </dev/null || exit 1
 sleep .3
 for c in 1 2 4 8 32; do echo "$r $w lookup $c $(./lookups mnt 100000 $c)"; done
 for c in 1 8; do echo "$r $w mkrm $c $(./mkdirs mnt/d 20000 $c)"; done
 rm -rf mnt/pm; mkdir mnt/pm;
 s=$(date +%s.%N); (cd mnt/pm; printf 'set size 1024 16384\nset number 2000\nset transactions 15000\nset seed 42\nrun\nquit\n' | postmark >/dev/null); e=$(date +%s.%N)
 echo "$r $w postmark 1 $(echo "$e - $s" | bc)"
 ./bickford-$w unmount mnt || umount -l mnt
done; done
umount low; echo done
