# FAST'17 row 43: file-server
# 50 threads: create and write a file, append to one, read one, delete one, stat one.
# Counts are those of the full size; --scale multiplies files and operations.

set $dir=/tmp
set $files=200000
set $operations=2000000
set mode quit alldone

define fileset name=files,path=$dir,entries=$files,size=128k,dirwidth=20,prealloc=80

define process name=fileserver,instances=1
{
  thread name=server,instances=50
  {
    flowop createfile name=create,filesetname=files,fd=1
    flowop writewholefile name=write,fd=1,iosize=1m
    flowop closefile name=close1,fd=1
    flowop openfile name=open1,filesetname=files,fd=1
    flowop appendfilerand name=append,fd=1,iosize=16k
    flowop closefile name=close2,fd=1
    flowop openfile name=open2,filesetname=files,fd=1
    flowop readwholefile name=read,fd=1,iosize=1m
    flowop closefile name=close3,fd=1
    flowop deletefile name=delete,filesetname=files
    flowop statfile name=stat,filesetname=files
    flowop finishoncount name=finish,value=$operations
  }
}
