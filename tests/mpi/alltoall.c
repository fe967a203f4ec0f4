// All-to-all among many ranks, by collectives and by messages of each rank to each. Every word is
// checked: it says who sent it to whom, in which round, and where in the message it is. Rank 0
// prints a line when all are right; a wrong word ends the program with its place.
// Usage: alltoall ROUNDS BYTES, the bytes from one rank to one other; an eighth in odd rounds.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

static uint64_t word(int from, int to, int round, size_t i) {
    const uint64_t who = (uint64_t)from << 32 | (uint64_t)to << 16 | (uint64_t)round;
    return who * 0x9e3779b97f4a7c15u + i * 0xff51afd7ed558ccdu;
}

static void fill(uint64_t* out, int to, int round, size_t words) {
    for (size_t i = 0; i < words; ++i) out[i] = word(rank, to, round, i);
}

static void check(const uint64_t* in, int from, int round, size_t words, const char* how) {
    for (size_t i = 0; i < words; ++i) {
        if (in[i] == word(from, rank, round, i)) continue;
        fprintf(stderr, "%s: rank %d, round %d: word %zu from rank %d is wrong\n", how, rank, round,
                i, from);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void by_collective(uint64_t* out, uint64_t* in, int round, size_t words) {
    for (int to = 0; to < size; ++to) fill(out + (size_t)to * words, to, round, words);
    MPI_Alltoall(out, (int)words, MPI_UINT64_T, in, (int)words, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int from = 0; from < size; ++from)
        check(in + (size_t)from * words, from, round, words, "MPI_Alltoall");
}

// All at once: every rank has a connection to every other.
static void by_messages(uint64_t* out, uint64_t* in, int round, size_t words) {
    MPI_Request* requests = malloc(2 * (size_t)size * sizeof *requests);
    if (requests == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < size; ++i) {
        const int from = (rank + size - i) % size;
        MPI_Irecv(in + (size_t)from * words, (int)words, MPI_UINT64_T, from, round, MPI_COMM_WORLD,
                  &requests[i]);
    }
    for (int i = 0; i < size; ++i) {
        const int to = (rank + i) % size;
        fill(out + (size_t)to * words, to, round, words);
        MPI_Isend(out + (size_t)to * words, (int)words, MPI_UINT64_T, to, round, MPI_COMM_WORLD,
                  &requests[size + i]);
    }
    MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    free(requests);
    for (int from = 0; from < size; ++from)
        check(in + (size_t)from * words, from, round, words, "MPI_Isend");
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    const size_t bytes = argc > 2 ? (size_t)atol(argv[2]) : 4096;
    uint64_t* out = malloc((size_t)size * bytes);
    uint64_t* in = malloc((size_t)size * bytes);
    if (out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int round = 0; round < rounds; ++round) {
        const size_t words = (round % 2 == 0 ? bytes : bytes / 8) / 8;
        by_messages(out, in, 2 * round, words);
        by_collective(out, in, 2 * round + 1, words);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d rounds of %zu bytes from each to each: right\n", size, rounds, bytes);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
