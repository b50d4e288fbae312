"""Names of the zoo's programs, by family. A family's module needs JAX; it is imported to build one of its programs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from benchmarks.zoo.generated.seeds import seed_of

if TYPE_CHECKING:
    from benchmarks.zoo.program import Builder

#: (module in benchmarks.zoo.families, names). A program is the function of its name in the module.
FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "shard_maps",
        (
            "all_reductions",
            "gathers_and_scatters",
            "all_to_alls",
            "permutations",
            "ragged_all_to_all",
            "ring_attention",
            "ulysses_attention",
            "pipeline_stages",
            "expert_exchange",
            "collective_matmul",
            "partly_manual",
            "halo_exchange",
            "two_axis_groups",
        ),
    ),
    (
        "recurrent",
        (
            "lstm_scan",
            "gru_reversed_scan",
            "ssm_associative_scan",
            "mamba_selective",
            "linear_attention_chunks",
            "viterbi",
            "edit_distance",
            "kalman_filter",
            "lstm_with_dropout",
        ),
    ),
    (
        "flax_linen",
        (
            "linen_gpt_adamw",
            "linen_t5",
            "linen_vit",
            "linen_lora",
            "linen_resnet",
        ),
    ),
    (
        "flax_nnx",
        (
            "nnx_gpt_muon",
            "nnx_recurrent",
            "nnx_autoencoder",
        ),
    ),
    (
        "scientific_libraries",
        (
            "diffrax_ensemble",
            "diffrax_stiff",
            "diffrax_sde",
            "numpyro_logistic",
            "numpyro_nuts",
            "blackjax_chains",
            "lineax_solves",
            "optimistix_fits",
            "distrax_spline",
            "flowjax_coupling",
            "tinygp_likelihood",
            "dynamax_smoother",
            "e3nn_tensor_product",
        ),
    ),
    (
        "search_and_simulation",
        (
            "ott_sinkhorn",
            "mctx_muzero",
            "pgx_2048",
            "mjx_bodies",
            "brax_pendulum",
            "brax_ant",
            "jaxlie_poses",
            "exponax_kolmogorov",
        ),
    ),
    (
        "equinox_models",
        (
            "eqx_gpt",
            "eqx_convolutions",
            "eqx_ensemble",
            "eqx_neural_ode",
        ),
    ),
    (
        "haiku_models",
        (
            "hk_gpt",
            "hk_resnet",
            "hk_lstm",
            "hk_vector_quantizer",
        ),
    ),
    (
        "keras_models",
        (
            "keras_dense",
            "keras_convolutions",
            "keras_attention",
        ),
    ),
    (
        "diffusion",
        (
            "unet_training",
            "unet_sampling",
        ),
    ),
    (
        "experts",
        (
            "moe_capacity",
            "moe_ragged_dot",
            "moe_ragged_dot_gradient",
            "soft_moe",
            "embedding_tables",
        ),
    ),
    (
        "graphs",
        (
            "graph_network",
            "graph_attention",
            "page_rank",
            "shortest_paths",
            "triangle_counts",
        ),
    ),
    (
        "reinforcement",
        (
            "cart_pole",
            "ppo_update",
            "value_iteration",
            "replay_buffer",
        ),
    ),
    (
        "equations",
        (
            "heat_stencil",
            "navier_stokes_spectral",
            "burgers_upwind",
            "multigrid_poisson",
            "conjugate_gradients",
            "lattice_boltzmann",
            "particles",
        ),
    ),
    (
        "gaussian_processes",
        (
            "gp_posterior",
            "gp_likelihood_gradient",
            "least_squares",
            "principal_components",
            "singular_values",
            "sinkhorn",
        ),
    ),
    (
        "decoding",
        (
            "greedy_until_end",
            "beam_search",
            "nucleus_sampling",
            "cache_step_donated",
            "speculative_decoding",
        ),
    ),
    (
        "quantized",
        (
            "int8_product",
            "fp8_training",
            "four_bit_weights",
            "straight_through",
            "microscaled_blocks",
        ),
    ),
    (
        "optimizers",
        (
            "muon",
            "adafactor",
            "accumulated_lamb",
            "scheduled_adamw",
            "schedule_free",
            "shampoo",
            "line_search",
            "sharpness_aware",
            "private_gradients",
        ),
    ),
    (
        "differentiation",
        (
            "flash_attention",
            "fixed_point",
            "hessian_products",
            "meta_learning",
            "checkpointed_scan",
            "sequence_loss",
        ),
    ),
    (
        "sharding",
        (
            "fsdp_tensor_sequence",
            "explicit_mesh",
            "uneven_sizes",
            "several_meshes",
            "sharded_optimizer_state",
            "vocabulary_parallel",
            "shuffled_pipeline",
            "own_reducers",
        ),
    ),
    (
        "host_calls",
        (
            "debug_print",
            "pure_callback",
            "partitioned_by_python",
            "random_generators",
        ),
    ),
    (
        "science",
        (
            "hamiltonian_chains",
            "ising_model",
            "k_means",
            "option_prices",
            "cellular_automata",
            "mandelbrot",
            "image_warps",
            "contrastive_pairs",
        ),
    ),
    (
        "larger",
        (
            "resnet_50",
            "gpt_of_four_layers",
            "wide_unet",
            "wide_lstm",
        ),
    ),
)

#: Programs of TensorFlow (families/tensorflow_programs.py), for one device: it has no partitioner of its own.
TENSORFLOW = (
    "tf_dense_training",
    "tf_conv_batch_norm",
    "tf_lstm_scan",
    "tf_segments",
    "tf_top_k_and_sorts",
    "tf_linear_algebra",
    "tf_fourier",
    "tf_images",
    "tf_random_numbers",
    "tf_collatz",
    "tf_bfloat16",
    "tf_indexing",
    "tf_keras_convolutions",
    "tf_keras_recurrent",
    "tf_keras_transformer",
)

#: Programs of PyTorch (families/torch_programs.py), lowered by PyTorch/XLA.
TORCH = (
    "pt_mlp_adamw",
    "pt_transformer",
    "pt_conv_batch_norm",
    "pt_embedding_lstm",
    "pt_group_norm_unet",
    "pt_bf16_attention",
    "pt_indexing",
    "pt_experts",
    "pt_reductions",
)


def names() -> list[str]:
    return [name for _, programs in FAMILIES for name in programs]


def family_of(name: str) -> str:
    """Raises KeyError for a name that no family has."""
    for family, programs in FAMILIES:
        if name in programs:
            return family
    raise KeyError(name)


def builder_of(name: str) -> Builder:
    """Builder of a program, of the random one with that number for `random_NUMBER`."""
    if (seed := seed_of(name)) is not None:
        from benchmarks.zoo.generated.programs import random_builder

        return random_builder(seed)
    module = importlib.import_module(f"benchmarks.zoo.families.{family_of(name)}")
    builder: Builder = getattr(module, name)
    return builder
