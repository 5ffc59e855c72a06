# FAST'17 row 44: mail-server
# 16 threads in one directory: delete; create, append, fsync; open, read, append, fsync; open, read.
# Counts are those of the full size; --scale multiplies files and operations.

set $dir=/tmp
set $files=1500000
set $operations=4000000
set mode quit alldone

define fileset name=mail,path=$dir,entries=$files,size=16k,dirwidth=1500000,prealloc=80

define process name=mailserver,instances=1
{
  thread name=server,instances=16
  {
    flowop deletefile name=delete,filesetname=mail
    flowop createfile name=create,filesetname=mail,fd=1
    flowop appendfilerand name=append1,fd=1,iosize=16k
    flowop fsync name=fsync1,fd=1
    flowop closefile name=close1,fd=1
    flowop openfile name=open2,filesetname=mail,fd=1
    flowop readwholefile name=read2,fd=1,iosize=1m
    flowop appendfilerand name=append2,fd=1,iosize=16k
    flowop fsync name=fsync2,fd=1
    flowop closefile name=close2,fd=1
    flowop openfile name=open3,filesetname=mail,fd=1
    flowop readwholefile name=read3,fd=1,iosize=1m
    flowop closefile name=close3,fd=1
    flowop finishoncount name=finish,value=$operations
  }
}
