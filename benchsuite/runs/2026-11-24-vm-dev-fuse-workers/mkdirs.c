#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <time.h>
#include <sys/wait.h>
int main(int c,char**v){int n=atoi(v[2]),p=atoi(v[3]);struct timespec a,b;clock_gettime(CLOCK_MONOTONIC,&a);
for(int k=0;k<p;k++)if(!fork()){char d[300],f[400];snprintf(d,300,"%s/c%d",v[1],k);mkdir(d,0755);for(int i=0;i<n/p;i++){snprintf(f,400,"%s/x%d",d,i%100);if(mkdir(f,0755)||rmdir(f)){perror(f);_exit(1);}}rmdir(d);_exit(0);}
int st,bad=0;while(wait(&st)>0)bad|=st;clock_gettime(CLOCK_MONOTONIC,&b);
printf("%.2f\n",((b.tv_sec-a.tv_sec)*1e6+(b.tv_nsec-a.tv_nsec)/1e3)/n);return bad!=0;}
