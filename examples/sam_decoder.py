"""The mask decoder of Segment Anything with its prompt encoder, and the export that `sam_decoder.onnx` came from.

After https://github.com/facebookresearch/segment-anything (Copyright Meta Platforms, Inc. and affiliates, Apache-2.0),
changed: points are embedded without a mask, so that the older exporter takes it, and the decoder is in two modules.

    python examples/sam_decoder.py big.onnx && python examples/shrink.py big.onnx examples/sam_decoder.onnx
"""

import math
import re
import sys
from linecache import getline
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH = 256
GRID = 64
MASKS = 4


class PositionEmbedding(nn.Module):
    """Random spatial frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positional_encoding_gaussian_matrix", torch.randn(2, WIDTH // 2))

    def encode(self, coords: Tensor) -> Tensor:
        """Coordinates between 0 and 1 as sines and cosines."""
        coords = 2 * coords - 1
        coords = coords @ self.positional_encoding_gaussian_matrix
        coords = 2 * math.pi * coords
        return torch.cat([torch.sin(coords), torch.cos(coords)], dim=-1)

    def grid(self) -> Tensor:
        """The encoding of the image's grid."""
        steps = (torch.arange(GRID) + 0.5) / GRID
        return self.encode(torch.stack(torch.meshgrid(steps, steps, indexing="xy"), dim=-1)).permute(2, 0, 1)[None]


class PromptEncoder(nn.Module):
    """Embeds points with their labels: -1 for padding, 0 and 1 for points, 2 and 3 for corners of a box."""

    def __init__(self, image_size: int = 1024) -> None:
        super().__init__()
        self.image_size = image_size
        self.pe_layer = PositionEmbedding()
        self.point_embeddings = nn.ModuleList(nn.Embedding(1, WIDTH) for _ in range(4))
        self.not_a_point_embed = nn.Embedding(1, WIDTH)
        self.no_mask_embed = nn.Embedding(1, WIDTH)

    def forward(self, coords: Tensor, labels: Tensor) -> Tensor:
        coords = (coords + 0.5) / self.image_size
        embedding = self.pe_layer.encode(coords)
        labels = labels.unsqueeze(-1).expand_as(embedding)
        is_padding = (1 - (labels - -1.0).abs()).clamp(0.0, 1.0)
        embedding = embedding * (1 - is_padding) + self.not_a_point_embed.weight * is_padding
        for label, point in enumerate(self.point_embeddings):
            has_label = (1 - (labels - float(label)).abs()).clamp(0.0, 1.0)
            embedding = embedding + point.weight * has_label
        return embedding


class Attention(nn.Module):
    """Attention that may work in fewer channels than it is given."""

    def __init__(self, heads: int, downsample_rate: int = 1) -> None:
        super().__init__()
        self.heads, inner = heads, WIDTH // downsample_rate
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(WIDTH, inner) for _ in range(3))
        self.out_proj = nn.Linear(inner, WIDTH)

    def separate_heads(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        x = x.reshape(b, n, self.heads, c // self.heads)
        return x.transpose(1, 2)

    def recombine_heads(self, x: Tensor) -> Tensor:
        b, heads, n, c = x.shape
        x = x.transpose(1, 2)
        return x.reshape(b, n, heads * c)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = self.q_proj(q), self.k_proj(k), self.v_proj(v)
        q = self.separate_heads(q)
        k = self.separate_heads(k)
        v = self.separate_heads(v)
        _, _, _, c = q.shape
        attn = q @ k.permute(0, 1, 3, 2)
        attn = attn / math.sqrt(c)
        attn = torch.softmax(attn, dim=-1)
        return self.out_proj(self.recombine_heads(attn @ v))


class MLPBlock(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2, self.act = nn.Linear(WIDTH, 2048), nn.Linear(2048, WIDTH), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(self.act(self.lin1(x)))


class TwoWayAttentionBlock(nn.Module):
    """Tokens attend to themselves and to the image, the image to the tokens."""

    def __init__(self, skip_first_layer_pe: bool) -> None:
        super().__init__()
        self.self_attn = Attention(8)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.cross_attn_token_to_image = Attention(8, 2)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = MLPBlock()
        self.norm3 = nn.LayerNorm(WIDTH)
        self.norm4 = nn.LayerNorm(WIDTH)
        self.cross_attn_image_to_token = Attention(8, 2)
        self.skip_first_layer_pe = skip_first_layer_pe

    def forward(self, queries: Tensor, keys: Tensor, query_pe: Tensor, key_pe: Tensor) -> tuple[Tensor, Tensor]:
        if self.skip_first_layer_pe:
            queries = self.self_attn(q=queries, k=queries, v=queries)
        else:
            q = queries + query_pe
            queries = queries + self.self_attn(q=q, k=q, v=queries)
        queries = self.norm1(queries)

        q = queries + query_pe
        k = keys + key_pe
        queries = queries + self.cross_attn_token_to_image(q=q, k=k, v=keys)
        queries = self.norm2(queries)

        queries = queries + self.mlp(queries)
        queries = self.norm3(queries)

        q = queries + query_pe
        k = keys + key_pe
        keys = keys + self.cross_attn_image_to_token(q=k, k=q, v=queries)
        return queries, self.norm4(keys)


class TwoWayTransformer(nn.Module):
    """Two blocks on the image and the tokens: those of the quality and of the masks, and the prompt's."""

    def __init__(self, prompts: PromptEncoder) -> None:
        super().__init__()
        self.iou_token, self.mask_tokens = nn.Embedding(1, WIDTH), nn.Embedding(MASKS, WIDTH)
        self.layers = nn.ModuleList(TwoWayAttentionBlock(skip_first_layer_pe=number == 0) for number in range(2))
        self.final_attn_token_to_image = Attention(8, 2)
        self.norm_final_attn = nn.LayerNorm(WIDTH)
        no_mask = prompts.no_mask_embed.weight.detach().reshape(1, -1, 1, 1)
        self.register_buffer("dense", no_mask.repeat(1, 1, GRID, GRID))
        self.register_buffer("image_pe", prompts.pe_layer.grid().detach())

    def forward(self, image_embeddings: Tensor, sparse: Tensor) -> tuple[Tensor, Tensor]:
        tokens = torch.cat([self.iou_token.weight, self.mask_tokens.weight], dim=0).unsqueeze(0)
        queries = tokens = torch.cat((tokens, sparse), dim=1)
        src = image_embeddings + self.dense
        keys = src.flatten(2).permute(0, 2, 1)
        image_pe = self.image_pe.flatten(2).permute(0, 2, 1)
        for layer in self.layers:
            queries, keys = layer(queries=queries, keys=keys, query_pe=tokens, key_pe=image_pe)
        q = queries + tokens
        k = keys + image_pe
        queries = queries + self.final_attn_token_to_image(q=q, k=k, v=keys)
        return self.norm_final_attn(queries), keys


class LayerNorm2d(nn.Module):
    """LayerNorm over channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class MLP(nn.Module):
    """Three linear layers."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, size) for size in (WIDTH, WIDTH, outputs))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class MaskHead(nn.Module):
    """Masks, and how good they are."""

    def __init__(self) -> None:
        super().__init__()
        self.output_upscaling = nn.Sequential(
            nn.ConvTranspose2d(WIDTH, WIDTH // 4, kernel_size=2, stride=2),
            LayerNorm2d(WIDTH // 4),
            nn.GELU(),
            nn.ConvTranspose2d(WIDTH // 4, WIDTH // 8, kernel_size=2, stride=2),
            nn.GELU(),
        )
        self.output_hypernetworks_mlps = nn.ModuleList(MLP(WIDTH // 8) for _ in range(MASKS))
        self.iou_prediction_head = MLP(MASKS)

    def forward(self, hs: Tensor, src: Tensor) -> tuple[Tensor, Tensor]:
        iou_token_out = hs[:, 0, :]
        mask_tokens_out = hs[:, 1 : 1 + MASKS, :]
        src = src.transpose(1, 2).view(1, WIDTH, GRID, GRID)
        upscaled = self.output_upscaling(src)
        hyper_in = [mlp(mask_tokens_out[:, i, :]) for i, mlp in enumerate(self.output_hypernetworks_mlps)]
        b, c, h, w = upscaled.shape
        masks = (torch.stack(hyper_in, dim=1) @ upscaled.view(b, c, h * w)).view(b, -1, h, w)
        return self.iou_prediction_head(iou_token_out), masks


class SamDecoder(nn.Module):
    """From an image's embedding and a prompt to masks."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt_encoder = PromptEncoder()
        self.transformer = TwoWayTransformer(self.prompt_encoder)
        self.mask_head = MaskHead()

    def forward(self, image_embeddings: Tensor, point_coords: Tensor, point_labels: Tensor) -> tuple[Tensor, Tensor]:
        sparse = self.prompt_encoder(point_coords, point_labels)
        hs, src = self.transformer(image_embeddings, sparse)
        return self.mask_head(hs, src)


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model and an example of its inputs."""
    torch.manual_seed(0)
    points = torch.rand(1, 5, 2) * 1024
    return SamDecoder().eval(), (torch.randn(1, WIDTH, GRID, GRID), points, torch.tensor([[0.0, 1, 2, 3, -1]]))


def main() -> None:
    """Export with `verbose=True`, and keep of each doc string the lines of this file, with their code."""
    model, inputs = build()
    ends = {"input_names": ["image_embeddings", "point_coords", "point_labels"], "output_names": ["scores", "masks"]}
    torch.onnx.export(model, inputs, sys.argv[1], dynamo=False, verbose=True, opset_version=11, **ends)
    exported = onnx.load(sys.argv[1])
    for node in exported.graph.node:
        frames = re.findall(r"^(.*)\((\d+)\): (\w+)$", node.doc_string, re.MULTILINE)
        own = [(int(line), function) for file, line, function in frames if Path(file).name == Path(__file__).name]
        trace = [
            f'File "examples/{Path(__file__).name}", line {line}, in {function}\n    {getline(__file__, line).strip()}'
            for line, function in reversed(own)
            if function not in ("main", "<module>")
        ]
        node.ClearField("doc_string")
        if trace:
            node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="\n  ".join(trace))
    onnx.save(exported, sys.argv[1])


if __name__ == "__main__":
    main()
