/* SPDX-License-Identifier: Apache-2.0 */
#include "job/nic.h"

#include <string.h>

static const char *const distance_names[DISTANCE_COUNT] = {
	[DISTANCE_PIX] = "pix",	  [DISTANCE_PXB] = "pxb", [DISTANCE_PHB] = "phb",
	[DISTANCE_NODE] = "node", [DISTANCE_SYS] = "sys",
};

const char *nic_distance_name(enum nic_distance distance)
{
	return (unsigned)distance < DISTANCE_COUNT ? distance_names[distance] : "unknown";
}

bool nic_distance_parse(const char *name, enum nic_distance *distance)
{
	for (int i = 0; i < DISTANCE_COUNT; i++) {
		if (strcmp(name, distance_names[i]) == 0) {
			*distance = (enum nic_distance)i;
			return true;
		}
	}
	return false;
}
