/* SPDX-License-Identifier: Apache-2.0
 *
 * transform_layout.c -- the pieces of a layout shared out to threads: each takes the next one that
 * none has. After a failure only pieces before the failed one go on, so the first is found always.
 */
#include "worker/referee/transform.h"

#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>

struct share {
	const struct referee_transform *transform;
	const struct layout *layout;
	_Atomic size_t next, end; /* pieces; the end moves back to the first that failed */
	pthread_mutex_t lock;	  /* of what follows, and of who moves the end */
	int rc;
	struct error error;
};

static void fail_at(struct share *share, size_t piece, int rc, const struct error *error)
{
	pthread_mutex_lock(&share->lock);
	if (piece < share->end) {
		share->end = piece;
		share->rc = rc;
		share->error = *error;
	}
	pthread_mutex_unlock(&share->lock);
}

static void make_pieces(void *context)
{
	struct share *share = context;
	struct referee_transform own = *share->transform;
	struct error error = {0};
	int rc = referee_transform_open(&own, &error);

	if (rc)
		fail_at(share, 0, rc, &error);
	for (size_t i; (i = atomic_fetch_add(&share->next, 1)) < share->end;) {
		rc = referee_transform_piece(&own, share->layout, &share->layout->pieces[i],
					     &error);
		if (rc)
			fail_at(share, i, rc, &error);
	}
	referee_transform_close(&own);
}

int referee_transform_layout(const struct referee_transform *transform, const struct layout *layout,
			     uint32_t threads, struct error *error)
{
	struct share share = {.transform = transform, .layout = layout, .end = layout->piece_count};

	if (!layout->piece_count)
		return 0;
	pthread_mutex_init(&share.lock, NULL);
	threads_run(threads < layout->piece_count ? threads : (uint32_t)layout->piece_count,
		    make_pieces, &share);
	pthread_mutex_destroy(&share.lock);
	if (share.rc)
		*error = share.error;
	return share.rc;
}
