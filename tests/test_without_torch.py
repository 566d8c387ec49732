"""The default, its command and its report work where torch is not installed; other methods name the line to run."""

import subprocess
import sys
from pathlib import Path

# A process in which torch and what needs it cannot be imported, whether or not they are installed.
_WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "zuko"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
_DEFAULT = """
import numpy as np

import coterie
from coterie import Coterie
from coterie.__main__ import main

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3)) + 9.0 * (np.arange(90) % 3)[:, None]
model = Coterie(effort="fast", random_state=0).fit(X)
assert model.n_clusters_ == 3
model.save("model.safetensors")
for each in (model, Coterie.load("model.safetensors"), coterie.load("model.safetensors")):
    np.testing.assert_array_equal(each.predict(X), model.labels_)
    np.testing.assert_array_equal(each.predict_proba(X), model.probabilities_)
np.savetxt("rows.csv", X, delimiter=",", header="a,b,c", comments="")
cluster = ["cluster", "rows.csv", "--report", "page.html", "--save", "mine.safetensors", "-o", "labels.csv"]
assert main(cluster) == 0
assert main(["predict", "mine.safetensors", "rows.csv", "-o", "again.csv"]) == 0
assert len(coterie.cluster(X, effort="fast").summary()) == 3
coterie.report(model, X, "python.html")
model.plot().figure.savefig("map.png")
assert "torch" not in sys.modules
"""
_OTHERS = """
from pathlib import Path

import coterie
from coterie.__main__ import main
from coterie.checkpoint import save_checkpoint
from coterie.errors import MissingExtraError

Path("rows.csv").write_text("a,b\\n" + "1,2\\n3,5\\n" * 20)
save_checkpoint("model.safetensors", {}, {"method": "clam", "encoder": {}}, force=False)
for name in ("AMCP", "AttentionBasedClustering", "ClAM", "DAC", "TCC"):
    try:
        getattr(coterie, name)
    except MissingExtraError as error:
        assert str(error) == f"{name} needs torch, which is not installed. Run: pip install 'coterie[torch]'.", error
    else:
        raise AssertionError(name)
assert main(["predict", "model.safetensors", "rows.csv"]) == 2
assert main(["learn", "rows.csv"]) == 2
for method, number in (("clam", "2"), ("tcc", "2"), ("dac", "auto"), ("amcp", "auto"), ("attention-based", "auto")):
    assert main(["cluster", "rows.csv", "-k", number, "--method", method]) == 2
"""


def run(script: str, folder: Path) -> list[str]:
    """Run a script without torch; return the lines of its standard error."""
    command = [sys.executable, "-W", "error", "-c", _WITHOUT_TORCH + script]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_the_default_its_command_and_its_report_need_no_torch(tmp_path: Path) -> None:
    run(_DEFAULT, tmp_path)
    assert "</html>" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "labels.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()


def test_other_methods_name_the_line_to_run(tmp_path: Path) -> None:
    methods = ("clam", "tcc", "dac", "amcp", "attention-based")
    asked_for = ("The method 'clam'", "coterie learn", *(f"The method {method!r}" for method in methods))
    line = "coterie: {} needs torch, which is not installed. Run: pip install 'coterie[torch]'."
    assert run(_OTHERS, tmp_path) == [line.format(each) for each in asked_for]
