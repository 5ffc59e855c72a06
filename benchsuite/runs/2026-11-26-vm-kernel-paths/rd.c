#include <fcntl.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int main(int c,char**v){char b[4096];char p[512];struct timespec a,e;long n=0;clock_gettime(CLOCK_MONOTONIC,&a);
 if(!strcmp(v[1],"read")){snprintf(p,512,"%s/big",v[2]);int f=open(p,O_RDONLY);for(int r=0;r<100;r++){lseek(f,0,0);while(read(f,b,4096)==4096)n++;}}
 else for(int r=0;r<5000;r++)for(int i=1;i<=200;i++){snprintf(p,512,"%s/s%d",v[2],i);int f=open(p,O_RDONLY);if(f<0)return 1;read(f,b,4096);close(f);n++;}
 clock_gettime(CLOCK_MONOTONIC,&e);printf("%s %s %.3f us\n",v[1],v[2],((e.tv_sec-a.tv_sec)*1e6+(e.tv_nsec-a.tv_nsec)/1e3)/n);}
