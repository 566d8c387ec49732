"""DAC: its size as published, its loss by hand, and how filtering begins, goes on and ends."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel, Filtered
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.errors import ConfigError
from coterie.nn.model import TaskBatch, build

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "inducing": 4, "depth": 2, "mask_depth": 1, "context_width": 8}
VARIANTS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "flow": {"density": "flow"},
    "statistician": {"density": "statistician"},
    "none": {"density": "none"},
    "anchored input": {"filtering": "anchored"},
    "anchored latent": {"filtering": "anchored", "anchor_position": "latent"},
    "compared": {"filtering": "anchored", "anchor_position": "latent", "anchoring": "compared"},
    "faithful": {"decoding": "faithful", "tie_blocks": True, "layer_norm": False, "scale": "model"},
}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def make_model(seed: int = 0, **settings: Any) -> DacModel:
    return build(DacModel, DacConfig(2, **(SMALL | settings)), seeded(seed)).double()


def blobs(n: int = 30, sets: int = 3, seed: int = 1) -> TaskBatch:
    batch = MixturesOfGaussians(max_points=120).sample(sets, seeded(seed))
    return TaskBatch(batch.x[:, :n].double(), batch.labels[:, :n], batch.valid[:, :n])


def firing(model: DacModel, logit: float) -> DacModel:
    """The same network, but that every point gets this logit in every pass."""
    with torch.no_grad():
        model.membership.weight.zero_()
        model.membership.bias.fill_(logit)
    return model


def pretending(model: DacModel, logits: Tensor, context: Tensor | None = None) -> DacModel:
    """A network that says this of a set, whatever it is."""
    said = Filtered(logits, context, torch.zeros((len(logits), 1, 16), dtype=logits.dtype), None)
    model.filter_anchors = lambda *_: said  # type: ignore[method-assign]  # a network that is known
    return model


@pytest.mark.parametrize(("tied", "published"), [(True, 629_253), (False, 1_174_021)])
def test_the_published_network_has_its_number_of_parameters(tied: bool, published: int) -> None:
    model = DacModel(replace(DacConfig.faithful(2), tie_blocks=tied))
    assert sum(value.numel() for value in model.parameters()) == published


@pytest.fixture(params=VARIANTS.values(), ids=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> DacModel:
    return make_model(**request.param)


def test_masking_equals_removal_and_permuting_points_permutes_logits(model: DacModel) -> None:
    """At the valid points, which come in another order when the others are removed."""
    x = blobs().x
    valid = torch.zeros(x.shape[:2], dtype=torch.bool)
    valid[:, ::3] = True
    order, anchor = torch.randperm(10, generator=seeded(5)), torch.tensor([1, 2, 3])
    with torch.no_grad():
        masked = model.filter(x, valid, 3 * anchor)
        removed = model.filter(x[:, ::3][:, order], None, order.argsort()[anchor])
    torch.testing.assert_close(masked.logits[:, ::3][:, order], removed.logits, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(masked.summary, removed.summary, atol=1e-9, rtol=1e-9)
    if masked.context is not None:
        torch.testing.assert_close(masked.context, removed.context, atol=1e-9, rtol=1e-9)


def test_new_points_are_treated_like_those_of_the_set(model: DacModel) -> None:
    batch = blobs()
    with torch.no_grad():
        found = model.filter(batch.x, batch.valid, torch.tensor([0, 7, 29]))
        judged = model.mask_logits(batch.x, found.summary, found.anchor)
        some = model.mask_logits(batch.x[:, 4:6], found.summary, found.anchor)
    torch.testing.assert_close(judged, found.logits, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(some, found.logits[:, 4:6], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("variant", ["gaussian", "flow", "none", "anchored latent"])
def test_the_loss_does_not_depend_on_the_names_of_clusters(variant: str) -> None:
    model, batch = make_model(**VARIANTS[variant]), blobs()
    renamed = torch.tensor([5, 0, 2, 1])[batch.labels]
    first = model.loss(batch, seeded()).total
    torch.testing.assert_close(model.loss(replace(batch, labels=renamed), seeded()).total, first)


def test_the_loss_of_the_truth_is_the_entropy_of_a_gaussian() -> None:
    n, deviation = 4000, torch.tensor([0.5, 2.0], dtype=torch.float64)
    mean = torch.tensor([1.0, -1.0], dtype=torch.float64)
    noise = torch.randn((1, n, 2), generator=seeded(), dtype=torch.float64)
    labels = (torch.arange(n) % 4 == 0).long().unsqueeze(0)
    x = torch.where(labels.unsqueeze(2) == 1, 100.0, mean + deviation * noise)
    sure = torch.where(labels == 0, 50.0, -50.0).double()
    raw = torch.cat([mean, (deviation.expm1()).log()]).unsqueeze(0)  # softplus undone
    loss = pretending(make_model(), sure, raw).loss(TaskBatch(x, labels, labels >= 0), seeded())
    entropy = math.log(2 * math.pi * math.e) + float(deviation.log().sum())
    assert loss.total.item() == pytest.approx(entropy, abs=0.05)
    assert loss.parts["membership"] == pytest.approx(0.0, abs=1e-9)
    assert loss.parts["nll"] == pytest.approx(loss.total.item())


def loss_of_each_cluster(model: DacModel, batch: TaskBatch, found: Filtered) -> Tensor:
    """Cross-entropy over all points and negative log-likelihood of the members, cluster by cluster, word for word."""
    assert model.density is not None
    assert found.context is not None
    log_prob = model.density.log_prob(batch.x, found.context, seeded())
    losses = torch.full((len(batch.x), 4), torch.inf, dtype=torch.float64)
    for i in range(len(batch.x)):
        for j in range(4):
            member = batch.labels[i] == j
            if member.any():
                entropy = binary_cross_entropy_with_logits(found.logits[i], member.double())
                losses[i, j] = (entropy - log_prob[i, member].mean()).detach()
    return losses


def test_the_easiest_cluster_counts_and_never_an_empty_one() -> None:
    model, batch = make_model(), blobs(sets=6)
    losses = loss_of_each_cluster(model, batch, model.filter(batch.x, batch.valid))
    assert losses.isinf().any()  # some sets lack some cluster
    torch.testing.assert_close(model.loss(batch, seeded()).total.detach(), losses.amin(dim=1).mean())


@pytest.mark.parametrize("position", ["input", "latent"])
def test_the_cluster_of_the_anchor_counts(position: str) -> None:
    model, batch = make_model(filtering="anchored", anchor_position=position), blobs(sets=4)
    anchor = torch.multinomial(batch.valid.float(), 1, generator=seeded(2)).squeeze(1)  # what the loss will draw
    losses = loss_of_each_cluster(model, batch, model.filter(batch.x, batch.valid, anchor))
    expected = losses[torch.arange(4), batch.labels[torch.arange(4), anchor]].mean()
    torch.testing.assert_close(model.loss(batch, seeded(2)).total.detach(), expected)


def test_anchored_networks_need_anchors() -> None:
    batch = blobs()
    with pytest.raises(ConfigError, match="an anchor for each set"):
        make_model(filtering="anchored").filter(batch.x, batch.valid)


@pytest.mark.parametrize("logit", [-1000.0, -100.0, 0.0, 100.0, 1000.0])
def test_clustering_ends_if_networks_always_or_never_fire(logit: float, model: DacModel) -> None:
    batch = blobs(n=20)
    for found in firing(model, logit).float().cluster_sets(batch.x.float(), batch.valid, seeded()):
        sizes = found.labels.bincount()
        assert len(sizes) == found.n_clusters
        assert (sizes > 0).all()
        assert found.probabilities is not None
        torch.testing.assert_close(found.probabilities.sum(dim=1), torch.ones(20))
        if logit > 0 and model.config.density != "none":
            assert found.n_clusters == 1


def test_faithful_decoding_stops_where_nothing_would_change() -> None:
    model = firing(make_model(decoding="faithful"), -1.0)
    calls = []
    judge = model.filter
    model.filter = lambda *given: calls.append(1) or judge(*given)  # type: ignore[method-assign, func-returns-value]  # counts
    found = model.cluster(blobs(n=20, sets=1).x[0], seeded())
    assert len(calls) == 1
    assert found.labels.tolist() == [0] * 20


def taking(model: DacModel, *groups: Tensor) -> DacModel:
    """A network whose passes take the points near the centres, one centre a pass, and then nothing more."""

    def near(x: Tensor, centre: Tensor) -> Tensor:
        return 1.0 - (x - centre).square().sum(dim=2).sqrt()

    turn = iter([*groups, *[torch.full((2,), 1e6, dtype=torch.float64)] * 50])

    def said(x: Tensor, valid: Tensor | None, anchor: Tensor | None = None) -> Filtered:
        del valid, anchor
        centre = next(turn)
        # What mask_logits() gets is the centre itself.
        return Filtered(near(x, centre), torch.zeros((len(x), 4), dtype=x.dtype), centre.expand(len(x), 1, 2), None)

    model.filter = said  # type: ignore[method-assign, assignment]  # a network that is known
    model.mask_logits = lambda x, summary, anchor: near(x, summary)  # type: ignore[method-assign]  # noqa: ARG005  (so is this)
    return model


LINE = torch.tensor([[0.0, 0.0]] * 3 + [[10.0, 0.0]] * 5 + [[20.0, 0.0]] * 4 + [[30.0, 0.0]], dtype=torch.float64)


def test_passes_are_limited_and_uncertain_ones_take_the_likeliest_points() -> None:
    model = taking(make_model(density="none", max_passes=3), LINE[0], LINE[3], LINE[8], LINE[12])
    found = model.cluster(LINE, seeded())
    assert found.n_clusters == 3
    assert (found.labels >= 0).all()
    # Where no point is more likely in than out, those come along that are almost as likely as the likeliest.
    model = taking(make_model(density="none"), LINE[0] + 0.8, LINE[3] - 1.2, LINE[8], LINE[12])
    found = model.cluster(LINE, seeded())
    assert found.labels.tolist() == [2] * 3 + [0] * 5 + [1] * 4 + [3]
    assert found.n_clusters == 4


def test_faithful_leftovers_join_the_first_cluster() -> None:
    model = taking(make_model(decoding="faithful"), LINE[0], LINE[3])
    found = model.cluster(LINE, seeded())
    assert found.labels.tolist() == [0] * 3 + [1] * 5 + [0] * 5  # what the first pass took, and what none did
    share = found.extras["log_share"].exp()
    torch.testing.assert_close(share, torch.tensor([8 / 13, 5 / 13], dtype=torch.float64))


def test_gaussians_are_refined() -> None:
    """Two passes that cut one group in halves, and one of a group far away, come out as two clusters."""
    noise = torch.randn((200, 2), generator=seeded(), dtype=torch.float64)
    x = torch.cat([noise, 20.0 + noise[:80]])
    means = torch.tensor([[-0.7, 0.0], [0.7, 0.0], [19.0, 21.0]], dtype=torch.float64)
    raw = torch.cat([means, torch.ones_like(means).expm1().log()], dim=1)
    turn = iter(range(3))
    parts = [x[:, 0] < 0, (x[:, 0] >= 0) & (x[:, 0] < 10), x[:, 0] > 10]

    def said(shown: Tensor, valid: Tensor | None, anchor: Tensor | None = None) -> Filtered:
        del valid, anchor
        place = next(turn, None)
        if place is None:  # at the second look, each cluster is one
            alone = len(shown)
            return Filtered(torch.ones(shown.shape[:2]), raw[:alone], torch.zeros((alone, 1, 16)), None)
        taken = (shown.unsqueeze(2) == x[parts[place]]).all(dim=3).any(dim=2)
        return Filtered(torch.where(taken, 1.0, -1.0), raw[place : place + 1], torch.zeros((1, 1, 16)), None)

    model = make_model()
    model.filter = said  # type: ignore[method-assign, assignment]  # a network that is known
    found = model.cluster(x, seeded())
    assert found.labels.tolist() == [0] * 200 + [1] * 80
    torch.testing.assert_close(found.extras["mean"][1], x[200:].mean(dim=0), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.extras["log_share"].exp()[1].item(), 80 / 280, atol=1e-3, rtol=0)


def test_of_large_sets_some_points_are_filtered_and_all_are_labelled(model: DacModel) -> None:
    batch = blobs(n=30)
    few = type(model)(replace(model.config, max_points=7)).double()
    few.load_state_dict(model.state_dict())
    seen = []
    judge = few.filter
    few.filter = lambda x, *rest: seen.append(x.shape[1]) or judge(x, *rest)  # type: ignore[method-assign, func-returns-value]  # counts
    for found in few.cluster_sets(batch.x, batch.valid, seeded()):
        assert (found.labels >= 0).all()
        assert found.labels.bincount().tolist() == sorted(found.labels.bincount().tolist(), reverse=True)
    assert seen[0] == 7


def test_clusters_missing_from_the_subsample_are_found_later() -> None:
    """A group that is so small that none of it is drawn still becomes a cluster of its own."""
    noise = torch.randn((1000, 2), generator=seeded()).clamp(-2.0, 2.0)
    x = torch.cat([noise, torch.tensor([60.0, 60.0]) + 0.1 * noise[:3]])
    model = build(DacModel, DacConfig(2, **(SMALL | {"max_points": 20})), seeded())
    found = model.cluster(x, seeded())
    assert len(set(found.labels[1000:].tolist())) == 1
    assert not torch.isin(found.labels[:1000], found.labels[1000]).any()


IMAGES: dict[str, Any] = {"encoder": "conv", "image": (1, 16, 16), "channels": 8, "max_points": 25}


def image_sets() -> TaskBatch:
    """Sets of 30 images, the first half of each bright on the left."""
    x = torch.rand((2, 30, 16, 16), generator=seeded(1), dtype=torch.float64)
    x[:, :15, :, :8] += 1.0
    labels = (torch.arange(30) >= 15).long().expand(2, -1)
    return TaskBatch(x.flatten(2), labels, torch.ones((2, 30), dtype=torch.bool))


@pytest.mark.parametrize("density", ["none", "statistician"])
@pytest.mark.parametrize("filtering", ["min-loss", "anchored"])
def test_images_are_encoded(density: Any, filtering: Any) -> None:
    config = DacConfig(256, **(SMALL | IMAGES), density=density, filtering=filtering)
    model = build(DacModel, config, seeded()).double()
    batch = image_sets()
    model.loss(batch, seeded()).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert all(value.grad is not None for value in model.embed.parameters())
    model.eval()
    for x, found in zip(batch.x, model.cluster_sets(batch.x, batch.valid, seeded()), strict=True):
        assert (found.labels >= 0).all()
        assert torch.equal(model.memberships(x, found).argmax(dim=1), found.labels)


def test_every_element_is_encoded_once() -> None:
    settings = SMALL | IMAGES | {"density": "none", "filtering": "anchored", "decoding": "faithful", "max_passes": 4}
    model = firing(build(DacModel, DacConfig(256, **settings), seeded()).eval(), -1.0)
    encoded, passes = [], []
    model.embed.register_forward_hook(lambda _, given, __: encoded.append(given[0].shape[1]))
    judge = model.filter
    model.filter = lambda *given: passes.append(1) or judge(*given)  # type: ignore[method-assign, func-returns-value]  # counts
    batch = image_sets()
    model.cluster_sets(batch.x.float(), batch.valid, seeded())
    assert len(passes) == 4
    assert sum(encoded) == 60
