/* What the programs have in common. They include bickford.h before. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                       \
	do {                                                                                       \
		if (!(condition)) {                                                                    \
			fprintf(stderr, "line %d: %s: errno %d (%s), bickford: %s\n", __LINE__,            \
				#condition, errno, strerror(errno), bickford_last_error());                    \
			exit(1);                                                                           \
		}                                                                                      \
	} while (0)

#define BIT(operation) (UINT64_C(1) << (operation))

/* How many descriptors the process has, and a few of the directory itself. */
static inline int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	CHECK(directory != NULL);
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}
