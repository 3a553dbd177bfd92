/* kern_parts.h - the parts of a table of kernels, for kern.h alone: K(name) says of which instruction set. */
void K(cpu_pack)(float *dst, const float *b, int k, int n, ptrdiff_t row, ptrdiff_t col);
/* The left side of products of m rows: a [m][k] times `scale`, tile by tile of rows, each [k][rows]; a tile's rows then
 * share cache lines, which is worth the copy where many panels follow. dst [m * k] */
void K(cpu_group_rows)(float *dst, const float *a, ptrdiff_t lda, int m, int k, float scale);
void K(cpu_product)(const struct cpu_product *);
size_t K(cpu_matrix_size)(int in, int out);
void K(cpu_matrix_pack)(struct cpu_matrix *, const float *w, int first, int count);
void K(cpu_affine)(const struct cpu_affine *, void *local);
size_t K(cpu_perceptron_size)(int m, int c);
void K(cpu_perceptron)(const struct cpu_perceptron *, void *local);
size_t K(cpu_keys_size)(int n_keys, int d);
size_t K(cpu_values_size)(int n_keys, int dv);
void K(cpu_keys_pack)(void *keys, const float *k, ptrdiff_t ldk, int first, int count, int d);
void K(cpu_values_pack)(void *values, const float *v, ptrdiff_t ldv, int first, int count, int dv);
size_t K(cpu_attend_size)(int count, int d, int dv);
void K(cpu_attend)(const struct cpu_attend *, int first, int count, void *local);
size_t K(cpu_window_size)(int keys, int d);
void K(cpu_window)(const struct cpu_window *, void *local);
void K(cpu_layer_norm)(float *y, const float *x, const struct s2_norm *, size_t rows, enum s2_act);
void K(cpu_activate)(float *x, size_t n, enum s2_act);
void K(cpu_axpy)(float *y, const float *a, const float *b, float s, size_t n);
void K(cpu_rope)(float *x, const float *table, int c);
void K(cpu_max4)(float *y, const float *a, const float *b, const float *c, const float *d, size_t n);
void K(cpu_clamp)(float *y, const float *x, float lo, float hi, size_t n);
void K(cpu_memory_token)(float *y, const uint16_t *mem, const float *pe, const float *tpos, int n);
void K(cpu_widen)(float *y, const uint16_t *x, size_t n);
void K(cpu_narrow)(uint16_t *y, const float *x, size_t n);
void K(cpu_sigmoid20)(float *y, size_t n);
void K(cpu_depthwise)(float *y, const float *x, const float *w, int width, int taps, int n);
void K(cpu_lerp_across)(float *to, const float *from, const struct s2i_tap *, int width);
void K(cpu_lerp_down)(float *to, const float *above, const float *below, float lambda0, float lambda1, int width);
void K(cpu_positive)(uint8_t *set, const float *row, int width);
void K(cpu_owned)(uint8_t *set, const uint16_t *owner, int index, int width);
void K(cpu_pack_bits)(uint8_t *bits, size_t stride, const uint8_t *set, int width);
void K(cpu_own)(uint16_t *owner, float *largest, const float *row, int index, int width);
void K(cpu_resample_across)(uint8_t *dst, ptrdiff_t dst_pitch, const uint8_t *src, ptrdiff_t src_pitch, int rows,
                            const struct cpu_axis *);
void K(cpu_resample_down)(uint8_t *dst, const uint8_t *src, ptrdiff_t pitch, int bytes, const struct cpu_axis *, int i);
