"""Models of transformers and timm with small random configurations, for `benchmarks/exports.py`.

Each function is a SOURCE of `onnx-bisect export`, and needs a Python with torch, transformers, timm and torchvision.
"""

import torch
from torch import nn

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}


def sam3():
    """Segment Anything 3: image, text, DETR encoder and decoder, masks."""
    from transformers import Sam3Config, Sam3Model

    backbone = {**SMALL, "model_type": "sam3_vit_model", "num_hidden_layers": 2, "image_size": 112, "patch_size": 14}
    backbone |= {"window_size": 4, "global_attn_indexes": [1], "pretrain_image_size": 56}
    text = {**SMALL, "model_type": "clip_text_model", "num_hidden_layers": 1, "projection_dim": 32, "vocab_size": 100}
    config = Sam3Config(
        vision_config={
            "backbone_config": backbone,
            "fpn_hidden_size": 32,
            "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
        },
        text_config={**text, "max_position_embeddings": 16},
        geometry_encoder_config={**SMALL, "num_layers": 1},
        detr_encoder_config={**SMALL, "num_layers": 1},
        detr_decoder_config={**SMALL, "num_layers": 1, "num_queries": 5},
        mask_decoder_config={"hidden_size": 32, "num_attention_heads": 2, "num_upsampling_stages": 2},
    )
    words = {"input_ids": torch.randint(0, 99, (1, 8)), "attention_mask": torch.ones(1, 8, dtype=torch.long)}
    return Sam3Model(config), (), {"pixel_values": torch.randn(1, 3, 112, 112), **words}


def sam2():
    """Segment Anything 2: image encoder, prompt encoder, mask decoder."""
    from transformers import Sam2Config, Sam2Model
    from transformers.models.sam2.configuration_sam2 import Sam2HieraDetConfig, Sam2VisionConfig

    backbone = Sam2HieraDetConfig(
        hidden_size=16,
        num_attention_heads=1,
        image_size=[256, 256],
        blocks_per_stage=[1, 1, 2, 1],
        embed_dim_per_stage=[16, 32, 64, 128],
        num_attention_heads_per_stage=[1, 2, 4, 8],
        window_size_per_stage=[8, 4, 8, 4],
        global_attention_blocks=[3],
        num_query_pool_stages=3,
    )
    vision = Sam2VisionConfig(
        backbone_config=backbone,
        backbone_channel_list=[128, 64, 32, 16],
        backbone_feature_sizes=[[64, 64], [32, 32], [16, 16]],
        fpn_hidden_size=32,
    )
    config = Sam2Config(
        vision_config=vision,
        prompt_encoder_config={"hidden_size": 32, "image_size": 256, "patch_size": 16, "mask_input_channels": 4},
        mask_decoder_config={"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 2, "iou_head_hidden_dim": 32},
    )
    points = {"input_points": torch.rand(1, 1, 2, 2) * 256, "input_labels": torch.ones(1, 1, 2, dtype=torch.int)}
    return Sam2Model(config), (), {"pixel_values": torch.randn(1, 3, 256, 256), **points}


def mixtral():
    """A language model with a mixture of experts."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**SMALL, vocab_size=64, num_hidden_layers=1, num_key_value_heads=2, num_local_experts=4)
    return MixtralForCausalLM(config), (), {"input_ids": torch.randint(0, 63, (1, 6)), "use_cache": False}


def whisper():
    """An encoder and a decoder with a cache."""
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=64,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=32,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return (
        WhisperModel(config),
        (),
        {"input_features": torch.randn(1, 8, 64), "decoder_input_ids": torch.tensor([[1, 5, 7]])},
    )


class Cached(nn.Module):
    """A language model whose cache goes in and out as tensors."""

    def __init__(self):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(**SMALL, vocab_size=64, num_hidden_layers=2, num_key_value_heads=2)
        self.model = LlamaForCausalLM(config)

    def forward(self, token, keys, values):
        """The next token's logits, and the longer cache."""
        from transformers import DynamicCache

        cache = DynamicCache(ddp_cache_data=list(zip(keys, values, strict=True)))
        made = self.model(input_ids=token, past_key_values=cache, use_cache=True)
        return made.logits, [(it.keys, it.values) for it in made.past_key_values.layers]


def llama_cache():
    """One step of a language model with five tokens in its cache."""
    cache = [torch.randn(1, 2, 5, 16) for _ in range(4)]
    return Cached(), (torch.randint(0, 63, (1, 1)), cache[:2], cache[2:])


class Detector(nn.Module):
    """A detector whose boxes go through non-maximum suppression."""

    def __init__(self):
        super().__init__()
        from torchvision.models.detection import ssdlite320_mobilenet_v3_large

        self.detector = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)

    def forward(self, image):
        """Boxes, scores and labels of one image."""
        (found,) = self.detector([image])
        return found["boxes"], found["scores"], found["labels"]


def ssdlite():
    """SSDlite of torchvision, with NMS inside."""
    return Detector(), (torch.rand(3, 96, 96),)


def timm_repvit():
    """A convolutional network of timm."""
    import timm

    return timm.create_model("repvit_m0_9", pretrained=False, num_classes=8), (torch.randn(1, 3, 64, 64),)


def timm_vit():
    """A vision transformer of timm."""
    import timm

    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=8, img_size=64, depth=3)
    return model, (torch.randn(1, 3, 64, 64),)
