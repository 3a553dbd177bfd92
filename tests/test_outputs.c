/* The pool of records and PNG sequences: what lies on the disk after a run. */
#include "outputs_fixture.h"

#include <criterion/criterion.h>
#include <png.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char text[512];

TestSuite(outputs, .init = fix_make_folder, .fini = fix_remove_folder, .timeout = 60);

/* ------------------------------------------------------------------ PNG */

struct picture {
    png_structp png;
    png_infop info;
    png_bytepp rows;
};

static struct picture read_png(const char *name)
{
    struct picture p;
    FILE *f = fopen(fix_in(name), "rb");
    cr_assert_not_null(f, "%s is missing", name);
    p.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    p.info = png_create_info_struct(p.png);
    png_init_io(p.png, f);
    png_read_png(p.png, p.info, PNG_TRANSFORM_IDENTITY, NULL);
    fclose(f);
    cr_assert_eq(png_get_image_width(p.png, p.info), FIX_WIDTH);
    cr_assert_eq(png_get_image_height(p.png, p.info), FIX_HEIGHT);
    p.rows = png_get_rows(p.png, p.info);
    return p;
}

static void free_png(struct picture *p)
{
    png_destroy_read_struct(&p->png, &p->info, NULL);
}

Test(outputs, id_maps_hold_ids_and_the_voc_palette)
{
    struct fmt_outputs_config c = fix_config();
    c.png_dir = fix_in("new/maps"); /* parents are made */
    fix_run_frames(&c, 3);
    cr_assert_eq(fix_count_files("new/maps"), 3);
    for (int n = 0; n < 3; n++) {
        snprintf(text, sizeof text, "new/maps/%05d.png", n);
        struct picture p = read_png(text);
        cr_assert_eq(png_get_bit_depth(p.png, p.info), 8);
        cr_assert_eq(png_get_color_type(p.png, p.info), PNG_COLOR_TYPE_PALETTE);
        for (int y = 0; y < FIX_HEIGHT; y++)
            for (int x = 0; x < FIX_WIDTH; x++) {
                int owner = fix_owner_at(n, x, y);
                cr_assert_eq(p.rows[y][x], owner ? fix_objects[owner - 1].id : 0, "frame %d, %d %d", n, x, y);
            }
        png_colorp color;
        int colors;
        png_get_PLTE(p.png, p.info, &color, &colors);
        cr_assert_eq(colors, 256);
        static const int known[][4] = {{0, 0, 0, 0},       {1, 128, 0, 0},     {2, 0, 128, 0},      {3, 128, 128, 0},
                                       {4, 0, 0, 128},     {7, 128, 128, 128}, {8, 64, 0, 0},       {15, 192, 128, 128},
                                       {21, 128, 64, 128}, {64, 32, 0, 0},     {255, 224, 224, 192}};
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            png_color is = color[known[i][0]];
            cr_assert(is.red == known[i][1] && is.green == known[i][2] && is.blue == known[i][3], "palette entry %d",
                      known[i][0]);
        }
        free_png(&p);
    }
}

Test(outputs, object_masks_are_one_bit_and_every_frame_has_one)
{
    struct fmt_outputs_config c = fix_config();
    c.png_objects_dir = fix_in("masks");
    fix_run_frames(&c, 4);
    cr_assert_eq(fix_count_files("masks"), 2);
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 2; i++) {
            snprintf(text, sizeof text, "masks/%d/%05d.png", fix_objects[i].id, n);
            struct picture p = read_png(text);
            cr_assert_eq(png_get_bit_depth(p.png, p.info), 1);
            cr_assert_eq(png_get_color_type(p.png, p.info), PNG_COLOR_TYPE_GRAY);
            for (int y = 0; y < FIX_HEIGHT; y++)
                for (int x = 0; x < FIX_WIDTH; x++)
                    cr_assert_eq(p.rows[y][x / 8] >> (7 - x % 8) & 1, fix_inside(n, i, x, y), "%s, %d %d", text, x, y);
            free_png(&p);
        }
}

Test(outputs, names_come_from_the_source)
{
    struct fmt_outputs_config c = fix_config();
    c.png_dir = fix_in("maps");
    struct fmt_outputs *o = fix_open_run(&c);
    fix_put_frame(o, 7, "");
    fix_put_frame(o, 123456, "");
    fix_put_frame(o, 123457, "left eye");
    cr_assert_eq(fmt_outputs_finish(o, NULL), S2_OK);
    cr_assert(fix_exists("maps/00007.png") && fix_exists("maps/123456.png") && fix_exists("maps/left eye.png"));
    cr_assert_eq(fix_count_files("maps"), 3);
}

Test(outputs, two_stills_of_one_name_do_not_replace_each_other)
{
    struct fmt_outputs_config c = fix_config();
    c.png_dir = fix_in("maps");
    c.stills = true;
    struct fmt_outputs *o = fix_open_run(&c);
    struct s2_err err = {0};
    fix_put_frame(o, 0, "a");
    for (int i = 0; i < 100 && !fix_exists("maps/a.png"); i++) usleep(10000);
    fix_put_frame(o, 1, "a");
    cr_assert_eq(fmt_outputs_finish(o, &err), S2_E_OUTPUT);
    cr_assert_not_null(strstr(err.text, "maps/a.png: exists already; two input pictures"), "%s", err.text);
}

Test(outputs, an_id_map_refuses_large_ids)
{
    struct fmt_object large[2] = {{1, NULL}, {256, NULL}};
    struct fmt_outputs_config c = fix_config();
    c.objects = large;
    c.png_dir = fix_in("maps");
    fix_open_fails(&c, S2_E_USAGE, "not for object 256");
    cr_assert(!fix_exists("maps"));
}

/* ------------------------------------------------------------------ paths */

Test(outputs, one_path_for_two_outputs_is_refused)
{
    struct fmt_outputs_config c = fix_config();
    c.png_dir = fix_in("out");
    c.png_objects_dir = fix_in("./new/../out/");
    cr_assert_eq(mkdir(fix_in("new"), 0777), 0);
    fix_open_fails(&c, S2_E_USAGE, "is given to --png and to --png-objects");
    c.png_objects_dir = NULL;
    c.rle_path = fix_in("a.json");
    c.overlay_path = fix_in("new/../a.json");
    fix_open_fails(&c, S2_E_USAGE, "is given to --rle and to --overlay");
    c = fix_config();
    c.png_dir = fix_in("out/200");
    c.png_objects_dir = fix_in("out");
    fix_open_fails(&c, S2_E_USAGE, "of object 200");
    cr_assert_eq(fix_count_files(""), 1, "something was created");
}

Test(outputs, the_input_is_never_replaced)
{
    fix_touch("clip.mp4");
    cr_assert_eq(mkdir(fix_in("frames"), 0777), 0);
    fix_touch("frames/00000.png");
    struct fmt_outputs_config c = fix_config();
    c.overwrite = true;
    c.input_path = fix_in("clip.mp4");
    c.overlay_path = fix_in("clip.mp4");
    fix_open_fails(&c, S2_E_USAGE, "is the input");
    c.overlay_path = NULL;
    c.stills = true;
    c.png_dir = fix_in("frames");
    c.input_path = fix_in("frames/%05d.png");
    fix_open_fails(&c, S2_E_USAGE, "holds the input");
    c.input_path = fix_in("frames");
    fix_open_fails(&c, S2_E_USAGE, "is the input");
    cr_assert_str_eq(fix_read_all("clip.mp4"), "old");
    cr_assert_str_eq(fix_read_all("frames/00000.png"), "old");
}

Test(outputs, existing_outputs_are_refused)
{
    fix_touch("a.json");
    fix_touch("a.mp4");
    cr_assert_eq(mkdir(fix_in("maps"), 0777) + mkdir(fix_in("masks"), 0777) + mkdir(fix_in("masks/9"), 0777), 0);
    fix_touch("maps/x.png");
    fix_touch("masks/9/x.png");
    struct fmt_outputs_config c = fix_config();
    c.rle_path = fix_in("a.json");
    fix_open_fails(&c, S2_E_OUTPUT, "a.json: exists; give --overwrite");
    c = fix_config();
    c.overlay_path = fix_in("a.mp4");
    fix_open_fails(&c, S2_E_OUTPUT, "a.mp4: exists; give --overwrite");
    c = fix_config();
    c.png_dir = fix_in("maps");
    fix_open_fails(&c, S2_E_OUTPUT, "maps: holds 1 PNG file");
    c = fix_config();
    c.png_objects_dir = fix_in("masks");
    fix_open_fails(&c, S2_E_OUTPUT, "masks: holds 1 PNG file");
    c = fix_config();
    c.rle_path = fix_in("maps");
    fix_open_fails(&c, S2_E_USAGE, "--rle writes .json");
    c.rle_path = fix_in("no/such/folder.json");
    fix_open_fails(&c, S2_E_OUTPUT, "No such file or directory");
    c.rle_path = NULL;
    c.png_dir = fix_in("a.json");
    fix_open_fails(&c, S2_E_OUTPUT, "Not a directory");
    cr_assert_str_eq(fix_read_all("a.json"), "old");
    cr_assert_str_eq(fix_read_all("maps/x.png"), "old");
}

Test(outputs, a_folder_that_may_not_be_made_says_why)
{
    static const char *const dirs[] = {"locked/maps", "locked/deep/maps"};
    cr_assert_eq(mkdir(fix_in("locked"), 0555), 0);
    cr_assert_eq(chmod(fix_in(""), 0755), 0);
    if (!geteuid()) cr_assert_eq(seteuid(65534), 0, "root may write anywhere");
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        struct fmt_outputs_config c = fix_config();
        c.png_dir = fix_in(dirs[i]);
        fix_open_fails(&c, S2_E_OUTPUT, "Permission denied");
    }
    if (!getuid()) cr_assert_eq(seteuid(0), 0);
}

Test(outputs, overwrite_removes_the_frames_of_an_earlier_run)
{
    cr_assert_eq(mkdir(fix_in("maps"), 0777) + mkdir(fix_in("masks"), 0777) + mkdir(fix_in("masks/9"), 0777), 0);
    fix_touch("a.json");
    fix_touch("a.json.part");
    fix_touch("maps/00000.png");
    fix_touch("maps/00099.png");
    fix_touch("maps/123.png");
    fix_touch("maps/notes.txt");
    fix_touch("masks/9/00000.png");
    struct fmt_outputs_config c = fix_config();
    c.overwrite = true;
    c.rle_path = fix_in("a.json");
    c.png_dir = fix_in("maps");
    c.png_objects_dir = fix_in("masks");
    fmt_outputs_discard(fix_open_run(&c));
    cr_assert_str_eq(fix_read_all("a.json"), "old");
    cr_assert(fix_exists("maps/00099.png"), "removed before there was a frame");
    fix_run_frames(&c, 2);
    cr_assert(strstr(fix_read_all("a.json"), "sam2track-rle"));
    cr_assert(!fix_exists("maps/00099.png") && fix_exists("maps/123.png") && fix_exists("maps/notes.txt"));
    cr_assert_eq(fix_count_files("maps"), 4);
    cr_assert(!fix_exists("masks/9"));
    cr_assert_eq(fix_count_files(""), 3, "something temporary is left");
}

Test(outputs, discard_leaves_nothing)
{
    struct fmt_outputs_config c = fix_config();
    c.png_dir = fix_in("maps");
    c.png_objects_dir = fix_in("masks");
    c.rle_path = fix_in("a.jsonl");
    c.overlay_path = fix_in("a.mkv");
    fmt_outputs_discard(fix_open_run(&c));
    fmt_outputs_discard(NULL);
    cr_assert_eq(fix_count_files(""), 0);
}
