#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <time.h>
#include <sys/wait.h>
#include <fcntl.h>
/* missing names: one LOOKUP each, never cached by opt */
int main(int c,char**v){int n=atoi(v[2]),p=atoi(v[3]);struct timespec a,b;struct stat s;clock_gettime(CLOCK_MONOTONIC,&a);
for(int k=0;k<p;k++)if(!fork()){char f[400];for(int i=0;i<n/p;i++){snprintf(f,400,"%s/no%d-%d",v[1],k,i);stat(f,&s);}_exit(0);}
while(wait(0)>0);clock_gettime(CLOCK_MONOTONIC,&b);printf("%.2f\n",((b.tv_sec-a.tv_sec)*1e6+(b.tv_nsec-a.tv_nsec)/1e3)/n);}
