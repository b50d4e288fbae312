#!/bin/bash
# The next ten minutes on a machine with a GPU, after first_contact.sh: a training step, races in kernels, profiles of four kernels.
#
#     bash tests/gpu/second_contact.sh [--double] [OUT]
#
# OUT, PYTHON, --double and the exit status are those of first_contact.sh.
set -u
. "$(dirname "$0")/stages.sh"
ONE_BY_ONE=(env SPMD_GPU_GRAPHS=off)

for tool in compute-sanitizer ncu; do
    command -v $tool >/dev/null || printf '%s\tno %s on PATH\n' $tool $tool >>"$OUT/missing.tsv"
done
SHOWN=4 stage versions 60 "" "$PYTHON" -m tests.gpu.versions "${DOUBLE[@]}" --missing "$OUT/packages.tsv" || finish
cat "$OUT/packages.tsv" >>"$OUT/missing.tsv"

# 1. A GPT's training step with and without graphs, beside JAX's. Compiling takes about half a minute on two cores.
stage training 240 jax "$PYTHON" -m benchmarks.gpu.training "${DOUBLE[@]}" --rounds 5 --json "$OUT/training.json"

# 2. Races within kernels and accesses out of bounds, which a double does not know of.
for tool in memcheck racecheck; do
    stage $tool 90 compute-sanitizer "${ONE_BY_ONE[@]}" compute-sanitizer --tool $tool --error-exitcode 9 \
        "$PYTHON" -m tests.gpu "${DOUBLE[@]}" -k "test_one_device and (swap_loop or views)" --timeout=80
done

# Whether products in TF32, which programs ask for by default, meet the cases' tolerances: a question, not a requirement.
CASES=test_case
[ ${#DOUBLE[@]} -gt 0 ] && CASES=test_arrays
SHOWN=15 stage tf32_cases 90 "" "$PYTHON" -m tests.gpu "${DOUBLE[@]}" --tf32 -k $CASES

# 3. Why kernels do not reach the bandwidth of the memory: throughput, issued instructions and registers by Nsight Compute.
METRICS=dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__inst_issued.avg.pct_of_peak_sustained_elapsed
for kernel in softmax "bias gelu" transpose layernorm; do
    SHOWN=12 stage "ncu_${kernel// /_}" 40 "jax ncu" "${ONE_BY_ONE[@]}" ncu --clock-control none -k regex:spmd_ -c 12 \
        --metrics $METRICS,launch__registers_per_thread "$PYTHON" -m benchmarks.gpu.kernels "$kernel" --rounds 1
done
finish
