/* make_clip_main.c - make-clip: writes a synthetic clip for tests of the command line. */
#include "make_clip.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "make-clip [--size WxH] [--frames N] [--fps N] [--vfr] [--codec NAME] [--pix-fmt NAME] [--format NAME]\n"
    "          [--rotate 0|90|180|270] [--mirror] [--range limited|full] [--matrix NAME] [--interlaced] [--gop N]\n"
    "          [--options K=V:...] [--audio] OUT\n"
    "Writes a clip of the default picture of tests/make_clip.h. Codecs are FFmpeg's encoders (default mpeg4, or png\n"
    "and mjpeg by the extension of stills); OUT may be a printf pattern.\n";

static const struct option options[] = {{"size", 1, NULL, 's'},
                                        {"frames", 1, NULL, 'n'},
                                        {"fps", 1, NULL, 'f'},
                                        {"vfr", 0, NULL, 'v'},
                                        {"codec", 1, NULL, 'c'},
                                        {"pix-fmt", 1, NULL, 'p'},
                                        {"format", 1, NULL, 'F'},
                                        {"options", 1, NULL, 'o'},
                                        {"rotate", 1, NULL, 'r'},
                                        {"mirror", 0, NULL, 'm'},
                                        {"range", 1, NULL, 'R'},
                                        {"matrix", 1, NULL, 'M'},
                                        {"interlaced", 0, NULL, 'i'},
                                        {"gop", 1, NULL, 'g'},
                                        {"audio", 0, NULL, 'a'},
                                        {"help", 0, NULL, 'h'},
                                        {0}};

static bool set(struct make_clip *c, int option, const char *arg)
{
    switch (option) {
    case 's': return sscanf(arg, "%dx%d", &c->width, &c->height) == 2 && c->width > 0 && c->height > 0;
    case 'n': return (c->frames = atoi(arg)) >= 0;
    case 'f': return (c->fps = atoi(arg)) > 0;
    case 'v': return c->vfr = true;
    case 'c': return (c->codec = arg) != NULL;
    case 'p': return (c->pix_fmt = arg) != NULL;
    case 'F': return (c->format = arg) != NULL;
    case 'o': return (c->options = arg) != NULL;
    case 'r': return (c->rotate = atoi(arg)) % 90 == 0 && c->rotate >= 0;
    case 'm': return c->mirror = true;
    case 'R': c->full = !strcmp(arg, "full"); return c->tag_range = c->full || !strcmp(arg, "limited");
    case 'M': return (c->matrix = arg) != NULL;
    case 'i': return c->interlaced = true;
    case 'g': return (c->gop = atoi(arg)) > 0;
    case 'a': return c->audio = true;
    default: return false;
    }
}

static const char *default_codec(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot && !strcmp(dot, ".png")) return "png";
    if (dot && (!strcmp(dot, ".jpg") || !strcmp(dot, ".jpeg"))) return "mjpeg";
    return "mpeg4";
}

int main(int argc, char **argv)
{
    struct make_clip c = {.width = 64, .height = 48, .frames = 10, .fps = 25};
    char why[256];
    for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        if (!set(&c, o, optarg)) {
            fputs(usage, o == 'h' ? stdout : stderr);
            return o == 'h' ? 0 : 2;
        }
    if (optind + 1 != argc) {
        fputs(usage, stderr);
        return 2;
    }
    c.path = argv[optind];
    if (!c.codec) c.codec = default_codec(c.path);
    if (make_clip(&c, why, sizeof(why))) return 0;
    fprintf(stderr, "make-clip: %s\n", why);
    return 1;
}
