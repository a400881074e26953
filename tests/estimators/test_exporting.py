"""Predictions of estimators in ONNX files: onnxruntime returns what `predict` returns."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import inducing
from inducing.prediction.module import ModelModule, PredictionModule
from inducing.prediction.running import draw_functions

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (40, 3))
Y = 100 + 20 * np.sin(X[:, 0]) + RANDOM.normal(size=40)
NEW = RANDOM.normal(3.0, 3.0, (25, 3))
BNN, DGP = inducing.BNNRegressor, inducing.DeepGPRegressor
SMALL = {"max_steps": 5, "n_samples": 7, "random_state": 0}


def run(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True)), session.get_modelmeta().custom_metadata_map


def test_regression_with_two_targets(tmp_path, monkeypatch):
    # enough for these tolerances, and the time to export grows with it
    monkeypatch.setattr("inducing.prediction.module.DIVISIONS", 4)
    targets = np.stack([Y, np.cos(X[:, 1])], 1)
    estimator = BNN(hidden=[5], **SMALL).fit(X, targets)
    levels, scale = [0.001, 0.5, 0.99], targets.std(0)
    estimator.export(tmp_path / "model.onnx", quantiles=levels)
    found, described = run(tmp_path / "model.onnx", NEW)
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_allclose(found["mean"] / scale, mean / scale, atol=1e-5)
    np.testing.assert_allclose(found["std"] / scale, std / scale, atol=1e-5)
    np.testing.assert_allclose(found["quantiles"] / scale, estimator.predict_quantiles(NEW, levels) / scale, atol=1e-5)
    distribution = estimator.predict_distribution(NEW)
    np.testing.assert_allclose(found["aleatoric_std"], distribution.aleatoric.sqrt().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found["epistemic_std"], distribution.epistemic.sqrt().numpy(), rtol=1e-5)
    assert json.loads(described["quantiles"]) == levels


def test_a_target_on_a_log_scale(tmp_path):
    estimator = BNN(hidden=[5], target_transform="log", **SMALL).fit(X, Y)
    estimator.export(tmp_path / "model.onnx", quantiles=())
    found, _ = run(tmp_path / "model.onnx", NEW)
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["std"], std, rtol=1e-5)


def test_quantiles_on_a_log_scale():
    """Of the module that is exported; exporting them takes long."""
    estimator = BNN(hidden=[5], target_transform="log", **SMALL).fit(X, Y)
    functions = draw_functions(estimator.network_, estimator.likelihood_, estimator.n_samples, estimator.seed_)
    scale = estimator.targets_.to_original_scale(estimator.likelihood_)
    model = ModelModule(estimator.inputs_, functions, *scale)
    *_, found = PredictionModule([model], [0.1, 0.9], squeeze=True)(torch.from_numpy(NEW))
    np.testing.assert_allclose(found.detach().numpy(), estimator.predict_quantiles(NEW, [0.1, 0.9]), rtol=1e-5)


def test_a_deep_gp(tmp_path):
    estimator = DGP(kernel="matern52", **SMALL).fit(X, Y)
    estimator.export(tmp_path / "model.onnx", quantiles=())
    found, _ = run(tmp_path / "model.onnx", NEW)
    mean, std = estimator.predict(NEW, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["std"], std, rtol=1e-5)
    assert "quantiles" not in found


def test_a_blend(tmp_path, monkeypatch):
    monkeypatch.setattr("inducing.prediction.module.DIVISIONS", 4)
    candidates = {
        "bnn": BNN(hidden=[5], max_steps=5, n_samples=4),
        "trees": inducing.TreeBNNRegressor([5], max_steps=5),
    }
    model = inducing.AutoRegressor(candidates, weights={"bnn": 3, "trees": 1}, random_state=0).fit(X, Y)
    model.export(tmp_path / "model.onnx", quantiles=[0.5])
    found, described = run(tmp_path / "model.onnx", NEW)
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["std"], std, rtol=1e-5)
    np.testing.assert_allclose(found["quantiles"], model.predict_quantiles(NEW, [0.5]), rtol=1e-5)
    found, _ = run(tmp_path / "model.onnx", np.where(np.arange(25)[:, None] == 3, np.nan, NEW))
    assert np.flatnonzero(np.isnan(found["quantiles"][0])).tolist() == [3]
    np.testing.assert_allclose(found["mean"][4:], mean[4:], rtol=1e-5)
    assert json.loads(described["quantiles"]) == [0.5]


def test_a_blend_with_and_without_a_log_scale_has_no_quantiles(tmp_path):
    candidates = {name: BNN([5], target_transform=name, **SMALL) for name in ("log", "none")}
    weights = {"log": 1, "none": 1}
    model = inducing.AutoRegressor(candidates, weights=weights, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="with and without a log scale"):
        model.export(tmp_path / "model.onnx", quantiles=[0.5])
    model.export(tmp_path / "model.onnx")
    found, _ = run(tmp_path / "model.onnx", NEW)
    assert "quantiles" not in found
    np.testing.assert_allclose(found["mean"], model.predict(NEW), rtol=1e-5)


def test_models_with_different_encodings_are_not_exported_as_one(tmp_path):
    tables = [pd.DataFrame({"a": list(texts) * 10, "b": X[:, 0]}) for texts in ("uvwu", "vwxv")]
    schemas = [inducing.Schema.of(table) for table in tables]
    candidates = {str(place): BNN([5], schema=schema, **SMALL) for place, schema in enumerate(schemas)}
    model = inducing.AutoRegressor(candidates, weights={"0": 1, "1": 1}, random_state=0)
    with pytest.warns(inducing.TableWarning, match="none of the known"):
        model.fit(tables[0], Y)
    with pytest.raises(ValueError, match="encode the columns differently"):
        model.export(tmp_path / "model.onnx")


def test_a_blend_of_classifiers(tmp_path):
    candidates = {"bnn": inducing.BNNClassifier([5], **SMALL), "dgp": inducing.DeepGPClassifier(**SMALL)}
    weights = {"bnn": 0.5, "dgp": 0.5}
    model = inducing.AutoClassifier(candidates, weights=weights, random_state=0).fit(X, Y > 100)
    model.export(tmp_path / "model.onnx")
    found, _ = run(tmp_path / "model.onnx", NEW)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), rtol=1e-5)


def test_counts_have_no_quantiles(tmp_path):
    model = BNN(hidden=[5], likelihood="negative-binomial", **SMALL).fit(X, np.round(Y))
    with pytest.raises(ValueError, match="NegativeBinomial"):
        model.export(tmp_path / "model.onnx", quantiles=[0.5])
    model.export(tmp_path / "model.onnx")
    found, _ = run(tmp_path / "model.onnx", NEW)
    np.testing.assert_allclose(found["mean"], model.predict(NEW), rtol=1e-5)
    assert "quantiles" not in found


def test_classes_of_a_table(tmp_path):
    table = pd.DataFrame({"size": X[:, 0], "kind": np.where(X[:, 1] > 3, "a", "b")})
    model = inducing.BNNClassifier(hidden=[5], **SMALL).fit(table, np.where(Y > 100, "high", "low"))
    model.export(tmp_path / "model.onnx")
    found, described = run(tmp_path / "model.onnx", model.schema_.encode(table))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(table), atol=1e-5)
    assert json.loads(described["classes"]) == ["high", "low"]
    assert json.loads(described["inputs"]) == list(model.schema_.encoded_names)


def test_a_program_of_torch_export(tmp_path):
    model = BNN(hidden=[5], **SMALL).fit(X, Y)
    model.export(tmp_path / "model.pt2", quantiles=())
    mean, *_ = torch.export.load(tmp_path / "model.pt2").module()(torch.as_tensor(NEW))
    np.testing.assert_allclose(mean.numpy(), model.predict(NEW))


def test_a_server_needs_only_onnxruntime_and_numpy(tmp_path):
    model = BNN(hidden=[5], **SMALL).fit(X, Y)
    model.export(tmp_path / "model.onnx", quantiles=())
    np.save(tmp_path / "x.npy", NEW)
    script = """
import sys
sys.modules |= dict.fromkeys(["torch", "inducing", "onnx", "scipy", "sklearn", "pandas"])
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
mean, std = session.run(["mean", "std"], {"x": np.load("x.npy")})
np.save("predictions.npy", [mean, std])
"""
    subprocess.run([sys.executable, "-I", "-c", script], cwd=tmp_path, check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "predictions.npy"), model.predict(NEW, return_std=True), rtol=1e-5)


def test_bad_arguments(tmp_path):
    with pytest.raises(NotFittedError):
        BNN().export(tmp_path / "model.onnx")
    model = BNN(hidden=[5], **SMALL).fit(X, Y)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.export(tmp_path / "model.onnx", quantiles=[0.5, 95])
    assert not list(tmp_path.iterdir())
