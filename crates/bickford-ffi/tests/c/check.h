/* What the programs have in common. They include bickford.h before. */
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
