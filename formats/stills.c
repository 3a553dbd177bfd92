/* stills.c - lists of picture files: folders in natural order, printf patterns. */
#include "stills.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

void fmt_stills_free(struct fmt_stills *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->name[i]);
    free(s->name);
    free(s->folder);
    *s = (struct fmt_stills){0};
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void fmt_stem(const char *path, char *stem, size_t size)
{
    const char *base = base_of(path), *dot = strrchr(base, '.');
    size_t n = dot && dot != base ? (size_t)(dot - base) : strlen(base);
    if (n >= size) n = size - 1;
    memcpy(stem, base, n);
    stem[n] = 0;
}

static bool add_name(struct fmt_stills *s, const char *name)
{
    if ((s->count & (s->count - 1)) == 0) { /* full at each power of two */
        size_t capacity = s->count ? s->count * 2 : 1;
        char **grown = realloc(s->name, capacity * sizeof(*grown));
        if (!grown) return false;
        s->name = grown;
    }
    if (!(s->name[s->count] = strdup(name))) return false;
    s->count++;
    return true;
}

static enum s2_status no_memory(struct s2_err *err)
{
    return s2_no_memory(err, "the list of frames", 1 << 20);
}

/* ------------------------------------------------------------------ natural order */

/* Compares n and m bytes: runs of digits as numbers, the rest byte by byte. */
static int natural(const char *a, size_t n, const char *b, size_t m)
{
    size_t i = 0, j = 0;
    while (i < n && j < m) {
        if (!isdigit((unsigned char)a[i]) || !isdigit((unsigned char)b[j])) {
            if (a[i] != b[j]) return (unsigned char)a[i] < (unsigned char)b[j] ? -1 : 1;
            i++, j++;
            continue;
        }
        while (i < n && a[i] == '0') i++;
        while (j < m && b[j] == '0') j++;
        size_t p = i, q = j;
        while (p < n && isdigit((unsigned char)a[p])) p++;
        while (q < m && isdigit((unsigned char)b[q])) q++;
        if (p - i != q - j) return p - i < q - j ? -1 : 1;
        int order = memcmp(a + i, b + j, p - i);
        if (order) return order;
        i = p, j = q;
    }
    return i < n ? 1 : j < m ? -1 : 0;
}

static size_t stem_length(const char *name)
{
    return (size_t)(strrchr(name, '.') - name);
}

/* By stem, so that "a.jpg" stands beside "a.png" and before "a-2.jpg". */
static int by_stem(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    int order = natural(x, stem_length(x), y, stem_length(y));
    return order ? order : strcmp(x, y);
}

static bool is_frame_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && dot != name && name[0] != '.' &&
           (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

/* Opening a pipe would wait for its writer. What is not there (a broken link) passes: reading it says why it fails. */
static bool may_be_picture(DIR *dir, const struct dirent *entry)
{
    struct stat st;
    if (!is_frame_name(entry->d_name)) return false;
    return entry->d_type == DT_REG || fstatat(dirfd(dir), entry->d_name, &st, 0) != 0 || S_ISREG(st.st_mode);
}

static enum s2_status read_folder(struct fmt_stills *s, DIR *dir, size_t *others, struct s2_err *err)
{
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (!may_be_picture(dir, entry))
            ++*others;
        else if (!add_name(s, entry->d_name))
            return no_memory(err);
    }
    return S2_OK;
}

enum s2_status fmt_stills_folder(struct fmt_stills *s, const char *path, struct s2_err *err)
{
    enum s2_status status = S2_OK;
    size_t others = 0, n = strlen(path);
    DIR *dir = opendir(path);
    if (!dir) return s2_fail(err, S2_E_INPUT, "%s: the folder cannot be read: %s", path, strerror(errno));
    if (!(s->folder = malloc(n + 2))) {
        status = no_memory(err);
        goto done;
    }
    snprintf(s->folder, n + 2, "%s%s", path, n && path[n - 1] == '/' ? "" : "/");
    if ((status = read_folder(s, dir, &others, err))) goto done;
    if (!s->count) {
        status = s2_fail(err, S2_E_INPUT, "%s: the folder holds no PNG or JPEG frames", path);
        goto done;
    }
    qsort(s->name, s->count, sizeof(*s->name), by_stem);
    for (size_t i = 1; i < s->count; i++) {
        size_t length = stem_length(s->name[i]);
        if (length == stem_length(s->name[i - 1]) && !memcmp(s->name[i], s->name[i - 1], length)) {
            status =
                s2_fail(err, S2_E_INPUT,
                        "%s: %s and %s differ only in the extension, so that their masks would have the same name; "
                        "remove or rename one",
                        path, s->name[i - 1], s->name[i]);
            goto done;
        }
    }
    if (others)
        s2_log(S2_LOG_INFO, "%s: %zu %s not PNG or JPEG frames %s left out", path, others,
               others == 1 ? "entry that is" : "entries that are", others == 1 ? "is" : "are");
done:
    closedir(dir);
    return status;
}

/* ------------------------------------------------------------------ patterns */

/* The parts around the number of a pattern, with %% resolved. */
struct pattern {
    char *before, *after; /* in the last part of the path */
    int digits;           /* least number of digits, padded with zeros */
};

/* Reads %d, %5d or %05d at text; returns the bytes it takes, 0 if it is something else. */
static size_t read_number_format(const char *text, int *digits)
{
    size_t i = 1;
    *digits = 0;
    while (isdigit((unsigned char)text[i]) && i < 4) *digits = *digits * 10 + (text[i++] - '0');
    return text[i] == 'd' ? i + 1 : 0;
}

bool fmt_stills_is_pattern(const char *path)
{
    int numbers = 0, digits;
    for (const char *p = base_of(path); *p; p++) {
        if (*p != '%') continue;
        size_t n = p[1] == '%' ? 2 : read_number_format(p, &digits);
        if (!n) return false;
        numbers += p[1] != '%';
        p += n - 1;
    }
    return numbers == 1;
}

static bool parse_pattern(struct pattern *out, const char *base)
{
    char *to = out->before = calloc(1, strlen(base) + 1);
    out->after = calloc(1, strlen(base) + 1);
    if (!out->before || !out->after) return false;
    while (*base) {
        if (base[0] == '%' && base[1] != '%') {
            base += read_number_format(base, &out->digits);
            to = out->after;
            continue;
        }
        if (base[0] == '%') base++;
        *to++ = *base++;
    }
    return true;
}

/* The number in `name` if the pattern would print it so; else -1. */
static int64_t number_in(const struct pattern *p, const char *name)
{
    size_t n = strlen(name), before = strlen(p->before), after = strlen(p->after);
    if (n <= before + after || n - before - after > 18) return -1;
    if (memcmp(name, p->before, before) || strcmp(name + n - after, p->after)) return -1;
    int digits = (int)(n - before - after);
    int64_t number = 0;
    for (int i = 0; i < digits; i++) {
        char c = name[before + (size_t)i];
        if (!isdigit((unsigned char)c)) return -1;
        number = number * 10 + (c - '0');
    }
    bool padded = digits > 1 && name[before] == '0';
    return digits < p->digits || (padded && digits != p->digits) ? -1 : number;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* All numbers for which a file exists, ascending. */
static bool existing_numbers(DIR *dir, const struct pattern *p, int64_t **numbers, size_t *count)
{
    struct dirent *entry;
    size_t capacity = 0;
    while ((entry = readdir(dir))) {
        int64_t number = number_in(p, entry->d_name);
        if (number < 0) continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            int64_t *grown = realloc(*numbers, capacity * sizeof(*grown));
            if (!grown) return false;
            *numbers = grown;
        }
        (*numbers)[(*count)++] = number;
    }
    if (*count) qsort(*numbers, *count, sizeof(**numbers), by_number);
    return true;
}

/* Names for the numbers from the first up to a gap. */
static bool add_numbers(struct fmt_stills *s, const struct pattern *p, const int64_t *number, size_t count)
{
    size_t size = strlen(p->before) + strlen(p->after) + (size_t)p->digits + 32;
    char *name = malloc(size);
    bool ok = name;
    for (size_t i = 0; ok && i < count && number[i] == number[0] + (int64_t)i; i++) {
        snprintf(name, size, "%s%0*lld%s", p->before, p->digits, (long long)number[i], p->after);
        ok = add_name(s, name);
    }
    free(name);
    return ok;
}

enum s2_status fmt_stills_pattern(struct fmt_stills *s, const char *path, struct s2_err *err)
{
    enum s2_status status = S2_OK;
    struct pattern p = {0};
    int64_t *numbers = NULL;
    size_t count = 0;
    DIR *dir = NULL;
    const char *base = base_of(path);
    s->folder = strndup(path, (size_t)(base - path));
    if (!s->folder || !parse_pattern(&p, base)) {
        status = no_memory(err);
        goto done;
    }
    if (!(dir = opendir(s->folder[0] ? s->folder : "."))) {
        status = s2_fail(err, S2_E_INPUT, "%s: the folder %s cannot be read: %s", path, s->folder, strerror(errno));
        goto done;
    }
    if (!existing_numbers(dir, &p, &numbers, &count) || (count && !add_numbers(s, &p, numbers, count))) {
        status = no_memory(err);
        goto done;
    }
    if (!count)
        status = s2_fail(err, S2_E_INPUT, "%s: no file matches this pattern", path);
    else if (s->count < count)
        s2_log(S2_LOG_WARN, "%s: number %lld is missing; the frames end before it, %zu later one%s left out", path,
               (long long)(numbers[0] + (int64_t)s->count), count - s->count, count - s->count == 1 ? " is" : "s are");
done:
    if (dir) closedir(dir);
    free(numbers);
    free(p.before);
    free(p.after);
    return status;
}

enum s2_status fmt_stills_single(struct fmt_stills *s, const char *path, struct s2_err *err)
{
    const char *base = base_of(path);
    s->folder = strndup(path, (size_t)(base - path));
    return s->folder && add_name(s, base) ? S2_OK : no_memory(err);
}
