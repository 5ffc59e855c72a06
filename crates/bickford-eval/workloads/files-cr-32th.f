# FAST'17 row 38: files-cr-32th
# Create 4 million files of 4 KiB: create, write whole file, close.
# Counts are those of the full size; --scale multiplies files and operations.

set $dir=/tmp
set $files=4000000
set mode quit alldone

define fileset name=files,path=$dir,entries=$files,size=4k,dirwidth=1000

define process name=filecreate,instances=1
{
  thread name=creator,instances=32
  {
    flowop createfile name=create,filesetname=files,fd=1
    flowop writewholefile name=write,fd=1,iosize=4k
    flowop closefile name=close,fd=1
  }
}
