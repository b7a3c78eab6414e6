/* Fills a database that is read through a mapping, and reads it in no order. The argument is its folder. */
#include <lmdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 60000

static void must(int error) {
    if (error)
        exit(3);
}

int main(int argc, char **argv) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    char value[900];
    uint64_t state = 1, sum = 0;
    memset(value, 7, sizeof value);
    if (argc < 2)
        return 2;
    must(mdb_env_create(&env));
    must(mdb_env_set_mapsize(env, 256u << 20));
    must(mdb_env_open(env, argv[1], MDB_NOSYNC, 0644));
    must(mdb_txn_begin(env, 0, 0, &txn));
    must(mdb_dbi_open(txn, 0, MDB_CREATE | MDB_INTEGERKEY, &dbi));
    for (uint64_t n = 0; n < RECORDS; n++) {
        MDB_val key = {sizeof n, &n}, data = {sizeof value, value};
        must(mdb_put(txn, dbi, &key, &data, 0));
    }
    must(mdb_txn_commit(txn));
    must(mdb_txn_begin(env, 0, MDB_RDONLY, &txn));
    for (int n = 0; n < 10 * RECORDS; n++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = (state >> 33) % RECORDS;
        MDB_val key = {sizeof at, &at}, data;
        must(mdb_get(txn, dbi, &key, &data));
        sum += *(unsigned char *)data.mv_data;
    }
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return sum != 7u * 10 * RECORDS;
}
