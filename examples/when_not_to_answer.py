"""How many answers to keep so that few are wrong: chosen on the sources, tried elsewhere."""

import bayesdg as bd

digits = bd.load_dataset("rotated-digits")
settings = bd.preset("default", method="bil").replace(
    {"model.backbone": "small-cnn", "training.steps": 300, "training.learning_rate": 1e-2}
)
run = bd.train(digits, settings)
fit = run.calibrate(digits, temperature=True, risk=0.01)  # sees source validation alone
assert fit.rejection is not None
print(f"temperature {fit.temperature:.2f}; answers with an entropy above "
      f"{fit.rejection.threshold:.2f} nats are left to a person")  # fmt: skip

for name in ("45", "90"):
    images = digits.domains[name].test
    answer = run.predict(images.images)
    kept = answer.entropy <= fit.rejection.threshold
    wrong = answer.labels != images.labels.numpy()
    print(f"{name:>3} degrees: {wrong.mean():6.1%} wrong of all; "
          f"{kept.mean():6.1%} kept, {wrong[kept].mean():6.1%} of these wrong")  # fmt: skip
