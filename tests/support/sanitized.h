/* SPDX-License-Identifier: Apache-2.0
 *
 * sanitized.h -- what this build looks for: a program with a sanitizer takes several times as long, so what repeats is
 * repeated less there. An ordinary build does all of it.
 */
#ifndef TESTS_SUPPORT_SANITIZED_H
#define TESTS_SUPPORT_SANITIZED_H

#ifdef __has_feature /* clang's way to say it */
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#ifdef __SANITIZE_THREAD__
#define SANITIZED_THREADS 1 /* races */
#else
#define SANITIZED_THREADS 0
#endif

#if SANITIZED_THREADS || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#endif
