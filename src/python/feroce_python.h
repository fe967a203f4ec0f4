/* The C surface under the Python package `feroce`: sessions, disks and the address space for a
 * language that has no coroutines of ours. Python's ctypes loads it; it is not an API for other
 * programs and changes with the package, which compares feroce_python_version() with its own.
 *
 * Everything is named by a handle, a number that is never used again: a stale one is answered by
 * EBADF, also in the child of a fork(), which has none of its parent's objects. Nothing here keeps
 * a pointer of the caller's after it has returned.
 *
 * What takes time is a call: it is begun, told to a queue when it is done, and its result is asked
 * for. `timeout` is in nanoseconds, negative: none. A begun call is 0 if its queue is
 * unknown, or if there is no memory even for its error.
 * Any thread may call anything. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef uint64_t feroce_handle; /* 0: none. */

typedef struct feroce_bytes {
    const void* data;
    uint64_t size;
} feroce_bytes;

/* Valid until the call is released. */
typedef struct feroce_result {
    int32_t code; /* 0, or an errno. */
    int32_t reserved;
    uint64_t value;
    feroce_handle made; /* What was opened. */
    feroce_bytes data;
    const char* why; /* Of an error. */
} feroce_result;

const char* feroce_python_version(void);

/* A queue's descriptor is readable while it holds calls that are done. */
feroce_handle feroce_queue_create(void);
int feroce_queue_fd(feroce_handle queue);
/* The next call that is done. Waits so long at most, and not longer than until a signal; 0: none
 * yet. */
feroce_handle feroce_queue_take(feroce_handle queue, int32_t milliseconds);

/* EBADF, or EAGAIN if it is not done. */
int feroce_call_result(feroce_handle call, feroce_result* out);
/* Gives it up: the queue is not told of it any more, and what it would bring is undone. 0 if it was
 * done before. */
int feroce_call_cancel(feroce_handle call);
/* Any handle. What it names ends when nothing uses it any more. */
void feroce_release(feroce_handle handle);
/* For a session, disk, server or space: ends what is in flight with ECANCELED and says goodbye to
 * the peer. */
feroce_handle feroce_close(feroce_handle queue, int64_t timeout, feroce_handle what);
/* Ends everything, for the end of the process. */
void feroce_shutdown(void);

/* Times in nanoseconds. */
typedef struct feroce_session_options {
    uint16_t port;
    uint16_t connections;
    uint32_t policy; /* rtrs::PathPolicy */
    int64_t connect_timeout;
    int64_t queue_if_no_path;
} feroce_session_options;

/* Paths as lines: an address, or two with a blank between them, the second one the source. */
feroce_handle feroce_session_open(feroce_handle queue, int64_t timeout, const char* name,
                                  const char* paths, const feroce_session_options* options);
feroce_handle feroce_session_read(feroce_handle queue, int64_t timeout, feroce_handle session,
                                  feroce_bytes message, uint64_t size);
feroce_handle feroce_session_write(feroce_handle queue, int64_t timeout, feroce_handle session,
                                   feroce_bytes message, feroce_bytes data);
/* value: the number of the path. */
feroce_handle feroce_session_add_path(feroce_handle queue, int64_t timeout, feroce_handle session,
                                      const char* path);
/* data: a feroce_session_info. */
typedef struct feroce_session_info {
    uint64_t connected;
    uint64_t max_io_size;
    uint64_t queue_depth;
    uint64_t extended;
} feroce_session_info;
feroce_handle feroce_session_look(feroce_handle queue, int64_t timeout, feroce_handle session);

typedef struct feroce_server_options {
    const char* address;
    uint16_t port;
    uint16_t queue_depth;
    uint32_t chunk_size;
} feroce_server_options;
typedef struct feroce_request {
    uint32_t is_read;
    uint32_t reserved;
    feroce_bytes message;
    feroce_bytes data; /* Of a write. Of a read: null and the size that may be answered. */
    const char* session;
} feroce_request;

/* value: its port. */
feroce_handle feroce_server_open(feroce_handle queue, int64_t timeout,
                                 const feroce_server_options* options);
/* A request of a client, valid until it is released. 0: none yet; *closed then says whether one
 * will ever come. */
feroce_handle feroce_server_take(feroce_handle server, int32_t milliseconds, feroce_request* out,
                                 int32_t* closed);
/* No more requests are taken in, and those that wait are answered with ECANCELED. Requests that
 * were taken can be answered until the server is closed. */
void feroce_server_stop(feroce_handle server);
/* Once. 0 and data, or an errno and its sentence. */
int feroce_server_answer(feroce_handle request, int32_t code, const char* why, feroce_bytes data);

/* data of opening and looking: a feroce_disk_info. */
typedef struct feroce_disk_info {
    uint64_t size;
    uint64_t block_size;
    uint64_t read_only;
    uint64_t max_discard;
} feroce_disk_info;
enum { FEROCE_FUA = 1, FEROCE_KEEP_SPACE = 2 };

feroce_handle feroce_disk_open(feroce_handle queue, int64_t timeout, const char* session,
                               const char* paths, const char* disk, int32_t read_only,
                               const feroce_session_options* options);
feroce_handle feroce_disk_read(feroce_handle queue, int64_t timeout, feroce_handle disk,
                               uint64_t offset, uint64_t size);
feroce_handle feroce_disk_write(feroce_handle queue, int64_t timeout, feroce_handle disk,
                                uint64_t offset, feroce_bytes data, uint32_t flags);
feroce_handle feroce_disk_flush(feroce_handle queue, int64_t timeout, feroce_handle disk);
feroce_handle feroce_disk_discard(feroce_handle queue, int64_t timeout, feroce_handle disk,
                                  uint64_t offset, uint64_t size);
feroce_handle feroce_disk_zero(feroce_handle queue, int64_t timeout, feroce_handle disk,
                               uint64_t offset, uint64_t size, uint32_t flags);
feroce_handle feroce_disk_look(feroce_handle queue, int64_t timeout, feroce_handle disk);

/* rank < 0: rank, size and seed are the environment's. */
typedef struct feroce_space_options {
    int32_t rank;
    uint16_t size;
    uint16_t port;
    const char* seed;
    uint64_t memory;
    int64_t patience;
    int64_t silence;
} feroce_space_options;

/* value: rank << 16 | size. */
feroce_handle feroce_space_join(feroce_handle queue, int64_t timeout,
                                const feroce_space_options* options);
/* Pointers are the bits of a gas::ptr. The memory is cleared. */
feroce_handle feroce_space_alloc(feroce_handle queue, int64_t timeout, feroce_handle space,
                                 uint32_t node, uint64_t size);
feroce_handle feroce_space_free(feroce_handle queue, int64_t timeout, feroce_handle space,
                                uint64_t pointer, uint64_t size);
feroce_handle feroce_space_read(feroce_handle queue, int64_t timeout, feroce_handle space,
                                uint64_t pointer, uint64_t size);
feroce_handle feroce_space_write(feroce_handle queue, int64_t timeout, feroce_handle space,
                                 uint64_t pointer, feroce_bytes data);
/* value: what was there. */
feroce_handle feroce_space_compare_swap(feroce_handle queue, int64_t timeout, feroce_handle space,
                                        uint64_t pointer, uint64_t expected, uint64_t desired);
feroce_handle feroce_space_fetch_add(feroce_handle queue, int64_t timeout, feroce_handle space,
                                     uint64_t pointer, uint64_t amount);
/* Names and barriers: one after the other, in the order of their calls. Once begun, they cannot be
 * given up. */
feroce_handle feroce_space_publish(feroce_handle queue, int64_t timeout, feroce_handle space,
                                   const char* name, uint64_t pointer, uint64_t size);
feroce_handle feroce_space_find(feroce_handle queue, int64_t timeout, feroce_handle space,
                                const char* name, uint64_t size);
feroce_handle feroce_space_share(feroce_handle queue, int64_t timeout, feroce_handle space,
                                 const char* name, uint64_t size);
feroce_handle feroce_space_withdraw(feroce_handle queue, int64_t timeout, feroce_handle space,
                                    const char* name);
feroce_handle feroce_space_barrier(feroce_handle queue, int64_t timeout, feroce_handle space);

enum { FEROCE_ALOCK, FEROCE_FAIR, FEROCE_LEASE, FEROCE_SPIN, FEROCE_TICKET };
feroce_handle feroce_lock_open(feroce_handle queue, int64_t timeout, feroce_handle space,
                               const char* name, uint32_t kind);
/* value: 1 if it is held now; wait 0: only if it is free. The value of a lease is its token. */
feroce_handle feroce_lock_acquire(feroce_handle queue, int64_t timeout, feroce_handle lock,
                                  int32_t wait);
feroce_handle feroce_lock_release(feroce_handle queue, int64_t timeout, feroce_handle lock);
feroce_handle feroce_lock_renew(feroce_handle queue, int64_t timeout, feroce_handle lock);

enum { FEROCE_BYTES_MAP, FEROCE_INTEGER_MAP };
enum { FEROCE_PUT, FEROCE_INSERT, FEROCE_REPLACE, FEROCE_ADD };
feroce_handle feroce_map_open(feroce_handle queue, int64_t timeout, feroce_handle space,
                              const char* name, uint32_t kind, uint64_t buckets);
/* value: 1 if the key is there; data: its value. */
feroce_handle feroce_map_get(feroce_handle queue, int64_t timeout, feroce_handle map,
                             feroce_bytes key);
/* value: of a put and an insert 1 if the key is new; of a replace 1 if the value was `expected`. Of
 * an addition data is the sum. */
feroce_handle feroce_map_set(feroce_handle queue, int64_t timeout, feroce_handle map, uint32_t how,
                             feroce_bytes key, feroce_bytes value, feroce_bytes expected);
feroce_handle feroce_map_erase(feroce_handle queue, int64_t timeout, feroce_handle map,
                               feroce_bytes key);
/* data: for each entry the sizes of key and value (8 bytes each), key, value. value: how many. */
feroce_handle feroce_map_items(feroce_handle queue, int64_t timeout, feroce_handle map);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
