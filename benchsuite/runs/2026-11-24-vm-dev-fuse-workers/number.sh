mountpoint -q low || mount -o loop img low; mkdir -p low/d
for r in 0 1 2 3; do for w in old 1 2 3 4 6 8; do
 if [ $w = old ]; then b=./bickford-old; else b=./bickford-idle; fi
 BICK_IDLE=$w setsid $b mount --preset opt low mnt >/dev/null 2>/dev/null </dev/null || exit 1
 sleep .3
 for c in 1 2 8 32; do echo "$r $w lookup $c $(./lookups mnt 60000 $c)"; done
 for c in 1 8; do echo "$r $w mkrm $c $(./mkdirs mnt/d 10000 $c)"; done
 rm -rf mnt/pm; mkdir mnt/pm;
 s=$(date +%s.%N); (cd mnt/pm; printf 'set size 1024 16384\nset number 1000\nset transactions 5000\nset seed 42\nrun\nquit\n' | postmark >/dev/null); e=$(date +%s.%N)
 echo "$r $w postmark 1 $(echo "$e - $s" | bc)"
 ./bickford-new unmount mnt || umount -l mnt
done; done
umount low; echo done
