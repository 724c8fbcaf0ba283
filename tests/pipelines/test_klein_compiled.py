"""The compiled Klein transformer: eager's image, one graph per image size, none for more steps."""

from __future__ import annotations

import pytest
import torch

from tests.pipelines.test_klein import load, paint


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    from make_klein import build_pipeline

    path = tmp_path_factory.mktemp("klein-compiled")
    build_pipeline("tiny").save_pretrained(path)
    return path


def test_image_and_number_of_graphs(directory, graphs):
    pipe = load(directory, torch.float32, "neuron")
    eager = paint(pipe)
    pipe.transformer.compile(backend="neuron", fullgraph=True)
    assert abs(paint(pipe) - eager).max() <= 1
    assert graphs() == 1
    paint(pipe, steps=2)
    paint(pipe, prompt="two dogs are dancing under the rain", seed=5)
    assert graphs() == 1
    paint(pipe, size=96)
    assert graphs() == 2
    paint(pipe)
    paint(pipe, size=96, steps=2)
    assert graphs() == 2


def test_repeated_blocks_share_their_graphs(directory, graphs):
    pipe = load(directory, torch.float32, "neuron")
    eager = paint(pipe)
    pipe.transformer.compile_repeated_blocks(backend="neuron", fullgraph=True)
    assert abs(paint(pipe) - eager).max() <= 1
    # Two kinds of blocks, two instances of each.
    assert graphs() == 2
    paint(pipe, steps=2)
    assert graphs() == 2
