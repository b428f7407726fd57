// y[n, o] = x[n, i] · w[i, o] + b[o]
extern "C" __global__ void linear(float* y, const float* x, const float* w, const float* b, int n, int i, int o) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n * o) return;
    float sum = b[at % o];
    for (int k = 0; k < i; k++) sum += x[at / o * i + k] * w[k * o + at % o];
    y[at] = sum;
}

extern "C" __global__ void relu(float* y, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) y[at] = fmaxf(y[at], 0.0f);
}

// Replaces the scores by the gradient of the cross entropy, and adds up the loss.
extern "C" __global__ void cross_entropy(float* scores, const int* labels, float* loss, int n, int classes) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    float* score = scores + row * classes;
    float most = score[0], sum = 0.0f;
    for (int c = 1; c < classes; c++) most = fmaxf(most, score[c]);
    for (int c = 0; c < classes; c++) sum += expf(score[c] - most);
    atomicAdd(loss, (logf(sum) + most - score[labels[row]]) / n);
    for (int c = 0; c < classes; c++) score[c] = (expf(score[c] - most) / sum - (c == labels[row])) / n;
}

// dx[n, i] = dy[n, o] · wᵀ, where x is the output of a ReLU
extern "C" __global__ void linear_backward_x(
    float* dx, const float* dy, const float* w, const float* x, int n, int i, int o) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n * i) return;
    float sum = 0.0f;
    for (int k = 0; k < o; k++) sum += dy[at / i * o + k] * w[at % i * o + k];
    dx[at] = x[at] > 0.0f ? sum : 0.0f;
}

// w -= rate · xᵀ · dy, and b -= rate · Σ dy
extern "C" __global__ void sgd(float* w, float* b, const float* x, const float* dy, float rate, int n, int i, int o) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= i * o) return;
    float sum = 0.0f, bias = 0.0f;
    for (int row = 0; row < n; row++) {
        sum += x[row * i + at / o] * dy[row * o + at % o];
        bias += dy[row * o + at % o];
    }
    w[at] -= rate * sum;
    if (at < o) b[at] -= rate * bias;
}
