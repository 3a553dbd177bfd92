#include "idmap.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int scene_idmap_write(const char *path, const uint8_t *ids, int width, int height)
{
    static png_color palette[4] = {{0, 0, 0}, {128, 0, 0}, {0, 128, 0}, {128, 128, 0}};
    FILE *f = fopen(path, "wb");
    if (!f) return -1;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        fclose(f);
        return -1;
    }
    png_init_io(png, f);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_PLTE(png, info, palette, 4);
    png_write_info(png, info);
    for (int y = 0; y < height; y++) png_write_row(png, ids + (size_t)y * width);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return fclose(f) ? -1 : 0;
}

int scene_idmap_read(const char *path, uint8_t *ids, int width, int height)
{
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(png_jmpbuf(png))) goto fail;
    png_init_io(png, f);
    png_read_info(png, info);
    if ((int)png_get_image_width(png, info) != width || (int)png_get_image_height(png, info) != height ||
        png_get_bit_depth(png, info) > 8 || png_get_channels(png, info) != 1 ||
        png_get_interlace_type(png, info) != PNG_INTERLACE_NONE)
        goto fail;
    png_set_packing(png);
    png_read_update_info(png, info);
    for (int y = 0; y < height; y++) png_read_row(png, ids + (size_t)y * width, NULL);
    png_destroy_read_struct(&png, &info, NULL);
    fclose(f);
    return 0;
fail:
    png_destroy_read_struct(&png, &info, NULL);
    fclose(f);
    return -1;
}
