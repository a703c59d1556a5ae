// The functions that may touch a bit of an answer (docs/design.md section 5, law 7). Each is a fixed sequence of
// additions, multiplications, divisions and fused multiply-adds, so it gives the same bits on every machine, compiler
// and instruction set; nothing here calls libm. For NaN they give NaN. Threads: all are pure.
//
// Errors are the largest ones measured, rounded up; tests/parity/math_test.cc holds them.
#pragma once

#include <cstdint>
#include <span>

namespace ibid::math {

// F64, plain multiplications and additions only.
double exp(double x);            // 1 ulp; 0 below -745.2, infinity above 709.8
double log(double x);            // 1 ulp; -infinity at 0, NaN below
double log1p(double x);          // 2 ulp; -infinity at -1, NaN below
double sin(double x);            // 1 ulp of max(|sin x|, 2^-20) for |x| <= 1.6e6; loses accuracy slowly above
double cos(double x);            // as sin
double pow(double x, double y);  // x > 0; (2 + 1.5 |y ln x|) ulp
double erf(double x);            // 16 ulp
double tanh(double x);           // 4 ulp

// F32 by the arithmetic of the CPU kernels' lanes (cpu/math.inl): the same bits as a row op gives for an element.
float exp(float x);        // 1 ulp; subnormal results are rounded once
float tanh(float x);       // 3 ulp
float silu(float x);       // x / (1 + exp(-x)), 3 ulp where exp(-x) is finite
float gelu(float x);       // x Phi(x); 64 ulp for x >= -6
float gelu_tanh(float x);  // x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3); 20 ulp for x >= -3
// exp of each element, 16 at a time. out may be x.
void exp(std::span<float> out, std::span<const float> x);

// F32 as the F64 function rounded once: 0.5001 ulp.
inline float log(float x) { return static_cast<float>(log(static_cast<double>(x))); }
inline float log1p(float x) { return static_cast<float>(log1p(static_cast<double>(x))); }
inline float erf(float x) { return static_cast<float>(erf(static_cast<double>(x))); }

// fma(a, b, c) rounded once, without the instruction: for code that is compiled for every machine. The product of two
// F32 is exact in F64; the sum is rounded to odd there, so that rounding to F32 is the only rounding that counts.
float fma(float a, float b, float c);

}  // namespace ibid::math
