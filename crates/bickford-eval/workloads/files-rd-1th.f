# FAST'17 row 39: files-rd-1th
# Open, read whole and close 4 KiB files among 1 million that exist; 1 million times.
# Counts are those of the full size; --scale multiplies files and operations.

set $dir=/tmp
set $files=1000000
set $operations=3000000
set mode quit alldone

define fileset name=files,path=$dir,entries=$files,size=4k,dirwidth=1000,prealloc

define process name=fileread,instances=1
{
  thread name=reader,instances=1
  {
    flowop openfile name=open,filesetname=files,fd=1
    flowop readwholefile name=read,fd=1,iosize=4k
    flowop closefile name=close,fd=1
    flowop finishoncount name=finish,value=$operations
  }
}
