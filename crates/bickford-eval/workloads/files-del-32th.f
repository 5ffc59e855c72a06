# FAST'17 row 42: files-del-32th
# Delete 2 million files of 4 KiB (the paper: 4 million on its SSD, 2 million on its HDD).
# Counts are those of the full size; --scale multiplies files and operations.

set $dir=/tmp
set $files=2000000
set mode quit alldone

define fileset name=files,path=$dir,entries=$files,size=4k,dirwidth=1000,prealloc

define process name=filedelete,instances=1
{
  thread name=deleter,instances=32
  {
    flowop deletefile name=delete,filesetname=files
  }
}
