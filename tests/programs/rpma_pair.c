// librpma as a program uses it: rpma_pair ADDRESS serves memory until its client leaves, rpma_pair
// ADDRESS client writes into it, flushes and reads back. Both look at what they find.
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "7475"
#define BYTES 65536

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
    exit(1);
}

static void fill(char *memory) {
    for (int i = 0; i < BYTES; ++i) memory[i] = (char)(i * 7 + 3);
}

static struct rpma_peer *peer_of(const char *address, enum rpma_util_ibv_context_type type) {
    struct ibv_context *device = NULL;
    struct rpma_peer *peer = NULL;
    check(rpma_utils_get_ibv_context(address, type, &device), "rpma_utils_get_ibv_context");
    check(rpma_peer_new(device, &peer), "rpma_peer_new");
    return peer;
}

// The event that must come next; a client that was too early says so and may try again.
static void await(struct rpma_conn *connection, enum rpma_conn_event wanted) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    check(rpma_conn_next_event(connection, &event), "rpma_conn_next_event");
    if (event == wanted) return;
    fprintf(stderr, "%s\n", event == RPMA_CONN_REJECTED ? "RDMA_CM_EVENT_REJECTED" : "wrong event");
    exit(1);
}

static int serve(const char *address, char *memory, char *expected) {
    struct rpma_peer *peer = peer_of(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
    struct rpma_mr_local *region = NULL;
    check(rpma_mr_reg(peer, memory, BYTES,
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC |
                          RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                      &region),
          "rpma_mr_reg");
    struct rpma_ep *listener = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *connection = NULL;
    check(rpma_ep_listen(peer, address, PORT, &listener), "rpma_ep_listen");
    check(rpma_ep_next_conn_req(listener, NULL, &request), "rpma_ep_next_conn_req");
    char descriptor[256];
    size_t size = 0;
    check(rpma_mr_get_descriptor_size(region, &size), "rpma_mr_get_descriptor_size");
    if (size > sizeof descriptor) return 1;
    check(rpma_mr_get_descriptor(region, descriptor), "rpma_mr_get_descriptor");
    struct rpma_conn_private_data told = {.ptr = descriptor, .len = (uint8_t)size};
    check(rpma_conn_req_connect(&request, &told, &connection), "rpma_conn_req_connect");
    await(connection, RPMA_CONN_ESTABLISHED);
    await(connection, RPMA_CONN_CLOSED);
    check(rpma_conn_disconnect(connection), "rpma_conn_disconnect");
    check(rpma_conn_delete(&connection), "rpma_conn_delete");
    check(rpma_ep_shutdown(&listener), "rpma_ep_shutdown");
    check(rpma_mr_dereg(&region), "rpma_mr_dereg");
    check(rpma_peer_delete(&peer), "rpma_peer_delete");
    return memcmp(memory, expected, BYTES) != 0;
}

static void finish(struct rpma_conn *connection, const char *what) {
    struct rpma_cq *queue = NULL;
    struct ibv_wc completion;
    check(rpma_conn_get_cq(connection, &queue), "rpma_conn_get_cq");
    check(rpma_cq_wait(queue), "rpma_cq_wait");
    check(rpma_cq_get_wc(queue, 1, &completion, NULL), "rpma_cq_get_wc");
    if (completion.status == IBV_WC_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(completion.status));
    exit(1);
}

static int write_and_read(const char *address, char *memory, char *expected) {
    struct rpma_peer *peer = peer_of(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    struct rpma_mr_local *from = NULL, *into = NULL;
    check(rpma_mr_reg(peer, expected, BYTES, RPMA_MR_USAGE_WRITE_SRC, &from), "rpma_mr_reg");
    check(rpma_mr_reg(peer, memory, BYTES, RPMA_MR_USAGE_READ_DST, &into), "rpma_mr_reg");
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *connection = NULL;
    check(rpma_conn_req_new(peer, address, PORT, NULL, &request), "rpma_conn_req_new");
    check(rpma_conn_req_connect(&request, NULL, &connection), "rpma_conn_req_connect");
    await(connection, RPMA_CONN_ESTABLISHED);
    struct rpma_conn_private_data told;
    struct rpma_mr_remote *there = NULL;
    check(rpma_conn_get_private_data(connection, &told), "rpma_conn_get_private_data");
    check(rpma_mr_remote_from_descriptor(told.ptr, told.len, &there),
          "rpma_mr_remote_from_descriptor");
    check(rpma_write(connection, there, 0, from, 0, BYTES, RPMA_F_COMPLETION_ON_ERROR, NULL),
          "rpma_write");
    check(rpma_flush(connection, there, 0, BYTES, RPMA_FLUSH_TYPE_VISIBILITY,
                     RPMA_F_COMPLETION_ALWAYS, NULL),
          "rpma_flush");
    finish(connection, "flush");
    check(rpma_read(connection, into, 0, there, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, NULL),
          "rpma_read");
    finish(connection, "read");
    check(rpma_mr_remote_delete(&there), "rpma_mr_remote_delete");
    check(rpma_conn_disconnect(connection), "rpma_conn_disconnect");
    await(connection, RPMA_CONN_CLOSED);
    check(rpma_conn_delete(&connection), "rpma_conn_delete");
    check(rpma_mr_dereg(&from), "rpma_mr_dereg");
    check(rpma_mr_dereg(&into), "rpma_mr_dereg");
    check(rpma_peer_delete(&peer), "rpma_peer_delete");
    if (memcmp(memory, expected, BYTES) != 0) return 1;
    printf("%d bytes written, flushed and read back\n", BYTES);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    char *memory = aligned_alloc(4096, BYTES), *expected = aligned_alloc(4096, BYTES);
    if (memory == NULL || expected == NULL) return 1;
    memset(memory, 0, BYTES);
    fill(expected);
    const int result = argc > 2 ? write_and_read(argv[1], memory, expected)
                                : serve(argv[1], memory, expected);
    free(memory);
    free(expected);
    return result;
}
