#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/complaint.h"
#include "cmocka_all.h"
#include "query/catalog.h"
#include "query/route.h"

static const struct catalog_source sources[] = {{"primary", false}};

struct fixture {
    char folder[64];
    struct complaints complaints;
    struct catalog *catalog;
};

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/weir-catalog-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    complaints_init(&f->complaints);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    catalog_destroy(f->catalog);
    complaints_fini(&f->complaints);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the test has one thread */
    assert_int_equal(nftw(f->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    free(f);
    return 0;
}

static void path_of(const struct fixture *f, const char *name, char *out, size_t room)
{
    (void)snprintf(out, room, "%s/%s", f->folder, name);
}

static void make_folder(const struct fixture *f, const char *name)
{
    char path[128];

    path_of(f, name, path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void write_file(const struct fixture *f, const char *name, const char *text)
{
    char path[128];
    FILE *file;

    path_of(f, name, path, sizeof path);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void read_all(struct fixture *f)
{
    f->catalog = catalog_read(f->folder, "api", sources, 1, 5000000, &f->complaints);
    assert_non_null(f->catalog);
}

static const struct complaint *only_complaint(const struct fixture *f)
{
    for (size_t i = 0; i < f->complaints.count; i++)
        print_message("%s:%d: %s\n", f->complaints.items[i].file, f->complaints.items[i].line,
                      f->complaints.items[i].text);
    assert_int_equal(f->complaints.count, 1);
    return &f->complaints.items[0];
}

static void test_routes_come_in_the_order_of_their_labels(void **state)
{
    struct fixture *f = *state;

    make_folder(f, "sub");
    make_folder(f, "sub/deep");
    make_folder(f, ".git");
    write_file(f, "z.sql", "-- GET /a\nSELECT 1");
    write_file(f, "sub/deep/y.sql", "-- POST /a\nINSERT INTO t DEFAULT VALUES");
    write_file(f, "sub/x.sql", "-- GET /b\nSELECT 1");
    write_file(f, "notes.txt", "no route");
    write_file(f, ".hidden.sql", "no route");
    write_file(f, ".git/w.sql", "no route");
    write_file(f, ".sql", "no route");
    read_all(f);
    assert_int_equal(f->complaints.count, 0);
    assert_int_equal(f->catalog->route_count, 3);
    assert_string_equal(f->catalog->routes[0].label, "GET /a");
    assert_string_equal(f->catalog->routes[1].label, "GET /b");
    assert_string_equal(f->catalog->routes[2].label, "POST /a");
    assert_string_equal(f->catalog->routes[2].file, "api/sub/deep/y.sql");
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(f->catalog->routes[i].id, i);
}

static void test_one_method_and_path_is_one_route(void **state)
{
    struct fixture *f = *state;

    write_file(f, "a.sql", "-- GET /a/{x}\n-- @param x int4\nSELECT :x AS a");
    write_file(f, "b.sql", "\n-- GET /a/{y}\n-- @param y int4\nSELECT :y AS a");
    read_all(f);
    assert_string_equal(only_complaint(f)->file, "api/b.sql");
    assert_int_equal(only_complaint(f)->line, 2);
    assert_non_null(strstr(only_complaint(f)->text, "api/a.sql:1"));
}

static void test_spelling_does_not_make_another_path(void **state)
{
    struct fixture *f = *state;

    write_file(f, "a.sql", "-- GET /caf%C3%A9\nSELECT 1");
    write_file(f, "b.sql", "-- GET /caf\xc3\xa9\nSELECT 1");
    read_all(f);
    assert_non_null(strstr(only_complaint(f)->text, "api/"));
}

static void test_other_methods_and_literal_segments_are_other_routes(void **state)
{
    struct fixture *f = *state;

    write_file(f, "a.sql", "-- GET /a\nSELECT 1");
    write_file(f, "b.sql", "-- DELETE /a\n-- @result exec\nDELETE FROM notes");
    write_file(f, "c.sql", "-- GET /a/count\nSELECT 1");
    write_file(f, "d.sql", "-- GET /a/{id}\n-- @param id int4\nSELECT :id");
    write_file(f, "e.sql", "-- GET /a/{id}/b\n-- @param id int4\nSELECT :id");
    read_all(f);
    assert_int_equal(f->complaints.count, 0);
    assert_int_equal(f->catalog->route_count, 5);
}

static void test_the_mistakes_of_all_files_are_told(void **state)
{
    struct fixture *f = *state;

    write_file(f, "a.sql", "-- GET /a\n-- @param x int4\nSELECT 1 AS a");
    write_file(f, "b.sql", "-- GET /b\nSELECT :y AS b");
    write_file(f, "c.sql", "no comment");
    write_file(f, "d.sql", "-- GET /d\nSELECT 1");
    read_all(f);
    assert_int_equal(f->complaints.error_count, 3);
    assert_int_equal(f->catalog->route_count, 3);
}

#define BOOKS "-- GET /books\n-- @cache max-age=5s\nSELECT 1"
#define BOOK  "-- GET /books/{id}\n-- @param id int4\n-- @cache max-age=0s\nSELECT :id"

static void test_purges_become_the_ids_of_routes(void **state)
{
    struct fixture *f = *state;
    const struct route *routes;

    /* Read before what it names, and last in the order of labels. */
    write_file(f, "a.sql",
               "-- POST /books\n-- @purges GET /books/{id}\n-- @purges GET /books\n"
               "INSERT INTO t DEFAULT VALUES");
    write_file(f, "b.sql", BOOKS);
    write_file(f, "c.sql", BOOK);
    write_file(f, "d.sql", "-- DELETE /books\n-- @purges GET /books\nDELETE FROM t");
    write_file(f, "e.sql", "-- PUT /books\nDELETE FROM t");
    read_all(f);
    assert_int_equal(f->complaints.count, 0);
    routes = f->catalog->routes;
    assert_string_equal(routes[0].label, "DELETE /books");
    assert_int_equal(routes[0].purge_count, 1);
    assert_string_equal(routes[routes[0].purges[0]].label, "GET /books");
    assert_string_equal(routes[3].label, "POST /books");
    assert_int_equal(routes[3].purge_count, 2);
    assert_string_equal(routes[routes[3].purges[0]].label, "GET /books/{id}");
    assert_string_equal(routes[routes[3].purges[1]].label, "GET /books");
    assert_string_equal(routes[4].label, "PUT /books");
    assert_int_equal(routes[4].purge_count, 0);
    assert_null(routes[4].purges);
}

#define PURGES(label) "-- POST /a\n--  @purges " label "\nINSERT INTO t DEFAULT VALUES"

static void test_wrong_purges_are_told_at_their_place(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {PURGES("GET /boks"), "@purges: there is no route GET /boks; did you mean GET /books"},
        {PURGES("GET /books/{key}"),
         "@purges: there is no route GET /books/{key}; did you mean GET /books/{id}"},
        {PURGES("GET /entirely/elsewhere"), "@purges: there is no route GET /entirely/elsewhere"},
        {PURGES("GET /plain"), "@purges: GET /plain has no @cache, so nothing of it is stored"},
    };
    struct fixture *f = *state;

    write_file(f, "b.sql", BOOKS);
    write_file(f, "c.sql", BOOK);
    write_file(f, "d.sql", "-- GET /plain\nSELECT 1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(f, "a.sql", cases[i].text);
        read_all(f);
        assert_string_equal(only_complaint(f)->text, cases[i].says);
        assert_string_equal(only_complaint(f)->file, "api/a.sql");
        assert_int_equal(only_complaint(f)->line, 2);
        assert_int_equal(only_complaint(f)->column, 13);
        catalog_destroy(f->catalog);
        f->catalog = NULL;
        complaints_fini(&f->complaints);
        complaints_init(&f->complaints);
    }
}

static void test_a_purge_is_judged_even_if_its_own_file_is_no_route(void **state)
{
    struct fixture *f = *state;

    write_file(f, "a.sql", "-- PSOT /a\n-- @purges GET /books\nSELECT 1");
    write_file(f, "b.sql", BOOKS);
    read_all(f);
    assert_int_equal(only_complaint(f)->line, 1);
    assert_int_equal(f->catalog->route_count, 1);
}

static void test_a_folder_that_is_not_there_is_told(void **state)
{
    struct fixture *f = *state;

    f->catalog = catalog_read("/nonexistent/folder", "api", sources, 1, 5000000, &f->complaints);
    assert_int_equal(f->catalog->route_count, 0);
    assert_string_equal(only_complaint(f)->file, "api");
    assert_non_null(strstr(only_complaint(f)->text, "No such file"));
}

static void test_an_empty_folder_is_a_warning(void **state)
{
    struct fixture *f = *state;

    read_all(f);
    assert_true(only_complaint(f)->is_warning);
}

static void test_links_are_followed_but_not_for_ever(void **state)
{
    struct fixture *f = *state;
    char path[128];

    write_file(f, "a.sql", "-- GET /a\nSELECT 1");
    path_of(f, "b.sql", path, sizeof path);
    assert_int_equal(symlink("nowhere.sql", path), 0);
    read_all(f);
    assert_string_equal(only_complaint(f)->file, "api/b.sql");
    assert_int_equal(f->catalog->route_count, 1);
    catalog_destroy(f->catalog);

    path_of(f, "loop", path, sizeof path);
    assert_int_equal(symlink(".", path), 0);
    read_all(f);
    assert_true(f->complaints.error_count > 1);
}

static void test_what_is_no_regular_file_is_told(void **state)
{
    struct fixture *f = *state;
    char path[128];

    path_of(f, "pipe.sql", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    read_all(f);
    assert_non_null(strstr(f->complaints.items[0].text, "not a regular file"));
}

static void test_a_huge_file_is_told(void **state)
{
    struct fixture *f = *state;
    char path[128];

    write_file(f, "a.sql", "-- GET /a\nSELECT 1");
    path_of(f, "a.sql", path, sizeof path);
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    read_all(f);
    assert_non_null(strstr(only_complaint(f)->text, "1MiB"));
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_routes_come_in_the_order_of_their_labels),
        WITH_FOLDER(test_one_method_and_path_is_one_route),
        WITH_FOLDER(test_spelling_does_not_make_another_path),
        WITH_FOLDER(test_other_methods_and_literal_segments_are_other_routes),
        WITH_FOLDER(test_the_mistakes_of_all_files_are_told),
        WITH_FOLDER(test_purges_become_the_ids_of_routes),
        WITH_FOLDER(test_wrong_purges_are_told_at_their_place),
        WITH_FOLDER(test_a_purge_is_judged_even_if_its_own_file_is_no_route),
        WITH_FOLDER(test_a_folder_that_is_not_there_is_told),
        WITH_FOLDER(test_an_empty_folder_is_a_warning),
        WITH_FOLDER(test_links_are_followed_but_not_for_ever),
        WITH_FOLDER(test_what_is_no_regular_file_is_told),
        WITH_FOLDER(test_a_huge_file_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
