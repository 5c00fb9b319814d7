/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c -- the system's libibverbs behind the table. errno is cleared before each call: what
 * is in it afterwards was left by this call, and 0 says that the driver left nothing.
 */
#include "transport/verbs/calls.h"

#include <errno.h>

#define CALL(result, name, parameters, arguments) \
	static result call_##name parameters      \
	{                                         \
		errno = 0;                        \
		return ibv_##name arguments;      \
	}
#define CALL_VOID(result, name, parameters, arguments) \
	static result call_##name parameters           \
	{                                              \
		ibv_##name arguments;                  \
	}

const struct verbs_calls *(*verbs_calls_tested)(struct member self);

VERBS_CALLS(CALL, CALL_VOID)

const struct verbs_calls verbs_calls_system = {
#define X(result, name, parameters, arguments) .name = call_##name,
	VERBS_CALLS(X, X)
#undef X
};
