"""Encoders: texts and images become embeddings; what is loaded, cached and rejected.

The libraries that load networks are extras: most tests use stand-ins for them, and a test of each uses the library
itself where it is installed.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file

from coterie.encoders import Encoder, encode_cached, load_encoder
from coterie.errors import InputError, MissingExtraError, OutputError, WeightsError
from coterie.progress import Progress

Images = npt.NDArray[np.uint8]


def lengths(texts: list[str]) -> npt.NDArray[np.float64]:
    """Encode texts by their length and their number of letters a."""
    return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float64)


def means(images: Images) -> npt.NDArray[np.float64]:
    """Encode images by the mean of each channel."""
    assert images.dtype == np.uint8
    assert images.shape[3] == 3
    colours: npt.NDArray[np.float64] = images.mean(axis=(1, 2), dtype=np.float64)
    return colours


def some_images(n: int = 5, channels: int = 3) -> Images:
    return np.random.default_rng(0).integers(0, 256, (n, 6, 4, channels), dtype=np.uint8)


class Counting:
    """Encodes texts, remembers its batches, and has a name to be cached by."""

    name = "lengths"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, texts: list[str]) -> npt.NDArray[np.float64]:
        self.batches.append(texts)
        return lengths(texts)


# A function as an encoder.


@pytest.mark.parametrize("given", [list, tuple, np.array, lambda texts: np.array(texts, dtype=object)])
def test_texts_are_encoded_in_batches(given: Callable[[list[str]], Any]) -> None:
    texts = [f"{'a' * (i % 7)} {i}" for i in range(600)]
    function, seen = Counting(), list[Progress]()
    encoder = load_encoder(function)
    embeddings = encoder.encode(given(texts), seen.append)
    assert embeddings.dtype == np.float32
    np.testing.assert_array_equal(embeddings, lengths(texts))
    assert [len(batch) for batch in function.batches] == [256, 256, 88]
    assert [(progress.step, progress.steps) for progress in seen] == [(256, 600), (512, 600), (600, 600)]
    assert seen[0].stage == "encoding texts"
    assert (encoder.kind, encoder.name) == ("any", None)
    assert load_encoder(encoder) is encoder


def test_images_are_encoded_in_batches_with_three_channels() -> None:
    images, seen = some_images(100), list[Progress]()
    np.testing.assert_allclose(load_encoder(means).encode(images, seen.append), means(images), rtol=1e-6)
    assert [progress.step for progress in seen] == [64, 100]
    assert seen[0].stage == "encoding images"
    grey = some_images(channels=1)
    for given in (grey, grey[..., 0]):
        np.testing.assert_allclose(load_encoder(means).encode(given), means(grey.repeat(3, axis=3)), rtol=1e-6)


def test_results_may_be_tensors() -> None:
    def encode(texts: list[str]) -> torch.Tensor:
        return torch.tensor(lengths(texts), dtype=torch.bfloat16, requires_grad=True)

    np.testing.assert_array_equal(load_encoder(encode).encode(["banana"]), [[6, 3]])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("one text", "The inputs are 'one text'. Give a list of texts"),
        (3, "The inputs are 3"),
        ([], "no inputs to encode"),
        (["a", None], r"Input 1 is None \(NoneType\), not a text"),
        (["a", float("nan")], r"Input 1 is nan \(float\)"),
        (np.ones((2, 3)), r"Input 0 is .* \(ndarray\)"),
        (some_images() / 255, "type float64. Convert them to uint8"),
        (some_images(channels=3).transpose(0, 3, 1, 2), r"shape \(5, 3, 6, 4\).*channels last"),
        (some_images()[:0], "no inputs"),
        (some_images()[:, :0], r"shape \(5, 0, 4, 3\)"),
    ],
)
def test_unusable_inputs_raise_an_error(inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_encoder(lengths).encode(inputs)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: np.ones(len(texts)), r"returned an array of shape \(256,\) for 256 inputs.*\(256, d\)"),
        (lambda texts: lengths(texts)[1:], r"shape \(255, 2\) for 256 inputs"),
        (lambda texts: np.ones((len(texts), 0)), r"shape \(256, 0\)"),
        (lambda texts: np.ones((len(texts), len(texts))), "44 columns for the inputs from 256 on, but 256 for"),
        (lambda texts: texts, "returned list, which is no array of numbers"),
        (lambda texts: np.where(lengths(texts) == 0, np.nan, 1.0), "missing or infinite for input 290"),
        (lambda texts: np.where(lengths(texts) == 0, 1e300, 1.0), "missing or infinite for input 290"),
    ],
)
def test_unusable_results_raise_an_error(function: Callable[[list[str]], Any], message: str) -> None:
    texts = ["a"] * 290 + [""] + ["a"] * 9
    with pytest.raises(InputError, match=message):
        load_encoder(function).encode(texts)


def test_an_encoder_of_texts_takes_no_images() -> None:
    with pytest.raises(InputError, match="takes texts, but the inputs are images"):
        Encoder(lengths, "text").encode(some_images())
    with pytest.raises(InputError, match="takes images, but the inputs are texts"):
        encode_cached(Encoder(means, "image"), ["a"], None)


# The cache.


def test_equal_inputs_are_encoded_once(tmp_path: Path) -> None:
    texts = ["b", "a", "b", "ba", "a"]
    function = Counting()
    for cache in (None, tmp_path):
        embeddings = encode_cached(load_encoder(function), texts, cache)
        np.testing.assert_array_equal(embeddings, lengths(texts))
    assert function.batches == [["b", "a", "ba"]] * 2
    images = some_images()[[0, 1, 0, 2]]
    np.testing.assert_allclose(encode_cached(load_encoder(means), images, None), means(images), rtol=1e-6)


def test_embeddings_are_cached_by_name_and_content(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "folder"
    function, seen = Counting(), list[Progress]()
    first = encode_cached(load_encoder(function), ["a", "bb"], cache, seen.append)
    np.testing.assert_array_equal(encode_cached(load_encoder(function), ["a", "bb"], str(cache), seen.append), first)
    assert len(function.batches) == len(seen) == 1
    assert len(list(cache.iterdir())) == 1
    for texts in (["bb", "a"], ["a", "bb", "c"], ["ab", "b"]):
        np.testing.assert_array_equal(encode_cached(load_encoder(function), texts, cache), lengths(texts))
    assert len(function.batches) == 4
    function.name = "other"
    encode_cached(load_encoder(function), ["a", "bb"], cache)
    assert len(function.batches) == 5
    assert len(list(cache.iterdir())) == 5


def test_functions_without_a_name_are_not_cached(tmp_path: Path) -> None:
    encode_cached(load_encoder(lengths), ["a"], tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_damaged_files_of_the_cache_are_written_again(tmp_path: Path) -> None:
    texts = ["a", "bb"]
    expected = encode_cached(load_encoder(Counting()), texts, tmp_path)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    encode_cached(load_encoder(Counting()), ["a", "bb", "c"], tmp_path)
    (other,) = (path for path in tmp_path.iterdir() if path != file)
    for damaged in (content[:-3], b"", content[:-1] + b"x", other.read_bytes()):
        file.write_bytes(damaged)
        function = Counting()
        np.testing.assert_array_equal(encode_cached(load_encoder(function), texts, tmp_path), expected)
        assert function.batches == [texts]
        assert file.read_bytes() == content


def test_a_folder_that_cannot_be_created_is_reported_before_encoding(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    function = Counting()
    with pytest.raises(OutputError, match=r"cannot be created: File exists\. Give another folder"):
        encode_cached(load_encoder(function), ["a"], tmp_path / "file")
    assert function.batches == []


# What names an encoder.


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (3, InputError, "The encoder 3 is not known. Give 'sentence-transformers:NAME'"),
        ("minilm", InputError, "'minilm' is neither a folder nor a known name. Give 'sentence-transformers:NAME'"),
        ("timm:", InputError, "'timm:' is neither"),
        ("./minilm", WeightsError, "no folder './minilm' with weights"),
        (Path("/no/such/folder"), WeightsError, "no folder '/no/such/folder'"),
        ("sentence-transformers:./minilm", WeightsError, "no folder './minilm'"),
        ("timm:~/weights", WeightsError, "no folder '~/weights'"),
    ],
)
def test_unknown_names_raise_an_error(spec: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load_encoder(spec)


@pytest.mark.parametrize(
    ("files", "prefix", "message"),
    [
        ({}, "", "has no weights of an encoder that is known. For texts it needs modules.json"),
        ({"config.json": "{}"}, "", "has no weights of an encoder"),
        ({"config.json": '{"architecture": "resnet18"}'}, "", "has no weights of an encoder"),
        ({"config.json": "[1]"}, "", "has no weights of an encoder"),
        ({"config.json": "{"}, "", "cannot be read as JSON"),
        ({"modules.json": "[]"}, "", "has weights as no file. Only safetensors files are read"),
        ({"modules.json": "[]", "pytorch_model.bin": ""}, "", "only as 'pytorch_model.bin', which is pickled"),
        (
            {"modules.json": "[]", "model.safetensors": "", "2_Dense/pytorch_model.bin": ""},
            "",
            "only as 'pytorch_model.bin'",
        ),
        ({"modules.json": "[]", "onnx/model.safetensors": ""}, "", "has weights as no file"),
        (
            {"modules.json": '[{"type": "custom.Transformer"}]', "model.safetensors": ""},
            "",
            r"needs code of its own \('custom.Transformer'\), which is not run",
        ),
        (
            {"config.json": '{"model_type": "bert"}', "tokenizer.json": "", "model.safetensors": ""},
            "timm:",
            "weights for sentence-transformers, not timm. Use 'sentence-transformers:...'",
        ),
        (
            {"config.json": '{"architecture": "resnet18"}', "model.safetensors": ""},
            "sentence-transformers:",
            "weights for timm, not sentence-transformers. Use 'timm:...'",
        ),
    ],
)
def test_unusable_folders_raise_an_error(tmp_path: Path, files: dict[str, str], prefix: str, message: str) -> None:
    write_files(tmp_path, files)
    with pytest.raises(WeightsError, match=message):
        load_encoder(f"{prefix}{tmp_path}")


def write_files(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("spec", "module", "line"),
    [
        ("sentence-transformers:all-MiniLM-L6-v2", "huggingface_hub", "pip install 'coterie[text]'"),
        ("timm:resnet18", "timm", "pip install 'coterie[vision]'"),
        ("timm:timm/resnet18.a1_in1k", "huggingface_hub", "pip install 'coterie[vision]'"),
    ],
)
def test_a_missing_extra_names_the_line_to_run(
    monkeypatch: pytest.MonkeyPatch, spec: str, module: str, line: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    library = spec.partition(":")[0]
    with pytest.raises(MissingExtraError) as raised:
        load_encoder(spec)
    assert str(raised.value) == f"The encoder {spec!r} needs {library}, which is not installed. Run: {line}."


# Stand-ins for the libraries.


def text_folder(folder: Path) -> Path:
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    write_files(folder, {"modules.json": json.dumps(modules), "config.json": '{"model_type": "bert"}'})
    save_file({"scale": torch.tensor([2.0])}, folder / "model.safetensors")
    return folder


def image_folder(folder: Path, **changes: Any) -> Path:
    settings: dict[str, Any] = {
        "input_size": [3, 8, 8],
        "interpolation": "bicubic",
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
    }
    settings |= {"url": "https://example.org/weights.pth", "custom_load": True, "num_classes": 7}
    config = {"architecture": "tiny", "num_classes": 7, "model_args": {"width": 4}, "pretrained_cfg": settings}
    write_files(folder, {"config.json": json.dumps(config | changes)})
    save_file({"scale": torch.tensor([2.0])}, folder / "model.safetensors")
    return folder


class FakeSentenceTransformer:
    """Encodes texts by their lengths, times a weight that is read from the folder."""

    arguments: dict[str, Any]

    def __init__(self, folder: str, **arguments: Any) -> None:
        type(self).arguments = arguments
        self.scale = float(load_file(Path(folder) / "model.safetensors")["scale"])

    def encode(self, texts: list[str], **arguments: Any) -> npt.NDArray[np.float64]:
        assert arguments == {"show_progress_bar": False, "convert_to_numpy": True}
        return self.scale * lengths(texts)


class FakeNetwork(torch.nn.Module):
    """Encodes images by the mean of each channel, times a weight that is read from the folder."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.settings = settings
        self.scale = load_file(settings["file"])["scale"]
        self.classes = settings["num_classes"]

    def reset_classifier(self, classes: int) -> None:
        self.classes = classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not self.training
        assert self.classes == 0
        assert x.shape[1:] == tuple(self.settings["input_size"])
        result: torch.Tensor = self.scale * x.mean(dim=(2, 3))
        return result


@pytest.fixture
def progress_bars(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install a stand-in for sentence-transformers; return what is done to the progress bars of transformers."""
    done: list[str] = []
    logging: Any = ModuleType("transformers.utils.logging")
    logging.is_progress_bar_enabled = lambda: True
    logging.disable_progress_bar = lambda: done.append("disable")
    logging.enable_progress_bar = lambda: done.append("enable")
    library: Any = ModuleType("sentence_transformers")
    library.SentenceTransformer = FakeSentenceTransformer
    monkeypatch.setitem(sys.modules, "transformers.utils.logging", logging)
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    return done


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Install a stand-in for timm; return the arguments that networks are created with."""
    arguments: list[dict[str, Any]] = []

    def create_model(architecture: str, **given: Any) -> FakeNetwork:
        arguments.append({"architecture": architecture, **given})
        return FakeNetwork(given["pretrained_cfg_overlay"])

    def get_pretrained_cfg(name: str) -> Any:
        if name.endswith(".wrong"):
            raise RuntimeError("Invalid pretrained tag (wrong).")
        return {"tiny": SimpleNamespace(hf_hub_id="timm/tiny.in1k"), "url": SimpleNamespace(hf_hub_id=None)}.get(name)

    library: Any = ModuleType("timm")
    library.create_model = create_model
    library.get_pretrained_cfg = get_pretrained_cfg
    library.data = SimpleNamespace(resolve_model_data_config=lambda model: model.settings)
    monkeypatch.setitem(sys.modules, "timm", library)
    return arguments


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Install a stand-in for the hub, which has one encoder of each kind; return the names that are downloaded."""
    names: list[str] = []

    def snapshot_download(name: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        names.append(name)
        assert not {"*.bin", "*.py", "*"} & set(allow_patterns)
        assert "onnx/*" in ignore_patterns
        if "MiniLM" in name:
            return str(text_folder(tmp_path / "texts"))
        if "tiny" in name:
            return str(image_folder(tmp_path / "images"))
        raise OSError("404 Not Found.\nRequest ID: 1")

    library: Any = ModuleType("huggingface_hub")
    library.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    return names


@pytest.mark.parametrize("prefix", ["", "sentence-transformers:"])
def test_texts_are_encoded_by_a_network_from_a_folder(progress_bars: list[str], tmp_path: Path, prefix: str) -> None:
    spec = f"{prefix}{text_folder(tmp_path / 'weights')}"
    encoder = load_encoder(spec)
    assert (encoder.kind, encoder.name) == ("text", spec)
    np.testing.assert_array_equal(encoder.encode(["banana", "fig"]), [[12, 6], [6, 0]])
    assert FakeSentenceTransformer.arguments == {
        "device": None,
        "trust_remote_code": False,
        "local_files_only": True,
        "model_kwargs": {"use_safetensors": True},
    }
    assert progress_bars == ["disable", "enable"]
    load_encoder(spec, device="cpu")
    assert FakeSentenceTransformer.arguments["device"] == "cpu"
    with pytest.raises(InputError, match="takes texts"):
        encoder.encode(some_images())


@pytest.mark.usefixtures("progress_bars")
def test_a_folder_without_modules_is_recognised_by_its_tokenizer(tmp_path: Path) -> None:
    folder = text_folder(tmp_path)
    (folder / "modules.json").unlink()
    with pytest.raises(WeightsError, match="has no weights of an encoder"):
        load_encoder(folder)
    (folder / "vocab.txt").write_text("[PAD]\n")
    assert load_encoder(folder).kind == "text"


@pytest.mark.usefixtures("progress_bars")
def test_other_weights_in_the_same_folder_have_another_cache(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "weights")
    for _ in range(2):
        np.testing.assert_array_equal(encode_cached(load_encoder(folder), ["fig"], tmp_path / "cache"), [[6, 0]])
    save_file({"scale": torch.tensor([5.0])}, folder / "model.safetensors")
    np.testing.assert_array_equal(encode_cached(load_encoder(folder), ["fig"], tmp_path / "cache"), [[15, 0]])
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_images_are_encoded_by_a_network_from_a_folder(created: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = image_folder(tmp_path)
    encoder = load_encoder(f"timm:{folder}")
    assert (encoder.kind, encoder.name) == ("image", f"timm:{folder}")
    flat = np.broadcast_to(np.array([0, 51, 255], dtype=np.uint8), (2, 16, 12, 3))
    np.testing.assert_allclose(encoder.encode(flat), [[-4.0, -2.4, 4.0]] * 2, atol=1e-5)
    overlay = created[0].pop("pretrained_cfg_overlay")
    assert created[0] == {"architecture": "tiny", "pretrained": True, "width": 4}
    assert overlay["file"] == str(folder / "model.safetensors")
    assert overlay["custom_load"] is False
    assert overlay["num_classes"] == 7
    assert "url" not in overlay
    with pytest.raises(InputError, match="takes images"):
        encoder.encode(["a"])


def test_early_configurations_of_timm_are_read(created: list[dict[str, Any]], tmp_path: Path) -> None:
    config = {"architecture": "tiny", "num_classes": 5, "input_size": [3, 4, 4], "interpolation": "bilinear"}
    config |= {"mean": [0.0] * 3, "std": [1.0] * 3}
    folder = image_folder(tmp_path)
    (folder / "config.json").write_text(json.dumps(config))
    white = np.full((1, 4, 4), 255, dtype=np.uint8)
    np.testing.assert_allclose(load_encoder(folder, device="cpu").encode(white), [[2.0, 2.0, 2.0]])
    assert created[0]["pretrained_cfg_overlay"]["num_classes"] == 5


@pytest.mark.usefixtures("created")
def test_networks_that_do_not_fit_raise_an_error(tmp_path: Path) -> None:
    grey = {"input_size": [1, 8, 8], "interpolation": "bilinear", "mean": [0.5], "std": [0.5], "num_classes": 2}
    with pytest.raises(WeightsError, match="images with 1 channels"):
        load_encoder(image_folder(tmp_path, pretrained_cfg=grey))
    save_file({"other": torch.ones(1)}, image_folder(tmp_path) / "model.safetensors")
    with pytest.raises(WeightsError, match=r"cannot be loaded: 'scale'\. Check the folder"):
        load_encoder(tmp_path)


@pytest.mark.usefixtures("progress_bars", "created")
def test_names_are_downloaded_from_the_hub(hub: list[str], tmp_path: Path) -> None:
    for spec in ("sentence-transformers:all-MiniLM-L6-v2", "sentence-transformers:someone/MiniLM"):
        encoder = load_encoder(spec)
        np.testing.assert_array_equal(encode_cached(encoder, ["fig"], tmp_path / "cache"), [[6, 0]])
        assert encoder.name == spec
    assert [load_encoder(spec).kind for spec in ("timm:tiny", "timm:someone/tiny")] == ["image", "image"]
    assert hub == ["sentence-transformers/all-MiniLM-L6-v2", "someone/MiniLM", "timm/tiny.in1k", "someone/tiny"]


@pytest.mark.usefixtures("created", "hub")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "sentence-transformers:nothing",
            r"'sentence-transformers/nothing' cannot be downloaded from huggingface.co: 404 Not Found. Check the name",
        ),
        ("timm:tiny.wrong", r"timm has no weights 'tiny.wrong': Invalid pretrained tag \(wrong\). See"),
        ("timm:url", "timm has no weights 'url' on huggingface.co"),
        ("timm:nothing", "timm has no weights 'nothing' on huggingface.co"),
    ],
)
def test_names_that_the_hub_lacks_raise_an_error(spec: str, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        load_encoder(spec)


def test_a_library_that_does_not_fit_torch_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path / "code")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(MissingExtraError, match=r"timm cannot be imported: operator .*Run: pip install 'torch<2.14'"):
        load_encoder(image_folder(tmp_path / "weights"))


# The libraries themselves, with small random networks.

third_party = pytest.mark.filterwarnings("ignore")  # their warnings are not ours


@third_party
def test_sentence_transformers_loads_a_folder(tmp_path: Path) -> None:
    reason = "sentence-transformers is not installed: pip install 'coterie[text]'"
    pytest.importorskip("sentence_transformers", reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "banana", "fig", "ripe"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    with torch.random.fork_rng():
        network = transformers.BertModel(config).eval()
    network.save_pretrained(tmp_path)
    transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, device="cpu")
    embeddings = encoder.encode(["ripe fig", "banana"])
    tokens = torch.tensor([[2, 7, 6, 3]])
    with torch.inference_mode():
        expected = network(tokens).last_hidden_state.mean(dim=1).numpy()
    np.testing.assert_allclose(embeddings[:1], expected, atol=1e-5)
    assert embeddings.shape == (2, 8)


@third_party
def test_timm_loads_a_folder(tmp_path: Path) -> None:
    try:
        import timm  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  (an extra)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"timm is not installed, or does not fit torch ({error}): pip install 'coterie[vision]'")
    with torch.random.fork_rng():
        network = timm.create_model("test_resnet", pretrained=False).eval()
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    settings = {name: network.pretrained_cfg[name] for name in ("input_size", "mean", "std", "interpolation")}
    config = {"architecture": "test_resnet", "num_classes": network.num_classes, "pretrained_cfg": settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    white = np.full((1, 20, 20), 255, dtype=np.uint8)
    pixels = (1 - torch.tensor(settings["mean"])) / torch.tensor(settings["std"])
    x = pixels.reshape(1, 3, 1, 1).expand(1, *settings["input_size"])
    with torch.inference_mode():
        expected = network.forward_head(network.forward_features(x), pre_logits=True).numpy()
    np.testing.assert_allclose(load_encoder(tmp_path, device="cpu").encode(white), expected, atol=1e-4)
    save_file({"conv1.weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="cannot be loaded"):
        load_encoder(tmp_path)
