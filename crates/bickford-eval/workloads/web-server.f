# FAST'17 row 45: web-server
# 100 threads: ten times open, read whole, close; then append 16 KiB to a log they share.
# Counts are those of the full size; --scale multiplies files and operations.

set $dir=/tmp
set $files=1250000
set $operations=6000000
set mode quit alldone

define fileset name=pages,path=$dir,entries=$files,size=16k,dirwidth=20,prealloc
define file name=log,path=$dir,size=0,prealloc

define process name=webserver,instances=1
{
  thread name=server,instances=100
  {
    flowop openfile name=open1,filesetname=pages,fd=1
    flowop readwholefile name=read1,fd=1,iosize=1m
    flowop closefile name=close1,fd=1
    flowop openfile name=open2,filesetname=pages,fd=1
    flowop readwholefile name=read2,fd=1,iosize=1m
    flowop closefile name=close2,fd=1
    flowop openfile name=open3,filesetname=pages,fd=1
    flowop readwholefile name=read3,fd=1,iosize=1m
    flowop closefile name=close3,fd=1
    flowop openfile name=open4,filesetname=pages,fd=1
    flowop readwholefile name=read4,fd=1,iosize=1m
    flowop closefile name=close4,fd=1
    flowop openfile name=open5,filesetname=pages,fd=1
    flowop readwholefile name=read5,fd=1,iosize=1m
    flowop closefile name=close5,fd=1
    flowop openfile name=open6,filesetname=pages,fd=1
    flowop readwholefile name=read6,fd=1,iosize=1m
    flowop closefile name=close6,fd=1
    flowop openfile name=open7,filesetname=pages,fd=1
    flowop readwholefile name=read7,fd=1,iosize=1m
    flowop closefile name=close7,fd=1
    flowop openfile name=open8,filesetname=pages,fd=1
    flowop readwholefile name=read8,fd=1,iosize=1m
    flowop closefile name=close8,fd=1
    flowop openfile name=open9,filesetname=pages,fd=1
    flowop readwholefile name=read9,fd=1,iosize=1m
    flowop closefile name=close9,fd=1
    flowop openfile name=open10,filesetname=pages,fd=1
    flowop readwholefile name=read10,fd=1,iosize=1m
    flowop closefile name=close10,fd=1
    flowop appendfilerand name=log,filesetname=log,iosize=16k,fd=2
    flowop finishoncount name=finish,value=$operations
  }
}
