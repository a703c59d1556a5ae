#!/usr/bin/env python3
"""Makes tests/golden: tiny random models of each architecture and every named intermediate of one forward pass.

    python3 -m venv v && v/bin/pip install -r tools/requirements-golden.txt
    v/bin/python tools/make_golden.py            # all of them; or names: v/bin/python tools/make_golden.py qwen3 yarn

Each folder tests/golden/NAME is a model as transformers saves it (config.json, model.safetensors). Beside it, one or two
files NAME*.safetensors hold the tokens and the intermediates of the original Python implementation in F32 on
the CPU, under the names that src/model gives them (docs/developers/adding_a_model.md lists them). The golden test runs both the
folder and a GGUF of the same weights. Needs no network: the weights are random.
"""
import functools
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import (DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, Dots1Config,
                          Dots1ForCausalLM, Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM, Gemma3ForCausalLM,
                          Gemma3TextConfig, Glm4MoeConfig, Glm4MoeForCausalLM, Glm4MoeLiteConfig,
                          Glm4MoeLiteForCausalLM, GptOssConfig, GptOssForCausalLM, GraniteMoeConfig,
                          GraniteMoeForCausalLM, GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM,
                          HunYuanMoEV1Config, HunYuanMoEV1ForCausalLM, HYV3Config,
                          HYV3ForCausalLM, Lfm2Config, Lfm2ForCausalLM, Lfm2MoeConfig,
                          Lfm2MoeForCausalLM, LlamaConfig, LlamaForCausalLM, MiniMaxM2Config, MiniMaxM2ForCausalLM,
                          MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, OlmoeConfig,
                          OlmoeForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3_5Config, Qwen3_5ForCausalLM,
                          Qwen3_5ForConditionalGeneration, Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig,
                          Qwen3_5TextConfig, Qwen3NextConfig, Qwen3NextForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)
from transformers import (MuseGlimmerConfig, MuseGlimmerForConditionalGeneration)
from transformers import (FalconH1Config, FalconH1ForCausalLM, NemotronHConfig, NemotronHForCausalLM)
from transformers import (BloomConfig, BloomForCausalLM, Cohere2Config, Cohere2ForCausalLM, Ernie4_5Config, Ernie4_5ForCausalLM, Exaone4Config, Exaone4ForCausalLM, Gemma2Config,
                          Gemma2ForCausalLM, Gemma4ForCausalLM, Gemma4TextConfig, Glm4Config, Glm4ForCausalLM,
                          GPT2Config, GPT2LMHeadModel, GraniteConfig, GraniteForCausalLM, HunYuanDenseV1Config,
                          HunYuanDenseV1ForCausalLM, Ministral3Config, Ministral3ForCausalLM, Mistral3Config,
                          Mistral3ForConditionalGeneration, Mistral4Config, Mistral4ForCausalLM, MptConfig, MptForCausalLM, NemotronConfig, NemotronForCausalLM, Olmo2Config, Olmo2ForCausalLM, Olmo3Config,
                          Olmo3ForCausalLM, SeedOssConfig, SeedOssForCausalLM)

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
VOCABULARY = 80
BASE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
            pad_token_id=0)


def base(**changes):
    return {**BASE, **changes}


def gemma4(num_hidden_layers, **changes):
    types = ["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(num_hidden_layers)]
    types[-1] = "full_attention"
    return base(num_hidden_layers=num_hidden_layers, head_dim=16, global_head_dim=32, sliding_window=8,
                layer_types=types, final_logit_softcapping=3.0, vocab_size_per_layer_input=VOCABULARY,
                hidden_activation="gelu_pytorch_tanh", rope_parameters={
                    "full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25),
                    "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}, **changes)


LATENT = dict(num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8,
              v_head_dim=24, moe_intermediate_size=24, num_experts_per_tok=3, rms_norm_eps=1e-6)
LATENT_YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
                   beta_slow=1.0, mscale=0.7, mscale_all_dim=0.7)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.05, 1.1, 1.4],
                long_factor=[1.1, 1.7, 3.1, 4.5])
DELTA_NET = dict(num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6,
                 linear_key_head_dim=8, linear_value_head_dim=12,
                 layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"])
DELTA_NET_EXPERTS = dict(moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=10,
                         num_experts_per_tok=3)
VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, spatial_merge_size=2,
              temporal_patch_size=2, out_hidden_size=32, num_position_embeddings=16)
MAMBA2 = dict(mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=12, mamba_d_head=8, mamba_expand=2, mamba_chunk_size=32)
GRANITE_SCALES = dict(embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=2.5)
NEMOTRON_H = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=16, max_position_embeddings=128, ssm_state_size=12, mamba_num_heads=8, mamba_head_dim=8, n_groups=2,
                  chunk_size=32, bos_token_id=1, eos_token_id=2, pad_token_id=0)
FALCON_H1 = dict(mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=12, mamba_chunk_size=32,
                 head_dim=16, lm_head_multiplier=0.4, embedding_multiplier=3.0, mlp_multipliers=[0.7, 0.6], key_multiplier=0.5,
                 attention_out_multiplier=0.8, attention_in_multiplier=1.3, ssm_multipliers=[0.6, 0.7, 0.8, 0.9, 1.2],
                 ssm_in_multiplier=1.25, ssm_out_multiplier=0.9)
# name -> (configuration, model, token counts of the golden files)
MODELS = {
    "llama": (LlamaConfig(**base(rope_theta=10000.0)), LlamaForCausalLM, {"": 24}),
    "llama_tied": (LlamaConfig(**base(num_key_value_heads=1, tie_word_embeddings=True, head_dim=24)),
                   LlamaForCausalLM, {"": 24}),
    "llama3_rope": (LlamaConfig(**base(rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32))), LlamaForCausalLM, {"": 40}),
    "linear_rope": (LlamaConfig(**base(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5))),
                    LlamaForCausalLM, {"": 24}),
    "mistral": (MistralConfig(**base(sliding_window=8, head_dim=8)), MistralForCausalLM, {"": 100}),
    "qwen2": (Qwen2Config(**base(tie_word_embeddings=True)), Qwen2ForCausalLM, {"": 24}),
    "qwen3": (Qwen3Config(**base(head_dim=16)), Qwen3ForCausalLM, {"": 24}),
    "yarn": (Qwen3Config(**base(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32))),
        Qwen3ForCausalLM, {"": 40}),
    "smollm3": (SmolLM3Config(**base(num_hidden_layers=4, intermediate_size=48)), SmolLM3ForCausalLM, {"": 24}),
    "phi3": (Phi3Config(**base(sliding_window=20, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
             Phi3ForCausalLM, {"": 24}),
    "phi3_longrope": (Phi3Config(**base(original_max_position_embeddings=32, rope_parameters=LONGROPE)),
                      Phi3ForCausalLM, {"_short": 24, "_long": 40}),
    "phi4": (Phi3Config(**base(
        sliding_window=None, original_max_position_embeddings=128, rope_parameters=dict(
            rope_type="default", rope_theta=250000.0))), Phi3ForCausalLM, {"": 24}),
    "phi4_mini": (Phi3Config(**base(
        tie_word_embeddings=True, sliding_window=128, original_max_position_embeddings=32,
        rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
            short_factor=[1.0, 1.05, 1.2], long_factor=[1.1, 3.1, 9.0]))),
        Phi3ForCausalLM, {"": 40}),
    "gemma3": (Gemma3TextConfig(**base(
        num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=20, sliding_window=8, hidden_activation="gelu_pytorch_tanh",
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        final_logit_softcapping=3.0, attn_logit_softcapping=2.0,
        rope_parameters={"full_attention": dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                         "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})),
        Gemma3ForCausalLM, {"": 24}),
    "qwen3moe": (Qwen3MoeConfig(**base(
        num_hidden_layers=3, head_dim=16, intermediate_size=48, moe_intermediate_size=24, num_experts=10,
        num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1])), Qwen3MoeForCausalLM, {"": 24}),
    "qwen2moe": (Qwen2MoeConfig(**base(
        moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=9, num_experts_per_tok=4)),
        Qwen2MoeForCausalLM, {"": 24}),
    "mixtral": (MixtralConfig(**base(intermediate_size=40, num_local_experts=5, num_experts_per_tok=2)),
                MixtralForCausalLM, {"": 24}),
    "olmoe": (OlmoeConfig(**base(intermediate_size=24, num_experts=10, num_experts_per_tok=3)), OlmoeForCausalLM,
              {"": 24}),
    "granitemoe": (GraniteMoeConfig(**base(
        intermediate_size=24, num_local_experts=10, num_experts_per_tok=3, embedding_multiplier=3.0,
        residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=2.5, tie_word_embeddings=True)),
        GraniteMoeForCausalLM, {"": 24}),
    "glm4moe": (Glm4MoeConfig(**base(
        num_hidden_layers=3, head_dim=16, moe_intermediate_size=24, n_routed_experts=12, num_experts_per_tok=3,
        n_shared_experts=1, first_k_dense_replace=1, attention_bias=True, use_qk_norm=True, n_group=4, topk_group=2,
        routed_scaling_factor=2.5)), Glm4MoeForCausalLM, {"": 24}),
    "dots1": (Dots1Config(**base(
        num_hidden_layers=3, head_dim=16, moe_intermediate_size=24, n_routed_experts=10, num_experts_per_tok=3,
        n_shared_experts=2, first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=2.5,
        norm_topk_prob=True)), Dots1ForCausalLM, {"": 24}),
    "minimax_m2": (MiniMaxM2Config(**base(
        head_dim=16, intermediate_size=24, num_local_experts=10, num_experts_per_tok=3, rotary_dim=8)),
        MiniMaxM2ForCausalLM, {"": 24}),
    "ernie4_5_moe": (Ernie4_5_MoeConfig(**base(
        num_hidden_layers=3, head_dim=16, moe_intermediate_size=24, moe_num_experts=10, moe_k=3,
        moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1, moe_layer_interval=1)),
        Ernie4_5_MoeForCausalLM, {"": 24}),
    "hunyuan_moe": (HunYuanMoEV1Config(**base(
        head_dim=16, intermediate_size=24, num_experts=10, moe_topk=3, rope_parameters=dict(
            rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0))), HunYuanMoEV1ForCausalLM, {"": 24}),
    "hy_v3": (HYV3Config(**base(
        num_hidden_layers=3, head_dim=16, moe_intermediate_size=24, num_experts=10, num_experts_per_tok=3,
        num_shared_experts=2, first_k_dense_replace=1, router_scaling_factor=2.8)), HYV3ForCausalLM, {"": 24}),
    "lfm2": (Lfm2Config(**base(
        num_hidden_layers=6, intermediate_size=72, block_multiple_of=16, norm_eps=3e-5, layer_types=[
            "conv", "full_attention", "conv", "conv", "full_attention", "conv"])), Lfm2ForCausalLM, {"": 24}),
    "lfm2moe": (Lfm2MoeConfig(**base(
        num_hidden_layers=4, intermediate_size=48, moe_intermediate_size=24, num_experts=10, num_experts_per_tok=3,
        num_dense_layers=1, routed_scaling_factor=1.5, conv_L_cache=5, layer_types=[
            "conv", "conv", "full_attention", "conv"])), Lfm2MoeForCausalLM, {"": 24}),
    "granite": (GraniteConfig(**base(
        embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=2.5,
        tie_word_embeddings=True)), GraniteForCausalLM, {"": 24}),
    "seed_oss": (SeedOssConfig(**base(head_dim=16)), SeedOssForCausalLM, {"": 24}),
    "mistral3": (Mistral3Config(
        text_config=base(model_type="mistral", head_dim=16, rope_theta=1e6, sliding_window=None),
        vision_config=dict(model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                           num_attention_heads=2, head_dim=8, image_size=28, patch_size=14),
        tie_word_embeddings=False), Mistral3ForConditionalGeneration, {"": 24}),
    "ministral3": (Ministral3Config(**base(head_dim=16, rope_parameters=dict(
        rope_type="yarn", type="yarn", rope_theta=1e6, factor=8.0, original_max_position_embeddings=16, beta_fast=32.0,
        beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))), Ministral3ForCausalLM,
        {"": 60}),
    "ernie4_5": (Ernie4_5Config(**base(head_dim=16)), Ernie4_5ForCausalLM, {"": 24}),
    "hunyuan_dense": (HunYuanDenseV1Config(**base(head_dim=16, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0))), HunYuanDenseV1ForCausalLM, {"": 24}),
    "olmo2": (Olmo2Config(**base()), Olmo2ForCausalLM, {"": 24}),
    "olmo3": (Olmo3Config(**base(num_hidden_layers=5, sliding_window=8, rope_parameters={
        "full_attention": dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32,
                               attention_factor=1.3, beta_fast=32.0, beta_slow=1.0),
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})), Olmo3ForCausalLM, {"": 40}),
    "exaone4": (Exaone4Config(**base(num_hidden_layers=5, sliding_window=8, sliding_window_pattern=4)),
                Exaone4ForCausalLM, {"": 24}),
    "glm4": (Glm4Config(**base(head_dim=16)), Glm4ForCausalLM, {"": 24}),
    "cohere2": (Cohere2Config(**base(num_hidden_layers=5, sliding_window=8, logit_scale=0.25, layer_norm_eps=1e-5)),
                Cohere2ForCausalLM, {"": 24}),
    "nemotron": (NemotronConfig(**base(head_dim=16, norm_eps=1e-5)), NemotronForCausalLM, {"": 24}),
    "gpt2": (GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=32, n_layer=2, n_head=4, bos_token_id=1,
                        eos_token_id=2), GPT2LMHeadModel, {"": 24}),
    "bloom": (BloomConfig(vocab_size=VOCABULARY, seq_length=128, hidden_size=40, n_layer=2, n_head=5),
              BloomForCausalLM, {"": 80}),
    "mpt": (MptConfig(vocab_size=VOCABULARY, max_seq_len=128, d_model=40, n_layers=2, n_heads=5, attn_config=dict(
        alibi_bias_max=6, clip_qkv=1.5)), MptForCausalLM, {"": 80}),
    "gemma2": (Gemma2Config(**base(
        num_hidden_layers=3, head_dim=16, query_pre_attn_scalar=20, sliding_window=8, final_logit_softcapping=3.0,
        attn_logit_softcapping=2.0)), Gemma2ForCausalLM, {"": 24}),
    "gemma4": (Gemma4TextConfig(**gemma4(
        num_hidden_layers=6, num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=16)),
        Gemma4ForCausalLM, {"": 40}),
    "gemma4_moe": (Gemma4TextConfig(**gemma4(
        num_hidden_layers=4, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1,
        enable_moe_block=True, num_experts=10, top_k_experts=3, moe_intermediate_size=24)),
        Gemma4ForCausalLM, {"": 40}),
    "muse_glimmer": (MuseGlimmerConfig(
        text_config=base(num_hidden_layers=5, head_dim=16, sliding_window=8, layer_rope_theta=[10000.0, 0, 10000.0, 10000.0, 0],
                         layer_types=["sliding_attention", "full_attention"] + 2 * ["sliding_attention"] + ["full_attention"],
                         output_multiplier=0.4, final_logit_softcapping=3.0, qk_scale_factor=2.1, hidden_activation="silu"),
        vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, patch_size=4),
        projector_hidden_size=16), MuseGlimmerForConditionalGeneration, {"": 40}),
    # Prompts longer than the original's pieces of 64, and no multiple.
    "qwen3next": (Qwen3NextConfig(**base(
        **DELTA_NET, **DELTA_NET_EXPERTS)), Qwen3NextForCausalLM, {"": 70}),
    "qwen35": (Qwen3_5TextConfig(**base(**DELTA_NET)), Qwen3_5ForCausalLM, {"": 70}),
    "qwen35moe": (Qwen3_5MoeTextConfig(**base(**{**DELTA_NET, "linear_num_value_heads": 4}, **DELTA_NET_EXPERTS)),
                  Qwen3_5MoeForCausalLM, {"": 24}),
    "qwen35_vl": (Qwen3_5Config(text_config=base(**DELTA_NET), vision_config=VISION),
                  Qwen3_5ForConditionalGeneration, {"": 24}),
    "gpt_oss": (GptOssConfig(**base(
        num_hidden_layers=4, head_dim=16, intermediate_size=24, num_local_experts=10, num_experts_per_tok=3,
        sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters=dict(
            rope_type="yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
            beta_slow=1.0, truncate=False))), GptOssForCausalLM, {"": 40}),
    "deepseek_v3": (DeepseekV3Config(**base(
        **LATENT, q_lora_rank=24, n_routed_experts=12, n_shared_experts=1, first_k_dense_replace=1, n_group=4,
        topk_group=2, routed_scaling_factor=2.5, rope_parameters=LATENT_YARN)), DeepseekV3ForCausalLM, {"": 40}),
    "deepseek_v2": (DeepseekV2Config(**base(
        **LATENT, q_lora_rank=None, n_routed_experts=12, n_shared_experts=2, first_k_dense_replace=1, n_group=4,
        topk_group=2, topk_method="group_limited_greedy", routed_scaling_factor=1.5, norm_topk_prob=False,
        rope_parameters=LATENT_YARN)), DeepseekV2ForCausalLM, {"": 40}),
    "granitehybrid": (GraniteMoeHybridConfig(**base(
        **MAMBA2, **GRANITE_SCALES, num_hidden_layers=4, intermediate_size=24, shared_intermediate_size=40,
        num_local_experts=10, num_experts_per_tok=3, tie_word_embeddings=True,
        layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"])),
        GraniteMoeHybridForCausalLM, {"": 70}),
    "granitehybrid_dense": (GraniteMoeHybridConfig(**base(
        **MAMBA2, **GRANITE_SCALES, num_hidden_layers=2, intermediate_size=40, shared_intermediate_size=40, num_local_experts=0,
        position_embedding_type="rope", layer_types=["linear_attention", "full_attention"])),
        GraniteMoeHybridForCausalLM, {"": 40}),
    "nemotron_h": (NemotronHConfig(**NEMOTRON_H, layers_block_type=[
        "linear_attention", "mlp", "full_attention", "linear_attention", "mlp"]), NemotronHForCausalLM, {"": 70}),
    "nemotron_h_moe": (NemotronHConfig(
        **NEMOTRON_H, layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
        n_routed_experts=12, num_experts_per_tok=3, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40,
        moe_latent_size=20, routed_scaling_factor=2.5), NemotronHForCausalLM, {"": 40}),
    "falcon_h1": (FalconH1Config(**base(**FALCON_H1)), FalconH1ForCausalLM, {"": 70}),
    "falcon_h1_norm": (FalconH1Config(**base(**FALCON_H1, mamba_rms_norm=True, mamba_norm_before_gate=False)),
                       FalconH1ForCausalLM, {"": 40}),
    "mistral4": (Mistral4Config(**base(
        **LATENT, q_lora_rank=24, n_routed_experts=12, n_shared_experts=1, first_k_dense_replace=1, n_group=4,
        topk_group=2, rope_parameters=dict(
            rope_type="yarn", type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=16,
            beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
        Mistral4ForCausalLM, {"": 60}),
    "glm4_moe_lite": (Glm4MoeLiteConfig(**base(
        **LATENT, q_lora_rank=24, n_routed_experts=10, n_shared_experts=1,
        mlp_layer_types=["dense", "sparse", "sparse"], routed_scaling_factor=1.8)), Glm4MoeLiteForCausalLM, {"": 24}),
}
# Those whose golden files have no greedy tokens.
WITHOUT_GREEDY = ("llama", "llama_tied", "llama3_rope", "linear_rope", "mistral", "qwen2", "qwen3", "yarn", "smollm3",
                  "phi3", "phi3_longrope", "gemma3")


# Where the seed of the name gives a choice of experts that rounding could turn.
SEEDS = {"qwen3moe": 1, "gemma4_moe": 1}


def randomise(model, seed):
    """Weights at a scale where every part of a layer matters: attention is neither uniform nor one-hot."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if ".visual." in name or "vision_" in name:
                continue  # stays unread
            noise = torch.randn(p.shape, generator=g)
            if name.endswith("e_score_correction_bias"):  # ernie's, beside scores that add up to 1
                p.copy_(0.1 * noise)
            elif name.endswith("norm.weight"):
                zero_centred = model.config.model_type in ("gemma2", "gemma3_text", "nemotron")
                zero_centred |= model.config.model_type.startswith(("qwen3_next", "qwen3_5"))
                zero_centred |= model.config.model_type.startswith("muse") and name.endswith("layernorm.weight")
                centre = 0.0 if zero_centred and not name.endswith("linear_attn.norm.weight") else 1.0
                p.copy_(centre + 0.2 * noise)
            elif name.endswith("A_log"):
                p.copy_(torch.log(0.1 + 3.9 * torch.rand(p.shape, generator=g)))
            elif name.endswith("gate_up_proj_bias"):  # gpt-oss's, some beyond its limit of 7
                p.copy_(4.0 * noise)
            elif name.endswith("sinks"):
                p.copy_(noise)
            elif name.endswith("bias"):
                p.copy_(0.5 * noise)
            elif "wte" in name or "wpe" in name or name.endswith("word_embeddings.weight"):
                p.copy_(0.6 * noise)
            elif ".c_" in name:  # [inputs, outputs]
                p.copy_(1.3 * noise / p.shape[0] ** 0.5)
            elif p.dim() == 1:  # a norm of a vision tower, a scale
                p.copy_(1.0 + 0.2 * noise)
            elif "embed" in name:
                p.copy_(0.6 * noise)
            elif p.dim() == 3:  # of experts: [E, outputs, inputs]
                p.copy_(1.3 * noise / p.shape[2] ** 0.5)
            elif is_router(name):
                p.copy_(3.0 * noise / p.shape[1] ** 0.5)
            else:
                p.copy_(1.3 * noise / p.shape[1] ** 0.5)
        for name, b in sorted(model.named_buffers()):
            if name.endswith(BIASES_OF_CHOICE):
                b.copy_(0.15 * torch.randn(b.shape, generator=g))
            if name.endswith("layer_scalar"):
                b.copy_(1.0 + 0.3 * torch.randn(b.shape, generator=g))


def fused_by_head(attention):
    """Whether a query, a key and a value of each head lie together."""
    return hasattr(attention, "query_key_value")


BIASES_OF_CHOICE = ("e_score_correction_bias", "expert_bias")


def is_router(name):
    return name.endswith((".gate.weight", ".gate.wg.weight", ".router.weight", ".router.proj.weight",
                          ".shared_expert_gate.weight"))


def check_margin(p, mlp, router, output):
    """A choice of experts that hangs on rounding would be no test: the last one that is used must stand out from the
    first one that is not."""
    logits, _, chosen = output
    bias = [b for m in (router, mlp) for b in (*m.named_buffers(), *m.named_parameters())
            if b[0].endswith(BIASES_OF_CHOICE)]
    scores = logits.softmax(1) if type(mlp).__name__.startswith("Ernie") else logits.sigmoid()
    values = scores + bias[0][1] if bias else logits
    used = torch.zeros_like(values, dtype=torch.bool).scatter_(1, chosen, True)
    if (getattr(router, "num_group", 1) or 1) > 1:
        return  # the best of those that groups leave out may be better
    margin = (values.masked_fill(~used, torch.inf).amin(1) - values.masked_fill(used, -torch.inf).amax(1)).min()
    if margin < 1e-4:
        sys.exit(f"make_golden: {p}router chooses by a margin of {margin}; change the seed")


class Recorder:
    def __init__(self, model):
        self.model, self.out, self.handles, self.normed = model, {}, [], {}
        self.gemma = "gemma" in model.config.model_type or "muse" in model.config.model_type
        if hasattr(model, "transformer"):
            inner = model.transformer
            self.gpt(inner)
            return self.ends(inner, inner.wte if hasattr(inner, "wte") else inner.word_embeddings,
                             inner.ln_f if hasattr(inner, "ln_f") else inner.norm_f)
        inner = getattr(model.model, "language_model", model.model)  # beside a vision tower
        for i, layer in enumerate(inner.layers):
            self.layer(i, layer)
        norms = [getattr(inner, name) for name in ("norm", "embedding_norm", "norm_f", "final_layernorm") if hasattr(inner, name)]
        self.ends(inner, inner.embed_tokens if hasattr(inner, "embed_tokens") else inner.embeddings, norms[0])

    def ends(self, inner, embedding, norm):
        model = self.model
        self.restore = lambda: None
        if isinstance(model, MptForCausalLM):  # transformers leaves the configuration's exponent out
            inner.build_mpt_alibi_tensor = functools.partial(
                inner.build_mpt_alibi_tensor, alibi_bias_max=model.config.attn_config.alibi_bias_max)
        self.on(embedding, "embed", lambda o: o * getattr(model.config, "embedding_multiplier", 1))
        self.on(norm, "final_norm")
        self.on(model, "logits", lambda o: o.logits)
        module = sys.modules[type(inner).__module__]
        if not hasattr(module, "eager_attention_forward"):
            return
        eager = module.eager_attention_forward

        def attention(layer_module, q, k, v, mask, **kwargs):
            # transformers leaves gemma's cap of the scores to the attention functions that have it.
            if getattr(layer_module, "attn_logit_softcapping", None) is not None:
                kwargs["softcap"] = layer_module.attn_logit_softcapping
            result = eager(layer_module, q, k, v, mask, **kwargs)
            if hasattr(layer_module, "kv_b_proj"):
                self.latent(layer_module, q, k)
                self.put(f"layer.{layer_module.layer_idx}.attention", result[0].flatten(2))
                return result
            for name, x in (("q", q), ("k", k), ("v", v)):
                if name != "q" and getattr(layer_module, "is_kv_shared_layer", False):
                    continue  # another layer's
                self.put(f"layer.{layer_module.layer_idx}.{name}", x.transpose(1, 2).flatten(2))
            self.put(f"layer.{layer_module.layer_idx}.attention", result[0].flatten(2))
            return result

        module.eager_attention_forward = attention
        self.restore = lambda: setattr(module, "eager_attention_forward", eager)

    def latent(self, module, q, k):
        """The row of a token, and its queries with the up-projection of keys in them. What turns has neighbours as
        pairs, which transformers takes apart for all but deepseek_v2."""
        n = module.qk_nope_head_dim
        kv_b = module.kv_b_proj.weight.view(q.shape[1], n + module.v_head_dim, module.kv_lora_rank)

        def turned(x):
            x = x[..., n:]
            if type(module).__name__.startswith("DeepseekV2"):
                return x
            return torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2)

        queries = torch.einsum("bhtn,hnr->bhtr", q[..., :n], kv_b[:, :n])
        self.put(f"layer.{module.layer_idx}.q", torch.cat([queries, turned(q)], -1).transpose(1, 2).flatten(2))
        self.put(f"layer.{module.layer_idx}.latent", torch.cat([self.normed[module], turned(k)[:, 0]], -1))

    def put(self, name, x):
        self.out[name] = x.detach()[0].to(torch.float32).contiguous().clone()

    def on(self, module, name, pick=lambda o: o):
        self.handles.append(module.register_forward_hook(lambda m, args, o: self.put(name, pick(o))))

    def gpt(self, inner):
        def one_of(module, *names):
            return next(getattr(module, name) for name in names if hasattr(module, name))

        for i, layer in enumerate(one_of(inner, "h", "blocks")):
            p = f"layer.{i}."
            attention, mlp = one_of(layer, "attn", "self_attention"), one_of(layer, "mlp", "ffn")
            output = one_of(attention, "c_proj", "dense", "out_proj")
            self.on(one_of(layer, "ln_1", "input_layernorm", "norm_1"), p + "attn_norm")
            self.on(output, p + "attn_out")
            self.on(one_of(layer, "ln_2", "post_attention_layernorm", "norm_2"), p + "ffn_norm")
            self.on(layer, p + "output", lambda o: o[0] if isinstance(o, tuple) else o)
            self.ungated(p, one_of(mlp, "c_fc", "dense_h_to_4h", "up_proj"),
                         one_of(mlp, "c_proj", "dense_4h_to_h", "down_proj"))
            if hasattr(attention, "c_attn"):
                continue  # its attention function gives the rest
            self.before(output, p + "attention")
            fused = one_of(attention, "query_key_value", "Wqkv")
            limit = getattr(attention, "clip_qkv", None) or torch.inf
            for j, name in enumerate("qkv"):
                def part(o, j=j, attention=attention):
                    if fused_by_head(attention):
                        return o.unflatten(-1, (attention.num_heads, 3, -1))[..., j, :].flatten(2)
                    return o.chunk(3, dim=-1)[j]

                self.on(fused, p + name, lambda o, part=part: part(o).clamp(-limit, limit))

    def ungated(self, p, up, down):
        self.on(up, p + "up")
        self.handles.append(down.register_forward_pre_hook(lambda m, args: self.put(p + "gated", args[0])))
        self.on(down, p + "ffn_out")

    def layer(self, i, layer):
        p = f"layer.{i}."
        if hasattr(layer, "operator_norm"):
            return self.lfm2_layer(p, layer)
        if hasattr(layer, "mixer"):
            return self.nemotron_layer(p, layer)
        if hasattr(layer, "pre_ff_layernorm"):
            return self.falcon_layer(p, layer)
        if hasattr(layer, "mamba"):
            return self.granite_layer(p, layer)
        post_norm = not hasattr(layer, "input_layernorm")
        if not post_norm:
            self.on(layer.input_layernorm, p + "attn_norm")
        if hasattr(layer, "linear_attn"):
            self.before(layer.linear_attn.out_proj, p + "mixed")
        mixer = layer.linear_attn.out_proj if hasattr(layer, "linear_attn") else layer.self_attn.o_proj
        self.on(mixer, p + "attn_out")
        if hasattr(getattr(layer, "self_attn", None), "kv_a_layernorm"):
            self.handles.append(layer.self_attn.kv_a_layernorm.register_forward_hook(
                lambda m, a, o, of=layer.self_attn: self.normed.update({of: o})))
        if hasattr(layer, "post_self_attn_layernorm"):  # glm
            self.on(layer.post_self_attn_layernorm, p + "post_attn_norm")
            self.on(layer.post_attention_layernorm, p + "ffn_norm")
            self.on(layer.post_mlp_layernorm, p + "post_ffn_norm")
        elif post_norm:
            self.on(layer.post_attention_layernorm, p + "post_attn_norm")
            self.on(layer.post_feedforward_layernorm, p + "post_ffn_norm")
        elif self.gemma:
            self.on(layer.post_attention_layernorm, p + "post_attn_norm")
            self.on(layer.pre_feedforward_layernorm, p + "ffn_norm")
            self.on(layer.post_feedforward_layernorm, p + "post_ffn_norm")
        elif hasattr(layer, "post_attention_layernorm"):  # where the feed-forward has a norm of its own
            self.on(layer.post_attention_layernorm, p + "ffn_norm")
        self.on(layer, p + "output", lambda o: o[0] if isinstance(o, tuple) else o)
        if hasattr(layer, "post_per_layer_input_norm"):
            self.on(layer.post_per_layer_input_norm, p + "layer_embedding")
        if hasattr(layer, "post_feedforward_layernorm_2"):  # experts beside the feed-forward
            self.on(layer.router.proj, p + "router", lambda o: o[None])
            self.handles.append(layer.router.register_forward_hook(
                lambda m, a, o: check_margin(p, layer.experts, m, o)))
            self.on(layer.post_feedforward_layernorm_2, p + "experts_out")
        mlp = layer.mlp if hasattr(layer, "mlp") else layer.block_sparse_moe
        if hasattr(mlp, "experts"):
            return self.experts(p, mlp)
        if not hasattr(mlp, "gate_up_proj") and not hasattr(mlp, "gate_proj"):
            return self.ungated(p, mlp.up_proj, mlp.down_proj)
        if hasattr(mlp, "gate_up_proj"):
            self.on(mlp.gate_up_proj, p + "gate", lambda o: o.chunk(2, dim=-1)[0])
            self.on(mlp.gate_up_proj, p + "up", lambda o: o.chunk(2, dim=-1)[1])
        else:
            self.on(mlp.gate_proj, p + "gate")
            self.on(mlp.up_proj, p + "up")
        self.handles.append(
            mlp.down_proj.register_forward_pre_hook(lambda m, args: self.put(p + "gated", args[0])))
        self.on(mlp.down_proj, p + "ffn_out")

    def granite_layer(self, p, layer):
        self.on(layer.input_layernorm, p + "attn_norm")
        if layer.mamba is not None:
            self.before(layer.mamba.out_proj, p + "mixed")
        self.on(layer.mamba.out_proj if layer.mamba is not None else layer.self_attn.o_proj, p + "attn_out")
        self.on(layer.post_attention_layernorm, p + "ffn_norm")
        self.on(layer, p + "output", lambda o: o[0] if isinstance(o, tuple) else o)
        shared, moe, of_experts = layer.shared_mlp, layer.block_sparse_moe, {}
        if moe is None:
            self.on(shared.input_linear, p + "gate", lambda o: o.chunk(2, dim=-1)[0])
            self.on(shared.input_linear, p + "up", lambda o: o.chunk(2, dim=-1)[1])
            self.before(shared.output_linear, p + "gated")
            return self.on(shared, p + "ffn_out")
        self.on(moe.router, p + "router", lambda o: o[0][None])
        self.handles.append(moe.router.register_forward_hook(lambda m, a, o: check_margin(p, moe, m, o)))
        self.handles.append(moe.register_forward_hook(lambda m, a, o: of_experts.update(out=o)))
        self.on(shared, p + "shared_out")
        self.on(shared, p + "ffn_out", lambda o: o + of_experts["out"])

    def nemotron_layer(self, p, layer):
        self.on(layer, p + "output")
        kind, mixer = layer.block_type, layer.mixer
        self.on(layer.norm, p + ("ffn_norm" if kind in ("mlp", "moe") else "attn_norm"))
        if kind == "moe":
            return self.experts(p, mixer)
        if kind == "mlp":
            return self.ungated(p, mixer.up_proj, mixer.down_proj)
        if kind == "linear_attention":
            self.before(mixer.out_proj, p + "mixed")
        self.on(mixer.out_proj if kind == "linear_attention" else mixer.o_proj, p + "attn_out")

    def falcon_layer(self, p, layer):
        self.on(layer.input_layernorm, p + "attn_norm")
        self.before(layer.mamba.out_proj, p + "mixed")
        self.on(layer.mamba, p + "ssm_out", lambda o: o * layer.ssm_out_multiplier)
        self.on(layer.self_attn, p + "attn_out", lambda o: o[0] * layer.attn_out_multiplier)
        self.on(layer.pre_ff_layernorm, p + "ffn_norm")
        self.on(layer, p + "output", lambda o: o[0] if isinstance(o, tuple) else o)
        ffn = layer.feed_forward
        self.on(ffn.gate_proj, p + "gate", lambda o: o * ffn.gate_multiplier)
        self.on(ffn.up_proj, p + "up")
        self.before(ffn.down_proj, p + "gated")
        self.on(ffn, p + "ffn_out")

    def lfm2_layer(self, p, layer):
        self.on(layer.operator_norm, p + "attn_norm")
        if hasattr(layer, "conv"):
            self.on(layer.conv.in_proj, p + "conv_in")
            self.before(layer.conv.out_proj, p + "mixed")
        self.on(layer.conv.out_proj if hasattr(layer, "conv") else layer.self_attn.out_proj, p + "attn_out")
        self.on(layer.ffn_norm, p + "ffn_norm")
        self.on(layer, p + "output")
        ffn = layer.feed_forward
        if hasattr(ffn, "experts"):
            return self.experts(p, ffn)
        self.on(ffn.w1, p + "gate")
        self.on(ffn.w3, p + "up")
        self.before(ffn.w2, p + "gated")
        self.on(ffn.w2, p + "ffn_out")

    def before(self, module, name):
        self.handles.append(module.register_forward_pre_hook(lambda m, args: self.put(name, args[0])))

    def experts(self, p, mlp):
        router = mlp.router if hasattr(mlp, "router") else mlp.gate
        self.on(router, p + "router", lambda o: o[0][None])
        self.handles.append(router.register_forward_hook(lambda m, a, o: check_margin(p, mlp, m, o)))
        self.on(mlp, p + "ffn_out", lambda o: o[0] if isinstance(o, tuple) else o)
        if hasattr(mlp, "shared_expert"):
            shared = {}
            self.handles.append(mlp.shared_expert.register_forward_hook(lambda m, a, o: shared.update(out=o)))
            self.handles.append(mlp.shared_expert_gate.register_forward_hook(
                lambda m, a, o: self.put(p + "shared_out", (torch.sigmoid(o) * shared["out"])[None])))
        for name in ("shared_experts", "shared_mlp"):
            if hasattr(mlp, name):
                self.on(getattr(mlp, name), p + "shared_out", lambda o: o.reshape(1, -1, o.shape[-1]))

    def close(self):
        for handle in self.handles:
            handle.remove()
        self.restore()


def greedy(model, tokens, n=16):
    """The tokens that follow, each the likeliest."""
    for _ in range(n):
        with torch.no_grad():
            logits = model(tokens[None, :], use_cache=False).logits[0, -1]
        first, second = logits.topk(2).values
        if first - second < 1e-3:
            sys.exit("make_golden: two tokens are equally likely; change the seed")
        tokens = torch.cat([tokens, logits.argmax()[None]])
    return tokens[-n:].to(torch.int32)


def make(name):
    config, cls, lengths = MODELS[name]
    config._attn_implementation = "eager"
    model = cls(config).to(torch.float32).eval()
    randomise(model, seed=SEEDS.get(name, sum(name.encode())))
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for suffix, n_tokens in lengths.items():
        g = torch.Generator().manual_seed(n_tokens)
        tokens = torch.randint(0, VOCABULARY, (n_tokens,), generator=g)
        recorder = Recorder(model)
        with torch.no_grad():
            model(tokens[None, :], use_cache=False)
        recorder.close()
        out = {**recorder.out, "tokens": tokens.to(torch.int32)}
        if name not in WITHOUT_GREEDY:
            out["greedy"] = greedy(model, tokens)
        path = ROOT / f"{name}{suffix}.safetensors"
        save_file(out, path, metadata={"torch": torch.__version__, "transformers": transformers.__version__})
        print(f"{path.relative_to(ROOT)}: {len(out)} tensors, {path.stat().st_size} bytes; "
              f"model {(folder / 'model.safetensors').stat().st_size} bytes")


def main():
    names = sys.argv[1:] or list(MODELS)
    unknown = [n for n in names if n not in MODELS]
    if unknown:
        sys.exit(f"make_golden: no model named {', '.join(unknown)}; there are {', '.join(MODELS)}")
    for name in names:
        make(name)


if __name__ == "__main__":
    main()
