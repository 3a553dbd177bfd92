/* conv.cu - convolutions. Dense ones with enough channels gather their patches and use the matrix product; small and
 * depthwise ones are direct. */
#include <cstdlib>
#include <cstring>

#include "cu.cuh"

struct conv_weights {
    struct s2_linear product; /* rows (ky, kx, in), padded to `patch`; impl NULL: direct */
    int patch;
    float *w;    /* direct: [out][in/groups][k][k] transposed to [k*k*in/groups][out] */
    float *bias; /* direct */
};

static bool by_product(const struct s2_conv *c) { return c->groups == 1 && c->out >= 16; }

void cu_conv_create(struct s2_backend *be, struct s2_conv *c, const float *w, const float *b)
{
    c->impl = NULL;
    if (be->skip) return;
    int per = c->in / c->groups, taps = c->k * c->k, row = taps * per;
    struct conv_weights *p = (struct conv_weights *)calloc(1, sizeof *p);
    float *packed = p ? (float *)calloc((size_t)c->out * (size_t)(row + 8), sizeof *packed) : NULL;
    if (!packed) {
        s2_backend_fail(be, S2_E_DEVICE, "out of memory while loading the model");
        free(p);
        return;
    }
    c->impl = p;
    p->patch = (row + 7) / 8 * 8;
    bool product = by_product(c);
    for (int o = 0; o < c->out; o++)
        for (int i = 0; i < per; i++)
            for (int t = 0; t < taps; t++)
                packed[product ? o * p->patch + t * per + i : (t * per + i) * c->out + o] = w[(o * per + i) * taps + t];
    if (product) {
        cu_linear_create(be, &p->product, packed, b, p->patch, c->out);
    } else {
        size_t bytes = (size_t)c->out * (size_t)row * sizeof *packed;
        if ((p->w = (float *)be->ops->alloc(be, bytes))) be->ops->upload(be, p->w, packed, bytes);
        if ((p->bias = (float *)be->ops->alloc(be, (size_t)c->out * sizeof *b))) be->ops->upload(be, p->bias, b, (size_t)c->out * sizeof *b);
        be->ops->sync(be);
    }
    free(packed);
}

void cu_conv_destroy(struct s2_backend *be, struct s2_conv *c)
{
    struct conv_weights *p = (struct conv_weights *)c->impl;
    if (!p) return;
    if (p->product.impl) cu_linear_destroy(be, &p->product);
    be->ops->free(be, p->w), be->ops->free(be, p->bias);
    free(p);
    c->impl = NULL;
}

/* One thread an element of the patch matrix [n*H*W][patch] */
template <class T>
__global__ void gather(T *out, const T *x, int h, int w, int c, int H, int W, int k, int stride, int pad, int patch, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int e = (int)(i % patch);
    int64_t cell = i / patch;
    int X = (int)(cell % W), Y = (int)(cell / W % H);
    int64_t b = cell / W / H;
    int ch = e % c, t = e / c, sy = Y * stride - pad + t / k, sx = X * stride - pad + t % k;
    bool inside = t < k * k && sy >= 0 && sy < h && sx >= 0 && sx < w;
    out[i] = inside ? x[((b * h + sy) * w + sx) * c + ch] : cu_to<T>(0.0f);
}

/* One thread an output element; neighbouring threads share the pixel's inputs and read weights side by side */
template <class T>
__global__ void direct(T *y, const T *x, const float *wt, const float *bias, int h, int w, int c, int per, int H, int W, int out, int k,
                       int stride, int pad, enum s2_act act, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int o = (int)(i % out), X = (int)(i / out % W), Y = (int)(i / out / W % H);
    int64_t b = i / out / W / H;
    int first = per == c ? 0 : o;
    float sum = bias[o];
    for (int ky = 0; ky < k; ky++) {
        int sy = Y * stride - pad + ky;
        if (sy < 0 || sy >= h) continue;
        for (int kx = 0; kx < k; kx++) {
            int sx = X * stride - pad + kx;
            if (sx < 0 || sx >= w) continue;
            const T *from = x + ((b * h + sy) * w + sx) * c + first;
            const float *weight = wt + (int64_t)(ky * k + kx) * per * out + o;
            for (int ch = 0; ch < per; ch++) sum += cu_f32(from[ch]) * weight[(int64_t)ch * out];
        }
    }
    y[i] = cu_to<T>(cu_act(sum, act));
}

void cu_conv(struct s2_backend *be, struct s2_tensor y, struct s2_tensor x, const struct s2_conv *c, enum s2_act act)
{
    if (be->skip) return;
    const struct conv_weights *p = (const struct conv_weights *)c->impl;
    cudaStream_t stream = cu_of(be)->stream;
    if (!p->product.impl) {
        int64_t n = s2_elements(y);
        CU_BY_TYPE(y.dtype, T, direct<T><<<cu_blocks(n, 256), 256, 0, stream>>>((T *)y.data, (const T *)x.data, p->w, p->bias, x.h, x.w, x.c, c->in / c->groups,
                                                                               y.h, y.w, y.c, c->k, c->stride, c->pad, act, n));
        CU_LAUNCHED(be, "a convolution");
        return;
    }
    struct s2_tensor patches = y;
    patches.c = patches.ld = p->patch;
    int64_t n = s2_elements(patches);
    if (!(patches.data = cu_scratch(be, (size_t)n * s2_dtype_size(x.dtype)))) return;
    CU_BY_TYPE(x.dtype, T, gather<T><<<cu_blocks(n, 256), 256, 0, stream>>>((T *)patches.data, (const T *)x.data, x.h, x.w, x.c, y.h, y.w, c->k, c->stride, c->pad, p->patch, n));
    if (CU_LAUNCHED(be, "a convolution")) cu_linear(be, y, patches, &p->product, act, false);
}
